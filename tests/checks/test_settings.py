"""docs/checks.md names every option of main.py, says of each exercise what its check looks at, and is true."""

from pathlib import Path

import pytest
from answers import settings

from lab.grading.check import Group
from lab.grading.suite import checks_of
from lab.runs.options import build_parser
from lab.syllabus.syllabus import syllabus


def options_of_main() -> list[str]:
    """The long name of each option, as `main.py --help` has it first."""
    actions = build_parser()._actions
    return [action.option_strings[0] for action in actions if action.dest != "help"]


def test_every_option_of_main_belongs_to_a_setting():
    known = [option for setting in settings.SETTINGS.values() for option in setting.options]
    assert sorted(known) == sorted(options_of_main()), "tests/answers/settings.py: say what the checks look at"


def test_every_exercise_says_what_is_looked_at():
    ids = [exercise.id for exercise in syllabus().exercises]
    assert list(settings.RANKS) == list(settings.LOOKED_AT) == ids
    for exercise, own in settings.LOOKED_AT.items():
        assert set(own) <= set(settings.SETTINGS), exercise
    assert all(setting.reason for setting in settings.SETTINGS.values())


def test_what_is_told_of_the_rehearsals_is_what_they_give():
    """Each option that main.run() could lose by itself is in a command line of 5.1's check."""
    lost = {
        *("--strategy", "--bucket-cap-mb", "--model", "--dataset", "--data-dir", "--validation", "--num-workers"),
        *("--accumulate", "--optimizer", "--base-lr", "--momentum", "--weight-decay", "--seed", "--precision"),
        *("--dry-run", "--evaluate-only", "--output-dir", "--global-batch-size", "--per-device-batch-size"),
        *("--width", "--depth", "--persistent-workers", "--prefetch", "--randaugment"),
    }
    assert lost == set(settings.given_in_rehearsals())
    assert {one.strategy for one in settings.draw_rehearsals()} == {"none", "ddp", "fsdp", "fsdp1"}


def test_the_page_is_up_to_date():
    assert settings.PAGE.read_text(encoding="utf-8") == settings.page(), "run: make mistakes"


@pytest.mark.slow
def test_the_checks_have_so_many_ranks(root: Path):
    counted = {}
    for exercise in syllabus().exercises:
        sizes: set[int] = set()
        for check in checks_of(exercise):
            group = Group(root / "solutions", exercise.id)
            check.function(group)
            group.close()
            sizes |= {order.world_size for order in group.orders}
        counted[exercise.id] = sorted(sizes)
    assert counted == settings.RANKS
