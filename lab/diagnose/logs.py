"""What a log says: the symptoms in it, and the exception of the rank that failed first."""

import re
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from lab.base.words import one_line
from lab.diagnose.ends import by_itself
from lab.diagnose.finding import Finding
from lab.diagnose.symptoms.entry import Symptom
from lab.diagnose.symptoms.table import SYMPTOMS, brings_about, explains

# "[rank1]: Traceback", "1: Traceback" (srun --label), "[rank1]:[E1128 ...".
_RANK = re.compile(r"^(?:\[rank(\d+)\]:|(\d{1,5}):)\s?")
_FRAME = re.compile(r'^\s+File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>\S+))?')
_EXCEPTION = re.compile(r"^(?P<type>(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit))(?::\s*(?P<text>.*))?$")
# Not where anything began: torchrun's own report, and ranks that have lost the one that failed.
_CONSEQUENCE = re.compile(
    r"ChildFailedError|SignalException|SystemExit|[Cc]onnection (?:closed|reset) by|[Bb]roken ?[Pp]ipe"
    r"|ConnectionReset"
    r"|another rank has ended|Timed out waiting|Timed out after|Watchdog caught|remote process exited"
    r"|ncclRemoteError"
    r"|failed to recv, got 0 bytes|Rendezvous\w+Error|likely closed|pair closure|communicator was aborted|EPIPE"
    r"|monitoredBarrier|Process(?:Exited|Raised)Exception|^KeyboardInterrupt$"
    r"|operations have failed or timed out|DataLoader worker .{0,80}(?:exited unexpectedly|killed by)"
)
# Raised by the system, the driver or a library below PyTorch: the line that called it is not to blame.
_ENVIRONMENT = re.compile(
    r"CUDA(?: driver)? error|NCCL|nccl\w*Error|CUBLAS|CUDNN|cuDNN|CUSOLVER|CUFFT|AcceleratorError|Dist(?:Backend"
    r"|Network|Store)Error"
    r"|[Gg]loo|TCPStore|c10d|Connection\w*Error|TimeoutError|^(?:OS|IO|Blocking\w*|Interrupted)Error"
    r"|^ImportError: (?:/|lib)"
    r"|^MemoryError|\.so\b|TorchScript|Triton|OutOfMemoryError|HIP error|MIOPEN|cuda runtime error|NVML"
    r"|INTERNAL ASSERT|enforce fail|report a bug|Inductor|BackendCompilerFailed|building extension"
    r"|CalledProcessError|SSLError|URLError|HTTPError|cannot import name .{0,200}(?:site|dist)-packages"
)
# NCCL ends the communicator of a rank that has waited in vain: what its GPU says after that is not the cause.
_GAVE_UP = re.compile(r"[Rr]ank (?P<rank>\d+)\]?.{0,120}Watchdog caught collective operation timeout")
_OF_THE_GPU = ("out-of-gpu-memory", "gpu-memory-full", "gpu-fault")
# What a rank meets, too, when another one has failed on its way to it.
_MAY_FOLLOW = ("ranks-missing", "nccl-connect", "gloo-mesh", "port-in-use", "meeting-point-elsewhere")
_FOLLOWS = 9  # the order of what is known to follow from something else
_NOT_OURS = (
    "site-packages",
    "dist-packages",
    "/lib/python",
    "/bin/",
    "<frozen",
    "<string>",
    "<stdin>",
    "/torch/",
    "/lab/training/",
    "/lab/runs/",
    "/lab/base/",
)
# PyTorch's warnings are of what went wrong at first and was tried again, or did no harm: "[rank1]:[W1128 ...".
_WARNING = re.compile(r"^(?:\[rank\d+\]:|\d{1,5}:)? ?(?:\[W(?:\d{4})? |W\d{4} ).*\n?", re.M)
_CHECKS_ITS_CALLER = re.compile(
    r"/torch/(?:nn|optim|autograd|utils/data|functional\.py|_tensor\.py|_utils\.py|random\.py|serialization\.py"
    r"|utils/_contextlib\.py|amp|distributed/(?:distributed_c10d|c10d_logger|fsdp|_composable|tensor|device_mesh))"
    r"|/torchvision/|/numpy/|/PIL/|/lib/python[\d.]+/(?!(?:site|dist)-packages)|<frozen|/lab/"
)
_CHECKING = ("__main__", "torch", "torchvision", "numpy", "lab")  # what they refuse is their caller's to mend
_LONG = re.compile(r"^.{4001,}$", re.M)
_MOST = 1 << 18  # characters at both ends of what all patterns are tried on
# Words of which every line that a symptom is seen in holds one, whatever is seen there.
_TELLS = re.split(
    r"\|",
    "error|fail|warn|fatal|not|no |cannot|can't|unable|invalid|kill|denied|exceed|signal|timed|timeout|"
    "missing|nan| inf|lost|xid|oom|out of|assert|cancel|unrecognized|mismatch|break|illegal|sigill|busy|"
    "reset|closed|pipe|unexpected|exit|main.py|srun|slurm|sbatch|run.sh|already|retry|again|alloc|full|"
    "symbol|version|compat|peer|errno|status=|/dev/shm|unreachable|refused|interface|architecture|sighup|"
    "broken|disabled|partially|renam|toomany|unauthorized|manifest|gpu|duplicate|ancdata|module|stale|"
    "twice|only once|inconsistent|differ|expired|launch|unavailable|unspecified|memory|limit|exercise|"
    "interrupt|space|enroot|pyxis|abort|exec|ibv_|insufficient|died|address|incompatible|bad |corrupt|truncat",
)
_KEPT = 2000  # characters at both ends of a long line
WARNED = 10  # the order of what only a warning says
UNKNOWN = "unknown"  # the name of a finding that says that the lab cannot explain what it saw
_NOT_KNOWN = (
    "The lab does not know this error. It comes from the system, the driver or a library, not from a line of "
    "yours: "
    "what was printed before it, on any rank or node, says more than the lines where it came up."
)
_NO_RULE = "The lab does not know what it means: the lines around it, on every node, say more."
_SPEAKS = re.compile(
    r"^(?!.*(?:NCCL INFO|\bINFO\b|[Ww]arning|Exited with exit code|Terminated$))"
    r".*(?:\b(?:error|ERROR|Error|fatal|Fatal|FATAL)\b ?[:\]!]|\wError\b|NCCL WARN"
    r"|\*\*\* .*(?:error|FATAL)|: not found$|Aborted|Segmentation fault|[Pp]ermission denied|No such file).*$",
    re.M,
)
_EITHER = "Either may have come first, on a rank or node of its own: below is what each of them means."
_A_CAUSE = 2  # up to this order a symptom is a cause
_LOOK_IT_UP = (
    "grep -n -m 5 -i -E 'error|warn' {log}    # the earliest lines",
    "NCCL_DEBUG=INFO TORCH_DISTRIBUTED_DEBUG=DETAIL {rerun}    # says more of itself",
)


