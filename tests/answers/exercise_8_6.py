"""Answers to 8.6: what was gained, and whether the numbers are the same."""

from answers.entries import Bank

bank = Bank(
    "8.6",
    {
        "8.6a": """
for _ in range(warm_up):  # warm
    step()
seconds = []  # list
for _ in range(steps):  # timed
    synchronize(device)  # before
    start = time.perf_counter()  # start
    step()  # step
    synchronize(device)  # after
    seconds.append(time.perf_counter() - start)  # stop
return statistics.median(seconds)  # median
""",
        "8.6b": """
mine, theirs = first.state_dict(), second.state_dict()  # dicts
differences = torch.stack([(mine[name].double() - theirs[name].double()).abs().max() for name in mine])  # each
return differences.max().item()  # largest
""",
    },
)

bank.right(
    "nanoseconds, divided",
    start="start = time.perf_counter_ns()",
    stop="seconds.append((time.perf_counter_ns() - start) / 1e9)",
)
bank.right("another clock", start="start = time.monotonic()", stop="seconds.append(time.monotonic() - start)")
bank.right("synchronised once before the first", before="", list="seconds = []\nsynchronize(device)")
bank.wrong(
    "one-of-the-middle-two", "the middle of the sorted times", median="return sorted(seconds)[len(seconds) // 2]"
)
bank.wrong(
    "one-of-the-middle-two",
    "torch's median",
    slow=True,
    median="return torch.tensor(seconds, dtype=torch.float64).median().item()",
)
bank.right(
    "all numbers in one",
    each="differences = torch.cat([(mine[n].double() - theirs[n].double()).flatten().abs() for n in mine])",
)
bank.right("amax", largest="return float(differences.amax())")

