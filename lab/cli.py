"""The `lab` command. Each of its commands is a module in lab/commands."""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from lab import __version__
from lab.training.errors import UserError

COMMANDS = ("check", "hint", "start", "reset", "fetch", "stubs")

INTERRUPTED = 130  # as a shell has it for a program ended by Ctrl-C


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lab",
        description="A guided lab in distributed PyTorch training.",
        epilog="Begin with `lab start my-lab`, then `lab check` in that folder.",
    )
    parser.add_argument("--version", action="version", version=f"scaling-lab {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        module = importlib.import_module(f"lab.commands.{name}")
        command = commands.add_parser(name, help=module.HELP, description=module.HELP.capitalize() + ".")
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0: all is well; 1: something did not pass, or could not be done; 2: usage; 3: the lab's fault."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # not where a test or a notebook has put a stream of its own
            stream.reconfigure(errors="backslashreplace")
    args = build_parser().parse_args(argv)
    try:
        return args.run(args)
    except UserError as error:
        print(f"lab {args.command}: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("\nStopped. Nothing was left running.", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has gone: say nothing more, not even when Python flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


if __name__ == "__main__":
    sys.exit(main())
