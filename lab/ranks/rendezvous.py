"""Where the ranks of a group find each other: a store of torch.distributed on a free port of loopback."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.distributed import TCPStore


def host() -> tuple[TCPStore, int]:
    """Start a store; return it and its port. It brings threads: fork first. It ends when it is let go."""
    from torch.distributed import TCPStore

    with socket.socket() as listener:  # on loopback only: by itself the store listens on every interface
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        port: int = listener.getsockname()[1]
        store = TCPStore("127.0.0.1", port, None, True, wait_for_workers=False, master_listen_fd=listener.detach())
    return store, port
