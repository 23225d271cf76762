"""sacct.txt of a run's folder: what accounting knows of a job and its steps, written once more after the end."""

from pathlib import Path

from lab.base.files import write_whole
from lab.slurm import query

# As in slurm/system_records.sh, which writes it while the job still runs.
COLUMNS = "JobID,JobName,State,ExitCode,Start,End,Elapsed,NodeList,AllocTRES,MaxRSS,AveCPU,AveRSS"
_RUNNING = ("RUNNING", "COMPLETING", "PENDING", "REQUEUED")


def complete(file: Path, job: str) -> bool:
    """Whether sacct.txt said that the job, or a step of it, still ran, and has now been written again."""
    if not _unfinished(file.read_text(encoding="utf-8", errors="replace")):
        return False
    done = query.ask("sacct", f"--jobs={job}", "--duplicates", "--parsable2", f"--format={COLUMNS}")
    if (
        isinstance(done, str)
        or done.returncode != 0
        or len(done.stdout.splitlines()) < 2
        or _unfinished(done.stdout)
    ):
        return False
    write_whole(file, done.stdout)
    return True


def _unfinished(table: str) -> bool:
    header, *lines = [line.split("|") for line in table.splitlines() if "|" in line] or [[]]
    if "State" not in header:
        return False
    states = [line[header.index("State")] for line in lines if len(line) == len(header)]
    return any(state.startswith(_RUNNING) for state in states)
