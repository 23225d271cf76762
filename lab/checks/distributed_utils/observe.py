"""What ranks observe of distributed_utils: launch environments, process groups, simulated machines with GPUs."""

import contextlib
import inspect
import os
import traceback
from collections.abc import Callable, Mapping
from datetime import timedelta
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


def set_launcher(environ: Mapping[str, str]) -> None:
    """Make the launcher's variables of this process exactly these."""
    for name in LAUNCHER:
        os.environ.pop(name, None)
    os.environ.update(environ)


# 2.1 --------------------------------------------------------------------------------------------------------


def read_environments(rank: Rank) -> list[dict[str, Any]]:
    """What read_launch_environment makes of each of the judge's environments."""
    utils = rank.student("distributed_utils")
    given = rank.receive()
    set_launcher(given["decoy"])
    return [read_one(rank, utils.read_launch_environment, environ) for environ in given["environments"]]


def read_one(rank: Rank, function: Any, environ: dict[str, str]) -> dict[str, Any]:
    given = dict(environ)
    held: list[object] = []
    result = attempt(rank, lambda: noting_variables(function, given, held))
    launch = result["value"]
    if result["error"]:
        texts = [value for value in held if isinstance(value, str) and value in environ.values()]
        result["error"]["compared_as_text"] = len(texts) > 1 and not any(isinstance(one, int) for one in held)
    fields = {}
    for name in ("rank", "local_rank", "world_size"):
        value = getattr(launch, name, None)
        fields[name] = value if isinstance(value, int | str) else type(value).__name__
    changed = [name for name in {**environ, **given} if environ.get(name) != given.get(name)]
    return {"type": type(launch).__name__, "error": result["error"], "changed": changed, **fields}


def noting_variables(function: Callable[..., Any], given: object, held: list[object]) -> Any:
    """Call the function; where it raises, put what the variables held there at the end of the list."""
    try:
        return function(given)
    except Exception as error:
        frames = traceback.walk_tb(error.__traceback__)
        held += [value for frame, _ in list(frames)[1:] for value in frame.f_locals.values()]
        raise


# 2.2 --------------------------------------------------------------------------------------------------------


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
        self._current = 0
        self._place = (rank.rank, rank.world_size)
        self._agreed = self._meeting()
        self._init = dist.init_process_group
        self._signature = inspect.signature(self._init)
        for module in (dist, dist.distributed_c10d):
            module.init_process_group = self.init_process_group  # type: ignore[attr-defined]
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
            device=lambda *_: contextlib.nullcontext(),
            reset_peak_memory_stats=lambda *_: None,
            synchronize=lambda *_: None,
            empty_cache=lambda: None,
        )
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
        self._current = index

    def _stand_in(self, module: Any, **functions: Callable[..., Any]) -> None:
        """Put functions in place of PyTorch's that are used while a machine is simulated."""
        for name, simulated in functions.items():
            if real := getattr(module, name, None):
                setattr(module, name, self._switch(real, simulated))

    def _switch(self, real: Callable[..., Any], simulated: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **kwargs: (simulated if self.gpus else real)(*args, **kwargs)


def join_group(rank: Rank) -> dict[str, Any]:
    """Call setup() as it is on this machine, and then, on rank 0, on simulated machines with GPUs."""
    recorder = SetupRecorder(rank)
    utils = rank.student("distributed_utils")
    given = rank.receive()
    timeout = timedelta(seconds=given["timeout"])
    report: dict[str, Any] = {"real": call_setup(rank, utils, recorder, timeout), "simulated": []}
    report["total"] = 0.0
    if dist.is_initialized():
        total = torch.ones(1)
        dist.all_reduce(total)
        report["total"] = total.item()
        dist.destroy_process_group()
    if rank.rank == 0 and not report["real"]["error"]:
        for machine in given["machines"]:
            set_launcher(machine["environ"])
            os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = given["master"].split(":")
            recorder.simulate(machine["gpus"])
            report["simulated"].append(call_setup(rank, utils, recorder, timeout))
            if dist.is_initialized():
                dist.destroy_process_group()
    return report


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


# 2.3 --------------------------------------------------------------------------------------------------------


def leave_group(rank: Rank) -> dict[str, Any]:
    """Ask who is the main process, under both launchers; then leave the group, leave it again, and one of one.

    As if each rank were alone on a node with one GPU, which is shown to is_main_process() only.
    """
    join, recorder = dist.init_process_group, SetupRecorder(rank)
    utils = rank.student("distributed_utils")
    given = rank.receive()
    join("gloo", rank=given["order"][rank.rank], world_size=rank.world_size)
    dist.barrier()  # or a rank could leave while another still connects
    report: dict[str, Any] = {"main": [], "left": []}
    for environ in given["environs"]:  # [launcher][rank]
        set_launcher(environ[rank.rank])
        recorder.simulate(gpus=1)
        result = attempt(rank, utils.is_main_process)
        recorder.simulate(gpus=0)
        answer = result["value"]
        known = answer if answer is None or isinstance(answer, bool | int) else type(answer).__name__
        report["main"].append({"value": known, "error": result["error"]})
    if dist.is_initialized():  # again, with the ranks that a diagnosis names
        store = dist.PrefixStore("leaving", dist.distributed_c10d._get_default_store())
        dist.barrier()
        dist.destroy_process_group()
        join("gloo", store=store, rank=rank.rank, world_size=rank.world_size)
        dist.barrier()
    for group in ("of all", "none", "of one"):
        if group == "of one" and not dist.is_initialized():
            join("gloo", store=dist.HashStore(), rank=0, world_size=1)
        result = attempt(rank, utils.cleanup)
        report["left"].append({"error": result["error"], "still_there": dist.is_initialized()})
    return report
