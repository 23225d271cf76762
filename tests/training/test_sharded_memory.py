"""benchmarks/sharded_memory.py in small: what a rank holds for Adam is what was predicted."""

import sys

import pytest

from lab.ranks.rank import Rank
from lab.ranks.server import server
from lab.training.networks import adam_state_bytes


def hold(rank: Rank) -> list[int]:
    """Parameters, and bytes held on the fullest rank."""
    import torch

    benchmarks, strategy = rank.receive()
    sys.path.append(benchmarks)
    from sharded_memory import train

    return list(train(strategy, 64, 2, 2, torch.device("cpu"))[:2])


@pytest.mark.parametrize(("strategy", "shards"), [("ddp", 1), ("fsdp", 2)])
def test_what_a_rank_holds_for_adam_is_16_bytes_a_parameter_over_the_shards(root, strategy, shards):
    inputs = (str(root / "benchmarks"), strategy)
    result = server().run(hold, 2, code=root / "solutions", inputs=inputs, timeout=240)
    parameters, held = result.values[0]
    predicted, position = adam_state_bytes(parameters, shards), adam_state_bytes(64 * 64)
    # The position embedding, [1, 64, width], cannot be divided: one rank has all of it. And Adam counts its steps.
    assert predicted <= held <= predicted + position
