"""How the tests are spread over processes by pytest -n auto, as make test does, and which are left to make test.

The tests of a file stay together and in their order, so that what a file sets up is set up once. Exceptions are
named here, by the file's name, and nowhere else. Without -n there is one process, and only the marker is of use.
"""

import os
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any

import pytest
import torch

from lab.base.machine import usable_cores

# Files that share one thing of which a machine has room for one.
TOGETHER: dict[str, Sequence[str]] = {
    "slurm": (
        "test_cluster.py",
        "test_cluster_node_failure.py",
        "test_practice_cluster.py",
        "test_sweep_cluster.py",
    ),
    "browser": ("test_formgrader.py", "test_jupyterlab.py"),
}

# Files of many tests that share nothing but the rank server: each goes to whichever process is free.
SPREAD = ("test_answers.py",)
SAMPLE = 20  # make check runs one in so many of these, and of the files that are not in LONG all tests

# What takes long (10 s or more) begins first, the longest before all others; else one process would end long after
# the rest. Tests that are spread come last, and fill what is left.
LONG = (
    "test_nbgrader_chain.py",
    "slurm",
    "test_robust.py",
    "test_parity.py",
    "browser",
    "test_site.py",
    "test_attacks.py",
    "test_ordinary_user.py",
    "test_checks_nonsense.py",
    "test_resume.py",
    "test_grade.py",
    "test_nbgrader_lab2.py",
    "test_ranks_end.py",
    "test_ways_out.py",
    "test_handed_out.py",
    "test_extending.py",
    "test_notebook_calls.py",
    "test_sweep_scripts.py",
    "test_sweep_plot.py",
    "test_inputs.py",
    "test_option_effects.py",
    "test_attacks_sandbox.py",
    "test_signals.py",
    "test_hangs.py",
    "test_checkpoint.py",
    "test_doctor.py",
    "test_sweep_course.py",
    "test_watch.py",
    "test_profiling.py",
    "test_ranks.py",
    "test_make_it_hang.py",
    "test_main_bad_input.py",
    "test_precision.py",
    "test_stepping.py",
    "test_sweep_local.py",
    "test_attacks_replay.py",
    "test_augment.py",
    "test_parallel.py",
    "test_errors.py",
    "test_nbgrader_glue.py",
    "test_grade_pool.py",
)

MEMORY = 3 << 30  # bytes that one process of tests may need, with its ranks
MOST = 8  # the longest file is the end then: more processes would only wait for it


def group_of(nodeid: str) -> str:
    """Tests of the same group run in one process, one after the other."""
    name = PurePosixPath(nodeid.partition("::")[0]).name
    if name in SPREAD:
        return nodeid
    return next((group for group, files in TOGETHER.items() if name in files), name)


def turn_of(nodeid: str) -> int:
    """When its group begins: groups with smaller numbers are sooner."""
    group = group_of(nodeid)
    if group == nodeid:
        return len(LONG) + 1
    return LONG.index(group) if group in LONG else len(LONG)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """-n auto: one more than there are cores, for much of a test is waiting; fewer where memory is short."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(1, min(usable_cores() + 1, memory // MEMORY, MOST))


def pytest_configure(config: pytest.Config) -> None:
    """One thread for a process of tests, and for what it starts: ranks and other tests need the cores.

    OpenMP's threads wait for each other in every operation, ten times as long where they have to share a core.
    """
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    torch.set_num_threads(1)  # loaded already, and so deaf to the variable


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """The groups above, unless --dist asks for something else of xdist's."""
    if config.getoption("dist") not in ("load", "loadfile"):  # load: what -n alone means
        return None
    from xdist.scheduler import LoadFileScheduling

    class GroupScheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    config.option.loadscopereorder = False  # by number of tests: those of the bank would be first
    return GroupScheduling(config, log)


@pytest.hookimpl(tryfirst=True)  # before -m is looked at
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what make check leaves out; in a process of xdist's, put the groups in the order of their turns."""
    spread = 0
    for item in items:
        turn = turn_of(item.nodeid)
        spread += turn > len(LONG)
        if turn < len(LONG) or (turn > len(LONG) and spread % SAMPLE):
            item.add_marker("long")
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: turn_of(item.nodeid))


# xdist forgets to say how many tests were deselected: each process tells, and the first one is believed.


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    for item in items[:1]:
        if hasattr(item.config, "workerinput"):
            told = item.config.workeroutput
            told["deselected"] = told.get("deselected", 0) + len(items)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    told = getattr(node, "workeroutput", {}).get("deselected", 0)
    counts = node.config.pluginmanager.getplugin("terminalreporter").stats
    counts.setdefault("deselected", [None] * told)