def symptoms(log: str) -> list[Finding]:
    """A finding for every symptom that the log shows, told from its first place in it; causes before others."""
    raised, first = _exception(log) or (None, "")
    log = _telling(_LONG.sub(_shortened, log))
    errors, warnings = _WARNING.sub("", log), "".join(_WARNING.findall(log))
    since = errors.find(first) if raised is not None and raised.name == "raised" else -1
    ended = report.start() if (report := by_itself(errors)) else len(errors)
    gave_up = {found["rank"]: found.start() for found in reversed([*_GAVE_UP.finditer(errors)])}
    seen: list[tuple[int, int, Finding]] = []
    for symptom in SYMPTOMS:
        for text, order in ((errors, symptom.order), (warnings, WARNED)):
            if (found := _first(symptom, text)) is not None:
                late = symptom.name in _MAY_FOLLOW and 0 <= since < found.start()
                late |= symptom.name == "rank-lost" and ended < found.start()
                if late or (symptom.name in _OF_THE_GPU and _after(gave_up, found, text)):
                    order = max(order, _FOLLOWS)
                seen.append((order, found.start(), _told(symptom, found, text, order)))
                break
    seen.sort(key=lambda one: one[:2])
    for one in seen[1:]:  # a cause may be told after what is seen of it
        if one[0] == seen[0][0] and brings_about(one[2].name, seen[0][2].name):
            seen.remove(one)
            seen.insert(0, one)
            break
    doubt = _in_doubt(seen, errors)
    return [*doubt, *(finding for *_, finding in seen)]


