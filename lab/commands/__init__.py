"""The commands of `lab`, one module each.

A command module has HELP (one line), `add_arguments(parser)` and `run(args) -> int` (the exit code), and is
listed in lab/cli.py. What is slow to import (torch) is imported inside run().
"""
