"""How far a run is."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Progress:
    """Counted in whole epochs and in optimizer steps of the epoch going on."""

    epochs_done: int = 0
    step: int = 0  # optimizer steps done in the epoch after those
    steps_per_epoch: int = 0
    epoch: int = 0  # the one going on, counted from 1; 0 before the first
    random_at_epoch_start: dict[str, Any] = field(default_factory=dict)  # of this rank's generators

    @property
    def where(self) -> str:
        """For people."""
        return position(self.epochs_done, self.step)

    @property
    def total_steps(self) -> int:
        """Optimizer steps done in the whole run."""
        return self.epochs_done * self.steps_per_epoch + self.step


def position(epochs_done: int, step: int) -> str:
    """ "the end of epoch 2", or "epoch 3, step 17"."""
    return f"epoch {epochs_done + 1}, step {step}" if step else f"the end of epoch {epochs_done}"


def best_so_far(rows: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """The columns best_top1 and best_epoch that these epochs' rows of run.csv make; of equals the first one."""
    known = [(float(str(row["val_top1"])), row["epoch"]) for row in rows if row.get("val_top1") not in (None, "")]
    known = [(accuracy, epoch) for accuracy, epoch in known if not math.isnan(accuracy)]
    if not known:
        return {}
    best, epoch = max(known, key=lambda one: one[0])
    return {"best_top1": best, "best_epoch": epoch}
