"""Where in ddp.py to look for what a judge has found."""

from lab.checks.common.look import Look
from lab.checks.common.look_around import argument_of
from lab.checks.common.syntax import calls_of


def broadcast_list(look: Look, kind: str) -> str:
    """Where it is said what is broadcast, if one call does it for all; "" where there are several or none.

    Args:
        kind: of several lines that say it, the one that names these goes first, "parameters".
    """
    _, _, node = look.source()
    calls = calls_of(node, "broadcast") if node else []
    if len(calls) != 1 or not argument_of(look, "broadcast", "tensors", 0):
        return ""
    return look.source_of("broadcast", "tensors", 0, like=kind)


def left_to_begin(look: Look) -> str:
    """The `if` in finish() that the buckets which are left are begun under; "" where they are under none.

    Where that asks for no_sync(), as it should, the loop that begins them.
    """
    finish = look.into("MyDDP.finish")
    place = finish.under(r"\b_begin\(")
    return finish(r"^while\b", r"^for\b.*begun", r"^for\b") if "syncs" in place else place
