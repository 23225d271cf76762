"""For packages that students got before the rooms of lab/training were made."""

from lab.base.files import is_first_on_filesystem  # noqa: F401
