"""What a run is asked for: the command line of main.py, and what its options mean together. No torch.

May import: base.
"""

from lab.runs.options.data import input_options, loader_options
from lab.runs.options.launcher import require_launcher
from lab.runs.options.model import model_options, shard_options
from lab.runs.options.optimisation import REFERENCE_BATCH
from lab.runs.options.parser import as_record, build_parser, parse, resolve

__all__ = [
    "REFERENCE_BATCH",
    "as_record",
    "build_parser",
    "input_options",
    "loader_options",
    "model_options",
    "parse",
    "require_launcher",
    "resolve",
    "shard_options",
]
