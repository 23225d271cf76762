"""Profiles of steps, drawn anew for each run."""

import random
from itertools import pairwise

Span = tuple[str, float, float]  # what, begin, end


def draw_profiles() -> list[list[Span]]:
    """Steps in which every mistake gives another number, one of a single kernel, and one with nested spans."""
    steps = []
    for _ in range(3):
        now = random.randint(500, 900) + 0.5
        spans: list[Span] = []
        for draw in (*random.sample((_overlapped, _late, _starved, _idle, _alone), 5), _last):
            part, now = draw(now)
            spans += part
        steps.append(random.sample(spans, len(spans)))
    begin = float(random.randint(100, 400))
    nested, _ = _nested(begin + 0.5)
    return [*steps, [("compute", begin, begin + random.randint(20, 40) + 0.25)], nested]


def _lengths(count: int) -> list[float]:
    """In quarters of a microsecond: exact in every kind of float."""
    return [random.randint(44, 156) / 4 for _ in range(count)]


def _overlapped(now: float) -> tuple[list[Span], float]:
    """Two kernels on two streams, with a launch under them and a communication that ends after them."""
    a, b, c, d = _lengths(4)
    spans = [("compute", now, now + a + b), ("compute", now + a, now + a + b + c), ("launch", now + 3, now + a)]
    end = now + a + b + c
    return [*spans, ("communication", end - 7, end + d)], end + d


def _late(now: float) -> tuple[list[Span], float]:
    """A communication that has begun when a kernel begins, and ends under it."""
    a, b, c = _lengths(3)
    return [("communication", now, now + a + b), ("compute", now + a, now + a + b + c)], now + a + b + c


def _starved(now: float) -> tuple[list[Span], float]:
    """The CPU waits for the next batch, at first while a kernel still runs; then another thread launches, too."""
    a, b = _lengths(2)
    end = now + a + b
    return [("compute", now, now + a), ("input", now + a - 6, end), ("launch", end - 5, end - 2)], end


def _idle(now: float) -> tuple[list[Span], float]:
    """A launch with nothing to hide it, and a gap in which nothing was noted at all."""
    a, b = _lengths(2)
    return [("launch", now, now + a)], now + a + b


def _alone(now: float) -> tuple[list[Span], float]:
    """A communication with launches beside it, and a wait for input that it hides in part."""
    a, b, c = _lengths(3)
    end = now + a + b
    return [("communication", now, end), ("launch", now + 2, now + a), ("input", end - 5, end + c)], end + c


def _last(now: float) -> tuple[list[Span], float]:
    """A kernel that outlasts the launch that begins last."""
    (a,) = _lengths(1)
    return [("compute", now, now + a), ("launch", now + 3, now + 7.5)], now + a


def _nested(now: float) -> tuple[list[Span], float]:
    """Spans that lie within another: of its own kind, two of them at times, and of a kind that hides it."""
    spans: list[Span] = []
    kinds = ("compute", "communication", "input")
    for outer, inner in (*zip(kinds, kinds, strict=True), *pairwise(kinds[::-1])):
        a, b, c = _lengths(3)
        spans += [(outer, now, now + a + b + c), (inner, now + a, now + a + b)]
        now += a + b + c
    for kind in kinds:
        a, b, c, d, e = _lengths(5)
        spans += [(kind, now, now + a + b + c + d + e), (kind, now + a, now + a + b)]
        spans += [(kind, now + a + b + c, now + a + b + c + d)]
        now += a + b + c + d + e
    return random.sample(spans, len(spans)), now
