"""Answers to 8.1: where a step's time goes."""

from answers.entries import Bank

bank = Bank(
    "8.1",
    {
        "8.1": """
times = {cause: 0.0 for cause in CAUSES}  # start
moments = sorted({t for span in spans for t in (span.begin, span.end)})  # edges
for first, last in zip(moments, moments[1:]):  # pieces
    running = {span.what for span in spans if span.begin <= first and last <= span.end}  # running
    for cause in CAUSES:  # order
        if cause in running:
            break
    else:
        cause = "launch"  # rest
    times[cause] += last - first  # add
return times  # result
""",
    },
)

UNION = """
def union(*kinds):
    moments = sorted({t for span in spans for t in (span.begin, span.end)})
    return {
        (a, b) for a, b in pairwise(moments)
        if any(s.what in kinds and s.begin <= a and b <= s.end for s in spans)
    }
def length(pieces):
    return float(sum(b - a for a, b in pieces))
compute, communication, waiting = union("compute"), union("communication"), union("input")
step = max(s.end for s in spans) - min(s.begin for s in spans)
times = {
    "compute": length(compute),
    "communication": length(communication - compute),
    "input": length(waiting - compute - communication),
}
return times | {"launch": step - sum(times.values())}
"""

bank.right("sets of pieces", whole={"8.1": UNION})
bank.right(
    "middles of the pieces",
    running="middle = (first + last) / 2\nrunning = {s.what for s in spans if s.begin < middle < s.end}",
)
bank.right("whole numbers to begin with", start="times = {cause: 0 for cause in CAUSES}")

bank.wrong(
    "spans-added",
    "the spans' lengths are added up",
    whole={
        "8.1": """
times = dict.fromkeys(CAUSES, 0.0)
for span in spans:
    times[span.what] += span.end - span.begin
return times
"""
    },
)
bank.wrong(
    "overlap-counted-twice",
    "each kind by itself",
    whole={
        "8.1": """
times = {}
for cause in CAUSES:
    mine = sorted((s.begin, s.end) for s in spans if s.what == cause)
    times[cause], until = 0.0, 0.0
    for begin, end in mine:
        times[cause] += max(0.0, end - max(begin, until))
        until = max(until, end)
return times
"""
    },
)
bank.wrong(
    "communication-before-compute",
    "communication before compute",
    order="for cause in ('communication', 'compute', 'input', 'launch'):",
)
bank.wrong(
    "input-before-kernels",
    "input before the kernels",
    order="for cause in ('input', 'compute', 'communication', 'launch'):",
)
bank.wrong(
    "launch-before-kernels",
    "launches before the kernels",
    order="for cause in ('launch', 'compute', 'communication', 'input'):",
)
bank.wrong("gaps-left-out", "gaps count for nobody", rest="continue")
bank.wrong("gaps-as-input", "gaps count as input", rest="cause = 'input'")
bank.wrong(
    "counted-from-zero",
    "the step begins at zero",
    edges="moments = sorted({0.0} | {t for span in spans for t in (span.begin, span.end)})",
)
bank.wrong(
    "shares-returned",
    "shares in place of microseconds",
    result="return {cause: t / sum(times.values()) for cause, t in times.items()}",
)
bank.wrong("not-in-microseconds", "milliseconds", add="times[cause] += (last - first) / 1000")
bank.wrong(
    "cause-missing",
    "only the causes that there were",
    start="from collections import defaultdict\ntimes = defaultdict(float)",
    result="return dict(times)",
)
bank.wrong("no-times", "the name of the bottleneck", result="return max(times, key=times.get)")
bank.wrong("no-times", "nothing is returned", result="")
bank.wrong(
    "touching-spans-counted",
    "spans that only touch a piece count too",
    running="running = {span.what for span in spans if span.begin <= last and first <= span.end}",
)
bank.wrong(
    "launch-before-input",
    "launches before the wait for input",
    order="for cause in ('compute', 'communication', 'launch', 'input'):",
)
bank.wrong(
    "first-begun-first",
    "the span that began first",
    whole={
        "8.1": """
times = dict.fromkeys(CAUSES, 0.0)
ordered = sorted(spans, key=lambda span: (span.begin, span.end))
for first, last in pairwise(sorted({t for span in spans for t in (span.begin, span.end)})):
    cause = next((span.what for span in ordered if span.begin <= first and last <= span.end), "launch")
    times[cause] += last - first
return times
"""
    },
)
bank.wrong(
    "step-cut-short",
    "the step ends with the span that begins last",
    edges="stop = max(spans, key=lambda span: span.begin).end\n"
    "moments = sorted({min(t, stop) for span in spans for t in (span.begin, span.end)})",
)
bank.wrong(
    "whole-microseconds",
    "a loop over whole microseconds",
    edges="moments = range(int(min(span.begin for span in spans)), int(max(span.end for span in spans)) + 1)",
    running="running = {span.what for span in spans if span.begin <= first < span.end}",
)
bank.wrong(
    "whole-microseconds",
    "times rounded",
    result="return {cause: round(time) for cause, time in times.items()}",
)
bank.wrong(
    "touching-spans-counted",
    "what ends where the piece begins",
    slow=True,
    running="running = {span.what for span in spans if span.begin <= first <= span.end}",
)
bank.wrong(
    "edges-not-counted",
    "only what begins before the piece and ends after it",
    running="running = {span.what for span in spans if span.begin < first and last < span.end}",
)
bank.wrong(
    "edges-left-out",
    "cut where spans begin",
    edges="moments = sorted({span.begin for span in spans} | {max(span.end for span in spans)})",
)
bank.wrong(
    "edges-left-out",
    "cut where spans end",
    slow=True,
    edges="moments = sorted({span.end for span in spans} | {min(span.begin for span in spans)})",
)
bank.wrong("last-of-causes", "from the last cause on", order="for cause in reversed(CAUSES):")
bank.wrong("last-piece-only", "each piece over the one before", add="times[cause] = last - first")
bank.wrong("pieces-counted", "a count of the pieces", add="times[cause] += 1")
bank.wrong(
    "shares-returned",
    "per cent",
    slow=True,
    result="return {c: 100 * t / sum(times.values()) for c, t in times.items()}",
)
bank.wrong("not-in-microseconds", "seconds", slow=True, add="times[cause] += (last - first) / 1e6")
bank.wrong(
    "wrong-times",
    "edges as they come",
    edges="moments = list({t for span in spans for t in (span.begin, span.end)})",
)
CHOSEN = """
times = dict.fromkeys(CAUSES, 0.0)
for first, last in pairwise(sorted({t for span in spans for t in (span.begin, span.end)})):
    running = [span for span in spans if span.begin <= first and last <= span.end]
    names = [span.what for span in running]
    cause = CHOICE if running else "launch"
    times[cause] += last - first
return times
"""


