"""A notebook cell's code on a rank: `run_cell` is what each rank of a `%%ranks` cell runs.

The code finds `torch`, `dist`, `rank`, `world_size` and `show`. What it shows goes out with what it prints, in
lines of its own, so that it arrives from a rank that hangs or fails afterwards, too.
"""

import builtins
import json
import sys
from pathlib import Path
from typing import Any

from lab.ranks.rank import Rank

FILE = "cell.py"  # in the folder of the group's code
MARK = "\x1e"  # begins a line that holds ["label", "value"]
MOST = 64  # elements of a tensor that are written out


def run_cell(rank: Rank) -> None:
    """Run the cell; what it leaves in its variables is shown where it has shown nothing itself."""
    import torch
    import torch.distributed as dist

    exercises = rank.receive()["exercises"]
    if exercises:
        sys.path.append(exercises)  # behind all others: a student's modules can be imported, and hide nothing
    shown: list[str] = []

    def show(label: str, value: object) -> None:
        """Put a value into the table below the cell, in a row of this name, one column for each rank."""
        shown.append(label)
        _tell(label, value)

    given = {"torch": torch, "dist": dist, "rank": rank.rank, "world_size": rank.world_size, "show": show}
    vars(builtins).update(given)  # of this process, which ends with the cell
    cell = rank.student(Path(FILE).stem)
    if not shown:
        for name, value in vars(cell).items():
            if isinstance(value, torch.Tensor) and not name.startswith("_"):
                _tell(name, value)


def split_output(output: str) -> tuple[list[tuple[str, str]], str]:
    """What a rank has shown, (label, value) in order, and what it has printed besides."""
    shown, printed = [], []
    for line in output.split("\n"):
        before, found, told = line.partition(MARK)
        try:
            label, value = json.loads(told) if found else (None, None)
        except (ValueError, TypeError):  # cut in the middle of very much output, or another's sign
            label = value = None
        if isinstance(label, str) and isinstance(value, str):
            printed.append(before)
            shown.append((label, value))
        else:
            printed.append(line)
    return shown, "\n".join(text for text in printed if text)


def _tell(label: str, value: object) -> None:
    print(f"{MARK}{json.dumps([str(label), in_words(value)])}", flush=True)


def in_words(value: Any) -> str:
    """A tensor as its numbers, to four digits; a large one, and a DTensor's shard, with its shape."""
    import torch

    if hasattr(value, "to_local"):
        return f"{in_words(value.to_local())} of {list(value.shape)}"
    if isinstance(value, list | tuple) and any(isinstance(one, torch.Tensor) for one in value):
        return ", ".join(map(in_words, value))
    if not isinstance(value, torch.Tensor):
        return str(value)
    if value.numel() > MOST:
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    return _numbers(value.detach().tolist())


def _numbers(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_numbers, value))}]"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def code_folder(folder: Path, code: str) -> Path:
    """Write the cell's code to `folder`. The magic has the first line: lines are counted as in the cell."""
    (folder / FILE).write_text(f"\n{code}", encoding="utf-8")
    return folder
