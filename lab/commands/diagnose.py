"""lab diagnose: what happened to a job that did not end well, and what to try next."""

import argparse
import sys
from pathlib import Path

from lab.base.terminal import Page
from lab.base.words import printable

HELP = (
    "say what happened to a job, from its log, its run folder or its flight recorder dumps, and what to try next"
)


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
    from lab.diagnose.evidence import gather, latest_jobs, tasks
    from lab.diagnose.nccl_log import explained
    from lab.diagnose.told.finding import UNKNOWN
    from lab.diagnose.unexplained import say_nothing_found
    from lab.diagnose.verdict import findings

    page = Page(sys.stdout)
    unexplained = False
    named = [task for path in args.paths for task in tasks(path)]
    for number, path in enumerate(named or latest_jobs()):
        evidence = gather(path)
        found = findings(evidence)
        if number:
            page.line()
        page.line(page.bold(evidence.name))
        for name in evidence.unreadable:
            page.say(f"{name} is damaged, or no flight recorder dump: left out", lead="  note   ")
        for sentence in explained(evidence.log):
            page.say(sentence, lead="  nccl   ")
        if not found:
            unexplained |= say_nothing_found(page, evidence)
            continue
        first, *others = found
        unexplained |= first.name == UNKNOWN
        page.say(first.saw, lead="  saw    ")
        page.say(first.means, lead="  means  ")
        for index, command in enumerate(first.do):
            page.line(
                ("  try    " if index == 0 else "         ") + printable(command)
            )  # to be pasted: not wrapped
        for other in others:
            page.say(other.saw, lead="  also   ")
    return 1 if unexplained else 0
