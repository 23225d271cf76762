"""What ranks observe of setup(): process groups, and simulated machines with GPUs."""

import atexit
import contextlib
import functools
import inspect
import os
import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from lab.checks.common.attempt import attempt
from lab.ranks.rank import Rank

LAUNCHER = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE",
    "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS",
)  # fmt: skip

VISIBLE = "CUDA_VISIBLE_DEVICES"


def set_launcher(environ: Mapping[str, str]) -> None:
    """Make the launcher's variables of this process exactly these."""
    for name in LAUNCHER:
        os.environ.pop(name, None)
    os.environ.update(environ)


class WrongGroupError(Exception):
    """setup() was about to join a group that is not the one the launcher started: it would wait for ever."""


def _one_name(place: str) -> str:
    """host:port, where this machine has one name."""
    return place.replace("localhost", "127.0.0.1")


class SetupRecorder:
    """Notes what setup() does with devices and with the process group.

    Has to be there before the student's module is imported, which may take the functions by name. As long as
    no machine is simulated everything goes through to PyTorch.
    """

    def __init__(self, rank: Rank) -> None:
        self.events: list[dict[str, Any]] = []
        self.gpus = 0  # of the simulated machine
        self.fails = ""  # what ends in an error there: "joining", of nccl; "leaving"; "choosing" a GPU
        self.destroyed = False  # whether a group was, or was to be
        self._current = 0
        self._place = (rank.rank, rank.world_size)
        self._agreed = self._meeting()
        self._init = dist.init_process_group
        self._destroy = dist.destroy_process_group
        self._signature = inspect.signature(self._init)
        for module in (dist, dist.distributed_c10d):
            module.init_process_group = self.init_process_group  # type: ignore[attr-defined]
            module.destroy_process_group = self.destroy_process_group  # type: ignore[attr-defined]
        self._stand_in(dist, is_nccl_available=lambda: True)
        self._stand_in(
            torch.cuda,
            is_available=lambda: True,
            device_count=lambda: self.gpus,
            set_device=self._set_device,
            current_device=lambda: self._current,
            get_device_name=lambda *_: "simulated GPU",
            get_device_properties=lambda *_: SimpleNamespace(name="simulated GPU", total_memory=80 * 2**30),
            get_device_capability=lambda *_: (9, 0),
            mem_get_info=lambda *_: (80 * 2**30, 80 * 2**30),
            is_initialized=lambda: True,
            init=lambda: None,
            reset_peak_memory_stats=lambda *_: None,
            synchronize=lambda *_: None,
            empty_cache=lambda: None,
        )
        torch.cuda.device = self._device_context(torch.cuda.device)  # type: ignore[misc]
        self._stand_in(
            torch.accelerator,
            is_available=lambda: True,
            device_count=lambda: self.gpus,
            set_device_index=self._set_device,
            current_device_index=lambda: self._current,
            current_accelerator=lambda *_, **__: torch.device("cuda"),
        )

    def simulate(self, gpus: int) -> None:
        """From now on this process sees so many GPUs, which it can choose but not use."""
        self.gpus = gpus
        self.events = []
        self._current = 0

    def init_process_group(self, *args: Any, **kwargs: Any) -> None:
        given = self._signature.bind(*args, **kwargs).arguments
        timeout, device_id = given.get("timeout"), given.get("device_id")
        event: dict[str, Any] = {
            "call": "init_process_group",
            "backend": "" if given.get("backend") is None else str(given["backend"]).lower(),
            "rank": self._number(given.get("rank", -1), "RANK"),
            "world_size": self._number(given.get("world_size", -1), "WORLD_SIZE"),
            "timeout": timeout.total_seconds() if isinstance(timeout, timedelta) else None,
            "device_id": None if device_id is None else str(device_id),
            "master": self._master(given),
            "agreed": self._agreed,
        }
        self.events.append(event)
        if self.fails == "joining" and event["backend"] != "gloo":
            raise dist.DistNetworkError(f"The client socket has timed out while connecting to {event['master']}")
        if self.gpus:
            # A group without connections, whose collectives do nothing, for what setup() may do afterwards.
            rank, world_size = max(event["rank"], 0), max(event["world_size"], event["rank"] + 1, 1)
            self._init("fake", rank=rank, world_size=world_size, store=FakeStore())
            return
        if (event["rank"], event["world_size"]) != self._place:
            raise WrongGroupError(f"rank {event['rank']} of {event['world_size']}")
        if event["master"] not in ("", self._agreed):
            if not str(given.get("init_method") or "env://").startswith("tcp://"):
                raise WrongGroupError(f"to meet at {event['master']}, where the launcher has said {self._agreed}")
            given["init_method"] = "env://"  # the judge has seen it; that place may be another's on this machine
        if "nccl" in event["backend"]:
            given["backend"] = "gloo"  # the judge has seen it; here only gloo can go on
        if device_id is not None:
            del given["device_id"]
        self._init(**given)

    def destroy_process_group(self, *args: Any, **kwargs: Any) -> None:
        self.destroyed = True
        self._destroy(*args, **kwargs)
        if self.fails == "leaving":
            raise dist.DistBackendError("NCCL error: a remote process has exited, or there was a network error")

    @staticmethod
    def _meeting() -> str:
        """Where the ranks meet, by the launcher's variables."""
        return f"{os.environ.get('MASTER_ADDR', '')}:{os.environ.get('MASTER_PORT', '')}"

    def _master(self, given: Mapping[str, Any]) -> str:
        """host:port where the ranks are to meet; "" where that cannot be told."""
        method = str(given.get("init_method") or "env://")
        if given.get("store") is not None or not method.startswith(("env://", "tcp://")):
            return ""
        place = self._meeting() if method.startswith("env") else urlsplit(method).netloc
        return self._agreed if _one_name(place) == _one_name(self._agreed) else place

    @staticmethod
    def _number(value: Any, variable: str) -> int:
        """What init_process_group goes by: the argument, else the variable; -1 where there is neither."""
        if value is not None and int(value) >= 0:
            return int(value)
        text = os.environ.get(variable, "")
        return int(text) if text.isdecimal() else -1

    def _set_device(self, device: Any) -> None:
        index = device if isinstance(device, int) else torch.device(device).index
        self.events.append({"call": "set_device", "index": -1 if index is None else index})
        if index is None:  # as PyTorch does
            raise ValueError(f"Expected a torch.device with a specified index or an integer, but got:{device}")
        if self.fails == "choosing":
            raise RuntimeError("CUDA error: CUDA-capable device(s) is/are busy or unavailable")
        self._current = index

    def _device_context(self, real: Any) -> Any:
        """A class, as PyTorch's: PyTorch asks with isinstance() whether it was given one."""
        recorder = self

        class device(real):
            def __init__(self, device: Any) -> None:
                self.simulated = recorder.gpus > 0
                if self.simulated:
                    recorder.events.append({"call": "device"})
                else:
                    super().__init__(device)

            def __enter__(self) -> Any:
                return None if self.simulated else super().__enter__()

            def __exit__(self, *error: Any) -> Any:
                return False if self.simulated else super().__exit__(*error)

        return device

    def _stand_in(self, module: Any, **functions: Callable[..., Any]) -> None:
        """Put functions in place of PyTorch's that are used while a machine is simulated."""
        for name, simulated in functions.items():
            if real := getattr(module, name, None):
                setattr(module, name, self._switch(real, simulated))

    def _switch(self, real: Callable[..., Any], simulated: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: (simulated if self.gpus else real)(*args, **kwargs)


def join_group(rank: Rank) -> dict[str, Any]:
    """Call setup() as it is on this machine, and then, on rank 0, on simulated machines with GPUs."""
    recorder, at_exit = SetupRecorder(rank), AtExit(rank)
    utils = rank.student("distributed_utils")
    given = rank.receive()
    timeout = timedelta(seconds=given["timeout"])
    report: dict[str, Any] = {"real": call_setup(rank, utils, recorder, timeout), "simulated": []}
    report["total"], report["groups"] = 0.0, dist.distributed_c10d._world.group_count
    if dist.is_initialized():
        total = torch.ones(1)
        dist.all_reduce(total)
        report["total"] = total.item()
        dist.destroy_process_group()
    report["at_exit"] = None if report["real"]["error"] else at_exit.run(rank)
    if rank.rank == 0 and not report["real"]["error"]:
        for machine in given["machines"]:
            set_launcher(machine["environ"])
            os.environ.pop(VISIBLE, None)
            if "shown" in machine:
                os.environ[VISIBLE] = machine["shown"]
            os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = given["master"].split(":")
            recorder.simulate(machine["gpus"])
            limit = timedelta(seconds=machine["timeout"])
            report["simulated"].append(call_setup(rank, utils, recorder, limit))
            if dist.is_initialized():
                dist.destroy_process_group()
        os.environ.pop(VISIBLE, None)
        report |= call_in_trouble(rank, utils, recorder, timeout)
    return report


def call_in_trouble(rank: Rank, utils: Any, recorder: SetupRecorder, timeout: timedelta) -> dict[str, Any]:
    """Whether setup() tells that no group of nccl can be joined, no GPU be chosen, or that no launcher is there.

    Of the last, "guessed" is whether setup() came back although read_launch_environment() does not.
    """
    told = {}
    for trouble in ("joining", "choosing", ""):
        recorder.simulate(gpus=2)
        recorder.fails = trouble
        if not trouble:
            set_launcher({})
        told[trouble] = comes_out(rank, utils.setup, timeout)
        if dist.is_initialized():
            dist.destroy_process_group()
    guessed = not told[""] and comes_out(rank, utils.read_launch_environment, {})
    return {"joining_told": told["joining"], "choosing_told": told["choosing"], "guessed": guessed}


def comes_out(rank: Rank, function: Callable[..., Any], *args: object) -> bool:
    """Whether the error that PyTorch raises in there ends the function, or the program with it."""
    try:
        return attempt(rank, function, *args)["error"] is not None
    except SystemExit as end:
        return end.code not in (None, 0)


class AtExit:
    """Runs what the student's code leaves for the end of the program, once the group has been left."""

    def __init__(self, rank: Rank) -> None:
        self._left: list[Callable[[], Any]] = []
        register = atexit.register

        def noting(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
            if Path(sys._getframe(1).f_code.co_filename).parent != rank.code:
                return register(function, *args, **kwargs)
            self._left.append(functools.partial(function, *args, **kwargs))
            return function

        atexit.register = noting  # type: ignore[assignment]

    def run(self, rank: Rank) -> dict[str, Any] | None:
        """The first error, as attempt() has it; None where there is none."""
        for function in reversed(self._left):
            with contextlib.suppress(NotImplementedError):  # another exercise is not done yet
                if error := attempt(rank, function)["error"]:
                    return error
        return None


def call_setup(rank: Rank, utils: Any, recorder: SetupRecorder, timeout: timedelta) -> dict[str, Any]:
    result = attempt(rank, utils.setup, timeout)
    device = result["value"]
    joined = dist.is_initialized()
    return {
        "gpus": recorder.gpus,
        "error": result["error"],
        "type": type(device).__name__,
        "device": str(device) if isinstance(device, torch.device | str | int) else "",
        "events": recorder.events,
        "rank": dist.get_rank() if joined else -1,
        "world_size": dist.get_world_size() if joined else -1,
        "backend": dist.get_backend() if joined else "",
    }
