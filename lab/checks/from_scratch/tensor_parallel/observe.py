"""What ranks observe of a block that is cut: its parameters, its all-reduces, and the numbers of two steps."""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from lab.checks.from_scratch.origin import made_noted
from lab.checks.from_scratch.tensor_parallel.net import COLUMN, CUT, RATE, ROW, STEPS, build, loss_of
from lab.checks.from_scratch.traffic import Traffic
from lab.ranks.rank import Rank


def train(rank: Rank) -> dict[str, Any]:
    """Two steps of SGD on the same inputs, on all ranks."""
    module = rank.student("from_scratch.tensor_parallel")
    given = rank.receive()
    parts = build(given["weights"])
    with made_noted(module, (COLUMN, ROW)) as made:
        for block in parts:
            module.parallelize(block)
    blocks = nn.ModuleList(parts)
    placed = {id(one) for one in blocks.modules()}
    report: dict[str, Any] = {
        "sizes": [[[name, p.numel(), kept(p)] for name, p in block.named_parameters()] for block in blocks],
        "layers": layers_of(parts[0]),
        "unplaced": [[type(one).__name__, line] for one, line in made if id(one) not in placed],
        "keys": parts[0].attention.query_key_value.weight.detach().clone(),
        "key biases": parts[0].attention.query_key_value.bias.detach().clone(),
        "losses": [],
    }
    dist.barrier()
    optimizer = torch.optim.SGD(blocks.parameters(), lr=RATE)
    for step in range(STEPS):
        x = given["inputs"].clone().requires_grad_()
        forward, output = [], x
        for block in parts:
            with Traffic() as traffic:
                output = block(output)
            forward.append(traffic.calls)
        loss = loss_of(output, given["target"])
        optimizer.zero_grad()
        with Traffic() as traffic:
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
    return report | {"part": module.own_part(given["whole"], 1, given["pieces"]).detach().clone()}


def layers_of(block: nn.Module) -> dict[str, list[str]]:
    """Of what a block is cut in: the class that the layer is of now, and the type of what it has by that name."""
    found = {}
    for name in CUT:
        layer, _, own = name.rpartition(".")
        has = getattr(block.get_submodule(layer), own, None)
        kind = "Parameter" if isinstance(has, nn.Parameter) else type(has).__name__
        found[name] = [type(block.get_submodule(layer)).__name__, kind]
    return found


def kept(parameter: torch.Tensor) -> int:
    """How many numbers the memory has that it lies in."""
    return parameter.untyped_storage().nbytes() // parameter.element_size()
