"""What a rank observes of a step's profile read by the student's function."""

from typing import Any

from lab.checks.common.attempt import attempt
from lab.ranks.rank import Rank


def read_profiles(rank: Rank) -> list[dict[str, Any]]:
    """time_by_cause() of each profile that was drawn: lists of (what, begin, end)."""
    fast = rank.student("fast")
    return [attempt(rank, fast.time_by_cause, [fast.Span(*span) for span in spans]) for spans in rank.receive()]
