"""--compile on the CPU: what is compiled, that it trains alike, and that it is never off without a word."""

import argparse
import csv
import io
import threading
from pathlib import Path

import pytest
import stepping_observers
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from lab.base.errors import UsageError, UserError
from lab.base.terminal import Terminal
from lab.runs import options
from lab.training.networks import build_network
from lab.training.run import Run
from lab.training.stepping import compiling
from lab.training.stepping.compiling import Compiler, check_toolchain, parts

CPU = torch.device("cpu")


def arguments(folder: Path, *, captured: bool = False) -> argparse.Namespace:
    known = {"model": "cnn", "strategy": "none", "output_dir": folder}
    return argparse.Namespace(**known, capture=captured, checkpoint_activations=False)


def test_the_first_fsdp_is_refused():
    with pytest.raises(UsageError, match=r"--compile cannot compile --strategy fsdp1, .* use --strategy fsdp"):
        options.resolve(options.parse(["--compile", "--strategy", "fsdp1"]), 2)


@pytest.mark.parametrize(
    ("model", "strategy", "part", "count"),
    [
        ("resnet18", "ddp", "model", 1),
        ("resnet18", "fsdp", "blocks", 9),  # and the stem
        ("mnist_cnn", "none", "model", 1),
        ("vit", "none", "blocks", 6),
        ("vit", "fsdp", "blocks", 6),
    ],
)
def test_what_is_compiled(model, strategy, part, count):
    network = build_network(model)
    found, modules = parts(network, strategy)
    assert (found, len(modules)) == (part, count)
    if part == "model":
        assert modules == [network]
    else:
        assert modules[: len(network.blocks)] == list(network.blocks)
        assert modules[len(network.blocks) :] == ([network.stem] if model == "resnet18" else [])


def test_a_machine_without_a_compiler_is_told_so(monkeypatch):
    check_toolchain(CPU)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(UserError, match=r"needs a C\+\+ compiler, and there is no (g|clang)\+\+: install one, or"):
        check_toolchain(CPU)
    monkeypatch.setenv("CXX", "no-such-compiler -O2")
    with pytest.raises(UserError, match=r"there is no no-such-compiler -O2: .* in the variable CXX"):
        check_toolchain(CPU)


