"""The exception of the rank that failed first, as Python's traceback tells it, and whose line it was."""

import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from lab.base.words import one_line
from lab.diagnose.told import facts
from lab.diagnose.told.finding import LOOK_IT_UP, UNKNOWN, Finding

# "[rank1]: Traceback", " 1: Traceback" (srun --label), both of them, "[rank1]:[E1128 ...".
RANK = re.compile(r"^ {0,3}(?:\d{1,5}: +(?=\[rank\d))?(?:\[rank(\d+)\]:|(\d{1,5}):)\s?")
# What a launcher or a shell puts before it: "[node05:0] ", "node05: [rank3]:".
_HOST = re.compile(
    r"^(?:\[(?P<in>(?!rank\d)[A-Za-z][\w.-]*\d(?::\d{1,5})?)\]:? |(?P<out>[A-Za-z][\w.-]*\d): (?=\[rank\d))"
)
_FRAME = re.compile(r'^\s+File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>\S+))?')
_EXCEPTION = re.compile(r"^(?P<type>(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit))(?::\s*(?P<text>.*))?$")
# An exception of another process or thread, raised once more where its result was asked for. Python prints the
# original first; PyTorch after it, below "Original Traceback".
_CAUGHT = re.compile(r"Caught \w+ in (?:DataLoader worker|pin memory|replica|worker)")
_ORIGINAL = "Original Traceback (most recent call last)"
_GROUP = re.compile(
    r"^\s*(?:\| ?|\+ (?=Exception Group Traceback))+(?:\s*\| ?)*"
)  # the margin of an ExceptionGroup's parts
# torchrun's report of what @record has kept: its rank, then the traceback, each line of it set in.
_REPORTED_RANK = re.compile(r"^  rank\s+: (\d+) ")
_REPORTED = "  traceback : Traceback (most recent call last)"
_FIRST_OBSERVED = "Root Cause (first observed failure)"
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
# Of Python's own errors none comes of another process's end.
_OF_THE_PROGRAM = re.compile(
    r"(?:Unbound|Name|Attribute|Key|Index|Type|ZeroDivision|Recursion|NotImplemented|ModuleNotFound)\w*Error$"
)
_THREAD = re.compile(r"Exception in thread (?P<name>[^\s:]+)")  # which ends that thread only
# A child of spawn() whose parent failed while it handed over what the child is to run.
_CUT_OFF = re.compile(r"pickle data was truncated|^EOFError")
# Raised by the system, the driver or a library below PyTorch: the line that called it is not to blame.
_ENVIRONMENT = re.compile(
    r"CUDA(?: driver)? error|NCCL|nccl\w*Error|CUBLAS|CUDNN|cuDNN|CUSOLVER|CUFFT|AcceleratorError|Dist(?:Backend"
    r"|Network|Store)Error"
    r"|[Gg]loo|TCPStore|c10d|Connection\w*Error|TimeoutError|^(?:OS|IO|Blocking\w*|Interrupted)Error"
    r"|^ImportError: (?:/|lib)"
    r"|^MemoryError|\.so\b|TorchScript|Triton|OutOfMemoryError|HIP error|MIOPEN|cuda runtime error|NVML"
    r"|INTERNAL ASSERT|enforce fail|report a bug|Inductor|BackendCompilerFailed|building extension"
    r"|CalledProcessError|DataLoader timed out|Numpy is not available|SSLError"
    r"|URLError|HTTPError|cannot import name .{0,200}(?:site|dist)-packages"
)
# NCCL ends the communicator of a rank that has waited in vain: what its GPU says after that is not the cause.
GAVE_UP = re.compile(r"[Rr]ank (?P<rank>\d+)\]?.{0,120}Watchdog caught collective operation timeout")
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
_CHECKS_ITS_CALLER = re.compile(
    r"/torch/(?:nn|optim|autograd|utils/data|functional\.py|_?tensor\.py|_utils\.py|random\.py|serialization\.py"
    r"|utils/_contextlib\.py|amp|distributed/(?:distributed_c10d|c10d_logger|fsdp|_composable|tensor"
    r"|device_mesh))"
    r"|/torchvision/|/numpy/|/PIL/|/lib/python[\d.]+/(?!(?:site|dist)-packages)|<frozen|/lab/"
)
_CHECKING = ("__main__", "torch", "torchvision", "numpy", "lab")  # what they refuse is their caller's to mend
# What a library written in Python checks, and says how it wants it: "HINT: set `devices=1`".
_SAYS_WHAT_TO_DO = re.compile(
    r"\bHINT:|\bHint:|\b(?:please|Please|try|Try|consider|Consider) (?!(?:report|file|open|re-?run"
    r"|check the|include|contact|again)\b)"
    r"[a-z]+ing\b|\b(?:please|Please) (?:use|set|pass|make sure|ensure|specify|provide|install|update"
    r"|upgrade|call|add|choose|select)\b"
    r"|\b(?:You (?:need to|must|should|have to|can)|you (?:need to|must|should|have to)) (?!(?:report"
    r"|file)\b)[a-z]+"
    r"|\b(?:[Ss]et|[Pp]ass|[Uu]se) `[^`]{1,80}`|\bDid you (?:mean|forget)|\b[Mm]ake sure (?:that |to )?\w+"
)
_LIBRARY = re.compile(r"/(?:site|dist)-packages/(\w+)")
_IT_SAYS_ITSELF = (
    "The library says itself what it wants, in its message; the lab knows no more about it. What it "
    "proposes may be "
    "one of two ways: where two numbers or options differ, the other one can be the wrong one."
)
_SAYS_SO = "The words are the library's own; the lab knows errors of this kind, not this one."
_NOT_KNOWN = (
    "The lab does not know this error. It comes from the system, the driver or a library, not from a line of "
    "yours: "
    "what was printed before it, on any rank or node, says more than the lines where it came up."
)


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
    found = first_of(log)
    return found[0] if found else None


