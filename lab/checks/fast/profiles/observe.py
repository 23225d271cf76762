"""What a rank makes of profiles of steps."""

from typing import Any

from torch.utils._pytree import keystr, tree_flatten_with_path

from lab.checks.common.attempt import attempt, stepped
from lab.ranks.rank import Rank


def read_profiles(rank: Rank) -> dict[str, Any]:
    """time_by_cause() of each profile that was drawn: lists of (what, begin, end).

    `value` is what came, and `kept` whether it is still the same after the last call.
    """
    fast = rank.student("fast")
    answers = [
        came(attempt(rank, fast.time_by_cause, [fast.Span(*span) for span in one])) for one in rank.receive()
    ]
    told = [
        {"error": answer["error"], "value": answer["value"], "kept": content(answer["itself"]) == answer["value"]}
        for answer in answers
    ]
    return {"answers": told, "shortened": shortened_at(rank, fast)}


def shortened_at(rank: Rank, fast: Any) -> list[int]:
    """The lines after which a variable has the end of a span where it had that of the longer one around it."""
    outer, inner = fast.Span("compute", 2.0, 9.0), fast.Span("compute", 4.0, 5.0)

    def ends(frame: Any) -> dict[str, float]:
        leaves, _ = tree_flatten_with_path(dict(frame.f_locals))
        found = {keystr(path): getattr(leaf, "end", leaf) for path, leaf in leaves}
        return {path: end for path, end in found.items() if isinstance(end, float)}  # a tensor's == is no bool

    with stepped(fast.__file__, ends) as notes:
        attempt(rank, fast.time_by_cause, [outer, inner])
    lines: list[int] = []
    had: dict[str, float] = {}
    for line, found in notes:
        if any(value == inner.end and had.get(path) == outer.end for path, value in found.items()):
            lines.append(line)
        had |= found
    return lines


def came(answer: dict[str, Any]) -> dict[str, Any]:
    return {"error": answer["error"], "itself": answer["value"], "value": content(answer["value"])}


def content(value: Any) -> Any:
    return dict(value) if isinstance(value, dict) else value
