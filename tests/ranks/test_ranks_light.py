"""What a rank need not do, for the process that it is forked from has done it."""

from pathlib import Path

import pytest
import rank_observers as observers
from rank_helpers import act, only

from lab import cli
from lab.commands import check
from lab.ranks.server import server


def test_no_rank_looks_through_all_packages_for_gloo() -> None:
    assert server().run(observers.join, 2, code=None, set_up_process_group=False).values == [0, 0]


def test_nothing_of_pytorch_is_looked_through_for_garbage(tmp_path: Path) -> None:
    body = "import gc\nreturn gc.get_freeze_count(), len(gc.get_objects())"
    (frozen, others) = only(act(tmp_path, body)).value
    assert frozen > 100_000
    assert others < 10_000


def test_what_is_known_of_other_folders_is_kept(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text("import sibling\n")
    (tmp_path / "sibling.py").write_text("")
    assert server().run(observers.finders, 1, code=tmp_path).values == [(True, "_SourceLoader")]


def test_the_judge_collects_no_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    import gc

    collects: list[bool] = []
    usual = check.Suite.run
    monkeypatch.setattr(check.Suite, "run", lambda *args: collects.append(gc.isenabled()) or usual(*args))
    assert cli.main(["check", "2.1", "--code", "solutions"]) == 0
    assert collects == [False]
    assert gc.isenabled()


def test_the_program_ends_without_a_last_look_for_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen: list[bool] = []
    monkeypatch.setattr(cli, "_run", lambda _: 0)
    monkeypatch.setattr(cli.signal, "signal", lambda *_: None)
    monkeypatch.setattr(cli.gc, "freeze", lambda: frozen.append(True))
    assert [cli.main([]), frozen] == [0, []]
    assert [cli.main(), frozen] == [0, [True]]
