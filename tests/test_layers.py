"""The rooms of lab/: each __init__ says what its room may import, no arrow leads in a circle, no file is too long.

A room is a folder of lab/ with Python files in it. The last line of its docstring is "May import: base, ranks." or
"May import: nothing.", with rooms named by their path below lab/.
"""

import ast
import re
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

LAB = Path(__file__).resolve().parents[1] / "lab"
ROOMS = sorted({file.parent for file in LAB.rglob("*.py")} - {LAB})
LONGEST_FILE = 300  # lines
LARGEST_ROOM = {"course": 28, "commands": 28}  # files
LARGEST_OTHER_ROOM = 16


def name(room: Path) -> str:
    return room.relative_to(LAB).as_posix()


def declared(room: Path) -> set[str]:
    """What the room's __init__ says that it may import."""
    text = ast.get_docstring(ast.parse((room / "__init__.py").read_text())) or ""
    line = re.search(r"^May import: ([\w/, \n]+)\.$", text, re.M)
    assert line, f'lab/{name(room)}/__init__.py: its docstring has no line "May import: base, ranks."'
    rooms = {one.strip() for one in line[1].split(",")} - {"nothing"}
    assert rooms <= {name(room) for room in ROOMS}, f"lab/{name(room)}/__init__.py names rooms that are none"
    return rooms


def imports(file: Path) -> Iterator[tuple[int, str]]:
    """Line and name of each module of lab that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "lab":
            for alias in node.names:
                below = LAB.parent.joinpath(*node.module.split("."), alias.name)
                is_module = below.is_dir() or below.with_suffix(".py").is_file()
                yield node.lineno, f"{node.module}.{alias.name}" if is_module else node.module
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name.split(".")[0] == "lab")


def room_of(module: str) -> Path:
    place = LAB.parent.joinpath(*module.split("."))
    return place if place.is_dir() else place.parent


@pytest.mark.parametrize("room", ROOMS, ids=name)
def test_a_room_imports_what_it_says(room: Path) -> None:
    used: dict[str, str] = {}
    for file in room.glob("*.py"):
        for line, module in imports(file):
            if (other := room_of(module)) not in (room, LAB):
                used.setdefault(name(other), f"{file.relative_to(LAB.parent)}:{line}")
    unsaid = {other: place for other, place in used.items() if other not in declared(room)}
    assert not unsaid
    assert declared(room) <= used.keys(), f"lab/{name(room)}/__init__.py may import what nothing in it does"


def test_no_arrow_leads_in_a_circle() -> None:
    try:
        TopologicalSorter({name(room): declared(room) for room in ROOMS}).prepare()
    except CycleError as error:
        raise AssertionError(f"rooms import each other: {' -> '.join(reversed(error.args[1]))}") from None


@pytest.mark.parametrize("room", ROOMS, ids=name)
def test_no_arrow_between_the_files_of_a_room_leads_in_a_circle(room: Path) -> None:
    def beside(file: Path) -> set[str]:
        return {module.rpartition(".")[2] for _, module in imports(file) if room_of(module) == room}

    try:
        TopologicalSorter({file.stem: beside(file) for file in room.glob("*.py")}).prepare()
    except CycleError as error:
        raise AssertionError(f"files import each other: {' -> '.join(reversed(error.args[1]))}") from None


@pytest.mark.parametrize("room", [LAB, *ROOMS], ids=lambda room: "lab" if room == LAB else name(room))
def test_rooms_and_files_are_small_enough_to_find_things_in(room: Path) -> None:
    files = list(room.glob("*.py"))
    assert len(files) <= LARGEST_ROOM.get(room.name, LARGEST_OTHER_ROOM)
    assert {file.name: n for file in files if (n := len(file.read_text().splitlines())) > LONGEST_FILE} == {}


@pytest.mark.parametrize("room", [LAB, *ROOMS], ids=lambda room: "lab" if room == LAB else name(room))
def test_no_private_name_is_imported_from_another_file(room: Path) -> None:
    private = [
        f"{file.name}:{node.lineno} {alias.name}"
        for file in room.glob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "lab"
        for alias in node.names
        if alias.name.startswith("_") and not alias.name.startswith("__")
    ]
    assert private == []