bank.wrong("not-synchronised", "no synchronisation", before="", after="")
bank.wrong("not-synchronised", "synchronised before only", after="")
bank.wrong("mean-not-median", "the mean", median="return sum(seconds) / len(seconds)")
bank.wrong(
    "warm-up-timed",
    "the first steps are timed too",
    warm="for _ in range(0):",
    timed="for _ in range(warm_up + steps):",
)
bank.wrong(
    "warm-up-timed",
    "a mean with the first steps in it",
    warm="for _ in range(0):",
    timed="for _ in range(warm_up + steps):",
    median="return statistics.mean(seconds)",
)
bank.wrong("other-number-of-steps", "no warm-up", warm="for _ in range(0):")
bank.wrong("other-number-of-steps", "a fixed number of steps", timed="for _ in range(20):")
bank.wrong("fastest-taken", "the fastest step", median="return min(seconds)")
bank.wrong("slowest-taken", "the slowest step", median="return max(seconds)")
bank.wrong("not-divided", "the time of all steps", median="return sum(seconds)")
bank.wrong("not-in-seconds", "milliseconds", median="return 1000 * statistics.median(seconds)")
bank.wrong(
    "timed-as-a-whole",
    "all steps timed at once",
    whole={
        "8.6a": """
for _ in range(warm_up):
    step()
synchronize(device)
start = time.perf_counter()
for _ in range(steps):
    step()
synchronize(device)
return (time.perf_counter() - start) / steps
"""
    },
)
bank.wrong(
    "cpu-time-taken",
    "the time of the process",
    start="start = time.process_time()",
    stop="seconds.append(time.process_time() - start)",
)
bank.wrong(
    "cpu-time-taken",
    "the time of the thread, in nanoseconds",
    start="start = time.thread_time_ns()",
    stop="seconds.append((time.thread_time_ns() - start) / 1e9)",
)
bank.wrong("no-seconds", "all times are returned", median="return seconds")
bank.wrong(
    "sign-counts",
    "no abs",
    each="differences = torch.stack([(mine[n].double() - theirs[n].double()).max() for n in mine])",
)
bank.wrong("not-the-largest", "the mean of the differences", largest="return differences.mean().item()")
bank.wrong("not-the-largest", "the sum of the differences", largest="return differences.sum().item()")
bank.wrong(
    "buffers-left-out",
    "parameters only",
    dicts="mine, theirs = dict(first.named_parameters()), dict(second.named_parameters())",
    largest="return differences.max().item()",
)
bank.wrong(
    "integers-left-out",
    "floating-point numbers only",
    dicts="""
mine = {name: value for name, value in first.state_dict().items() if value.is_floating_point()}
theirs = second.state_dict()
""",
)
bank.wrong("nan-lost", "Python's max()", largest="return max(d.item() for d in differences.flip(0))")
bank.wrong("nan-lost", "NaN replaced by 0", largest="return differences.nan_to_num(0).max().item()")
bank.wrong("equal-models-differ", "a ratio", largest="return 1 + differences.max().item()")
bank.wrong("no-difference", "a tensor is returned", largest="return differences.max()")
bank.wrong("begins-too-early", "the clock read while the warm-up still runs", before="")
bank.wrong(
    "step-left-out",
    "the times between the ends of steps",
    list="ends = []\nsynchronize(device)",
    before="",
    start="",
    stop="ends.append(time.perf_counter())",
    median="return statistics.median(b - a for a, b in pairwise(ends))",
)
bank.wrong("step-left-out", "without the first time", slow=True, median="return statistics.median(seconds[1:])")
bank.wrong(
    "models-changed",
    "the difference in place",
    each="differences = torch.stack([mine[name].sub_(theirs[name]).abs().max().double() for name in mine])",
)
bank.wrong(
    "models-changed",
    "a model turned into double as a whole",
    slow=True,
    dicts="mine, theirs = first.double().state_dict(), second.state_dict()",
)
bank.wrong(
    "bytes-wrap-around",
    "the difference in the tensors' own type",
    each="differences = torch.stack([(mine[name] - theirs[name]).abs().max().double() for name in mine])",
)
bank.wrong(
    "nan-lost",
    "two NaNs taken for equal",
    slow=True,
    each="""
differences = [torch.zeros((), dtype=torch.float64)]
for name in mine:
    a, b = mine[name].double(), theirs[name].double()
    if torch.allclose(a, b, rtol=0, atol=0, equal_nan=True):
        continue
    differences.append((a - b).abs().max())
""",
    largest="return torch.stack(differences).max().item()",
)
bank.wrong(
    "nan-lost",
    "Python's max() in a loop, where a parameter has no NaN",
    slow=True,
    each="""
worst = 0.0
for name in mine:
    difference = (mine[name].double() - theirs[name].double()).abs().max().item()
    worst = max(worst, difference)
if any(p.isnan().any() for model in (first, second) for p in model.parameters()):
    worst = float("nan")
""",
    largest="return worst",
)
bank.wrong(
    "nan-lost",
    "compared with >",
    slow=True,
    each="""
worst = 0.0
for name in mine:
    difference = (mine[name].double() - theirs[name].double()).abs().max().item()
    if difference > worst:
        worst = difference
""",
    largest="return worst",
)
bank.wrong(
    "wrong-time",
    "the device is waited for after every second step only",
    list="seconds = []\nsynchronize(device)",
    before="",
    after="if len(seconds) % 2: synchronize(device)",
)
bank.wrong(
    "digits-lost",
    "compared in float32",
    each="differences = torch.stack([(mine[n].float() - theirs[n].float()).abs().max() for n in mine])",
)
bank.wrong(
    "digits-lost",
    "floating-point numbers in their own type, integers in float32",
    slow=True,
    each="""
differences = [torch.zeros((), dtype=torch.float64)]
for name in mine:
    a, b = mine[name], theirs[name]
    if not a.is_floating_point():
        a, b = a.float(), b.float()
    differences.append((a - b).abs().max().double())
""",
    largest="return torch.stack(differences).max().item()",
)
bank.right(
    "each in its own type, bytes in integers with a sign",
    each="""
differences = []
for name in mine:
    a, b = mine[name], theirs[name]
    if not a.is_floating_point():
        a, b = a.long(), b.long()
    differences.append((a - b).abs().max().double())
differences = torch.stack(differences)
""",
)
bank.right("torch's quantile", median="return torch.tensor(seconds, dtype=torch.float64).quantile(0.5).item()")
bank.right(
    "the middle of the sorted times, or the mean of two",
    slow=True,
    median="""
seconds.sort()
half = len(seconds) // 2
return seconds[half] if len(seconds) % 2 else (seconds[half - 1] + seconds[half]) / 2
""",
)
bank.wrong(
    "times-kept",
    "a list that outlives the call",
    list="seconds = seconds_per_step.__dict__.setdefault('seconds', [])",
)
bank.wrong(
    "differences-kept",
    "differences that outlive the call",
    each="""
kept = largest_difference.__dict__.setdefault("kept", [])
kept.extend((mine[name].double() - theirs[name].double()).abs().max() for name in mine)
differences = torch.stack(kept)
""",
)
bank.wrong(
    "type-left-out",
    "the types that came to mind",
    slow=True,
    dicts="""
theirs = second.state_dict()
known = (torch.float32, torch.float64, torch.int64, torch.uint8)
mine = {name: value for name, value in first.state_dict().items() if value.dtype in known}
""",
)
bank.wrong(
    "other-number-of-steps",
    "the defaults by name",
    slow=True,
    warm="WARM_UP, STEPS = 5, 20\nfor _ in range(WARM_UP):",
    timed="for _ in range(STEPS):",
)
bank.wrong(
    "not-the-largest",
    "the norm of each tensor",
    slow=True,
    each="differences = torch.stack([torch.dist(mine[n].double(), theirs[n].double()) for n in mine])",
)
bank.wrong(
    "not-the-largest",
    "the sum of each tensor",
    slow=True,
    each="differences = torch.stack([(mine[n].double() - theirs[n].double()).abs().sum() for n in mine])",
)
bank.wrong(
    "warm-up-of-its-own",
    "the first five times are left out",
    slow=True,
    warm="for _ in range(0):",
    timed="for _ in range(warm_up + steps):",
    median="return statistics.median(seconds[5:])",
)
bank.wrong(
    "nan-lost",
    "asks the first model for NaN, and not the second",
    slow=True,
    dicts="mine, theirs = first.state_dict(), second.state_dict()\n"
    "if any(value.isnan().any() for value in mine.values()):\n"
    '    return float("nan")\n'
    "worst = 0.0",
    each="for name in mine:\n    apart = (mine[name].double() - theirs[name].double()).abs().max().item()\n"
    "    worst = max(worst, apart)",
    largest="return worst",
)
bank.wrong(
    "cut-after-sorting",
    "sorted first, and the first times left out then",
    slow=True,
    warm="for _ in range(0):",
    timed="for _ in range(warm_up + steps):",
    median="return statistics.median(sorted(seconds)[warm_up:])",
)
bank.wrong(
    "nan-lost",
    "fmax of the differences",
    slow=True,
    each="worst = torch.zeros((), dtype=torch.float64)\n"
    "for name in mine:\n"
    "    worst = torch.fmax(worst, (mine[name].double() - theirs[name].double()).abs().max())",
    largest="return worst.item()",
)
