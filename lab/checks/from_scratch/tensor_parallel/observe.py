"""What ranks observe of a block that is cut: its parameters, its all-reduces, and the numbers of two steps."""

import os
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
import torch._C._distributed_c10d as c10d
import torch.distributed as dist
from torch import nn

from lab.checks.from_scratch.origin import made_noted
from lab.checks.from_scratch.tensor_parallel.net import (
    COLUMN,
    CUT,
    MORE_RANKS,
    RATE,
    ROW,
    STEPS,
    WHOLE_BIASES,
    build,
    loss_of,
)
from lab.checks.from_scratch.traffic import Traffic, waited_for
from lab.ranks.rank import Rank


def train(rank: Rank) -> dict[str, Any]:
    """Two steps of SGD on the same inputs, on all ranks."""
    module = rank.student("from_scratch.tensor_parallel")
    given = rank.receive()
    parts = build(given["weights"])
    with made_noted(module, (COLUMN, ROW)) as made, Traffic() as making:
        for block in parts:
            module.parallelize(block)
    blocks = nn.ModuleList(parts)
    placed = {id(layer) for block in parts for layer in cut_layers(block).values()}
    report: dict[str, Any] = {
        "sizes": [[[name, one.numel(), kept(one)] for name, one in reached(block)] for block in parts],
        "layers": layers_of(parts[0]),
        "unplaced": [[type(one).__name__, line] for one, line in made if id(one) not in placed],
        "keys": parts[0].attention.query_key_value.weight.detach().clone(),
        "key biases": parts[0].attention.query_key_value.bias.detach().clone(),
        "biases": {n: p.detach().clone() for n, p in parts[0].named_parameters() if n in WHOLE_BIASES},
        "losses": [],
        "unwaited": [],
        "outs": parts[0].attention.out.weight.detach().clone(),
    }
    whole = torch.tensor([is_whole(given["weights"][0], report["sizes"])])
    dist.all_reduce(whole)
    if whole:
        return report  # parts of layers that do not belong together: what they would compute says less
    optimizer = torch.optim.SGD(blocks.parameters(), lr=RATE)
    for step in range(STEPS):
        x = given["inputs"].clone().requires_grad_()
        forward, output = [], x
        for block in parts:
            with Traffic() as traffic, waited_for(module.__file__, report["unwaited"]):
                output = block(output)
            forward.append(traffic.calls)
        loss = loss_of(output, given["target"])
        optimizer.zero_grad()
        with Traffic() as traffic, waited_for(module.__file__, report["unwaited"]):
            loss.backward()
        report["losses"].append(float(loss.detach()))
        if not step:
            report |= {
                "forward": forward,
                "backward": traffic.calls,
                "output": output.detach().clone(),
                "input gradient": None if x.grad is None else x.grad.clone(),
                "gradients": {name: p.grad.clone() for name, p in blocks.named_parameters() if p.grad is not None},
            }
        optimizer.step()
    report["part"] = module.own_part(given["whole"], 1, given["pieces"]).detach().clone()
    if making.calls:  # what is cut with a collective cannot be cut for ranks that are not there
        return report | {"more": None}
    return report | {"more": [parts_of(module, given["wide"], given["pieces"], ranks) for ranks in MORE_RANKS]}


def parts_of(module: Any, whole: torch.Tensor, pieces: int, ranks: int) -> list[Any]:
    """What own_part() gives each of so many ranks; in place of one that raises an error, its line."""
    found: list[Any] = []
    for rank in range(ranks):
        with as_one_of(ranks, rank):
            try:
                found.append(module.own_part(whole, 1, pieces).detach().clone())
            except (IndexError, ValueError, RuntimeError, AssertionError) as error:
                frames = traceback.extract_tb(error.__traceback__)
                found.append(next((one.lineno for one in reversed(frames) if one.filename == module.__file__), 0))
    return found


@contextmanager
def as_one_of(ranks: int, rank: int) -> Iterator[None]:
    """In its context this process takes itself for one of another number of ranks."""
    group: Any = c10d.ProcessGroup
    said = {"WORLD_SIZE": str(ranks), "RANK": str(rank)}
    asked: dict[str, Any] = {"size": lambda *_: ranks, "rank": lambda *_: rank}
    with mock.patch.multiple(group, **asked), mock.patch.dict(os.environ, said):
        yield


def cut_layers(block: nn.Module) -> dict[str, nn.Module]:
    """The layers that are to be cut, by their names."""
    names = dict.fromkeys(name.rpartition(".")[0] for name in CUT)
    found = {name: at(block, name) for name in names}
    return {name: one for name, one in found.items() if isinstance(one, nn.Module)}


def at(block: nn.Module, name: str) -> Any:
    """What is there from attribute to attribute, as the block computes; None where nothing is.

    named_modules() has a module of the same name beside it where one was set with dots in its name.
    """
    found: Any = block
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


def reached(block: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Its parameters by their names: those that are there, not those that were set with dots in their names."""
    found = {name: (at(block, name), own) for name, own in block.named_parameters()}
    return [(name, there if isinstance(there, nn.Parameter) else own) for name, (there, own) in found.items()]


def layers_of(block: nn.Module) -> dict[str, list[str]]:
    """For each tensor that is to be cut its layer's class, its own type, and "frozen" where nothing trains it."""
    found = {}
    for name in CUT:
        layer, _, own = name.rpartition(".")
        if (module := cut_layers(block).get(layer)) is None:
            continue
        has = getattr(module, own, None)
        kind = "Parameter" if isinstance(has, nn.Parameter) else type(has).__name__
        found[name] = [type(module).__name__, kind, "" if getattr(has, "requires_grad", True) else "frozen"]
    return found


def is_whole(weights: Mapping[str, torch.Tensor], sizes: list[Any]) -> bool:
    """Whether a block has more of a weight than a part, or not as a parameter."""
    found = [{name: size for name, size, _ in own} for own in sizes]
    return any(own.get(name, weights[name].numel()) == weights[name].numel() for own in found for name in CUT)


def kept(parameter: torch.Tensor) -> int:
    """How many numbers the memory has that it lies in."""
    return parameter.untyped_storage().nbytes() // parameter.element_size()
