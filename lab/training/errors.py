"""For packages that students got before the rooms of lab/training were made."""

from lab.base.errors import UsageError, UserError  # noqa: F401
from lab.training.program import one_sentence_errors  # noqa: F401
