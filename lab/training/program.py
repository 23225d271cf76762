"""How main.py ends: with one sentence for what a user can repair, and in good order after gloo."""

import json
import os
import re
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lab.base.errors import UsageError, UserError
from lab.base.paths import PACKAGE
from lab.base.startup import reach
from lab.runs.options.launcher import rank_from_environment
from lab.runs.records.reasons import PEER_GONE, is_peer_gone

EXIT_CTRL_C = 128 + signal.SIGINT  # as shells have it


def explain(error: BaseException, code: Path) -> tuple[str, int] | None:
    """The sentence and the exit code for an error that a user can repair; None for every other error.

    A ValueError counts as such when a `raise` of the lab or of a module in `code` itself made it, as
    get_dataloaders() does for a global batch that does not divide. One that torch raised, or that Python did
    as for `a, b = 1, 2, 3`, is a bug to be read with its traceback.
    """
    if isinstance(error, UserError):
        return str(error), error.exit_code
    if isinstance(error, NotImplementedError) and str(error).startswith("Exercise "):
        return str(error), 1
    if isinstance(error, ValueError):
        innermost = traceback.extract_tb(error.__traceback__)[-1]
        file = Path(innermost.filename).resolve()
        on_purpose = re.search(r"\braise\b", innermost.line or "")
        if on_purpose and (file.parent == code.resolve() or file.is_relative_to(PACKAGE)):
            return str(error), UsageError.exit_code
    if is_peer_gone(error):
        return PEER_GONE, 1
    return None


@contextmanager
def one_sentence_errors(code: Path) -> Iterator[None]:
    """End the process with one sentence on stderr for errors a user can repair; let the others through.

    Where main.py in `code` is the program itself, a run on the CPU that ends well ends the process here too.
    """
    reach("imports")
    try:
        yield
        _leave_before_python_does(code, 0)
    except SystemExit as end:  # told to stop, after saving
        _leave_before_python_does(code, end.code)
        raise
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # launchers send another one
        if rank_from_environment() == 0:
            print("main.py: stopped by Ctrl-C", file=sys.stderr, flush=True)
        os._exit(EXIT_CTRL_C)
    except Exception as error:
        if not isinstance(error, UserError):
            _dump_flight_recorder()
        explained = explain(error, code)
        if explained is None:
            raise
        sentence, exit_code = explained
        if rank_from_environment() > 0:
            # Every rank meets the same bad input. Rank 0 says it; its end makes the launcher stop the
            # others while they wait here, so that the sentence is read once.
            time.sleep(2)
        print(f"main.py: {sentence}", file=sys.stderr, flush=True)
        _tell_torchrun(sentence)
        # Not sys.exit: the other ranks may be waiting in a collective that this one will never join.
        os._exit(exit_code)


def _dump_flight_recorder() -> None:
    if "torch.distributed" in sys.modules:  # this module itself imports no torch
        from lab.training.stepping.flight_recorder import dump

        dump()


def _leave_before_python_does(code: Path, exit_code: object) -> None:
    """End a process that has used gloo with all its exit code says, and without taking Python apart.

    A thread of gloo lets go of a collective's tensors some time after the collective, and needs Python for that.
    Found in the middle of Python's own end, it dies with "terminate called without an active exception" (exit code
    134): seen in 3 of 40 FSDP runs on a busy machine. Destroying the process group does not end the threads where
    somebody still holds the group, as the caches of FSDP do.
    """
    torch = sys.modules.get("torch")
    program = getattr(sys.modules.get("__main__"), "__file__", None)
    if torch is None or torch.cuda.is_initialized() or not isinstance(exit_code, int):
        return  # NCCL has no such threads, and profilers of GPUs write their files in an orderly end
    if program is None or Path(program).resolve() != code.resolve() / "main.py":
        return  # a test or a notebook, which goes on
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)


def _tell_torchrun(sentence: str) -> None:
    """Let torchrun's own report, printed last, end with the sentence (torch.distributed.elastic's error file)."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if path:
        message = {"message": sentence, "extraInfo": {"timestamp": str(int(time.time()))}}
        Path(path).write_text(json.dumps({"message": message}), encoding="utf-8")
