"""The `lab` command. Each of its commands is a module in lab/commands.

Next to nothing is imported here at the top: what is imported inside main() can be interrupted without a traceback.
"""

import gc
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

COMMANDS = (
    *("check", "watch", "hint", "question", "trace", "start", "jupyter", "reset", "fetch"),
    *("doctor", "system", "diagnose", "tensorboard", "predict", "plan", "roofline", "bandwidth", "cluster"),
    *("course", "grade", "report"),
    *("stubs", "notebooks"),
)

INTERRUPTED = 130  # as a shell has it for a program ended by Ctrl-C


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0: all is well; 1: something did not pass, or could not be done; 2: usage; 3: the lab's fault."""
    try:
        _open_standard_streams()
        try:
            code = _run(argv)
        finally:
            sys.stdout.flush()  # here, where what goes wrong can still be answered, and not at exit
        if argv is None:  # the program itself: all that is left is to end the ranks' server, which takes a moment
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            gc.freeze()  # Python would look through all of torch for what can go before everything goes
        return code
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the rest takes a moment; a second Ctrl-C shall not break it
        _say("\nStopped. Nothing was left running.")
        return INTERRUPTED
    except BrokenPipeError:  # the reader (head, less) has gone
        _mute()
        return 1
    except OSError as error:  # a full disk, too many processes: what this machine cannot do, and no bug
        what = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        _say(f"lab: cannot go on: {what or error}. `lab doctor` looks for the cause")
        _mute()
        return 1


def build_parser() -> "argparse.ArgumentParser":
    import argparse
    import importlib

    from lab import __version__

    parser = argparse.ArgumentParser(
        prog="lab",
        description="A guided lab in distributed PyTorch training.",
        epilog="Begin with `lab start my-lab`, then `lab check` in that folder.",
    )
    parser.add_argument("--version", action="version", version=f"scaling-lab {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        module = importlib.import_module(f"lab.commands.{name}")
        command = commands.add_parser(
            name, help=module.HELP, description=f"{module.HELP[0].upper()}{module.HELP[1:]}."
        )
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser


def _run(argv: Sequence[str] | None) -> int:
    args = build_parser().parse_args(argv)
    from lab.base.errors import UserError, lacking
    from lab.base.words import printable_lines

    try:
        try:
            return args.run(args)
        except ModuleNotFoundError as error:
            raise lacking(error) from error
    except UserError as error:
        print(f"lab {args.command}: {printable_lines(str(error))}", file=sys.stderr)
        return error.exit_code


def _open_standard_streams() -> None:
    """Have all three, also where the caller has closed some: the next file or socket would take their numbers."""
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
    for fd, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(fd, "w", closefd=False))
        if hasattr(getattr(sys, name), "reconfigure"):  # not where a test or a notebook has put one of its own
            getattr(sys, name).reconfigure(errors="backslashreplace")


def _say(text: str) -> None:
    """A last word on stderr, if that can still be written to."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        _mute()


def _mute() -> None:
    from lab.base.terminal import mute

    mute()


if __name__ == "__main__":
    sys.exit(main())
