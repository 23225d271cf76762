"""The folder that torchrun --log-dir fills: RUN_x/attempt_0/LOCAL_RANK/stdout.log and stderr.log."""

from collections.abc import Callable
from pathlib import Path

_DEEP = ("", "*/", "*/*/")


def last_attempt(folder: Path) -> list[Path]:
    """The logs of the last attempt of the last torchrun that wrote below a folder, its first rank to end first."""
    patterns = [f"{deep}attempt_*/[0-9]*/std*.log" for deep in _DEEP]
    if folder.name.startswith("attempt_"):
        patterns.append("[0-9]*/std*.log")
    logs = [log for pattern in patterns for log in folder.glob(pattern) if log.is_file()]
    if not logs:
        return []
    last = max((log.parent.parent for log in logs), key=lambda attempt: (_began(attempt), attempt.name))
    return sorted((log for log in logs if log.parent.parent == last), key=_ended)


def told_apart(logs: list[Path], text: Callable[[Path], str]) -> str:
    """What the ranks of a node wrote, each line with its rank there before it."""
    return "".join(
        f"{log.parent.name}: {line}\n" if not line.startswith("[rank") else f"{line}\n"
        for log in logs
        for line in text(log).splitlines()
    )


def _began(attempt: Path) -> float:
    return attempt.stat().st_mtime


def _ended(log: Path) -> tuple[float, str, str]:
    errors = log.with_name("stderr.log")
    return (errors if errors.is_file() else log).stat().st_mtime, log.parent.name, log.name[::-1]
