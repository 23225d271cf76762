"""Errors a user can repair, shown as one sentence instead of a traceback. Imports no torch."""

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class UserError(Exception):
    """Bad input: one sentence that names the file, the value and the repair. Exit code 1."""

    exit_code = 1


class UsageError(UserError):
    """Options that cannot work together or with this launch. Exit code 2, as argparse does."""

    exit_code = 2
