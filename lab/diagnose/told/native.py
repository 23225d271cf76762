"""Where compiled code crashed: the frames that UCX, Open MPI, absl, a debugger or Python wrote into a log."""

import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from lab.base.words import one_line

_SIGNALS = r"SIGSEGV|SIGBUS|SIGABRT|SIGFPE|SIGILL|[Ss]egmentation fault|Bus error"
_BEGINS = re.compile(
    rf"Caught signal \d+ \((?P<ucx>[^):]+)|Signal: (?P<ompi>[\w ]+) \(\d+\)|\*\*\* (?P<absl>{_SIGNALS}) received"
    rf"|Fatal Python error: (?P<python>{_SIGNALS})|received signal (?P<gdb>{_SIGNALS})"
)
_SYMBOL = r"(?P<function>[A-Za-z_~][\w:~<>,]*)"
_LIBRARY = r"(?P<library>/?[\w./+-]*\.so[\w.]*)"
_FRAMES = tuple(
    re.compile(pattern)
    for pattern in (
        rf"^(?:\[\S+:\d+\] )?\s*\[?\s*\d+\]?\s+{_LIBRARY}\({_SYMBOL}?\+0x",  # Open MPI
        rf"^\s*#?\d+\s+0x[0-9a-f]+ in {_SYMBOL} ?\(.*?\)(?: from {_LIBRARY})?",  # gdb
        rf"^\s*\d+\s+0x[0-9a-f]+ {_SYMBOL}\(\)",  # UCX
        rf"^\s*(?:PC: )?@\s+0x[0-9a-f]+\s+(?:\(unknown\)|\d+)?\s*{_SYMBOL}",  # absl, glog
    )
)
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<name>\S+)')  # Python's faulthandler
_PREFIX = re.compile(r"^(?:\[rank(\d+)\]:|(\d{1,5}):)\s?")
_HANDLERS = re.compile(
    r"sig(?:nal|action)|restore_rt|raise|abort|killpg|backtrace|Handler|unknown|^lib(?:c|pthread)\b"
)
_FAR = 60  # lines after the words about a signal
# Whose code it was -> what is known to bring it down. The first one counts that a frame's name or library holds.
_OWNERS = (
    (r"nccl|rccl", "NCCL: another version than PyTorch was built with, its plugin, or a profiler attached to it."),
    (r"^uc[tpsm]_|libuc[tpsm]", "UCX, which MPI and some NCCL plugins use; PyTorch itself needs neither."),
    (r"ibv_|mlx\d|libibverbs|rdma", "InfiniBand's library, or its driver on this node."),
    (r"libfabric|^fi_|ofi", "libfabric, or NCCL's plugin for it: its version does not fit."),
    (r"libcuda\b|libcuda\.so|^cu[A-Z]|nvidia", "The GPU's driver, or what was handed to it."),
    (r"gloo", "gloo, of PyTorch."),
    (r"libtorch|c10|^at::|^torch::|libgomp|libiomp", "PyTorch, or two OpenMP libraries below it."),
    (r"numpy|openblas|mkl|jpeg|png|PIL|opencv|libav|hdf5|lmdb", "A library that reads or computes data."),
)


@dataclass(frozen=True)
class Crash:
    """signal  in the words of who saw it: "Segmentation fault"
    rank    "" where the log does not say it
    frame   "ncclCommInitRank in libnccl.so.2", or "barrier, line 3938 of distributed_c10d.py"; "" if none is known
    owner   whose code that is and what is known of it; "" if nothing
    """

    signal: str
    rank: str
    frame: str
    owner: str


def crash(log: str) -> Crash | None:
    """The first crash that a log shows frames of, or at least names."""
    lines = log.splitlines()
    for number, line in enumerate(lines):
        if (begins := _BEGINS.search(line)) is None:
            continue
        who = _PREFIX.match(line)
        rank = (who[1] or who[2]) if who else ""
        said = next(word for word in begins.groupdict().values() if word).strip()
        after = [_PREFIX.sub("", one) for one in lines[number + 1 : number + 1 + _FAR]]
        native = next((frame for one in after if (frame := _native(one))), "")
        python = next((found for one in after if (found := _FRAME.match(one))), None)
        frame = native
        if not frame and python is not None:
            frame = f"{python['name']}, line {python['line']} of {PurePosixPath(python['file']).name}"
        owner = next((means for pattern, means in _OWNERS if re.search(pattern, native)), "")
        return Crash(said, rank, one_line(frame, 120), owner)
    return None


def _native(line: str) -> str:
    """The function of a native frame, and its library; "" of a signal handler's and of any other line."""
    for pattern in _FRAMES:
        if (found := pattern.match(line)) is None:
            continue
        parts = found.groupdict()
        function, library = parts.get("function") or "", PurePosixPath(parts.get("library") or "").name
        if _HANDLERS.search(function) or (not function and _HANDLERS.search(library)):
            return ""
        return " in ".join(part for part in (function, library) if part)
    return ""
