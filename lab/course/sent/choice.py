"""Which of the modules that a student sent are graded: there may be several of one name, under others, in parts.

What is certain is done: an untouched stub is nobody's work, "data (1).py" is data.py where there is no other. What
is not certain is done too, and a sentence asks a person to look.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from pathlib import PurePosixPath

from lab.base.paths import module_file, student_sources
from lab.base.words import encodable
from lab.course.sent.contents import few
from lab.course.sent.loose import is_archive
from lab.syllabus.syllabus import ALL_MODULES, PART_TWO

OPEN = re.compile(rb"NotImplementedError\(\s*[\"']Exercise ")  # in every region of a stub
MERGE = re.compile(rb"^(?:<{7}|>{7})(?: |\r?$)", re.MULTILINE)
MAX_COPIES = 60  # files called like modules that are looked at
CERTAIN = 120.0  # seconds: of two files the later is known, though clocks and archives round
# What a name may have besides the module's: by browsers and file managers, then what people add.
COPIED = r"(?:[ _-]*\(?\d{1,2}\)?|[ _-]*(?:copy|kopie)[ _-]*\d*| \(copy\))"
CALLED = rf"(?:[-_. ]*(?:v\d+|final|new|neu|fixed|corrected|done|{COPIED}))*"


@dataclass(frozen=True)
class Copy:
    """A file that may be a module.

    file   the module, as files names it: data.py, from_scratch/ring.py
    close  0 if it is called so, 1 if nearly, 2 if perhaps
    begun  how many of its exercises somebody has begun
    """

    place: PurePosixPath
    file: str
    close: int
    content: bytes | int | None
    begun: int
    time: float

    @property
    def folder(self) -> PurePosixPath:
        """The folder of all modules. One that has a folder of its own may have been sent without it."""
        below, parent = PurePosixPath(self.file).parent, self.place.parent
        return parent.parent if below.parts and parent.name == below.name else parent

    @property
    def told(self) -> str:
        return encodable(self.place)

    @property
    def packed_in(self) -> tuple[str, ...]:
        """The archives within the submission that it is in."""
        return tuple(part for part in self.place.parts[:-1] if is_archive(part))


@dataclass
class Choice:
    """The folder of the modules, and module -> the file that is graded; what a person should know or look at."""

    home: PurePosixPath | None
    files: dict[str, Copy] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    look: list[str] = field(default_factory=list)


Read = Callable[[PurePosixPath], bytes | int | None]


def choose(
    names: Sequence[PurePosixPath], files: Collection[str], read: Read, time: Callable[[PurePosixPath], float]
) -> Choice:
    """What is graded of all that was sent.

    Args:
        files: the modules that are wanted, "data.py" or "from_scratch/ring.py".
        read: the content of a file, or its size where that is too large; None where it cannot be read.
        time: when a file was last changed.
    """
    found = [
        (name, *called)
        for name in names
        if (called := as_module(name.name, files)) and not _given(name, called[0])
    ]
    found.sort(key=lambda one: (one[2], len(one[0].parts), one[0]))
    copies = []
    for name, file, close in found[:MAX_COPIES]:
        content = read(name)
        if content != _given_main():
            copies.append(Copy(name, file, close, content, begun(file, content), time(name)))
    if all(copy.close == 2 for copy in copies) and len({copy.file for copy in copies}) < len(copies):
        copies = []  # programs that happen to be called so, no modules
    choice = Choice(_home(copies))
    if choice.home is None:
        return choice
    if len(found) > MAX_COPIES:
        choice.look.append(f"more than {MAX_COPIES} files called like modules: the rest was not looked at")
    _tell_folders(choice, copies)
    for file in sorted(files):
        _choose_one(choice, file, [copy for copy in copies if copy.file == file])
    other = {module_file(name) for name in PART_TWO} - set(files)
    two = [name for name in names if (one := as_module(name.name, other)) and begun(one[0], read(name))]
    if two:
        choice.remarks.append(f"{encodable(two[0])} is of part two, another assignment, and was not graded here")
    lacks, graded = sorted(set(files) - choice.files.keys()), {copy.place for copy in choice.files.values()}
    if lacks:
        known = {PurePosixPath(file).name for file in (*files, *other)} | {"__init__.py"}
        mine = [name for name in names if name.parent == choice.home and name.suffix in (".py", "")]
        beside = few(name.name for name in mine if name.name not in known and name not in graded)
        also = f"; beside them: {beside}" * bool(beside)
        choice.look.append(f"an incomplete set of modules: without {', '.join(lacks)}{also}")
    return choice


def as_module(name: str, files: Collection[str]) -> tuple[str, int] | None:
    """The module that a file is called like, and how closely: 0 exactly, 1 nearly, 2 perhaps; None for others."""
    by_name = {PurePosixPath(file).name: file for file in files}
    if name in by_name:
        return by_name[name], 0
    if name.startswith("."):
        return None
    for called in sorted(by_name, key=len, reverse=True):
        file, stem = by_name[called], called.removesuffix(".py")
        if stem not in name.lower():
            continue
        if re.fullmatch(rf"{stem}{COPIED}?\.py", name, re.IGNORECASE):
            return file, 1
        if re.fullmatch(rf"(?:.*[-_. ])?{stem}{CALLED}\.(?:py|py\.txt|txt|py\.py)", name, re.IGNORECASE):
            return file, 2
    return None


def _given(place: PurePosixPath, file: str) -> bool:
    """Whether it lies in the folder of part two's modules without being one, as from_scratch/main.py does."""
    return place.parent.name in _folders() and PurePosixPath(file).parent.name != place.parent.name


