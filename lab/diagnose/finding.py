"""One thing that happened to a job, in words."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """What is said about a job, in three parts.

    name   kebab-case id, e.g. "out-of-gpu-memory"
    saw    what its log or its records say, with rank, line and numbers
    means  why that happens
    do     commands to try next, or sentences, the likeliest first
    order  0: the cause for certain; the higher, the likelier a consequence of something else
    """

    name: str
    saw: str
    means: str
    do: tuple[str, ...]
    order: int = 5
