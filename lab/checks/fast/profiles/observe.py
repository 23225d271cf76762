"""What a rank makes of profiles of steps."""

from typing import Any

from lab.checks.common.attempt import attempt
from lab.ranks.rank import Rank


def read_profiles(rank: Rank) -> list[dict[str, Any]]:
    """time_by_cause() of each profile that was drawn: lists of (what, begin, end).

    `value` is what came, and `kept` whether it is still the same after the last call.
    """
    fast = rank.student("fast")
    answers = [
        came(attempt(rank, fast.time_by_cause, [fast.Span(*span) for span in one])) for one in rank.receive()
    ]
    return [
        {"error": answer["error"], "value": answer["value"], "kept": content(answer["itself"]) == answer["value"]}
        for answer in answers
    ]


def came(answer: dict[str, Any]) -> dict[str, Any]:
    return {"error": answer["error"], "itself": answer["value"], "value": content(answer["value"])}


def content(value: Any) -> Any:
    return dict(value) if isinstance(value, dict) else value
