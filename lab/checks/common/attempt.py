"""For observers: a student's function run so that its error becomes plain data, and images to be told apart."""

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from lab.ranks.rank import Rank, describe

_KEPT = 400  # of the lines that are noted


def attempt(rank: Rank, function: Callable[..., Any], *args: object, **kwargs: object) -> dict[str, Any]:
    """Call a function of the student's: {"value": what it returned, "error": None or as `plain` has it}.

    The error of a stub that is still there goes on its way: the exercise is not started.
    """
    try:
        return {"value": function(*args, **kwargs), "error": None}
    except Exception as error:
        if describe(error)["todo"]:
            raise
        return {"value": None, "error": plain(rank, error)}


def plain(rank: Rank, error: BaseException) -> dict[str, Any]:
    """An exception as plain data: type, its base classes, message, and the student's innermost line."""
    said = describe(error)
    file, line, text = "", 0, ""
    for frame_file, frame_line, _, frame_text in said["frames"]:
        if rank.code is not None and Path(frame_file).is_relative_to(rank.code):
            file, line, text = Path(frame_file).name, frame_line, frame_text
    return {
        "type": said["type"],
        "bases": [base.__name__ for base in inspect.getmro(type(error))],
        "message": said["message"][:300],
        "file": file,
        "line": line,
        "text": text,
    }


def lines_now(file: str) -> list[int]:
    """The lines of a file that are being run, the innermost first: where the student's code has called from."""
    found, frame = [], sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_filename == file:
            found.append(frame.f_lineno)
        frame = frame.f_back  # type: ignore[assignment]
    return found[:5]


@contextmanager
def stepped(
    file: str | None, probe: Callable[..., Any], *, results: bool = False
) -> Iterator[list[tuple[int, Any]]]:
    """Note each line of a file that is run in here, and what `probe` finds when it has been run.

    It is slow, for the few lines of one function. The probe gets the line's frame.

    Args:
        results: hand the probe also what the line returns or yields; None for other lines.
    """
    notes: list[tuple[int, Any]] = []
    lines: list[int] = []  # of the functions that are being run, the innermost last

    def step(frame: Any, event: str, value: object) -> Any:
        if len(notes) < _KEPT and event in ("line", "return") and lines[-1]:
            given = [frame, value if event == "return" else None][: 1 + results]
            notes.append((lines[-1], probe(*given)))
        if event == "line":
            lines[-1] = frame.f_lineno
        elif event == "return":
            lines.pop()
        return step

    def begin(frame: Any, _: str, __: object) -> Any:
        if frame.f_code.co_filename != file:
            return None
        lines.append(0)
        return step

    before = sys.gettrace()
    sys.settrace(begin)
    try:
        yield notes
    finally:
        sys.settrace(before)


def changed_at(notes: list[tuple[int, Any]], first: Any) -> int:
    """The last line after which the probe found something else than before; 0 where it always found `first`."""
    found = 0
    for line, value in notes:
        if repr(value) != repr(first):  # a NaN is no other NaN
            found, first = line, value
    return found


def dtype(value: Any) -> str:
    """ "float32"; "" for what is no tensor."""
    return str(value.dtype).removeprefix("torch.") if isinstance(value, torch.Tensor) else ""


class NumberedImages(Dataset):
    """Samples that can be told apart: (image, label), the number of the sample is every pixel of the image.

    Args:
        labels: [N].
        first: the number of the first sample.
        shape: of one image.
        in_memory: hand out the same tensors each time, as a data set that is kept in memory does.
        endless: have an image for any index, as a data set that works its samples out: only its length ends it.
        damaged: index -> what reading this sample raises.
    """

    def __init__(
        self,
        labels: torch.Tensor,
        *,
        first: int = 0,
        shape: tuple[int, ...] = (3, 8, 8),
        in_memory: bool = False,
        endless: bool = False,
        damaged: Mapping[int, Exception] = {},
    ) -> None:
        self.labels = labels
        self.first = first
        self.shape = shape
        self.endless, self.damaged = endless, damaged
        self.images = [self.draw(index) for index in range(len(labels))] if in_memory else None
        self.classes = [f"class {number}" for number in range(10)]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if index in self.damaged:
            raise self.damaged[index]
        if self.endless and index >= len(self.labels):
            return self.draw(index), 0
        if not 0 <= index < len(self.labels):  # no counting from the end: it would hide a wrong index
            raise IndexError(f"there is no sample {index} among {len(self.labels)}")
        image = self.draw(index) if self.images is None else self.images[index]
        return image, int(self.labels[index])

    def draw(self, index: int) -> torch.Tensor:
        return torch.full(self.shape, float(self.first + index))

    def overwritten(self) -> list[int]:
        """The indices of the samples in memory that are no longer what they were."""
        return [index for index, image in enumerate(self.images or []) if not image.equal(self.draw(index))]
