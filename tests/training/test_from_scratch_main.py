"""from_scratch/main.py: trains on several ranks with the modules of 9.5 to 9.7, to the losses of one process."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from lab.base.errors import UsageError, UserError
from lab.ranks.rank import Rank
from lab.ranks.server import RankServer
from lab.training import from_scratch

ROOT = Path(__file__).resolve().parents[2]
SMALL = ("--compare", "--epochs", "2", "--global-batch-size", "8", "--images", "16", "--depth", "2")


def train(rank: Rank) -> dict[str, Any]:
    """Its own run(), with images of this test's."""
    main = rank.student("main")
    given = rank.receive()
    images = torch.rand(30, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    data = torch.utils.data.TensorDataset(images, torch.arange(30) % 3)
    main.from_scratch.read_images = lambda args: type("Data", (), {"train": data, "valid": data, "classes": "abc"})
    report: dict[str, Any] = {"parameters": [], "losses": []}
    original = main.train

    def noted(way: Any, *args: Any, **kwargs: Any) -> Any:
        report["parameters"].append(sum(parameter.numel() for parameter in way.parameters))
        report["losses"].append(original(way, *args, **kwargs))
        return report["losses"][-1]

    main.train = noted
    main.run(main.from_scratch.parse_args(given))
    return report


@pytest.fixture(scope="module")
def ranks() -> Any:
    with RankServer() as server:
        yield server


def run(ranks: RankServer, code: Path, number: int, *given: str) -> Any:
    return ranks.run(train, number, code=code, inputs=[*given, *SMALL], timeout=280, set_up_process_group=False)


@pytest.mark.parametrize(
    ("number", "given", "share"),
    [
        (2, ["tensor"], 0.53),  # the norms, patches and some biases are whole
        (2, ["pipeline", "--schedule", "gpipe", "--micro-batches", "2"], 0.53),
        (2, ["pipeline"], 0.53),
        (4, ["hsdp"], 0.501),
    ],
    ids=["tensor", "gpipe", "1f1b", "hsdp"],
)
def test_it_trains_in_parts_to_the_losses_of_one_process(
    ranks: RankServer, number: int, given: list[str], share: float
):
    result = run(ranks, ROOT / "solutions" / "from_scratch", number, *given)
    for report in result.values:
        here, alone = (torch.tensor(losses) for losses in report["losses"])
        assert here.shape == (2, 2)
        torch.testing.assert_close(here, alone, rtol=1e-4, atol=0)
        assert here[1].mean() < here[0].mean()
        assert report["parameters"][0] <= share * report["parameters"][1]
    said = result.reports[0].output.splitlines()
    assert [line.split()[:2] for line in said[:2]] == [["[METRIC]", "epoch=1"], ["[METRIC]", "epoch=2"]]
    assert [line.split()[:2] for line in said[2:4]] == [["[COMPARE]", "epoch=1"], ["[COMPARE]", "epoch=2"]]
    assert said[4].startswith("largest difference of the 4 steps' losses: ")
    assert not any(report.output for report in result.reports[1:])


@pytest.mark.parametrize(
    ("way", "module", "right", "wrong"),
    [
        ("tensor", "tensor_parallel", "return summed(gradient)", "return gradient"),
        ("pipeline", "pipeline", "self.loss_of(output, micro) / len(self.inputs)", "self.loss_of(output, micro)"),
        ("hsdp", "hsdp", "dist.all_reduce(own, group=self.replicate_group)", "pass"),
    ],
)
def test_a_module_that_trains_otherwise_is_told(
    ranks: RankServer, tmp_path: Path, way: str, module: str, right: str, wrong: str
):
    import shutil

    code = Path(shutil.copytree(ROOT / "solutions" / "from_scratch", tmp_path / "code"))
    file = code / f"{module}.py"
    assert right in file.read_text()
    file.write_text(file.read_text().replace(right, wrong))
    result = run(ranks, code, 4 if way == "hsdp" else 2, way)
    assert {report.status for report in result.reports} == {"raised"}
    error = result.reports[0].error
    assert error is not None
    assert error.type == "UserError"
    assert f"it is another training. What does lab check {from_scratch.EXERCISES[way]} say?" in error.message


@pytest.mark.parametrize(("way", "todo"), [("tensor", "9.5h"), ("pipeline", "9.6b"), ("hsdp", "9.7a")])
def test_what_is_not_written_yet_is_named(ranks: RankServer, way: str, todo: str):
    result = run(ranks, ROOT / "exercises" / "from_scratch", 2, way)
    assert [report.error.todo for report in result.reports if report.error] == [todo] * 2


@pytest.mark.slow
def test_with_torchrun_it_trains_and_ends_in_one_sentence(tmp_path: Path):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]

    def started(code: str) -> subprocess.CompletedProcess[str]:
        command = [*torchrun, str(ROOT / code / "from_scratch" / "main.py"), "tensor", *SMALL]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False)

    done = started("solutions")
    assert done.returncode == 0
    assert done.stdout.count("[METRIC]") == done.stdout.count("[COMPARE]") == 2
    done = started("exercises")
    assert done.returncode == 1
    assert (
        "main.py: Exercise 9.5h is not done yet: parallelize() in from_scratch/tensor_parallel.py\n" in done.stderr
    )
    assert "NotImplementedError" not in done.stderr


