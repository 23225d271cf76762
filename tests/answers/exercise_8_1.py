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
    "wrong-times",
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