def _home(copies: Iterable[Copy]) -> PurePosixPath | None:
    """The folder in which most was begun; of several the one with most modules, then the one called exercises."""
    folders: dict[PurePosixPath, dict[str, Copy]] = {}
    for copy in copies:
        best = folders.setdefault(copy.folder, {})
        if copy.file not in best or (copy.begun, -copy.close) > (best[copy.file].begun, -best[copy.file].close):
            best[copy.file] = copy

    def worth(folder: PurePosixPath) -> tuple[object, ...]:
        best = folders[folder]
        exact = sum(copy.close == 0 for copy in best.values())
        latest = max(copy.time for copy in best.values()) if _packed(folder) else 0.0
        begun = sum(copy.begun for copy in best.values())
        return exact == 0, -begun, -len(best), -latest, folder.name != "exercises", len(folder.parts), folder

    return min(folders, key=worth) if folders else None


def _tell_folders(choice: Choice, copies: list[Copy]) -> None:
    home = choice.home
    others = sorted({str(copy.folder) for copy in copies if copy.close == 0 and copy.folder != home})
    if others and home is not None:
        used = encodable(home) if home.parts else "the top folder"
        choice.remarks.append(
            f"modules in several folders: {used} was graded, not {encodable(', '.join(others[:3]))}"
        )


def _choose_one(choice: Choice, file: str, copies: list[Copy]) -> None:
    """The file that is graded as one module, if there is any."""
    own = [copy for copy in copies if copy.folder == choice.home]
    exact = [copy for copy in own if copy.close == 0]
    taken = exact[0] if exact else None
    work = _different(copy for copy in copies if copy.begun)
    near = [copy for copy in work if copy.close < 2]
    if taken is None or not taken.begun:
        choices = near or (work if taken is None else [])
        if choices:
            before, taken = taken, _latest(choices, choice.home)
            sentence = f"{taken.told} was graded as {file}"
            if before is not None:
                sentence += f", for {before.told} is as it was given out"
            certain = len(choices) == 1 and taken.close < 2 and taken.folder == choice.home
            (choice.remarks if certain else choice.look).append(sentence)
        elif taken is None and copies:
            taken = copies[0]
            choice.look.append(
                f"{file} is missing beside the others: {taken.told} was graded, which nobody has begun"
            )
    elif later := _later(taken, near):
        choice.look.append(f"{later.told} was graded, which is later than {taken.told}")
        taken = later
    if taken is None:
        return
    choice.files[file] = taken
    if isinstance(taken.content, bytes) and MERGE.search(taken.content):
        choice.look.append(f"{taken.told} holds the marks of a merge that was not finished (<<<<<<<)")
    rest = [copy.told for copy in near if copy.content != taken.content]
    if rest:
        choice.look.append(
            f"{taken.told} was graded as {file}; not {', '.join(rest[:3])}, which says something else"
        )


def _latest(copies: list[Copy], home: PurePosixPath | None) -> Copy:
    """The last one, where times tell; else the one nearest to the home and to its name."""
    last = max(copies, key=lambda copy: copy.time)
    if all(copy is last or last.time - copy.time > CERTAIN for copy in copies):
        return last
    return min(copies, key=lambda copy: (copy.folder != home, copy.close, copy.place))


def _later(taken: Copy, copies: list[Copy]) -> Copy | None:
    """Another that was packed and sent by itself after `taken` was changed last."""
    after = [
        copy
        for copy in copies
        if copy.content != taken.content
        and copy.packed_in != taken.packed_in
        and copy.close == 0
        and copy.time - taken.time > CERTAIN
    ]
    return max(after, key=lambda copy: copy.time, default=None)


def _different(copies: Iterable[Copy]) -> list[Copy]:
    """One of each content, by name."""
    ordered = sorted(copies, key=lambda copy: repr(copy.content))
    return [
        min(same, key=lambda copy: (copy.close, copy.place))
        for _, same in groupby(ordered, key=lambda copy: repr(copy.content))
    ]


def _packed(folder: PurePosixPath) -> bool:
    return any(is_archive(part) for part in folder.parts)


def begun(file: str, content: bytes | int | None) -> int:
    """How many of a module's exercises are no longer as they were given out."""
    if content is None or (isinstance(content, bytes) and not content.strip()):
        return 0
    left = len(OPEN.findall(content)) if isinstance(content, bytes) else 0
    return max(0, _regions()[file] - left)


@cache
def _folders() -> frozenset[str]:
    """The folders that some modules have of their own."""
    return frozenset(PurePosixPath(module_file(name)).parent.name for name in ALL_MODULES) - {""}


@cache
def _given_main() -> bytes:
    """from_scratch/main.py, which nobody writes, and which may be sent without its folder."""
    return (student_sources() / "exercises" / "from_scratch" / "main.py").read_bytes()


@cache
def _regions() -> dict[str, int]:
    """Module -> how many exercises its stub has open."""
    stubs = student_sources() / "exercises"
    files = map(module_file, ALL_MODULES)
    return {file: len(OPEN.findall((stubs / file).read_bytes())) for file in files}
