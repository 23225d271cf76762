"""For packages that students got before the rooms of lab/training were made."""

from lab.runs.options import input_options, loader_options, model_options, parse, require_launcher  # noqa: F401
from lab.runs.options.model import STRATEGIES  # noqa: F401
from lab.runs.options.precision import PRECISIONS  # noqa: F401
