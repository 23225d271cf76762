"""What ranks observe of distributed_utils: launch environments, and how a group is left."""

import contextlib
import sys
import traceback
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._pytree import tree_leaves

from lab.checks.common.attempt import attempt, stepped
from lab.checks.common.left_behind import collectives_begun
from lab.checks.distributed_utils.draw import FIELDS, SRUN, TORCHRUN
from lab.checks.distributed_utils.observe_setup import SetupRecorder, comes_out, set_launcher
from lab.ranks.rank import Rank

# 2.1 --------------------------------------------------------------------------------------------------------


def read_environments(rank: Rank) -> list[dict[str, Any]]:
    """What read_launch_environment makes of each of the judge's environments."""
    utils = rank.student("distributed_utils")
    given = rank.receive()
    set_launcher(given["decoy"])
    return [read_one(rank, utils, environ) for environ in given["environments"]]


def read_one(rank: Rank, utils: ModuleType, environ: dict[str, str]) -> dict[str, Any]:
    function = utils.read_launch_environment
    given = dict(environ)
    held: list[object] = []
    result = attempt(rank, lambda: noting_variables(function, given, held))
    launch = result["value"]
    if result["error"]:
        held = tree_leaves([one for one in held if one is not given])  # what is in lists and dictionaries too
        texts = [value for value in held if isinstance(value, str) and value in environ.values()]
        result["error"]["compared_as_text"] = len(texts) > 1 and not any(isinstance(one, int) for one in held)
    fields = {}
    for name in ("rank", "local_rank", "world_size"):
        value = getattr(launch, name, None)
        fields[name] = value if isinstance(value, int | str) else type(value).__name__
    mixed = mixed_at(utils, environ) if [*fields.values()] != in_order(environ) else 0
    changed = [name for name in {**environ, **given} if environ.get(name) != given.get(name)]
    kind = type(launch).__name__
    return {"type": kind, "error": result["error"], "changed": changed, "mixed": mixed, **fields}


def in_order(environ: Mapping[str, str]) -> list[int]:
    """Rank, local rank and world size, as the variables say; nothing where there are not all, or no numbers."""
    names = TORCHRUN if any(name in environ for name in TORCHRUN) else SRUN
    texts = [environ.get(name, "") for name in names]
    return [int(text) for text in texts] if all(text.isdecimal() for text in texts) else []


def mixed_at(utils: ModuleType, environ: Mapping[str, str]) -> int:
    """The line after which the numbers, or the variables' names, are there in another order; 0: none is known."""
    right = in_order(environ)
    if not right:
        return 0
    orders = [[str(number) for number in right], [*TORCHRUN], [*SRUN]]

    def probe(frame: Any) -> str:
        """ "named wrongly", where variables with the fields' names hold each other's numbers; "mixed"; or ""."""
        held = dict(frame.f_locals)
        for value in list(held.values()):
            if isinstance(value, utils.LaunchEnvironment):
                held |= vars(value)
        named = [held[name] for name in FIELDS if name in held]
        if len(named) == len(FIELDS):
            said = [int(value) if str(value).isdecimal() else -1 for value in named]
            return "named wrongly" if said != right and sorted(said) == sorted(right) else ""
        values = [list(value.values()) if isinstance(value, dict) else value for value in held.values()]
        threes = [value for value in values if isinstance(value, list | tuple) and len(value) == len(FIELDS)]
        texts = [[str(one) for one in value] for value in threes]
        return "mixed" if any(sorted(one) == sorted(two) and one != two for one in texts for two in orders) else ""

    with stepped(utils.__file__, probe) as notes, contextlib.suppress(Exception):  # of the first call it is told
        utils.read_launch_environment(dict(environ))
    if not notes or "named wrongly" not in [found for _, found in notes]:
        return 0
    return next(line for line, found in notes if found)


def noting_variables(function: Callable[..., Any], given: object, held: list[object]) -> Any:
    """Call the function; where it raises, put what the variables held there at the end of the list."""
    try:
        return function(given)
    except Exception as error:
        frames = traceback.walk_tb(error.__traceback__)
        held += [value for frame, _ in list(frames)[1:] for value in frame.f_locals.values()]
        raise


# 2.3 --------------------------------------------------------------------------------------------------------


def leave_group(rank: Rank) -> dict[str, Any]:
    """Ask who is the main process, under both launchers; then leave the group, leave it again, and one of one.

    As if each rank were alone on a node with one GPU, which is shown to is_main_process() only. It is asked once
    before there is a group too, and must not remember what it said.
    """
    join, recorder = dist.init_process_group, SetupRecorder(rank)
    utils = rank.student("distributed_utils")
    given = rank.receive()
    set_launcher(given["environs"][-1][rank.rank])
    attempt(rank, utils.is_main_process)  # whatever it says
    join("gloo", rank=given["order"][rank.rank], world_size=rank.world_size)
    dist.barrier()  # or a rank could leave while another still connects
    report: dict[str, Any] = {"main": [], "left": [], "anew": None, "later": None, "collectives": 0}
    for environ in given["environs"]:  # [launcher][rank]
        set_launcher(environ[rank.rank])
        recorder.simulate(gpus=1)
        before = collectives_begun()
        result = attempt(rank, utils.is_main_process)
        report["collectives"] += collectives_begun() - before
        if not report["main"]:
            report["anew"] = asked_anew(rank)
        recorder.simulate(gpus=0)
        report["main"].append({"value": _plain(result["value"]), "error": result["error"]})
    if dist.is_initialized():  # again, with the ranks that a diagnosis names
        store = dist.PrefixStore("leaving", dist.distributed_c10d._get_default_store())
        dist.barrier()
        dist.destroy_process_group()
        join("gloo", store=store, rank=rank.rank, world_size=rank.world_size)
        dist.barrier()
        numbers = {"RANK": rank.rank, "LOCAL_RANK": rank.rank, "WORLD_SIZE": rank.world_size}
        set_launcher({name: str(number) for name, number in numbers.items()})
        report["later"] = _plain(attempt(rank, utils.is_main_process)["value"])
    for group in ("of all", "none", "another", "of one"):
        if group == "another" and not dist.is_initialized():
            join("fake", store=FakeStore(), rank=rank.rank, world_size=rank.world_size)
        if group == "of one" and not dist.is_initialized():
            join("gloo", store=dist.HashStore(), rank=0, world_size=1)
        result = attempt(rank, utils.cleanup)
        report["left"].append({"error": result["error"], "still_there": dist.is_initialized()})
    if not dist.is_initialized():
        join("gloo", store=dist.HashStore(), rank=0, world_size=1)
    recorder.fails = "leaving"
    recorder.destroyed = False
    report["told"] = comes_out(rank, utils.cleanup)
    report["destroyed"] = recorder.destroyed
    return report


def _plain(answer: object) -> bool | int | str | None:
    """What is_main_process() said; of anything but a bool, a number or None its type."""
    return answer if answer is None or isinstance(answer, bool | int) else type(answer).__name__


def asked_anew(rank: Rank) -> Any:
    """What is_main_process() of the module says when it has just been imported, and was asked nothing before."""
    module = sys.modules.pop("distributed_utils")
    try:
        return attempt(rank, rank.student("distributed_utils").is_main_process)["value"]
    finally:
        sys.modules["distributed_utils"] = module
