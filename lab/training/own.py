"""For packages that students got before the rooms of lab/training were made."""

from lab.runs.options.own import is_own, load_own  # noqa: F401