def _in_doubt(seen: list[tuple[int, int, Finding]], log: str) -> list[Finding]:
    """That it is not known which of two was the cause, where both look like one and neither explains the other."""
    order, at, cause = seen[0] if seen else (0, 0, None)
    if cause is None or not 0 < order <= _A_CAUSE:
        return []
    for as_likely, place, other in seen[1:]:
        line_of_its_own = "\n" in log[min(at, place) : max(at, place)]
        rivals = order == as_likely or (as_likely <= _A_CAUSE and place < at)
        if rivals and line_of_its_own and not explains(cause.name, other.name):
            first = found.saw if (found := first_error(log)) else ""
            saw = f"Two things that neither explains the other, {cause.name} and {other.name}. {first}"
            return [Finding(UNKNOWN, saw, _EITHER, _LOOK_IT_UP, order=order)]
    return []


def _telling(log: str) -> str:
    """The lines that may say what went wrong: of a long log, most tell how training goes on."""
    told = [line for line in log.splitlines() if any(word in line.lower() for word in _TELLS)]
    text = "\n".join((*told, ""))
    return text if len(text) <= 2 * _MOST else f"{text[:_MOST]}\n{text[-_MOST:]}"


def _shortened(line: re.Match[str]) -> str:
    return f"{line[0][:_KEPT]} ... {line[0][-_KEPT:]}"


def _first(symptom: Symptom, text: str) -> re.Match[str] | None:
    """The first place in which a line says this, and not something else."""
    for found in symptom.pattern.finditer(text):
        if symptom.unless is None or not symptom.unless.search(_line(found, text)):
            return found
    return None


def _line(found: re.Match[str], text: str) -> str:
    begin, end = text.rfind("\n", 0, found.start()) + 1, text.find("\n", found.start())
    return text[begin : end if end >= 0 else None]


def _after(gave_up: dict[str, int], found: re.Match[str], text: str) -> bool:
    """Whether its rank, or any if it does not name its own, had given up waiting before it said this."""
    who = _RANK.match(_line(found, text))
    since = [at for rank, at in gave_up.items() if who is None or rank == (who[1] or who[2])]
    return any(at < found.start() for at in since)


def _told(symptom: Symptom, found: re.Match[str], text: str, order: int) -> Finding:
    line = _line(found, text)
    rank = _RANK.match(line)
    said = {name: one_line(text or "", 200).rstrip(". ") for name, text in found.groupdict().items()}
    if "ms" in said:
        said["seconds"] = f"{int(said['ms'][:12]) / 1000:g}"
    said["line"] = one_line(_RANK.sub("", line).removeprefix("main.py: "), 200)
    said["rank"] = f"rank {rank[1] or rank[2]} " if rank else ""
    saw = symptom.saw.format_map(defaultdict(str, said))
    return Finding(symptom.name, saw[:1].upper() + saw[1:], symptom.means, symptom.do, order)


def is_consequence(text: str) -> bool:
    """Whether an error follows from that of another process."""
    return bool(_CONSEQUENCE.search(text))


@dataclass
class _Frame:
    file: str
    line: str
    function: str
    code: str = ""

    @property
    def own(self) -> bool:
        return not any(part in self.file for part in _NOT_OURS)


