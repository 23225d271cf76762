"""What ranks observe of a block that is cut: its parameters, its all-reduces, and the numbers of two steps."""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from lab.checks.from_scratch.tensor_parallel.net import RATE, STEPS, build, loss_of
from lab.checks.from_scratch.traffic import Traffic
from lab.ranks.rank import Rank


def train(rank: Rank) -> dict[str, Any]:
    """Two steps of SGD on the same inputs, on all ranks."""
    module = rank.student("from_scratch.tensor_parallel")
    given = rank.receive()
    parts = build(given["weights"])
    for block in parts:
        module.parallelize(block)
    blocks = nn.ModuleList(parts)
    report: dict[str, Any] = {
        "sizes": [[[name, p.numel(), kept(p)] for name, p in block.named_parameters()] for block in blocks],
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


def kept(parameter: torch.Tensor) -> int:
    """How many numbers the memory has that it lies in."""
    return parameter.untyped_storage().nbytes() // parameter.element_size()
