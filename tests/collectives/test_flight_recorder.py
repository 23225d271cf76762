"""A rank that fails leaves its last collectives behind, if it was asked to."""

from lab.diagnose.told.dumps import is_dump, read_dump
from lab.training.stepping.flight_recorder import dump


def environment(tmp_path, **more: str) -> dict[str, str]:
    prefix = str(tmp_path / "made" / "on" / "the" / "way" / "gloo_rank_")
    return {"TORCH_FR_BUFFER_SIZE": "100", "TORCH_FR_DUMP_TEMP_FILE": prefix, **more}


def test_it_writes_what_lab_diagnose_reads(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "3")
    file = dump(environment(tmp_path))
    assert file is not None
    assert file.name == "gloo_rank_3"
    assert is_dump(file)
    rank, lane = read_dump(file)
    assert rank == 3
    assert lane is not None


def test_it_writes_nothing_unless_asked(tmp_path):
    assert dump({}) is None
    assert dump(environment(tmp_path, TORCH_FR_BUFFER_SIZE="0")) is None
    assert dump({"TORCH_FR_BUFFER_SIZE": "100"}) is None
    assert list(tmp_path.iterdir()) == []


def test_it_takes_the_older_names_too(tmp_path):
    older = {
        "TORCH_NCCL_TRACE_BUFFER_SIZE": "100",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(tmp_path / "nccl_trace_rank_"),
    }
    assert dump(older) == tmp_path / "nccl_trace_rank_0"


def test_nccls_own_dump_is_left_alone(tmp_path):
    (tmp_path / "rank_0").write_bytes(b"\x80 of the watchdog")
    asked = environment(tmp_path, TORCH_FR_DUMP_TEMP_FILE=str(tmp_path / "rank_"))
    assert dump(asked) == tmp_path / "rank_0"
    assert (tmp_path / "rank_0").read_bytes() == b"\x80 of the watchdog"


def test_where_it_cannot_write_the_runs_own_error_is_not_hidden(tmp_path, capsys):
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert dump(environment(tmp_path, TORCH_FR_DUMP_TEMP_FILE=str(tmp_path / "file" / "rank_"))) is None
    assert "no flight recorder dump in" in capsys.readouterr().err
