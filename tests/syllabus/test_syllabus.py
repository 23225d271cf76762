"""syllabus.toml is complete and consistent, and mistakes in it are named."""

import re
from pathlib import Path

import pytest

from lab.base.errors import UserError
from lab.syllabus.syllabus import SyllabusError, load_syllabus, syllabus

GOOD = {
    "id": '"3.2"',
    "title": '"Data"',
    "module": '"data"',
    "function": '"get_dataloaders"',
    "points": "5",
    "minutes": "10",
    "builds_on": "[]",
    "hints": '["Look.", "Look there."]',
}


def entry(**changes: str | None) -> str:
    fields = {**GOOD, **changes}
    return "[[exercise]]\n" + "".join(f"{key} = {value}\n" for key, value in fields.items() if value is not None)


def optional(**changes: str | None) -> str:
    return entry(**changes).replace("[[exercise]]", "[[optional]]")


def test_the_exercises_of_the_lab():
    lab = syllabus()
    assert " ".join(lab.ids) == "1.1 2.1 2.2 2.3 3.1 3.2 3.3 4.0 4.1 4.2 5.1 6.1 6.2 6.3"
    assert lab.points == 100
    assert " ".join(lab["5.1"].builds_on) == "1.1 2.1 2.2 2.3 3.1 3.2 3.3 4.1 4.2"
    others = {e.id: e.builds_on for e in lab.exercises if e.builds_on and e.id != "5.1"}
    assert others == {"2.2": ("2.1",), "3.3": ("3.2",), "6.3": ("6.1", "6.2")}


def test_part_two_is_beside_the_first():
    lab = syllabus()
    eight = lab.select(["8"])
    assert " ".join(e.id for e in eight) == "8.1 8.2 8.3 8.4 8.5 8.6"
    assert sum(e.points for e in eight) == 25
    assert not set(lab.part_two.ids) & set(lab.ids)
    assert [e.id for e in lab.select(["8", "6.3"])] == ["6.3", *(e.id for e in eight)]
    assert lab["8.4"] in lab.every


# Those of section 9 that are not written yet have their points here, so that part two comes to a hundred.
SECTION_9 = {"9.1": 8, "9.2": 15, "9.3": 10, "9.4": 15, "9.5": 11, "9.6": 11, "9.7": 5}


def test_section_9_has_the_other_75_points():
    assert sum(SECTION_9.values()) == 75
    nine = [e for e in syllabus().optional if e.section == 9]
    assert {e.id: e.points for e in nine}.items() <= SECTION_9.items()
    assert [e.id for e in nine] == sorted(e.id for e in nine)


def test_every_title_fits_a_narrow_terminal():
    assert [e.title for e in syllabus().every if len(e.title) > 31] == []


def test_every_exercise_names_a_definition_of_its_module(root: Path):
    for exercise in syllabus().every:
        text = (root / "solutions" / exercise.file).read_text()
        for name in exercise.function.split("."):
            assert re.search(rf"(def|class) {name}\b", text), f"{exercise.id}: no {name} in {exercise.file}"


def test_hints_say_more_and_more():
    for exercise in syllabus().every:
        assert len(exercise.hints[-1]) > 40, exercise.id
        assert len(set(exercise.hints)) == len(exercise.hints)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[exercise]\n", "is not valid TOML"),
        ("[exercise]\n", "expected [[exercise]] tables"),
        ("colour = 1\n" + entry(), "expected [[exercise]] tables"),
        (entry(points=None), "exercise 3.2: points missing"),
        (entry(id=None), "exercise number 1: id missing"),
        (entry(colour='"red"'), "exercise 3.2: unknown field colour"),
        (entry(points='"5"'), "exercise 3.2: points must be int, got '5'"),
        (entry(points="true"), "exercise 3.2: points must be int, got True"),
        (entry(points="0"), "exercise 3.2: points and minutes must be at least 1"),
        (entry(id='"3.2a"'), "an id is section.number"),
        (entry() + entry(), "exercise 3.2: this id is there twice"),
        (entry(module='"fast"'), "module 'fast' is none of model, distributed_utils"),
        (entry() + optional(id='"8.1"'), "exercise 8.1: module 'data' is none of fast, from_scratch.ring"),
        (entry() + optional(module='"fast"'), "exercise 3.2: this id is there twice"),
        (entry(module='"utils"'), "module 'utils' is none of model, distributed_utils"),
        (entry(builds_on='["6.1"]'), "builds on 6.1, which does not come before it"),
        (entry(builds_on='["3.2"]'), "builds on 3.2, which does not come before it"),
        (entry(hints='["one"]'), "expected 2 to 4 hints"),
        (entry(hints='["one", " "]'), "none of them empty"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, message: str):
    file = tmp_path / "syllabus.toml"
    file.write_text(text)
    with pytest.raises(SyllabusError, match=re.escape(message)):
        load_syllabus(file)


def test_select_takes_ids_and_sections_once_and_in_order():
    assert [e.id for e in syllabus().select(["3.3", "2", "2.1"])] == ["2.1", "2.2", "2.3", "3.3"]
    with pytest.raises(UserError, match=r"there is no exercise 7\.1; choose from 1\.1, 2\.1"):
        syllabus().select(["3", "7.1"])
