"""How many cores this process may use."""

import os


def usable_cores() -> int:
    """Not os.cpu_count(): a container or a batch job may own only some of the machine's cores."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
