"""Rank groups: values, failures, output and isolation, each on real ranks."""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import rank_observers as observers
import torch
from rank_helpers import act, only

from lab.ranks.rank import on_nodes
from lab.ranks.reports import RankFailure
from lab.ranks.server import RankServer, RankServerError, server

LINUX = sys.platform == "linux"


@pytest.fixture
def student(tmp_path: Path) -> Path:
    folder = tmp_path / "exercises"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_values_come_back_from_every_rank(world_size: int) -> None:
    inputs = {"x": torch.arange(3), "seed": (7, float("inf"))}
    result = server().run(observers.place, world_size, code=None, inputs=inputs)
    assert result.ok
    for rank, value in enumerate(result.values):
        assert value["rank"] == rank
        assert value["world_size"] == (world_size, world_size)
        assert value["sum"] == sum(range(world_size))
        assert value["inputs"]["x"].tolist() == value["again"]["x"].tolist() == [0, 1, 2]
        assert value["inputs"]["seed"] == inputs["seed"]
        assert [result.reports[rank].rank, result.reports[rank].exit_code] == [rank, 0]


def test_an_observer_can_be_named() -> None:
    assert server().run("rank_observers:place", 1, code=None).values[0]["inputs"] is None


def test_an_exception_is_reported_with_the_students_line(student: Path) -> None:
    result = act(student, "time.sleep(0)\nraise ValueError(f'rank {rank} says: zu spät')", 2, first=True)
    raised, waiting = result.reports
    assert raised.status == "raised"
    assert raised.error is not None
    assert (raised.error.type, raised.error.message, raised.error.todo) == (
        "ValueError",
        "rank 0 says: zu spät",
        None,
    )
    where = raised.error.student_frame
    assert where == raised.error.frames[-1] == raised.student_frame
    assert (where.file, where.line, where.function) == (str(student / "work.py"), 6, "act")
    assert where.text == "raise ValueError(f'rank {rank} says: zu spät')"
    assert raised.error.frames[0].function == "call_first"

    assert (waiting.status, waiting.exit_code) == ("killed", None)
    assert waiting.note == "stopped 1 s after rank 0 failed"
    assert waiting.stack[0].function == "call_first"
    assert "barrier" in [frame.function for frame in waiting.stack]
    assert result.first_failed is raised
    with pytest.raises(RankFailure, match=r"rank 0: raised, ValueError: .* at work.py:6; rank 1: killed"):
        _ = result.values


def test_a_stub_names_its_region(student: Path) -> None:
    body = "raise NotImplementedError('Exercise 3.1a is not done yet: get_dataloaders() in data.py')"
    for report in act(student, body, 2).reports:
        assert report.error is not None
        assert report.error.todo == "3.1a"
    other = only(act(student, "raise NotImplementedError('no gloo for this')")).error
    assert other is not None
    assert other.todo is None


def test_code_that_cannot_be_imported(student: Path) -> None:
    (student / "work.py").write_text("x = 1\ndef act(rank:\n")
    error = only(server().run(observers.call, 1, code=student)).error
    assert error is not None
    assert (error.type, error.student_frame and error.student_frame.line) == ("SyntaxError", 2)
    (student / "work.py").write_text("\nimport no_such_module\n")
    error = only(server().run(observers.call, 1, code=student)).error
    assert error is not None
    assert (error.type, error.student_frame and error.student_frame.line) == ("ModuleNotFoundError", 2)
    assert error.student_frame == error.frames[-1]
    (student / "work.py").unlink()
    error = only(server().run(observers.call, 1, code=student)).error
    assert error is not None
    assert (error.type, error.message) == ("ModuleNotFoundError", f"There is no work.py in {student}")


def test_values_that_cannot_be_sent_are_an_error_of_that_rank() -> None:
    for function, says in ((observers.large, "value takes"), (observers.not_plain, "value['model'] is a")):
        error = only(server().run(function, 1, code=None)).error
        assert error is not None
        assert error.type == "WireError"
        assert says in error.message


def test_the_students_folder_shadows_nothing_of_ours(student: Path) -> None:
    (student / "json.py").write_text("raise RuntimeError('not the json you wanted')\n")
    (student / "torch.py").write_text("raise RuntimeError('not the torch you wanted')\n")
    (student / "data.py").write_text("import json\n\ndef load(): return json.loads('[1]')\n")
    (student / "work.py").write_text("import torch\nimport data\n\ndef answer(): return data.load()\n")
    (value,) = server().run(observers.imports, 1, code=student).values
    assert value["answer"] == [1]
    assert value["own json"] == {"a": [1]}
    assert value["same"]
    assert value["cwd"] == str(student)
    assert str(student) not in value["before"]
    assert "" not in value["before"]
    assert value["after"] == [str(student), *value["before"]]


def test_an_edit_always_counts(student: Path) -> None:
    for answer in range(5):  # edits of the same length within one second, which a bytecode cache would miss
        (student / "data.py").write_text(f"def load(): return {answer}\n")
        (student / "work.py").write_text(f"import data\n\ndef answer(): return [{answer}, data.load()]\n")
        if answer == 1:
            import py_compile

            py_compile.compile(str(student / "data.py"))
            py_compile.compile(str(student / "work.py"))
        (value,) = server().run(observers.imports, 1, code=student, set_up_process_group=False).values
        assert value["answer"] == [answer, answer]
        if answer == 0:
            assert sorted(path.name for path in student.iterdir()) == ["data.py", "work.py"]