def first_of(log: str) -> tuple[Finding, str] | None:
    """That exception, and the line in which it names itself."""
    blocks: dict[str, list[_Frame]] = {}  # rank -> the frames of the traceback that is being read
    caught: dict[str, tuple[re.Match[str], list[_Frame], str]] = {}  # rank -> what is raised for another process
    gave_up: set[str] = set()
    aside: dict[str, bool] = {}  # rank -> whether that traceback is of an exception that Python went on after
    threads: dict[str, re.Match[str] | None] = {}  # rank -> the thread that it ends
    before = ""
    for whole in log.splitlines():
        host = _HOST.match(whole)
        line = whole[host.end() :] if host else whole
        who = RANK.match(line)
        rank = (who[1] or who[2]) if who else host["in"] or "" if host else ""
        rest = _GROUP.sub("", line[who.end() :] if who else line)
        if waited := GAVE_UP.search(line):
            gave_up.add(waited["rank"])
        elif rest.startswith(_ORIGINAL) and rank in caught:
            blocks[rank] = list(caught[rank][1])  # the frames of the one that asked, then those of the origin
        elif rest.startswith("Traceback (most recent call last)"):
            blocks[rank] = []
            aside[rank] = before.startswith("Exception ignored in")
            threads[rank] = _THREAD.match(before)
        elif frame := _FRAME.match(rest):
            blocks.setdefault(rank, []).append(_Frame(frame["file"], frame["line"], frame["function"] or ""))
        elif (said := _EXCEPTION.match(rest)) and blocks.get(rank):
            frames = blocks.pop(rank)
            if rank not in caught and _CAUGHT.match(said["text"] or ""):
                caught[rank] = said, frames, line
                continue
            caught.pop(rank, None)
            follows = is_consequence(rest) or frames[-1].file.endswith("/torch/multiprocessing/spawn.py")
            number = rank.rpartition(":")[2]
            waited_in_vain = number in gave_up if number.isdecimal() else bool(gave_up)
            follows |= waited_in_vain and not _OF_THE_PROGRAM.match(said["type"])
            follows |= frames[-1].file.endswith("/multiprocessing/spawn.py") and bool(_CUT_OFF.search(rest))
            follows |= aside.get(rank, False) or frames[-1].file.endswith("/multiprocessing/connection.py")
            if not follows:
                return _in_thread(_raised(rank, said, frames), threads.get(rank)), line
        elif (open_block := blocks.get(rank)) and not open_block[-1].code:
            open_block[-1].code = rest.strip()
        before = rest
    for rank, (said, frames, line) in caught.items():  # a log that ends there
        return _raised(rank, said, frames), line
    return _in_report(log)


def _in_report(log: str) -> tuple[Finding, str] | None:
    """That of the process which torchrun saw end first, where @record has kept its traceback, and no log has."""
    rank = ""
    frames: list[_Frame] | None = None
    for line in log[max(log.rfind(_FIRST_OBSERVED), 0) :].splitlines():
        if named := _REPORTED_RANK.match(line):
            rank = named[1]
        elif line.startswith(_REPORTED):
            frames = []
        elif frames is not None and (frame := _FRAME.match(line)):
            frames.append(_Frame(frame["file"], frame["line"], frame["function"] or ""))
        elif frames and (said := _EXCEPTION.match(line.removeprefix("  "))):
            return None if is_consequence(line) else (_raised(rank, said, frames), line)
        elif frames and not frames[-1].code:
            frames[-1].code = line.strip()
    return None


