"""`nbgrader collect` for submissions that nobody trusts: any user can make any folder in the exchange.

nbgrader's own copies what a link leads to, with the instructor's rights, and ends at the first folder whose name
or size it does not like. Here only ordinary files are copied, what is wrong with one submission is said and costs
no other, and nobody's submission is replaced by one that another user has put there.
"""

from __future__ import annotations

import os
import pwd
import shutil
import stat
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from nbgrader.exchange import ExchangeError
from nbgrader.exchange.default import ExchangeCollect
from nbgrader.utils import ignore_patterns, parse_utc

from lab.base.files import write_whole
from lab.base.words import printable
from lab.course.earlier import keep_earlier
from lab.course.folders import Notes, make_private, read_notes, write_notes
from lab.course.notebooks import stand_in
from lab.course.sent.contents import FolderContents, no_ordinary_file
from lab.course.sent.copying import copy_ordinary, mode_of

PATIENCE = timedelta(minutes=15)  # that copying into the exchange may take, and clocks may differ
STAMP = "%Y-%m-%d %H:%M:%S"
LONGEST_STAMP = 100  # characters
NO_TIME = datetime(1, 1, 1)


class Collect(ExchangeCollect):
    """Takes of each student the submission that counts, and keeps notes of what an instructor must know."""

    def init_src(self) -> None:
        """Of each student's submissions the latest, or the latest in time; their own before those of others."""
        self._found: dict[str, list[dict[str, Any]]] = {}
        super().init_src()  # finds all of them, by _path_to_record
        self.src_records = [self._counts(records) for records in self._found.values()]

    def _path_to_record(self, path: str) -> dict[str, Any]:
        try:
            record = super()._path_to_record(path)
            student = record["username"]
            if not student.isprintable() or student[:1] in "=+-@":
                raise ValueError("no user is called so")
            info = os.lstat(path)
            if not stat.S_ISDIR(info.st_mode):
                raise ValueError("it is no folder")
        except (ExchangeError, ValueError, OverflowError, TypeError, OSError) as error:
            self.log.warning("%s is not collected: %s", printable(path), printable(str(error)))
            return {"username": "", "filename": "", "timestamp": NO_TIME}
        record |= {"owner": _user(info.st_uid), "arrived": info.st_ctime}
        self._found.setdefault(student, []).append(record)
        return record

    def _counts(self, records: list[dict[str, Any]]) -> dict[str, Any]:
        own = [record for record in records if not self._others(record)] or records
        latest = self._sort_by_timestamp(own)
        in_time = [record for record in latest if self.duedate is None or record["timestamp"] <= self.duedate]
        return (in_time if self.before_duedate and in_time else latest)[0]

    def _others(self, record: dict[str, Any]) -> bool:
        """Whether a submission under a student's name was put there by somebody else."""
        return bool(self.check_owner and record["owner"] != record["username"])

    def copy_files(self) -> None:
        """Copy what counts; trouble with one is that one's."""
        self.log.info("Processing %d submissions of '%s'", len(self.src_records), self.coursedir.assignment_id)
        for record in self.src_records:
            student = record["username"]
            home = Path(
                self.coursedir.format_path(
                    self.coursedir.submitted_directory, student, self.coursedir.assignment_id
                )
            )
            try:
                self._collect(record, home)
            except (OSError, ValueError) as error:  # it cannot even be noted
                self.log.error("%s was not collected: %s", student, printable(str(error)))

    def _collect(self, record: dict[str, Any], home: Path) -> None:
        student = record["username"]
        notes = read_notes(home) or Notes(student)
        replaces = home.exists() and self._others(record) and notes.owner != record["owner"]
        counts = notes.owner if replaces else record["owner"]
        claims = [
            f"{one['owner']} has handed in under this name ({printable(one['filename'])} in the exchange): it was "
            "not collected, and what was there before counts"
            for one in self._found[student]
            if self._others(one) and one["owner"] != counts
        ]
        copied = notes.copied
        if not replaces and self._is_due(record, home):
            self.log.info("Collecting submission: %s %s", student, self.coursedir.assignment_id)
            try:
                copied = (*self._doubts(record), *self._copy(record, home, notes.owner in ("", record["owner"])))
            except (OSError, RuntimeError, ValueError) as error:
                claims.append(f"{printable(record['filename'])} could not be collected: {printable(str(error))}")
                make_private(home)  # a row in the table there must be
                stand_in(home)
            else:
                notes = Notes(student, record["owner"])
        notes = Notes(student, notes.owner, copied, tuple(claims))
        for sentence in notes.look:
            self.log.warning("%s: %s", student, sentence)
        write_notes(home, notes)

    def _is_due(self, record: dict[str, Any], home: Path) -> bool:
        """As nbgrader decides it, by the time of what is there."""
        if not home.is_dir():
            return True
        try:
            before = self.coursedir.get_existing_timestamp(str(home))
        except (AttributeError, ValueError, OverflowError):  # nbgrader stumbles over a time that is none
            before = None
        if self.update:
            return before is None or record["timestamp"] > before
        if self.before_duedate:
            return bool(record["timestamp"] != before)
        self.log.info("%s is there already, --update takes newer ones", record["username"])
        return False

    def _doubts(self, record: dict[str, Any]) -> list[str]:
        """What in a submission's name is contradicted by the file system."""
        said = []
        if self._others(record):
            said.append(
                f"it claims to be submitted by {record['username']} but is owned by {record['owner']}: ask both"
            )
        # The time of the last change of the folder itself is the one that no user can set.
        arrived = datetime.fromtimestamp(record["arrived"], UTC).replace(tzinfo=None)
        if abs(arrived - record["timestamp"]) > PATIENCE:
            said.append(
                f"by its name it was submitted {record['timestamp']:{STAMP}} UTC, by the file system it came "
                f"{arrived:{STAMP}} UTC"
            )
        return said

    def _copy(self, record: dict[str, Any], home: Path, keep: bool) -> list[str]:
        """Put the ordinary files in the place of what is there, and `keep` what they lack of it."""
        source = Path(self.inbound_path, record["filename"])
        new = home.with_name(f".{home.name}.new")
        shutil.rmtree(new, ignore_errors=True)
        try:
            left_out = copy_ordinary(
                source,
                new,
                ignored=ignore_patterns(exclude=self.coursedir.ignore, include=self.coursedir.include),
                largest=1000 * self.coursedir.max_file_size,
                limit=1000 * self.coursedir.max_dir_size,
                shared=self.coursedir.groupshared,
            )
            # nbgrader reads the time from there, and ends where it can not.
            stamp = new / "timestamp.txt"
            write_whole(stamp, f"{record['timestamp']:{STAMP}.%f} UTC", mode=mode_of(self.coursedir.groupshared))
            stand_in(new)
            if keep:
                left_out += keep_earlier(record["username"], home, new, self.coursedir.assignment_id)
            if home.is_symlink():
                home.unlink()
            elif home.exists():
                shutil.rmtree(home)
            new.rename(home)
        finally:
            shutil.rmtree(new, ignore_errors=True)
        return left_out


def drop_links(home: Path) -> list[Path]:
    """Remove from a submission in a course what is no ordinary file: nbgrader would copy what a link leads to.

    What may have been work is noted, so that it stays in the student's row. A time that is none goes too: nbgrader
    ends with it.

    Returns:
        What was removed.
    """
    contents = FolderContents(home)
    contents.names()
    said = list(contents.look)
    gone = []
    for folder, folders, files in os.walk(home):
        for path in [Path(folder, name) for name in (*folders, *files)]:
            if no_ordinary_file(os.lstat(path), contents.owner):
                path.unlink()
                gone.append(path)
    stamp = home / "timestamp.txt"
    if stamp.exists():
        try:
            with stamp.open(encoding="utf-8") as file:
                parse_utc(file.read(LONGEST_STAMP).strip() or None)
        except (OSError, ValueError, OverflowError, TypeError):
            shutil.rmtree(stamp) if stamp.is_dir() else stamp.unlink()
            gone.append(stamp)
            said.append("its timestamp.txt holds no time, and was left out")
    if said:
        try:
            notes = read_notes(home) or Notes()
        except ValueError:  # which stands in the row already
            return gone
        write_notes(home, replace(notes, copied=(*notes.copied, *said)))
    return gone


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
