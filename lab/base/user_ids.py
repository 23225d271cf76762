"""User ids of nobody, one for each sandbox: the kernel counts processes and threads by user, not by sandbox.

Where the lab runs as root it may be anybody. So each sandbox runs as a user that there is not, from a range that
systemd's list of ids in use (https://systemd.io/UIDS-GIDS) calls unused; in a container that has no such numbers,
from the range for users who last as long as a service. Whoever has one holds a socket of its name, in Linux's
abstract namespace: no two can, and the kernel lets go of it when the last process that holds it has ended.
"""

from __future__ import annotations

import random
import socket
from dataclasses import dataclass
from pathlib import Path

RANGES = (range(1_900_000_000, 1_900_050_000), range(61_184, 65_184))
_MAP = Path("/proc/self/uid_map")
_TRIES = 1000


@dataclass(frozen=True)
class UserId:
    """`number` belongs to whoever holds `socket`, which children may inherit."""

    number: int
    socket: socket.socket


def take() -> UserId:
    """A user id that nobody else has. Raises OSError where there is none."""
    numbers = next((one for one in RANGES if _mapped(one)), None)
    if numbers is None:
        raise OSError(f"no user ids for sandboxes: {_MAP} has neither {RANGES[0]} nor {RANGES[1]}")
    for number in random.sample(numbers, _TRIES):
        held = socket.socket(socket.AF_UNIX)
        try:
            held.bind(f"\0scaling-lab-user-{number}")
        except OSError:
            held.close()
            continue
        return UserId(number, held)
    raise OSError(f"{_TRIES} user ids for sandboxes were tried, and all are in use")


def _mapped(numbers: range) -> bool:
    """Whether this user namespace has these ids."""
    for line in _MAP.read_text().splitlines():
        first, _, count = map(int, line.split())
        if first <= numbers[0] and numbers[-1] < first + count:
            return True
    return False
