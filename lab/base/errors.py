"""Errors a user can repair, shown as one sentence instead of a traceback. Imports no torch."""


class UserError(Exception):
    """Bad input: one sentence that names the file, the value and the repair. Exit code 1."""

    exit_code = 1

    def __init__(self, sentence: str = "") -> None:
        if sentence.startswith("Caught "):
            # A DataLoader raises a worker's exception again, with the worker's whole traceback for a message.
            sentence = sentence.rpartition(f"{type(self).__name__}: ")[2].strip()
        super().__init__(sentence)


class UsageError(UserError):
    """Options that cannot work together or with this launch. Exit code 2, as argparse has it."""

    exit_code = 2


class NotFinite(UserError):
    """A loss or a weight is no finite number any more. Raised on all ranks alike."""


LIBRARIES = ("matplotlib", "pandas")  # which launching and training do without, so that a Python may lack them


def lacking(error: ModuleNotFoundError) -> UserError:
    """What to install. Raises the error itself where the module is not one of the LIBRARIES."""
    library = (error.name or "").partition(".")[0]
    if library not in LIBRARIES:
        raise error
    return UserError(f"tables and figures need {library}, which this Python lacks: pip install {library}")
