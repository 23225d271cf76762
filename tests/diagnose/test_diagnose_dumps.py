"""What is said about jobs that hung: from their flight recorder dumps, whole and damaged."""

import pickle
from pathlib import Path

from lab.diagnose.evidence import gather
from lab.diagnose.told.parted import from_dumps
from lab.diagnose.verdict import findings

LOGS = Path(__file__).parent / "failed_jobs"


def entry(number: int, line: int, call: str = "all_reduce", size: int = 3) -> dict[str, object]:
    """A collective as PyTorch's flight recorder writes it; frames run from the innermost outwards."""
    frames = [
        {"filename": "/env/torch/distributed/distributed_c10d.py", "line": 9, "name": call},
        {"filename": "/home/ada/exercises/train.py", "line": line, "name": "evaluate"},
        {"filename": "/home/ada/exercises/main.py", "line": 7, "name": "run"},
    ]
    return {
        "record_id": number - 1,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": number,
        "profiling_name": f"nccl:{call}",
        "input_sizes": [[size]],
        "input_dtypes": ["Float"],
        "retired": True,
        "is_p2p": False,
        "frames": frames,
    }


def dumps(tmp_path: Path, **ranks: list[dict[str, object]]) -> Path:
    folder = tmp_path / "flight_recorder"
    folder.mkdir()
    for rank, entries in ranks.items():
        (folder / f"nccl_trace_{rank}").write_bytes(pickle.dumps({"version": "2.10", "entries": entries}, 2))
    return folder


def diagnosis(folder: Path, world_size: int = 2):
    return from_dumps(gather(folder).lanes, world_size)


def test_a_collective_that_one_rank_did_not_come_to(tmp_path):
    folder = dumps(tmp_path, rank_0=[entry(1, 5), entry(2, 88)], rank_1=[entry(1, 5)])
    found = diagnosis(folder)
    assert found.name == "rank-missing"
    assert found.saw == (
        "Rank 0 waits in all_reduce at train.py:88, collective number 2; "
        "rank 1 never came to it: the last that it called was all_reduce at train.py:5."
    )
    assert found.do == ("look at train.py, line 88, in evaluate()",)


def test_a_rank_that_has_failed_is_the_cause_of_the_others_waiting(tmp_path):
    folder = dumps(tmp_path, rank_0=[entry(1, 5), entry(2, 88)], rank_1=[entry(1, 5)])
    assert [finding.name for finding in findings(gather(folder))] == ["rank-missing"]
    for name, cause in (("srun-a-rank-refused.err", "program-said"), ("srun-a-rank-raised.err", "raised")):
        (folder / "train.err").write_text((LOGS / name).read_text(encoding="utf-8"), encoding="utf-8")
        assert [finding.name for finding in findings(gather(folder))][:2] == [cause, "rank-missing"]


def test_different_collectives(tmp_path):
    folder = dumps(tmp_path, rank_0=[entry(1, 5)], rank_1=[entry(1, 9, "broadcast")])
    found = diagnosis(folder)
    assert found.name == "different-order"
    assert "rank 0 called all_reduce at train.py:5, with [3]; rank 1 called broadcast at train.py:9" in found.saw


def test_different_sizes(tmp_path):
    folder = dumps(tmp_path, rank_0=[entry(1, 5, size=3)], rank_1=[entry(1, 5, size=4)])
    assert diagnosis(folder).name == "different-sizes"


def test_an_earlier_one_that_fitted_by_chance_is_the_cause(tmp_path):
    folder = dumps(
        tmp_path,
        rank_0=[entry(1, 5), entry(2, 60)],
        rank_1=[entry(1, 60), entry(2, 70, "broadcast")],
    )
    assert "As collective number 1 rank 0 called all_reduce at train.py:5" in diagnosis(folder).saw


def test_a_rank_without_a_dump_is_named(tmp_path):
    found = diagnosis(dumps(tmp_path, rank_0=[entry(1, 5)]), world_size=2)
    assert found.saw == "Rank 0 waits in all_reduce at train.py:5; rank 1 left no dump."


def test_ranks_that_agree_are_not_accused(tmp_path):
    assert diagnosis(dumps(tmp_path, rank_0=[entry(1, 5)], rank_1=[entry(1, 5)])) is None


class Attack:
    def __reduce__(self):
        return print, ("this was run",)


def test_a_dump_runs_no_code(tmp_path, capsys):
    folder = dumps(tmp_path, rank_0=[entry(1, 5)])
    (folder / "nccl_trace_rank_1").write_bytes(pickle.dumps({"entries": [Attack()]}))
    # Damaged in several ways: not a pickle, a length that no memory holds, one that no C integer does.
    for rank, damage in enumerate((b"garbage", b"\x04\x8e" + b"\x7f" * 8, b"\x04\x8e" + b"\xff" * 8), start=2):
        (folder / f"nccl_trace_rank_{rank}").write_bytes(b"\x80" + damage)
    assert gather(folder).unreadable == tuple(f"nccl_trace_rank_{rank}" for rank in range(1, 5))
    assert "this was run" not in capsys.readouterr().out
