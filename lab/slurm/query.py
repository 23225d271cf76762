"""Ask Slurm: does it answer at all, and what has become of these jobs? Works with accounting and without."""

import os
import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from lab.base.errors import UserError

PATIENCE = 20.0  # seconds for an answer; a controller that is away lets its clients wait for long
AT_ONCE = 500  # job ids in one question


class NoAnswerError(UserError):
    """Slurm does not say whether a job waits, runs or has ended."""


@dataclass(frozen=True)
class SlurmJob:
    """What Slurm says of a job."""

    state: str  # in Slurm's words: RUNNING, TIMEOUT, "CANCELLED by 1000", ...
    reason: str = ""  # why it waits or how it ended, where Slurm says so
    exit_code: str = ""  # "1:0": code and signal
    started: str = ""  # as in status.json, with the time zone; empty where Slurm does not say
    ended: str = ""


@dataclass(frozen=True)
class Submission:
    """How a job was submitted, as far as Slurm still knows; `folder` is where it works, `log` holds its errors."""

    command: str = ""
    folder: str = ""
    log: str = ""


def unavailable() -> str:
    """Why jobs cannot be submitted here, in a few words; empty where Slurm answers."""
    done = ask("sinfo", "--noheader", "--format=%R")
    if isinstance(done, str):
        return done
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        return said[-1].removeprefix("slurm_load_partitions: ") if said else f"sinfo ends with {done.returncode}"
    return "" if done.stdout.strip() else "it has no partition"


def jobs(ids: Iterable[str], *, must_answer: bool = False) -> dict[str, SlurmJob]:
    """What Slurm still knows of these jobs, by job id; nothing at all where there is no Slurm.

    Args:
        must_answer: a job that is not in the answer has ended, and long ago. Otherwise it may also be that there
            was no answer.

    Raises:
        NoAnswerError: `must_answer`, and the controller, which knows every job that waits or runs, says nothing.
    """
    wanted = [one for one in dict.fromkeys(ids) if re.fullmatch(r"\d+(_\d+)?", one)]
    known: dict[str, SlurmJob] = {}
    for start in range(0, len(wanted), AT_ONCE):
        known |= _from_accounting(wanted[start : start + AT_ONCE])
    missing = set(wanted) - known.keys()
    # The controller knows of the present what accounting learns later, and is all there is on sites without.
    if missing or any(job.state.startswith(("PENDING", "RUNNING", "REQUEUED")) for job in known.values()):
        answer = _from_controller()
        if isinstance(answer, str):
            if missing and must_answer:
                raise NoAnswerError(f"Slurm does not say what has become of job {min(missing)} ({answer})")
        else:
            known |= {name: job for name, job in answer.items() if name in wanted}
    return known


def submission(job: str) -> Submission:
    """From the controller, which forgets a job some minutes after its end, or else from accounting."""
    done = ask("scontrol", "show", "job", job)
    if not isinstance(done, str) and done.returncode == 0:
        fields = dict(re.findall(r"^\s*(Command|WorkDir|StdErr)=(.*)$", done.stdout, re.M))
        return Submission(fields.get("Command", ""), fields.get("WorkDir", ""), fields.get("StdErr", ""))
    columns = "--format=WorkDir,SubmitLine"  # the last one may hold anything
    done = ask("sacct", "--allocations", "--noheader", "--parsable2", f"--jobs={job}", columns)
    if isinstance(done, str) or done.returncode != 0 or "|" not in done.stdout:
        return Submission()
    folder, _, command = done.stdout.splitlines()[0].partition("|")
    return Submission(command, folder)


def _from_accounting(ids: list[str]) -> dict[str, SlurmJob]:
    columns = "--format=JobID,State,ExitCode,Start,End"
    done = ask("sacct", "--allocations", "--noheader", "--parsable2", f"--jobs={','.join(ids)}", columns)
    if isinstance(done, str) or done.returncode != 0:
        return {}
    found = {}
    for line in done.stdout.splitlines():
        fields = line.split("|")
        if len(fields) == 5 and fields[0] in ids:
            name, state, exit_code, started, ended = fields
            found[name] = SlurmJob(state, "", exit_code, _time(started), _time(ended))
    return found


def _from_controller() -> dict[str, SlurmJob] | str:
    """All jobs of which the controller still knows, or why it does not answer."""
    done = ask("scontrol", "show", "job", "--oneliner")
    if isinstance(done, str):
        return done
    if done.returncode != 0:
        return (done.stderr.strip().splitlines() or [f"scontrol ends with {done.returncode}"])[-1]
    found = {}
    for line in done.stdout.splitlines():
        fields = dict(re.findall(r"(\w+)=(\S*)", line))
        name = fields.get("JobId", "")
        if "ArrayJobId" in fields and fields.get("ArrayTaskId", "").isdecimal():
            name = f"{fields['ArrayJobId']}_{fields['ArrayTaskId']}"
        reason = fields.get("Reason", "")
        found[name] = SlurmJob(
            fields.get("JobState", ""),
            "" if reason == "None" else reason,
            fields.get("ExitCode", ""),
            _time(fields.get("StartTime", "")),
            _time(fields.get("EndTime", "")),
        )
    return found


def _time(said: str) -> str:
    """Slurm's 2026-03-01T10:00:00, in the time zone of this machine; empty for None, Unknown and the like."""
    try:
        return datetime.fromisoformat(said).astimezone().isoformat()
    except ValueError:
        return ""


def ask(*command: str) -> "subprocess.CompletedProcess[str] | str":
    """Run one of Slurm's programs: how it ended and what it said, or why there is no answer."""
    try:
        standard = os.environ | {"SLURM_TIME_FORMAT": "standard"}  # a user's own could be read by nobody else
        return subprocess.run(command, env=standard, capture_output=True, text=True, check=False, timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        return f"{command[0]} has no answer after {PATIENCE:.0f} s"
    except OSError as error:
        return f"{command[0]} cannot be started ({error.strerror})"
