"""How far a run is."""

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
