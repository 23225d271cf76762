"""lab diagnose: what happened to a job that did not end well, and what to try next."""

import argparse
import sys
from pathlib import Path

from lab.grading.page import Page, printable
from lab.training.errors import UserError

HELP = (
    "say what happened to a job, from its log, its run folder or its flight recorder dumps, and what to try next"
)
LATEST = ("train.err", "train.log")  # beside run.sh, of the latest job


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths",
        nargs="*",
        type=Path,
        metavar="LOG|RUN",
        help="a log, a run's folder in results/, or a folder of dumps (default: the latest job's train.err)",
    )


def run(args: argparse.Namespace) -> int:
    """0: nothing is wrong, or it was explained; 1: something is wrong that the lab cannot explain."""
    from lab.diagnose.evidence import gather
    from lab.diagnose.verdict import findings

    page = Page(sys.stdout)
    unexplained = False
    for number, path in enumerate(args.paths or [_latest()]):
        evidence = gather(path)
        found = findings(evidence)
        if number:
            page.line()
        page.line(page.bold(evidence.name))
        for name in evidence.unreadable:
            page.say(f"{name} is damaged, or no flight recorder dump: left out", lead="  note   ")
        if not found:
            unexplained |= _nothing(page, evidence.status, evidence.log)
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


def _latest() -> Path:
    for name in LATEST:
        if Path(name).exists():
            return Path(name)
    raise UserError("there is no train.err here: name a log, or a run's folder in results/")


def _nothing(page: Page, status: str, log: str) -> bool:
    """Say that nothing was found; whether that is because the lab does not know enough."""
    if status == "done":
        page.say("The run is done, nothing went wrong.", lead="  ")
        return False
    if status == "running":
        page.say("It says that it is running, and its log shows no error.", lead="  ")
        page.say("squeue --me   # is it still there?", lead="  try    ")
        page.say(
            "tail -f train.log   # does it still move? if not, it hangs: see docs/failures.md", lead="         "
        )
        return False
    last = [line for line in log.splitlines() if line.strip()][-1:]
    page.say("Nothing here that the lab knows.", lead="  ")
    if last:
        page.say(last[0][:300], lead="  last   ")
    page.say("docs/failures.md lists symptoms, causes and commands", lead="  try    ")
    return True
