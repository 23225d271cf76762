"""lab doctor: is all there that the lab needs, and what to do where it is not."""

import argparse
import sys
from pathlib import Path

from lab.doctor.probes import examine
from lab.grading.feedback import Feedback

HELP = "look whether this machine has what the lab needs, and say what to do"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def run(args: argparse.Namespace) -> int:
    """0: all that is needed is there; 1: something is not."""
    from lab.doctor import needed, optional

    feedback = Feedback(sys.stdout, Path.cwd())
    to_repair = []
    for probe, reading in examine([*needed.PROBES, *optional.PROBES]):
        feedback.finding(probe.name, reading.state, reading.what, reading.do)
        if reading.needs_repair:
            to_repair.append(probe.name)
    feedback.blank()
    if to_repair:
        feedback.say(f"To repair: {', '.join(to_repair)}.")
        return 1
    feedback.say("All that the lab needs is there.")
    return 0
