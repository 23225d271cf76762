"""lab diagnose: what happened to a job that did not end well, and what to try next."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from lab.base.errors import UserError
from lab.base.terminal import Page
from lab.base.words import printable

if TYPE_CHECKING:
    from lab.diagnose.evidence import Evidence

HELP = (
    "say what happened to a job, from its log, its run folder or its flight recorder dumps, and what to try next"
)
STUCK = 3  # jobs that can never start, to be named without being asked for
LATEST = ("train.err", "train.log")  # beside run.sh, of the latest job


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        nargs="*",
        type=Path,
        metavar="LOG|RUN|JOB",
        help="a log, a run's folder in results/, a job's number, or a folder of dumps (default: the latest job, "
        "after those of yours that Slurm keeps in its queue for ever)",
    )


def run(args: argparse.Namespace) -> int:
    """0: nothing is wrong, or it was explained; 1: something is wrong that the lab cannot explain."""
    from lab.diagnose.evidence import gather, tasks
    from lab.diagnose.verdict import findings

    page = Page(sys.stdout)
    unexplained = False
    named = [task for path in args.paths for task in tasks(path)]
    for number, path in enumerate(named or _latest()):
        evidence = gather(path)
        found = findings(evidence)
        if number:
            page.line()
        page.line(page.bold(evidence.name))
        for name in evidence.unreadable:
            page.say(f"{name} is damaged, or no flight recorder dump: left out", lead="  note   ")
        if not found:
            unexplained |= _nothing(page, evidence)
            continue
        first, *others = found
        page.say(first.saw, lead="  saw    ")
        page.say(first.means, lead="  means  ")
        for index, command in enumerate(first.do):
            page.line(
                ("  try    " if index == 0 else "         ") + printable(command)
            )  # to be pasted: not wrapped
        for other in others:
            page.say(other.saw, lead="  also   ")
    return 1 if unexplained else 0


def _latest() -> list[Path]:
    """The job that ran last here; before it those that wait for what they will never get, and so have no log."""
    from lab.diagnose.slurm_job import stuck

    found = [Path(job) for job in stuck()[:STUCK]]
    links = [Path(name) for name in LATEST if Path(name).exists()]
    # Slurm opens train-12.err before run.sh begins, and run.sh makes a link of it: if it has not come that far,
    # this is all there is.
    early = [file for file in Path().glob("train-*.err") if not file.is_symlink()]
    logs = sorted((*links[:1], *early), key=lambda file: file.lstat().st_mtime)
    found += logs[-1:]
    if not found:
        raise UserError("there is no train.err here: name a log, a run's folder in results/, or a job's number")
    return found


def _nothing(page: Page, evidence: "Evidence") -> bool:
    """Say that nothing was found; whether that is because the lab does not know enough."""
    status, log = evidence.status, evidence.log
    slurm = evidence.now.state.split()[0] if evidence.now and evidence.now.state else ""
    if status == "done":
        page.say("The run is done, nothing went wrong.", lead="  ")
        return False
    if not status and not log.strip() and slurm == "COMPLETED":
        page.say("Slurm says that the job has ended, and that nothing went wrong.", lead="  ")
        return False
    said = slurm or evidence.state  # Slurm knows better than a program that may have been killed
    if said in ("RUNNING", "CONFIGURING", "COMPLETING") or (status == "running" and not said):
        who = "Slurm" if slurm else "It"
        page.say(f"{who} says that it is running, and its log shows no error.", lead="  ")
        page.say("squeue --me   # is it still there?", lead="  try    ")
        page.say(
            "tail -f train.log   # does it still move? if not, it hangs: see docs/failures.md", lead="         "
        )
        return False
    last = [line for line in log.splitlines() if line.strip()][-1:]
    page.say("Nothing here that the lab knows.", lead="  ")
    if evidence.now is not None and slurm:
        page.say(f"{evidence.now.state}, exit code {evidence.now.exit_code or 'unknown'}", lead="  Slurm  ")
    if not log.strip() and evidence.jobid:
        page.line(f"  try    scontrol show job {evidence.jobid}   # StdErr= is its log; then lab diagnose LOG")
        return True
    if last:
        page.say(last[0][:300], lead="  last   ")
    page.say("docs/failures.md lists symptoms, causes and commands", lead="  try    ")
    return True
