"""lab tensorboard: watch runs while they train, from a laptop too."""

import argparse
import getpass
import importlib.util
import os
import socket
import sys
from pathlib import Path

from lab.base.errors import UserError

HELP = "watch runs in TensorBoard; on a cluster's login node, through a tunnel from your own machine"
RELOAD = 1  # seconds: a run flushes its scalars every few seconds


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", nargs="?", type=Path, default=Path("results"), help="of the runs (default: results)"
    )
    parser.add_argument("--port", type=int, help="on this machine (default: a free one)")


def run(args: argparse.Namespace) -> int:
    if not args.folder.is_dir():
        raise UserError(f"{args.folder} is not there: name the folder that holds the runs, mostly results/")
    if importlib.util.find_spec("tensorboard") is None:
        raise UserError("TensorBoard is not installed for this Python: pip install tensorboard")
    port = _port(args.port)
    connection = os.environ.get("SSH_CONNECTION")
    host = address(socket.getfqdn(), connection or "")
    print(instructions(port, getpass.getuser(), host, remote=connection is not None), flush=True)
    # It takes this process's place: Ctrl-C ends it, and nothing is left.
    os.execv(
        sys.executable,
        [
            *(sys.executable, "-m", "tensorboard.main", "--logdir", str(args.folder)),
            *("--host", "127.0.0.1", "--port", str(port), "--reload_interval", str(RELOAD)),
        ],
    )


def address(name: str, connection: str) -> str:
    """How this machine is reached: by its own name, or where it knows none, by where the ssh connection came in.

    Args:
        connection: SSH_CONNECTION: client's address and port, server's address and port.
    """
    if name.partition(".")[0] not in ("localhost", "localhost6", ""):
        return name
    parts = connection.split()
    return parts[2] if len(parts) == 4 else "NAME-OF-THIS-MACHINE"


def instructions(port: int, user: str, host: str, *, remote: bool) -> str:
    """What to type where. Only this machine can reach the page: others go through the tunnel."""
    page = f"http://127.0.0.1:{port}"
    if not remote:
        return f"Open {page} (Ctrl-C ends it)."
    tunnel = f"ssh -N -L {port}:127.0.0.1:{port} {user}@{host}"
    return (
        f"This machine is reached through ssh. On your own one type\n\n    {tunnel}\n\n"
        f"and open {page} there (Ctrl-C ends it)."
    )


def _port(wanted: int | None) -> int:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", wanted or 0))
        except (OSError, OverflowError):
            raise UserError(
                f"port {wanted} cannot be used here: leave --port out, and a free one is taken"
            ) from None
        return int(probe.getsockname()[1])
