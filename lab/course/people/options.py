"""The options of `lab grade` that hold for a class, and are remembered beside its grades."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

FILES = ("roster", "extensions", "times", "points")
NAMES = (*FILES, "due", "late", "why-costs")
NONE = "none"  # as a value: from now on without


def add_class_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "the class",
        f"remembered with the grades, so that the next `lab grade` needs none of them; `{NONE}` takes one back",
    )
    group.add_argument("--roster", metavar="CSV", help="who is in the class: id, name, e-mail, platform's id")
    group.add_argument("--due", metavar="TIME", help="when it is due, such as 2026-05-01 or '2026-05-01 18:00'")
    group.add_argument("--late", metavar="RULE", help="what being late costs, such as '10%% a day, at most 50%%'")
    group.add_argument("--extensions", metavar="CSV", help="who has more time: id, due (a time, or '+2 days')")
    group.add_argument(
        "--times",
        metavar="CSV",
        help="when each handed in, where no exchange and no file's name says it: id, time",
    )
    group.add_argument(
        "--points", metavar="CSV", help="what exercises and questions are worth in the final table: id, points"
    )
    group.add_argument(
        "--why-costs",
        metavar="SHARE",
        help="the share of an exercise's points that asking why before it passed costs, such as 0.25; "
        "a course has its own",
    )


def given(args: argparse.Namespace) -> dict[str, str]:
    """Those that were typed; files by their whole path, so that the next call finds them from anywhere."""
    typed = {name: value for name in NAMES if (value := getattr(args, name.replace("-", "_"))) is not None}
    return {
        name: str(Path(value).expanduser().absolute()) if name in FILES and value != NONE else value
        for name, value in typed.items()
    }


def together(remembered: Mapping[str, str], typed: Mapping[str, str]) -> dict[str, str]:
    """What holds now."""
    now = dict(remembered)
    if typed.get("due") == NONE:  # without it the others mean nothing
        now = {name: value for name, value in now.items() if name not in ("late", "extensions")}
    now |= typed
    # That nothing is due any more is remembered: penalties that are in the gradebook have to go.
    return {name: value for name, value in now.items() if value != NONE or name == "due"}


def as_typed(settings: Mapping[str, str]) -> str:
    """For a sentence: "--due 2026-05-01 --late 10% a day"."""
    return " ".join(f"--{name} {settings[name]}" for name in NAMES if settings.get(name, NONE) != NONE)
