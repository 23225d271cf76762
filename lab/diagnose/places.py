"""Where the folder of a job's run may be: in results/, beside the latest runs, or where --output-dir said."""

import shlex
from collections.abc import Iterable
from pathlib import Path

from lab.slurm.query import Submission

_RESULTS = Path("results")
_LATEST = ("train.err", "train.log")  # beside run.sh: links to the latest run's
_DEEP = ("*", "*/*", "*/*/*")  # a run may lie deeper than results/RUN


def records_of(number: str, places: Iterable[Path] | None = None) -> list[Path]:
    """The slurm-JOB folders of a job's runs; `number` may hold a pattern."""
    found = [one for one in _runs(f"slurm-{number}", _places() if places is None else places) if one.is_dir()]
    return list(dict.fromkeys(found))


def named_after(number: str) -> list[Path]:
    """Folders of runs that may be those of a job: by their record, or by their name."""
    folders = {file.parent for file in _runs("job.json", _places())}
    folders |= {one for place in _places() for one in place.glob(f"*-{number}")}
    return sorted(folder for folder in folders if folder.is_dir())


def where_submitted(record: Submission) -> list[Path]:
    """The folder of runs that the command of a job names."""
    if not record.folder:
        return []
    try:
        words = shlex.split(record.command)
    except ValueError:
        words = record.command.split()
    given = str(_RESULTS)
    for word, following in zip(words, (*words[1:], ""), strict=True):
        name, is_set, value = word.partition("=")
        if name == "--output-dir":
            given = value if is_set else following
    return [Path(record.folder) / given]


def _places() -> list[Path]:
    found = [_RESULTS]
    found += [Path(link).resolve().parent.parent for link in _LATEST if Path(link).is_symlink()]
    found += sorted(one.parent.parent for one in Path().glob("[!.]*/*/slurm-*"))
    return list({place.resolve(): place for place in reversed(found)}.values())[::-1]


def _runs(name: str, places: Iterable[Path]) -> list[Path]:
    return [found for place in places for deep in _DEEP for found in sorted(place.glob(f"{deep}/{name}"))]
