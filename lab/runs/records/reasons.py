"""Why a run ended, in one line for status.json and for people. Imports no torch."""

import re

from lab.base.errors import UserError

CTRL_C = "stopped by Ctrl-C: nothing was saved at that moment; --resume latest goes on from the last checkpoint"
PEER_GONE = "another rank has ended, and this one cannot go on without it: see what that one said"

# What gloo and NCCL say on the ranks that were waiting for one that has ended. That one says why.
_PEER_GONE = re.compile(
    r"connection (closed|reset) by peer|broken pipe|socket closed|remote process exited", re.IGNORECASE
)


def is_peer_gone(error: BaseException) -> bool:
    """Whether this is what a rank meets when another has ended."""
    return isinstance(error, RuntimeError) and _PEER_GONE.search(str(error)) is not None


def reason_of(error: BaseException) -> str:
    """One line: a sentence where there is one, else the error's name and its first line."""
    if isinstance(error, KeyboardInterrupt):
        return CTRL_C
    if is_peer_gone(error):
        return PEER_GONE
    text = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
    return (text.splitlines() or [""])[0]
