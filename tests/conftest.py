"""Shared by all tests: what lies beside the project, ranks, the practice cluster; and a run without skips."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import practice_cluster
import pytest
import tiny_run
import torch.distributed as dist

from lab.ranks.reports import GroupResult
from lab.ranks.server import PRELOAD, RankServer

pytest_plugins = ("parallel",)

ROOT = Path(__file__).resolve().parent.parent

# A shell that starts the tests in the background lets them ignore Ctrl-C, and nohup a terminal that closes; and so
# do the programs that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's folder."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real data and tools beside the project; tests that need it are skipped without it."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        pytest.skip(f"needs the real data in {folder}")
    return folder


def _keep_environment() -> Iterator[None]:
    """Some code sets variables for the programs that it starts: they must not reach the next test."""
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    os.environ.update(before)


# Around each test, and around each file: what a file sets up once may be what sets them.
environment_as_before = pytest.fixture(autouse=True)(_keep_environment)
environment_before_the_file = pytest.fixture(autouse=True, scope="module")(_keep_environment)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """With LAB_NO_SKIPS=1 a skipped test fails, so that a missing service cannot hide behind a green run."""
    report = yield
    if report.skipped and os.environ.get("LAB_NO_SKIPS") == "1" and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"LAB_NO_SKIPS=1, but this test was skipped: {reason}"
    return report


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
    if dist.is_initialized():  # a run that is told to stop leaves it
        dist.destroy_process_group()
