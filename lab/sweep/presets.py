"""For packages that students got before the rooms of lab/sweep were made."""

from lab.sweep.plan.presets import PRESETS  # noqa: F401