def test_a_machine_without_pythons_headers_is_told_so(monkeypatch, tmp_path):
    monkeypatch.setattr(compiling.sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
    with pytest.raises(UserError, match=r"there is no Python.h in .*: install python3-dev"):
        check_toolchain(CPU)


def test_compiling_that_was_switched_off_is_not_ignored():
    off = torch._dynamo.config.patch(disable=True)
    with off, pytest.raises(UserError, match=r"while TORCH_COMPILE_DISABLE or TORCHDYNAMO_DISABLE is set"):
        check_toolchain(CPU)


@pytest.mark.parametrize(
    ("argv", "graphs"),
    [
        (["--strategy", "ddp"], 2),  # one in training, one in evaluation
        (["--strategy", "ddp", "--precision", "bf16", "--checkpoint-activations"], 2),
        (["--strategy", "fsdp", "--precision", "bf16", "--accumulate", "2", "--clip-norm", "1"], 4),  # two blocks
        (["--strategy", "fsdp", "--precision", "bf16", "--checkpoint-activations"], 4),
    ],
    ids=str,
)
def test_a_compiled_run_trains_as_an_eager_one(tiny, argv, graphs):
    """Traced, and run by PyTorch's own kernels, so that all digits must agree."""
    inputs = {"net": {"norm": True, "dropout": 0.0}, "noise": 0.0, "observe": stepping_observers.traced}
    eager = tiny(*argv, "--epochs", "2", "--run-id", "eager", **inputs).values[0]
    compiled = tiny(*argv, "--epochs", "2", "--compile", **inputs).values[0]
    assert compiled["ended"] == eager["ended"] == "done"
    assert (eager["graphs"], compiled["graphs"]) == (0, graphs)
    assert compiled["records"] == eager["records"]
    assert compiled["weights"].keys() == eager["weights"].keys()
    assert all(torch.equal(tensor, compiled["weights"][key]) for key, tensor in eager["weights"].items())


def test_a_checkpoint_fits_with_and_without(tiny):
    argv = ("--strategy", "fsdp", "--epochs", "2")
    inputs = {"net": {"norm": True, "dropout": 0.0}, "observe": stepping_observers.traced}
    whole = tiny(*argv, "--run-id", "whole", **inputs).values[0]
    tiny(*argv, "--compile", "--save-every-steps", "1", stop=[1, 2], **inputs)
    second = tiny(*argv, "--resume", "latest", "--save-every-steps", "1", stop=[2, 2], **inputs).values[0]
    assert second["ended"].startswith("Stop")
    third = tiny(*argv, "--compile", "--resume", "latest", **inputs).values[0]
    assert third["records"] == whole["records"][1:]
    assert all(torch.equal(tensor, third["weights"][key]) for key, tensor in whole["weights"].items())


@pytest.fixture(autouse=True)
def its_own_environment(monkeypatch):
    """A run sets the variable, and it is put back afterwards."""
    monkeypatch.setenv(compiling.CACHE_VARIABLE, "")


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """A process group of this process, and PyTorch's own kernels for what is traced."""
    monkeypatch.setattr(compiling, "BACKEND", "aot_eager")
    monkeypatch.setattr(compiling, "USERS_CACHE", str(tmp_path / "cache"))
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def train(folder: Path, model: nn.Module, *argv: str, samples: int = 32, prepared: bool = True) -> nn.Module:
    """An epoch of batches of 8, without an evaluation."""
    args = options.parse(
        ["--strategy", "none", "--output-dir", str(folder), "--run-id", "r", "--epochs", "1", "--compile", *argv]
    )
    loader = DataLoader(TensorDataset(torch.randn(samples, 4), torch.arange(samples) % 3), batch_size=8)
    with Run(args, CPU) as run:
        model = run.prepare_model(model) if prepared else model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        run.begin(model, optimizer, loader)
        for epoch in run.epochs():
            for images, labels in run.batches(loader):
                optimizer.zero_grad()
                run.backward(nn.functional.cross_entropy(model(images), labels))
                optimizer.step()
            run.record(epoch, 1.0, 1.0, 0.5)
    return model


def test_the_log_says_what_is_compiled_and_how_long_it_took(alone, tmp_path, capsys):
    train(tmp_path, nn.Linear(4, 3))
    out = capsys.readouterr().out
    assert f"compile    the whole network, when it is first used; the code is kept in {tmp_path}/cache" in out
    assert "compiled for training in" in out
    assert out.count("compiled for") == 1
    assert "compiled for training in" in (tmp_path / "r" / "train.log").read_text()
    with (tmp_path / "r" / "run.csv").open(newline="") as file:
        assert {row["compiled"] for row in csv.DictReader(file)} == {"model"}


def test_a_last_batch_of_another_size_is_not_compiled(alone, tmp_path, capsys):
    before = stepping_observers.graphs()
    train(tmp_path, nn.Linear(4, 3), samples=36)
    assert stepping_observers.graphs() == before + 1
    assert "warning" not in capsys.readouterr().out.replace("warning: run.batches", "")


def test_a_run_whose_batches_are_mostly_of_other_sizes_is_warned(alone, tmp_path):
    said = []
    for sizes in ((4, 5, 4), (4, 5, 6)):
        compiler = Compiler(arguments(tmp_path), CPU, said.append, None)
        model = nn.Linear(4, 3)
        compiler.compile(model)
        for size in sizes:
            model(torch.zeros(size, 4))
        compiler.close(failed=False)
    assert said == [
        "warning: --compile had little effect: 2 of 3 batches had another size than the one that was compiled for"
    ]


def test_a_batch_of_several_blocks_counts_once(alone, tmp_path, monkeypatch):
    monkeypatch.setattr(compiling, "parts", lambda model, strategy: ("blocks", list(model)))
    said = []
    compiler = Compiler(arguments(tmp_path), CPU, said.append, None)
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    compiler.compile(model)
    for size in (4, 5, 6):
        model(torch.zeros(size, 4))
    compiler.close(failed=False)
    assert "2 of 3 batches" in said[0]


def test_a_captured_run_is_not_told_of_the_few_batches_that_were_not_replayed(alone, tmp_path):
    said = []
    compiler = Compiler(arguments(tmp_path, captured=True), CPU, said.append, None)
    model = nn.Linear(4, 3)
    compiler.compile(model)
    for size in (4, 5, 6):
        model(torch.zeros(size, 4))
    compiler.close(failed=False)
    assert said == []


def test_a_network_that_main_does_not_hand_over_is_not_left_uncompiled(alone, tmp_path):
    with pytest.raises(UserError, match=r"main.py needs model = this_run.prepare_model\(model\)"):
        train(tmp_path, nn.Linear(4, 3), prepared=False)


class Counting(nn.Linear):
    """Computes something else in every step."""

    step = 0

    def forward(self, x):
        self.step += 1
        return super().forward(x) * self.step


class Looking(nn.Linear):
    """Decides on the CPU."""

    def forward(self, x):
        out = super().forward(x)
        return out if out.sum().item() > 0 else -out


def test_a_network_that_must_be_compiled_in_every_step_ends_the_run(alone, tmp_path):
    with pytest.raises(
        UserError, match=r"cannot compile cnn, .* something else in each step .* TORCH_LOGS=recompiles"
    ):
        train(tmp_path, Counting(4, 3), samples=160)


def test_a_network_that_cannot_be_compiled_whole_ends_the_run(alone, tmp_path):
    with pytest.raises(UserError, match=r"--compile cannot compile cnn: leave it out, or mend what PyTorch names"):
        train(tmp_path, Looking(4, 3))


def test_compiled_code_is_kept_for_the_next_run(alone, tmp_path, monkeypatch):
    """With the real compiler, of C++ here. The kernels add in another order: nothing is compared but the cache."""
    monkeypatch.setattr(compiling, "BACKEND", "inductor")
    monkeypatch.setattr(torch._inductor.config.cpp, "simdlen", 1)  # or it tries what the processor has, for long
    kept = torch._dynamo.utils.counters["aot_autograd"]
    before = dict(kept)
    train(tmp_path / "first", nn.Linear(4, 3))
    assert list((tmp_path / "cache").rglob("*.cpp")) or list((tmp_path / "cache").rglob("*.so"))
    assert kept["autograd_cache_hit"] == before.get("autograd_cache_hit", 0)
    train(tmp_path / "second", nn.Linear(4, 3))
    assert kept["autograd_cache_hit"] == before.get("autograd_cache_hit", 0) + 1


def test_a_users_own_cache_is_left_alone(alone, tmp_path, monkeypatch):
    monkeypatch.setattr(compiling, "USERS_CACHE", "/mine")
    assert Compiler(arguments(tmp_path), CPU, print, None).cache == Path("/mine")
    monkeypatch.setattr(compiling, "USERS_CACHE", None)
    assert Compiler(arguments(tmp_path), CPU, print, None).cache == tmp_path / ".compiled"


class Screen(io.StringIO):
    """A terminal that says when something was drawn."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn = threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.drawn.set()
        return super().write(text)


def test_a_terminal_counts_the_seconds(monkeypatch, tmp_path):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(compiling, "TICK", 0.001)
    screen, said = Screen(), []
    compiler = Compiler(arguments(tmp_path), CPU, said.append, Terminal(screen))
    compiler._begin()
    assert screen.drawn.wait(60)
    compiler._end()
    assert "compiling for" in screen.getvalue()
    assert screen.getvalue().endswith("\r")  # nothing stays there
    compiler.report()
    compiler.report()
    assert len(said) == 1
