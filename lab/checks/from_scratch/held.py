"""In a rank: callbacks of collectives may come late, and here they do: not before somebody waits for them."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
import torch._C._distributed_c10d as c10d

from lab.checks.from_scratch.origin import lines_on_the_way

LATEST = 2.0  # seconds after which it is called in any case: somebody may wait for it in another way


class Callbacks:
    """What then() and add_done_callback() of futures were given and nobody has waited for.

    waits  gets an entry for each collective that is waited for by its future, or by one that then() made of it
    """

    def __init__(self, file: str | None, waits: list[int]) -> None:
        self.waits = waits
        self._file = file
        self._works: list[tuple[Any, int]] = []  # (the future of a collective, the collective's id)
        self._own: list[Any] = []  # futures that callbacks get, and that say that they may run
        self._held: list[tuple[Any, Any, Any, int]] = []  # (future, its child or None, its gate, line)
        self._made: list[tuple[Any, Any]] = []  # (child, the future that then() was called of)
        self._lock = threading.RLock()
        self.original: dict[str, Callable[..., Any]] = {}

    def lines(self) -> list[int]:
        """Where those were registered that have not run."""
        return [line for _, _, _, line in self._held]

    def hold(self, future: Any, name: str, callback: Any) -> Any:
        """then() or add_done_callback(), of a future that is completed when somebody waits for the result."""
        gate = torch.futures.Future[Any]()
        child = self.original[name](gate, callback)
        lines = lines_on_the_way(self._file)
        with self._lock:
            self._own.append(gate)
            self._made.append((child, future))
            self._held.append((future, child, gate, lines[0][1] if lines else 0))
        timer = threading.Timer(LATEST, self.release, [[gate]])
        timer.daemon = True
        timer.start()
        return child

    def release(self, gates: list[Any]) -> None:
        """Call what these hold back, each behind what it is the callback of."""
        for one in [held for held in self._held if any(held[2] is gate for gate in gates)]:
            future, _, gate, _ = one
            self.release([held[2] for held in self._held if held[1] is future and held[2] is not gate])
            value = self.original["wait"](future)
            with self._lock:
                first = any(held is one for held in self._held)
                self._held = [held for held in self._held if held is not one]
            if first:
                gate.set_result(value)

    def await_(self, future: Any) -> None:
        """Note what is waited for; of a future that is not known, as that of several at once, it may be all."""
        if any(one is future for one in self._own):
            return
        root = future
        while made := [parent for child, parent in self._made if child is root]:
            root = made[0]
        works = [work for one, work in self._works if one is root]
        self.waits += works or [work for _, work in self._works]
        gates = [held[2] for held in self._held if held[1] is future or not works]
        self.release(gates)

    def of_work(self, work: Any) -> Any:
        future = self.original["get_future"](work)
        self._works.append((future, id(work)))
        return future


@contextmanager
def callbacks_held(file: str | None, waits: list[int]) -> Iterator[Callbacks]:
    """In its context no callback runs before somebody waits for it; at its end all do."""
    held = Callbacks(file, waits)
    kind: Any = torch._C.Future
    held.original = {name: getattr(kind, name) for name in ("then", "add_done_callback", "wait")}
    held.original["get_future"] = c10d.Work.get_future

    def then(future: Any, callback: Any) -> Any:
        return held.hold(future, "then", callback)

    def add_done_callback(future: Any, callback: Any) -> None:
        held.hold(future, "add_done_callback", callback)

    def wait(future: Any) -> Any:
        held.await_(future)
        return held.original["wait"](future)

    def get_future(work: Any) -> Any:
        return held.of_work(work)

    patched: dict[str, Any] = {"then": then, "add_done_callback": add_done_callback, "wait": wait}
    with mock.patch.multiple(kind, **patched), mock.patch.object(c10d.Work, "get_future", get_future):
        yield held
    held.release(held._own)
