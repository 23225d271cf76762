"""Sets of moments, as sorted lists of intervals (begin, end) that do not touch each other."""

from collections.abc import Iterable

Interval = tuple[float, float]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The moments that are in any of them."""
    merged: list[Interval] = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        elif end > begin:
            merged.append((begin, end))
    return merged


def intersection(first: list[Interval], second: list[Interval]) -> list[Interval]:
    """The moments that are in both of two sets."""
    common, i, j = [], 0, 0
    while i < len(first) and j < len(second):
        begin, end = max(first[i][0], second[j][0]), min(first[i][1], second[j][1])
        if begin < end:
            common.append((begin, end))
        if first[i][1] < second[j][1]:
            i += 1
        else:
            j += 1
    return common


def difference(first: list[Interval], second: list[Interval]) -> list[Interval]:
    """The moments that are in the first set, but not in the second."""
    if not first:
        return []
    begin, end = first[0][0], first[-1][1]
    edges = [begin, *(moment for interval in second for moment in interval), end]
    gaps = [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if a < b]
    return intersection(first, gaps)


def length(intervals: list[Interval]) -> float:
    """How long all of them are together."""
    return sum(end - begin for begin, end in intervals)