def test_the_environment_is_the_ranks_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "SLURM_PROCID",
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "MASTER_ADDR",
        "NCCL_DEBUG",
        "PYTHONSAFEPATH",
    ):
        monkeypatch.setenv(name, "9")
    monkeypatch.setenv("FROM_THE_USER", "kept")
    with RankServer(preload=["torch"]) as own:
        env = {"EXTRA": "1", "MASTER_PORT": None, "FROM_THE_USER": "changed"}
        first = own.run(observers.environment_variables, 2, code=None, env=env, set_up_process_group=False).values
        again = own.run(observers.environment_variables, 2, code=None, set_up_process_group=False).values
        threads = len(os.listdir(f"/proc/{own._nursery.pid}/task")) if LINUX else 1
    assert threads == 1, "a process with threads must not fork"
    for rank, (seen, later) in enumerate(zip(first, again, strict=True)):
        assert "SLURM_PROCID" not in seen
        assert "NCCL_DEBUG" not in seen
        assert "MASTER_PORT" not in seen
        assert (seen["EXTRA"], seen["FROM_THE_USER"]) == ("1", "changed")
        assert (seen["RANK"], seen["LOCAL_RANK"], seen["WORLD_SIZE"]) == (str(rank), str(rank), "2")
        assert (seen["OMP_NUM_THREADS"], seen["threads"], seen["CUDA_VISIBLE_DEVICES"]) == ("1", 1, "")
        assert len(seen["fds"]) <= 6, seen["fds"]  # standard ones, channel, stack, and the listing itself
        assert (later["FROM_THE_USER"], later["MASTER_ADDR"]) == ("kept", "127.0.0.1")
        assert "EXTRA" not in later


def test_code_may_set_up_the_process_group_itself() -> None:
    assert server().run(observers.env_rendezvous, 2, code=None, set_up_process_group=False).values == [2.0, 2.0]


def test_ranks_draw_different_random_numbers() -> None:
    first, second = server().run(observers.random_numbers, 2, code=None).values
    assert set(first).isdisjoint(second)


@pytest.mark.skipif(not LINUX, reason="reads /proc")
def test_the_inputs_reach_a_rank_only_when_it_asks() -> None:
    secret = b"the judge's " + b"secret"
    result = server().run(observers.two_parts_in_memory, 2, code=None, inputs=secret * 1000)
    for before, after in result.values:
        assert before < 100
        assert after >= 1000


def test_groups_run_side_by_side() -> None:
    gate = threading.Barrier(4)

    def one(number: int) -> list[int]:
        gate.wait(timeout=60)
        chosen = server() if number % 2 else other
        return [value["inputs"] for value in chosen.run(observers.place, 2, code=None, inputs=number).values]

    with RankServer(preload=["torch"]) as other, ThreadPoolExecutor(4) as pool:
        assert list(pool.map(one, range(4))) == [[number, number] for number in range(4)]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"observe": lambda rank: None}, "cannot be imported by a rank"),
        ({"observe": "no_colon"}, "cannot be imported by a rank"),
        ({"world_size": 0}, "at least one rank"),
        ({"timeout": 0.0}, "some time"),
        ({"code": Path("no/such/folder")}, "no/such/folder is not a folder"),
        ({"inputs": object()}, "only plain data"),
    ],
)
def test_arguments_that_make_no_sense(arguments: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        server().run(**{"observe": observers.place, "world_size": 1, "code": None, **arguments})  # type: ignore[arg-type]


def test_a_server_that_cannot_start_says_why() -> None:
    with RankServer(preload=["no_such_module"]) as broken, pytest.raises(RankServerError, match="no_such_module"):
        broken.run(observers.place, 1, code=None)


def test_a_closed_server_refuses() -> None:
    closed = RankServer()
    closed.close()
    closed.close()
    with pytest.raises(RankServerError, match="closed"):
        closed.run(observers.place, 1, code=None)


def test_a_nursery_that_was_killed_is_replaced() -> None:
    with RankServer(preload=["torch"]) as own:
        assert own.run(observers.place, 1, code=None).ok
        own._nursery.kill()
        own._nursery.wait()
        assert own.run(observers.place, 1, code=None).ok


@pytest.mark.parametrize("world_size", [2, 3, 4, 8])
def test_no_number_of_a_node_is_one_of_the_group(world_size: int):
    said = [on_nodes(own, world_size) for own in range(world_size)]
    assert all(int(one["LOCAL_RANK"]) != own for own, one in enumerate(said))
    assert [one["LOCAL_RANK"] == "0" for one in said].count(True) == 1
    assert all(int(one["LOCAL_RANK"]) < int(one["LOCAL_WORLD_SIZE"]) != world_size for one in said)
    assert {one["GROUP_RANK"] for one in said} == {"0", "1"}
