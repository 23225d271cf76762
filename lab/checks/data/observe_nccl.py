"""What a rank observes of load_once() on a GPU that is only pretended: what it asks of nccl, and of which GPU."""

import os
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._pytree import tree_leaves, tree_map

from lab.checks.common.attempt import attempt
from lab.checks.common.meta_device import META, pretending, seeing_a_gpu
from lab.ranks.rank import Rank

_OF_TENSORS = (
    *("all_reduce", "reduce", "broadcast", "all_gather", "all_gather_into_tensor", "gather", "scatter"),
    *("reduce_scatter_tensor", "all_to_all_single", "send", "recv", "isend", "irecv"),
)
_OF_OBJECTS = ("all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list")


class _GlooGroup:
    """What new_group(backend="gloo") gives: whatever is asked of it, it can do."""


class _OnGpu(TorchFunctionMode):
    """Tensors that are put on a GPU are put on the meta device."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.cuda:
            return args[0].to(META)
        args, kwargs = tree_map(self._elsewhere, (args, kwargs or {}))
        return func(*args, **kwargs)

    @staticmethod
    def _elsewhere(value: Any) -> Any:
        if isinstance(value, torch.device):
            return META if value.type == "cuda" else value
        return "meta" if isinstance(value, str) and value.startswith("cuda") else value


class Calls:
    """Notes what is called of torch.distributed, which does nothing. To be there before a student's module is."""

    def __init__(self) -> None:
        self.noted: list[dict[str, Any]] = []
        self.fails = False  # whether every collective ends in an error
        self._real_group = dist.new_group
        for name in ("barrier", "monitored_barrier", *_OF_TENSORS, *_OF_OBJECTS):
            self._put(name, self._noting(name))
        self._put("new_group", self._new_group)
        self._put("get_backend", lambda group=None: "gloo" if isinstance(group, _GlooGroup) else "nccl")
        self._put("is_nccl_available", lambda: True)

    def load(self) -> object:
        self.noted.append({"call": "load", "gloo": False, "cpu": False, "devices": [], "src": -1, "of": 0})
        return object()

    @staticmethod
    def _put(name: str, function: Callable[..., Any]) -> None:
        for module in (dist, dist.distributed_c10d):
            setattr(module, name, function)

    def _new_group(self, ranks: list[int] | None = None, *args: Any, **given: Any) -> Any:
        gloo = "gloo" in (given.get("backend"), *args)
        some = ranks is not None and len(set(ranks)) < dist.get_world_size()
        if gloo and not some:
            return _GlooGroup()
        return self._real_group(ranks, backend="fake") if some else dist.group.WORLD

    def _noting(self, name: str) -> Callable[..., Any]:
        def noting(*args: Any, **kwargs: Any) -> Any:
            leaves = tree_leaves((args, kwargs))
            devices = kwargs.get("device_ids") or []
            self.noted.append(
                {
                    "call": name,
                    "gloo": any(isinstance(leaf, _GlooGroup) for leaf in leaves),
                    "cpu": name in _OF_TENSORS and any(leaf.is_cpu for leaf in leaves if isinstance(leaf, Tensor)),
                    "devices": [one for one in devices if isinstance(one, int)],
                    "src": kwargs["src"] if isinstance(kwargs.get("src"), int) else -1,
                    "of": min((one.size() for one in leaves if isinstance(one, dist.ProcessGroup)), default=0),
                }
            )
            if name in _OF_OBJECTS:
                self._echo(args)
            if self.fails:
                raise dist.DistBackendError(
                    "NCCL error: a remote process has exited, or there was a network error"
                )
            begun = kwargs.get("async_op") or name in ("isend", "irecv")
            return mock.Mock() if begun else None

        return noting

    @staticmethod
    def _echo(args: tuple[Any, ...]) -> None:
        """As if every rank had sent what this one has."""
        lists = [one for one in args if isinstance(one, list)]
        others = [one for one in args if not isinstance(one, list)]
        for one in lists if others else []:
            one[:] = [others[0]] * len(one)


def load_with_nccl(rank: Rank) -> list[dict[str, Any]]:
    """What load_once() calls of torch.distributed as the first of its file system, and as another one.

    {"calls": of torch.distributed and "load", "told": whether the error of a collective came out, "load_error":
    what came out where load() raises, "load_failed": whether it was called at all then}
    """
    calls = Calls()
    data = rank.student("data")
    given = rank.receive()
    os.environ.update(given["environ"])
    dist.init_process_group("fake", rank=given["rank"], world_size=given["world_size"], store=FakeStore())
    reports = []
    with ExitStack() as stack:
        for name, value in {
            "device_count": given["gpus"], "current_device": given["gpu"], "set_device": None, "synchronize": None,
        }.items():  # fmt: skip
            stack.enter_context(mock.patch.object(torch.cuda, name, lambda *_, value=value: value))
        for context in (seeing_a_gpu(), pretending(None), _OnGpu()):
            stack.enter_context(context)
        for is_first in (True, False):
            calls.noted = []
            calls.fails = False
            attempt(rank, data.load_once, calls.load, is_first=is_first)  # made-up numbers lead anywhere
            report: dict[str, Any] = {"calls": calls.noted}
            failing = mock.Mock(side_effect=OSError(given["message"]), __qualname__="load")
            report["load_error"] = attempt(rank, data.load_once, failing, is_first=is_first)["error"]
            report["load_failed"] = failing.called
            calls.noted, calls.fails = [], True
            error = attempt(rank, data.load_once, calls.load, is_first=is_first)["error"]
            report["told"] = error is not None or all(call["call"] == "load" for call in calls.noted)
            reports.append(report)
    return reports
