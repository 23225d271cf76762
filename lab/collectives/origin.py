"""Where a collective comes from: a student's line, and what in PyTorch issued it there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.base.words import one_line
from lab.collectives.lanes import Collective, Frame

# What issued it -> how to say so behind its name. "" is a call like dist.all_reduce.
ISSUERS = {
    "": "",
    "ddp-start": "DDP's constructor",
    "ddp-forward": "DDP's forward pass",
    "backward": "backward pass",
    "fsdp-start": "FSDP's set-up",
    "fsdp-forward": "FSDP's forward pass",
    "fsdp-backward": "FSDP's backward pass",
}

_SUFFIXES = ("_into_tensor", "_tensor", "_single", "_base")


@dataclass(frozen=True)
class Origin:
    """`call` is what to name the collective; `frame` the student's innermost line, `entry` the outermost one."""

    call: str
    issuer: str
    frame: Frame | None
    entry: Frame | None

    @property
    def name(self) -> str:
        """ "all_reduce" or "all_gather (FSDP's forward pass)"."""
        return f"{self.call} ({ISSUERS[self.issuer]})" if self.issuer else self.call

    @property
    def where(self) -> str:
        """ "at train.py:88" or "in the check"."""
        return f"at {file_line(self.frame)}" if self.frame else "in the check"

    @property
    def function(self) -> str:
        """The student's function that the check has called: "evaluate"; "" where it has called none."""
        return one_line(self.entry.function, 60) if self.entry else ""

    def __str__(self) -> str:
        return f"{self.name} {self.where}"


def origin(collective: Collective, code: Path) -> Origin:
    """Tell it from the frames."""
    own = [i for i, frame in enumerate(collective.frames) if Path(frame.file).is_relative_to(code)]
    inner = collective.frames[own[-1] + 1 :] if own else collective.frames
    issuer = _issuer(inner)
    called = [frame.function for frame in inner if frame.file.endswith("torch/distributed/distributed_c10d.py")]
    call = one_line(collective.name, 40)
    if called and called[0].isidentifier():
        call = _short(called[0]) if issuer else called[0][:40]
    return Origin(
        call=call,
        issuer=issuer,
        frame=collective.frames[own[-1]] if own else None,
        entry=collective.frames[own[0]] if own else None,
    )


def file_line(frame: Frame) -> str:
    """ "train.py:88"."""
    return f"{one_line(Path(frame.file).name, 60)}:{frame.line}"


def _issuer(frames: Sequence[Frame]) -> str:
    functions = {frame.function for frame in frames}
    backward = "_engine_run_backward" in functions
    if any("torch/distributed/fsdp/" in frame.file for frame in frames):
        if backward:
            return "fsdp-backward"
        return (
            "fsdp-forward" if functions & {"pre_forward", "_pre_forward", "_pre_forward_unshard"} else "fsdp-start"
        )
    if backward:
        return "backward"
    ddp = {frame.function for frame in frames if frame.file.endswith("torch/nn/parallel/distributed.py")}
    if "__init__" in ddp:
        return "ddp-start"
    return "ddp-forward" if ddp else ""


def _short(function: str) -> str:
    """FSDP's all_gather_into_tensor and reduce_scatter_single are nobody's own call: just all_gather."""
    for suffix in _SUFFIXES:
        function = function.removesuffix(suffix)
    return function.lstrip("_")[:40]