def exception(log: str) -> Finding | None:
    """The first exception that is no consequence of another rank's, with the line of the user's own code."""
    found = _exception(log)
    return found[0] if found else None


def _exception(log: str) -> tuple[Finding, str] | None:
    """That exception, and the line in which it names itself."""
    blocks: dict[str, list[_Frame]] = {}  # rank -> the frames of the traceback that is being read
    gave_up: set[str] = set()
    for line in log.splitlines():
        who = _RANK.match(line)
        rank = (who[1] or who[2]) if who else ""
        rest = line[who.end() :] if who else line
        if waited := _GAVE_UP.search(line):
            gave_up.add(waited["rank"])
        elif rest.startswith("Traceback (most recent call last)"):
            blocks[rank] = []
        elif frame := _FRAME.match(rest):
            blocks.setdefault(rank, []).append(_Frame(frame["file"], frame["line"], frame["function"] or ""))
        elif (said := _EXCEPTION.match(rest)) and blocks.get(rank):
            frames = blocks.pop(rank)
            follows = is_consequence(rest) or frames[-1].file.endswith("/torch/multiprocessing/spawn.py")
            follows |= rank in gave_up if rank else bool(gave_up)
            if not follows:
                return _raised(rank, said, frames), line
        elif (open_block := blocks.get(rank)) and not open_block[-1].code:
            open_block[-1].code = rest.strip()
    return None


def _raised(rank: str, said: re.Match[str], frames: list[_Frame]) -> Finding:
    own = [frame for frame in frames if frame.own]
    text = one_line(f"{said['type']}: {said['text']}" if said["text"] else said["type"], 300)
    who = f"Rank {rank}" if rank else "A rank"
    at = own[-1] if own else frames[-1]
    where = f"{Path(at.file).name}, line {at.line}" + (f", in {at.function}" if at.function else "")
    foreign = _of_another_package(said["type"], own)
    if not own or foreign or _ENVIRONMENT.search(text) or _elsewhere(at, frames, text):
        below = f", in what {where}, calls" if own else ""
        return Finding(UNKNOWN, f"{who} raised {text}{below}.", _NOT_KNOWN, _LOOK_IT_UP, order=6)
    return Finding(
        "raised",
        f"{who} raised {text}, at {where}.",
        "One rank's error ends the job; what the others say of lost connections follows from it.",
        (f"look at {where}", "lab check    # finds most mistakes on this machine, within seconds"),
        order=3,
    )


def _of_another_package(kind: str, own: list[_Frame]) -> bool:
    """Whether an exception belongs to a package that is not the user's: its compiled parts leave no frame."""
    package, dot, _ = kind.partition(".")
    known = package in sys.stdlib_module_names or package in _CHECKING
    return bool(dot) and not known and not any(package in Path(frame.file).with_suffix("").parts for frame in own)


def _elsewhere(own: _Frame, frames: list[_Frame], text: str) -> bool:
    """Whether a library failed by itself: while it was imported, or deep in what is not made to check its caller.

    A call of Python's own functions, and what torch.nn and its like refuse, are the caller's to mend.
    """
    below = frames[frames.index(own) + 1 :]
    if below and "has no attribute '_" in text:  # nobody but a library asks for its private parts
        return True
    if below and own.code.startswith(("import ", "from ")):
        return True
    return any(not _CHECKS_ITS_CALLER.search(frame.file) for frame in below)


def first_error(log: str) -> Finding | None:
    """The first line of a log that speaks of an error, where no rule knows what it means."""
    found = _SPEAKS.search(_WARNING.sub("", _telling(_LONG.sub(_shortened, log))))
    if found is None:
        return None
    saw = f"The first line that speaks of an error: {one_line(found[0], 300)}"
    return Finding(UNKNOWN, saw, _NO_RULE, _LOOK_IT_UP, order=7)
