"""The list of exercises, read from syllabus.toml and validated."""

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from lab.base.errors import UsageError, UserError
from lab.base.paths import module_file

SYLLABUS = Path(__file__).with_name("syllabus.toml")

MODULES = ("model", "distributed_utils", "data", "ddp_utils", "fsdp_utils", "train", "main")
# What is there for who wants more: a folder of modules is whole without. One in a folder of its own has its name
# before it: "from_scratch.ring" is from_scratch/ring.py.
PART_TWO = (
    *("fast", "from_scratch.ring", "from_scratch.ddp", "from_scratch.zero", "from_scratch.fsdp"),
    *("from_scratch.tensor_parallel", "from_scratch.pipeline", "from_scratch.hsdp"),
)
ALL_MODULES = MODULES + PART_TWO


class SyllabusError(UserError):
    """syllabus.toml breaks its own rules; the message names the exercise and the field."""


class Part(NamedTuple):
    """What a part of the judged behaviour is called, and the points that it gives by itself."""

    name: str
    points: int


@dataclass(frozen=True)
class Exercise:
    """One exercise; the fields are described in syllabus.toml."""

    id: str
    title: str
    module: str
    function: str
    points: int
    minutes: int
    builds_on: tuple[str, ...]
    hints: tuple[str, ...]
    parts: tuple[Part, ...] = ()

    @property
    def section(self) -> int:
        return int(self.id.split(".")[0])

    @property
    def file(self) -> str:
        """Below the folder of the modules: "data.py"."""
        return module_file(self.module)


@dataclass(frozen=True)
class Syllabus:
    """All exercises in order.

    exercises  part one: what there is to do, to count and to earn
    optional   part two, with points of its own
    """

    exercises: tuple[Exercise, ...]
    optional: tuple[Exercise, ...] = ()

    @property
    def every(self) -> tuple[Exercise, ...]:
        """The exercises of both parts."""
        return self.exercises + self.optional

    @property
    def part_two(self) -> "Syllabus":
        """Part two as if there were nothing else."""
        return Syllabus(self.optional)

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(exercise.id for exercise in self.exercises)

    @property
    def points(self) -> int:
        return sum(exercise.points for exercise in self.exercises)

    def __getitem__(self, exercise_id: str) -> Exercise:
        for exercise in self.every:
            if exercise.id == exercise_id:
                return exercise
        raise KeyError(exercise_id)

    def select(self, names: list[str]) -> list[Exercise]:
        """The exercises named by ids ("3.2") or sections ("3"), in syllabus order, each once.

        Raises:
            UsageError: a name is neither.
        """
        wanted: set[str] = set()
        for name in names:
            found = {e.id for e in self.every if name in (e.id, str(e.section))}
            if not found:
                ids = ", ".join(exercise.id for exercise in self.every)
                raise UsageError(f"there is no exercise {name}; choose from {ids}, or a section")
            wanted |= found
        return [exercise for exercise in self.every if exercise.id in wanted]

    def one(self, name: str, several: str) -> Exercise:
        """The exercise of this id.

        Raises:
            UsageError: `several`, and the exercises, where `name` is a section; or there is none of this name.
        """
        found = self.select([name])
        if len(found) > 1:
            raise UsageError(f"{several}: {', '.join(exercise.id for exercise in found)}")
        return found[0]


_TYPES: dict[str, type] = {
    "id": str,
    "title": str,
    "module": str,
    "function": str,
    "points": int,
    "minutes": int,
    "builds_on": list,
    "hints": list,
}


@cache
def syllabus() -> Syllabus:
    """The lab's own syllabus, read once."""
    return load_syllabus(SYLLABUS)


def load_syllabus(path: Path) -> Syllabus:
    """Read and validate a syllabus.

    Raises:
        SyllabusError: the file is not TOML, or an exercise lacks a field, has one too many or a wrong one.
    """
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SyllabusError(f"{path.name} is not valid TOML: {error}") from error
    parts = [tables.pop("exercise", None), tables.pop("optional", [])]
    if tables or not all(isinstance(entries, list) for entries in parts):
        raise SyllabusError(f"{path.name}: expected [[exercise]] tables, then [[optional]] ones, and nothing else")
    read: list[list[Exercise]] = [[], []]
    for own, entries, modules in zip(read, parts, (MODULES, PART_TWO), strict=True):
        for number, entry in enumerate(entries, start=1):
            own.append(_exercise(entry, number, {e.id for e in read[0] + read[1]}, modules, path.name))
    return Syllabus(*map(tuple, read))


def _exercise(
    entry: dict[str, Any], number: int, earlier: set[str], modules: tuple[str, ...], file: str
) -> Exercise:
    name = entry.get("id", f"number {number}")

    def wrong(what: str) -> SyllabusError:
        return SyllabusError(f"{file}: exercise {name}: {what}")

    if missing := [key for key in _TYPES if key not in entry]:
        raise wrong(f"{', '.join(missing)} missing")
    parts = entry.get("parts", {})
    if unknown := sorted(set(entry) - set(_TYPES) - {"parts"}):
        raise wrong(f"unknown field {', '.join(unknown)}")
    for key, kind in _TYPES.items():
        if type(entry[key]) is not kind:
            raise wrong(f"{key} must be {kind.__name__}, got {entry[key]!r}")
    if not re.fullmatch(r"\d+\.\d+", entry["id"]):
        raise wrong("an id is section.number, such as 3.2")
    if entry["id"] in earlier:
        raise wrong("this id is there twice")
    if entry["module"] not in modules:
        raise wrong(f"module {entry['module']!r} is none of {', '.join(modules)}")
    if entry["points"] < 1 or entry["minutes"] < 1:
        raise wrong("points and minutes must be at least 1")
    if unmet := [other for other in entry["builds_on"] if other not in earlier]:
        raise wrong(f"builds on {', '.join(map(str, unmet))}, which does not come before it")
    hints = entry["hints"]
    if not 2 <= len(hints) <= 4 or not all(isinstance(hint, str) and hint.strip() for hint in hints):
        raise wrong("expected 2 to 4 hints, none of them empty")
    if type(parts) is not dict or not all(type(points) is int and points > 0 for points in parts.values()):
        raise wrong(f"parts must be a table of names and points, got {parts!r}")
    if parts and (not 2 <= len(parts) <= 4 or sum(parts.values()) != entry["points"]):
        raise wrong(f"expected 2 to 4 parts that add up to {entry['points']} points, got {parts!r}")
    lists = {"builds_on": tuple(entry["builds_on"]), "hints": tuple(hints)}
    return Exercise(**{**entry, **lists, "parts": tuple(Part(*part) for part in parts.items())})