def _raised(rank: str, said: re.Match[str], frames: list[_Frame]) -> Finding:
    own = [frame for frame in frames if frame.own]
    if own and frames[-1].function == "_execute_child" and said["type"] == "FileNotFoundError":
        return _no_such_program(said["text"], own[-1])
    text = one_line(f"{said['type']}: {said['text']}" if said["text"] else said["type"], 300)
    who = f"Rank {rank}" if rank.isdecimal() else f"A rank on {rank.partition(':')[0]}" if rank else "A rank"
    at = own[-1] if own else frames[-1]
    where = f"{Path(at.file).name}, line {at.line}" + (f", in {at.function}" if at.function else "")
    foreign = _of_another_package(said["type"], own)
    refused = not _ENVIRONMENT.search(text) and (not own or foreign or _elsewhere(at, frames, text))
    fact = facts.stated(said["type"], text) if refused else None
    if fact or (own and refused and _SAYS_WHAT_TO_DO.search(text)):
        library = said["type"].partition(".")[0] if foreign else _library(frames)
        below = f", in what {where}, calls" if own else ""
        return Finding(
            "library-said",
            f"{who} was refused by {library}{below}: {text}",
            f"{fact.means} {_SAYS_SO}" if fact else _IT_SAYS_ITSELF,
            fact.do
            if fact
            else (
                f"look at {where}    # and at the job's options: srun, sbatch, torchrun",
                f"python -m pip show {library}",
            ),
            order=3,
        )
    if not own or refused or _ENVIRONMENT.search(text):
        below = f", in what {where}, calls" if own else ""
        return Finding(UNKNOWN, f"{who} raised {text}{below}.", _NOT_KNOWN, LOOK_IT_UP, order=6)
    return Finding(
        "raised",
        f"{who} raised {text}, at {where}.",
        "A line of the program raised it: the lab knows no more about it. What other ranks say of lost "
        "connections "
        "follows from it.",
        (f"look at {where}", "lab check    # finds most mistakes on this machine, within seconds"),
        order=3,
    )


def _in_thread(raised: Finding, thread: re.Match[str] | None) -> Finding:
    """The same, of an exception that its process lived on after."""
    if thread is None or raised.name != "raised":
        return raised
    means = (
        f"It ended the thread {thread['name']} only, not its process: who waits for what the thread was to do (an "
        "event, a queue, join) waits in vain, and then the other ranks in their next collective. Their timeouts "
        "follow from it, even where its lines come later, out of a buffer."
    )
    return replace(raised, means=means)


def _library(frames: list[_Frame]) -> str:
    """The package whose line raised it, as its folder is called."""
    named = _LIBRARY.search(frames[-1].file)
    return named[1] if named else Path(frames[-1].file).stem


def _no_such_program(said: str, at: _Frame) -> Finding:
    """Of the standard library's subprocess: what it did not find is the program to run."""
    return Finding(
        "program-not-found",
        f"{Path(at.file).name}, line {at.line}, runs a program that is not there on the node: {said}.",
        "It is not installed there, its module is not loaded, or the node is one without GPUs (nvidia-smi).",
        ("srun --ntasks=1 bash -c 'echo $PATH'    # in the job: is its folder among these?",),
        order=1,
    )


def _of_another_package(kind: str, own: list[_Frame]) -> bool:
    """Whether an exception belongs to a package that is not the user's: its compiled parts leave no frame."""
    package, dot, _ = kind.partition(".")
    known = package in sys.stdlib_module_names or package in _CHECKING
    return bool(dot) and not known and not any(package in Path(frame.file).with_suffix("").parts for frame in own)


def _elsewhere(own: _Frame, frames: list[_Frame], text: str) -> bool:
    """Whether a library failed by itself: while it was imported, or deep in what is not made to check "
    "its caller.

    A call of Python's own functions, and what torch.nn and its like refuse, are the caller's to mend.
    """
    below = frames[frames.index(own) + 1 :]
    if below and "has no attribute '_" in text:  # nobody but a library asks for its private parts
        return True
    if below and own.code.startswith(("import ", "from ")):
        return True
    return any(not _CHECKS_ITS_CALLER.search(frame.file) for frame in below)
