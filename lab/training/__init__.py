"""What a training run needs beyond the exercises. The names below are all that the students' modules use.

May import: base, runs/options, runs/records, training/checkpoints, training/data, training/metrics,
training/networks, training/profiling, training/stepping, training/watching.
"""

import importlib
from typing import TYPE_CHECKING

from lab.base.errors import UsageError, UserError
from lab.base.files import is_first_on_filesystem
from lab.runs import options
from lab.runs.options.own import is_own, load_own
from lab.runs.records.epoch_record import EpochRecord
from lab.training import from_scratch
from lab.training.data.datasets import DataSets, load_datasets
from lab.training.networks import build_network
from lab.training.program import one_sentence_errors
from lab.training.stepping.graphs import new_graph, recording, side_stream, synchronize

if TYPE_CHECKING:
    from lab.training.run import Run
    from lab.training.stepping.capture import capturable

__all__ = [
    "DataSets",
    "EpochRecord",
    "Run",
    "UsageError",
    "UserError",
    "build_network",
    "capturable",
    "from_scratch",
    "is_first_on_filesystem",
    "is_own",
    "load_datasets",
    "load_own",
    "new_graph",
    "one_sentence_errors",
    "options",
    "recording",
    "side_stream",
    "synchronize",
]

# Imported when they are first asked for: who wants one of the lab's networks needs not wait for all of FSDP.
_LATE = {"Run": "lab.training.run", "capturable": "lab.training.stepping.capture"}


def __getattr__(name: str) -> object:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found = getattr(importlib.import_module(_LATE[name]), name)
    return found