def chosen(choice: str) -> dict[str, str]:
    return {"8.1": CHOSEN.replace("CHOICE", choice)}


bank.wrong("order-of-the-profile", "the span that the profile has first", whole=chosen("running[0].what"))
bank.wrong("order-of-the-profile", "the span that the profile has last", slow=True, whole=chosen("names[-1]"))
bank.wrong("communication-before-compute", "the first name in the alphabet", slow=True, whole=chosen("min(names)"))
bank.wrong("launch-before-kernels", "the last name in the alphabet", slow=True, whole=chosen("max(names)"))
bank.wrong(
    "communication-before-compute",
    "a table of its own",
    slow=True,
    whole={
        "8.1": "first_of = {'communication': 0, 'compute': 1, 'input': 2, 'launch': 3}\n"
        + chosen("min(names, key=first_of.get)")["8.1"].strip()
    },
)
bank.wrong(
    "wrong-times",
    "the shortest span",
    slow=True,
    whole=chosen("min(running, key=lambda span: span.end - span.begin).what"),
)
bank.right("the first of CAUSES by its place", whole=chosen("min(names, key=CAUSES.index)"))
bank.wrong(
    "gaps-left-out",
    "pieces without a span passed over",
    slow=True,
    running="running = {span.what for span in spans if span.begin <= first and last <= span.end}\n"
    "if not running:\n    continue",
)
SWEEP = """
events = sorted([(s.begin, 1, s.what) for s in spans] + [(s.end, 0, s.what) for s in spans])
times, active = dict.fromkeys(CAUSES, 0.0), dict.fromkeys(CAUSES, 0)
before = events[0][0]
for now, begins, what in events:
    times[next((cause for cause in CAUSES if active[cause]), "launch")] += now - before
    before = now
    NOTE
return times
"""
bank.right("a sweep that counts", whole={"8.1": SWEEP.replace("NOTE", "active[what] += 1 if begins else -1")})
bank.wrong(
    "one-end-ends-all", "a sweep that notes names", whole={"8.1": SWEEP.replace("NOTE", "active[what] = begins")}
)
bank.wrong(
    "spans-added",
    "compute added up, and the rest right",
    slow=True,
    whole={
        "8.1": UNION.replace("length(compute),", "sum(s.end - s.begin for s in spans if s.what == 'compute'),")
    },
)
bank.wrong(
    "overlap-counted-twice",
    "input that communication hides",
    slow=True,
    whole={"8.1": UNION.replace("length(waiting - compute - communication)", "length(waiting - compute)")},
)
bank.wrong(
    "communication-before-compute",
    "the first in the alphabet",
    slow=True,
    whole={
        "8.1": """
times = {cause: 0.0 for cause in CAUSES}
moments = sorted({t for span in spans for t in (span.begin, span.end)})
for first, last in zip(moments[:-1], moments[1:]):
    cause = min((s.what for s in spans if s.begin <= first and s.end >= last), default="launch")
    times[cause] += last - first
return times
"""
    },
)
bank.wrong(
    "times-kept",
    "times that are an attribute of the function",
    start="times = time_by_cause.__dict__.setdefault('times', dict.fromkeys(CAUSES, 0.0))",
)
bank.wrong(
    "times-kept",
    "the spans of all steps in a list of the module",
    slow=True,
    start="times = {cause: 0.0 for cause in CAUSES}\n"
    "ALL = globals().setdefault('ALL', [])\nALL.extend(spans)\nspans = ALL",
)
bank.wrong(
    "result-overwritten",
    "one dict for all steps",
    slow=True,
    start="times = time_by_cause.__dict__.setdefault('times', {})\ntimes.update(dict.fromkeys(CAUSES, 0.0))",
)
MERGED = """
def union(*kinds):
    found = []
    for begin, end in sorted((s.begin, s.end) for s in spans if s.what in kinds):
        if found and begin <= found[-1][1]:
            MORE
        else:
            found.append([begin, end])
    return sum(end - begin for begin, end in found)
busy, gpu = union("compute"), union("compute", "communication")
known = union("compute", "communication", "input")
step = max(s.end for s in spans) - min(s.begin for s in spans)
return {"compute": busy, "communication": gpu - busy, "input": known - gpu, "launch": step - known}
"""
bank.right("merged intervals", whole={"8.1": MERGED.replace("MORE", "found[-1][1] = max(end, found[-1][1])")})
bank.wrong(
    "inner-end-taken",
    "intervals merged up to the last end",
    whole={"8.1": MERGED.replace("MORE", "found[-1][1] = end")},
)
bank.wrong(
    "inner-end-taken",
    "each kind merged by itself, in pairs",
    slow=True,
    whole={
        "8.1": """
whole = []
for kind in CAUSES[:3]:
    first = len(whole)
    for span in sorted((s for s in spans if s.what == kind), key=lambda s: s.begin):
        if len(whole) > first and span.begin <= whole[-1].end:
            whole[-1] = Span(kind, whole[-1].begin, span.end)
        else:
            whole.append(span)
times = dict.fromkeys(CAUSES, 0.0)
for begin, end in pairwise(sorted({edge for s in spans for edge in (s.begin, s.end)})):
    running = [s.what for s in whole if s.begin <= begin and end <= s.end]
    times[next((cause for cause in CAUSES if cause in running), "launch")] += end - begin
return times
"""
    },
)
bank.wrong(
    "wrong-times",
    "a chain of ifs that asks for input before communication",
    slow=True,
    whole={
        "8.1": """
compute = communication = waiting = launch = 0.0
edges = sorted({edge for span in spans for edge in (span.begin, span.end)})
for left, right in pairwise(edges):
    running = {span.what for span in spans if span.begin <= left and right <= span.end}
    length = right - left
    if "compute" in running:
        compute += length
    elif "input" in running:
        waiting += length
    elif "communication" in running:
        communication += length
    else:
        launch += length
return {"compute": compute, "communication": communication, "input": waiting, "launch": launch}
"""
    },
)
COVERED = """
def covered(wanted):
    length, until = 0.0, float("-inf")
    for span in sorted((s for s in spans if s.what in wanted), key=lambda s: s.begin):
        length += max(0.0, span.end - max(span.begin, until))
        until = UNTIL
    return length
whole = max(s.end for s in spans) - min(s.begin for s in spans)
compute, busy, known = covered(CAUSES[:1]), covered(CAUSES[:2]), covered(CAUSES[:3])
return {"compute": compute, "communication": busy - compute, "input": known - busy, "launch": whole - known}
"""
bank.wrong(
    "inner-end-taken",
    "what comes behind an inner span counts again",
    slow=True,
    whole={"8.1": COVERED.replace("UNTIL", "span.end")},
)
bank.right(
    "lengths of what each kind covers, and those before it",
    slow=True,
    whole={"8.1": COVERED.replace("UNTIL", "max(until, span.end)")},
)

