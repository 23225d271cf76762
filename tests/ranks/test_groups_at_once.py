"""Several groups of one check: side by side where that can be, judged in their order, and ended with the check."""

from pathlib import Path
from textwrap import dedent

import pytest

from lab.grading.check import Check, Group, Order
from lab.grading.suite import run_check
from lab.grading.trace.picture import Tracer
from lab.ranks.rank import Rank
from lab.ranks.server import server

MEET = """
    import time
    from pathlib import Path

    def meet(own, other):
        Path(own).touch()
        print(own)
        while not Path(other).exists():
            time.sleep(0.01)
        return own
    """


def meet(rank: Rank) -> object:
    return rank.student("data").meet(*rank.receive())


@pytest.fixture
def code(tmp_path: Path) -> Path:
    (tmp_path / "data.py").write_text(dedent(MEET))
    return tmp_path


def test_groups_that_are_started_run_side_by_side(code: Path):
    group = Group(code, "4.0", server=server())
    started = [group.start(Order(meet, 1, pair, set_up_process_group=False)) for pair in (["a", "b"], ["b", "a"])]
    assert [group.values(report()) for report in reversed(started)] == [["b"], ["a"]]
    assert group.outputs == [(0, "b\n"), (0, "a\n")]  # in the order in which they were asked for
    group.close()


def test_a_server_that_runs_one_after_another_starts_a_group_when_it_is_asked_for(code: Path):
    with Tracer() as tracer:
        group = Group(code, "4.0", server=tracer)
        never = group.start(Order(meet, 1, ["a", "nobody"], set_up_process_group=False))
        (code / "there").touch()
        second = group.start(Order(meet, 1, ["b", "there"], set_up_process_group=False))
        assert group.values(second()) == ["b"]
        assert not (code / "a").exists()
        assert len(tracer.results) == 1
        del never
        group.close()


def test_ctrl_c_ends_the_groups_that_nobody_has_asked_for(code: Path):
    def judge(group: Group) -> None:
        group.start(Order(meet, 1, ["a", "nobody"], timeout=600, set_up_process_group=False))
        while not (code / "a").exists():
            pass
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_check(Check("4.0", "ends", judge), code, server=server())
