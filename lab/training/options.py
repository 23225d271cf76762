"""For packages that students got before the rooms of lab/training were made.

Once imported it stands where `lab.training` has `options`, so it has all that the current name has.
"""

from lab.runs.options import *  # noqa: F403
from lab.runs.options.model import STRATEGIES  # noqa: F401
from lab.runs.options.precision import PRECISIONS  # noqa: F401
