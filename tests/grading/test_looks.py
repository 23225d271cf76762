"""One table says how outcomes look: each has all of it, and is told from the others without colour."""

from dataclasses import astuple
from typing import get_args

from lab.grading.diagnosis import Outcome
from lab.grading.looks import LOOKS


def test_every_outcome_has_a_whole_look_and_signs_of_its_own():
    looks = [LOOKS[outcome.word] for outcome in get_args(Outcome)]
    assert all(all(astuple(look)) for look in looks)
    assert len({look.sign for look in LOOKS.values()}) == len(LOOKS)
    assert len({look.ascii for look in looks}) == len(looks)
