"""A part of a class, for a machine of its own."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from lab.base.errors import UsageError


@dataclass(frozen=True)
class Shard:
    """Part `number` of `count`, counted from 1. A student is always in the same part, whoever else hands in."""

    number: int = 1
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Raises UsageError unless it is i/n."""
        number, slash, count = text.partition("/")
        if not (slash and number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
            raise UsageError(f"--shard {text}: expected i/n with 1 <= i <= n, such as 2/4")
        return cls(int(number), int(count))

    def has(self, student: str) -> bool:
        """Whether a student's submission is in this part."""
        digest = hashlib.sha256(student.encode()).digest()
        return int.from_bytes(digest[:8], "big") % self.count == self.number - 1