MASKS = """
begin = torch.tensor([span.begin for span in spans], dtype=torch.float64)
end = torch.tensor([span.end for span in spans], dtype=torch.float64)
edges = torch.cat([begin, end]).unique()
length, middle = edges.diff(), (edges[:-1] + edges[1:]) / 2
running = (begin[:, None] <= middle) & (middle < end[:, None])
free, times = torch.ones_like(length, dtype=torch.bool), {}
for cause in CAUSES[:-1]:
    named = torch.tensor([span.what == cause for span in spans], dtype=torch.bool)
    taken = free & running[named].any(dim=0)
    times[cause] = length[taken].sum().item()
    free = free & ~taken
times["launch"] = length[free].sum().item()
return times
"""
bank.right("masks over spans and pieces", whole={"8.1": MASKS})
bank.wrong(
    "order-of-the-profile",
    "the first of what is running",
    slow=True,
    whole={
        "8.1": """
out = {cause: 0.0 for cause in CAUSES}
edges = sorted({edge for span in spans for edge in (span.begin, span.end)})
for begin, end in pairwise(edges):
    running = [span for span in spans if span.begin <= begin and end <= span.end]
    cause = running[0].what if running else "launch"
    out[cause if cause in out else "launch"] += end - begin
return out
"""
    },
)
