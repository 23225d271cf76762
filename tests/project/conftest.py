"""Rank groups and the practice cluster, for the tests of runs."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import practice_cluster
import pytest
import tiny_run
import torch.distributed as dist

from lab.ranks.reports import GroupResult
from lab.ranks.server import PRELOAD, RankServer


@pytest.fixture(scope="session")
def rank_server() -> Iterator[RankServer]:
    """A server whose ranks find everything that a run needs imported."""
    with RankServer(preload=(*PRELOAD, "torch.distributed.checkpoint.state_dict", "lab.training.run")) as server:
        yield server


@pytest.fixture
def tiny(rank_server: RankServer, tmp_path: Path) -> Callable[..., GroupResult]:
    """tiny(*options, world_size=2, **inputs): one run of tiny_run.train in tmp_path/results/r."""

    def run(
        *argv: str, world_size: int = 2, observe: Any = tiny_run.train, env: Any = None, **inputs: Any
    ) -> GroupResult:
        folder = ("--output-dir", str(tmp_path / "results"), "--run-id", "r")
        return rank_server.run(
            observe,
            world_size,
            code=tiny_run.SOLUTIONS,
            inputs={"argv": [*folder, *argv], **inputs},
            env=env or {},
            timeout=120,
        )

    return run


@pytest.fixture(scope="session")
def cluster() -> Iterator[practice_cluster.Cluster]:
    """A practice cluster of two nodes, the same one for all tests."""
    if practice_cluster.why_not():
        pytest.skip(practice_cluster.why_not())
    with practice_cluster.Cluster() as one:
        yield one


@pytest.fixture
def world_of_one(tmp_path: Path) -> Iterator[None]:
    """A process group of this process alone."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()