@pytest.mark.parametrize(
    ("given", "ranks", "said"),
    [
        (["tensor"], 1, "tensor needs at least 2 ranks"),
        (["tensor"], 3, "2 attention heads cannot be shared out over 3 ranks: --width 192"),
        (["tensor", "--width", "100"], 2, "--width 100: use a multiple of 64"),
        (["tensor", "--schedule", "1f1b"], 2, "--schedule is of pipeline, not of tensor: leave it out"),
        (["pipeline"], 5, "4 blocks are too few for 5 ranks: --depth 5"),
        (["pipeline", "--micro-batches", "3"], 2, "64 images cannot be cut into 3 micro-batches"),
        (["pipeline", "--ranks-per-node", "2"], 2, "--ranks-per-node is of hsdp, not of pipeline"),
        (["hsdp"], 3, "3 ranks are no whole number of nodes with 2: --nproc-per-node 4"),
        (["hsdp", "--global-batch-size", "6"], 4, "6 images cannot be shared out over 4 ranks"),
        (["hsdp", "--images", "32"], 4, "--images 32 are fewer than the 64 of a step"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(given: list[str], ranks: int, said: str):
    with pytest.raises(UsageError, match=said):
        from_scratch.resolve(from_scratch.parse_args(given), ranks)


@pytest.mark.parametrize("given", [["ring"], [], ["tensor", "--epochs", "0"], ["tensor", "--dataset", "mnist"]])
def test_what_it_does_not_know_is_a_usage_error(given: list[str]):
    with pytest.raises(SystemExit, match="2"):
        from_scratch.parse_args(given)


def test_without_torchrun_it_says_what_to_type(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("RANK", raising=False)
    monkeypatch.setattr(sys, "argv", ["from_scratch/main.py", "tensor"])
    with pytest.raises(UsageError, match=r"torchrun --standalone --nproc-per-node 2 from_scratch/main\.py tensor"):
        from_scratch.join()


def test_rounding_that_grows_is_no_other_training():
    assert "2.0e-01 of the loss" in from_scratch.compare("tensor", [[1.0] * 5, [1.2]], [[1.0] * 5, [1.0]])
    with pytest.raises(UserError, match=r"tensor: in step 3 the loss is 1\.1000"):
        from_scratch.compare("tensor", [[1.0, 1.0], [1.1]], [[1.0, 1.0], [1.0]])
    with pytest.raises(UserError, match=r"tensor: in step 2 the loss is 1\.1000"):
        from_scratch.compare("tensor", [[1.0, 1.1]], [[1.0, 1.0]])
