"""What the tests of runs check on the CPU, on the GPUs of this machine.

Started by test_run_on_gpus.py: torchrun --nproc-per-node N gpu_run.py FOLDER. It prints a line for each thing that
holds.
"""

import csv
import gc
import importlib
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import tiny_run
import torch
import torch.distributed as dist
from torch.utils.data import default_collate

from lab.runs import options
from lab.training.data.batches import put_on_device
from lab.training.data.datasets import load_datasets
from lab.training.metrics.step_figures import StepFigures
from lab.training.run import Run

sys.path.insert(0, str(tiny_run.SOLUTIONS))
FOLDER = Path(sys.argv[1])


class Here:
    """Stands for lab.grading's Rank in a process that torchrun has started."""

    def __init__(self, inputs: dict[str, Any]) -> None:
        self.rank, self.inputs = dist.get_rank(), inputs

    def student(self, name: str) -> Any:
        return importlib.import_module(name)

    def receive(self) -> dict[str, Any]:
        return self.inputs


def tiny(*argv: str, **inputs: Any) -> dict[str, Any]:
    folder = ("--output-dir", str(FOLDER), "--run-id", "r")
    device = f"cuda:{torch.cuda.current_device()}"
    result = tiny_run.train(Here({"argv": [*folder, *argv], "device": device, **inputs}))  # type: ignore[arg-type]
    gc.collect()  # here, and not in a loader's worker: a process that was forked cannot free CUDA's objects
    if dist.is_initialized():
        dist.barrier()
    return result


def join() -> None:
    """This process's GPU, and the process group."""
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl", device_id=torch.device("cuda", torch.cuda.current_device()))


def try_all(checks: Iterable[Callable[[], None]]) -> None:
    """All of them, also after one that fails; the test counts what holds."""
    for check in checks:
        try:
            check()
        except Exception:  # noqa: BLE001 - said, and not counted
            traceback.print_exc()


def say(line: str) -> None:
    if dist.get_rank() == 0:
        print(f"HOLDS {line}", flush=True)


def resumes(strategy: str, precision: str) -> None:
    name = f"{strategy}-{precision}"
    argv = ("--strategy", strategy, "--precision", precision, "--epochs", "3", "--deterministic", "--run-id", name)
    argv += ("--accumulate", "2", "--clip-norm", "1", "--schedule", "cosine", "--warmup-epochs", "0.5")
    whole = tiny(*argv, "--run-id", name + "-whole", workers=1)
    stopped = tiny(*argv, "--save-every-steps", "1", workers=1, stop=[2, 2])
    assert stopped["ended"].startswith("Stop"), stopped
    second = tiny(*argv, "--resume", "latest", workers=1)
    assert second["records"] == whole["records"][1:], (name, whole["records"], second["records"])
    assert all(torch.equal(tensor, second["weights"][key]) for key, tensor in whole["weights"].items())
    if dist.get_rank() == 0:
        state = torch.load(FOLDER / name / "checkpoints" / "latest.pth", weights_only=True)
        assert (state["scaler"] is not None) == (precision == "fp16"), state["scaler"]
    say(f"{name}: resumed in mid-epoch to the same digits; losses {[round(r[1], 4) for r in whole['records']]}")


def default_is_mixed() -> None:
    run = Run(options.parse(["--dry-run"]), torch.device("cuda", torch.cuda.current_device()), records=False)
    assert run.args.precision == "bf16", run.args.precision
    say("bf16 is the default")


def bad_loss_is_named() -> None:
    order = torch.randperm(320, generator=torch.Generator().manual_seed(1)).tolist()
    for step in (3, 25):
        value = tiny(
            "--strategy",
            "ddp",
            "--epochs",
            "1",
            "--run-id",
            f"bad{step}",
            images=320,
            bad_image=order[(step - 1) * 8 + 5],
        )
        assert f"the loss became nan at epoch 1, step {step}:" in value["ended"], value["ended"]
    say("a loss that is nan on one rank stops all, with the right step")


def vote_costs_little() -> None:
    """Time of a step with and without the vote on signals and losses, on a model whose steps are launch-bound."""
    device = torch.device("cuda", torch.cuda.current_device())
    import ddp_utils
    import train
    from model import CNN

    images, labels = torch.randn(64, 3, 32, 32), torch.randint(10, (64,))
    # batches that lie on the GPU, without collating
    loader = torch.utils.data.DataLoader([(images.to(device), labels.to(device))] * 300, batch_size=None)  # type: ignore[arg-type, var-annotated]
    times = {}
    for records in (False, True, False, True):
        argv = ["--strategy", "ddp", "--precision", "bf16", "--output-dir", str(FOLDER), "--print-every", "100000"]
        run = Run(
            options.parse([*argv, "--no-checkpoints", "--run-id", f"vote{time.time_ns()}"]),
            device,
            records=records,
        )
        with run:
            model = ddp_utils.get_ddp_model(CNN().to(device), device)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
            data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(images, labels), batch_size=64)
            run.begin(model, optimizer, data)
            seconds = []
            for _ in range(3):
                torch.cuda.synchronize()
                start = time.perf_counter()
                for batch in run.batches(loader):
                    train.train_step(model, optimizer, *batch, run)
                torch.cuda.synchronize()
                seconds.append((time.perf_counter() - start) / len(loader))
            times.setdefault(records, []).append(min(seconds))
    say(f"a step takes {min(times[False]) * 1e6:.0f} us without and {min(times[True]) * 1e6:.0f} us with the vote")


def figures_wait_for_nothing() -> None:
    """To keep a step's gradient norm, loss scale and time, the CPU never waits for the GPU: it would raise."""
    device = torch.device("cuda", torch.cuda.current_device())
    model = torch.nn.Linear(64, 64, device=device)
    scaler = torch.amp.GradScaler("cuda")
    scaler.scale(model(torch.randn(8, 64, device=device)).sum()).backward()
    figures = StepFigures(model, 4, device, scaler)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        figures.begin_step()
        figures.square.measure([p.grad for p in model.parameters() if p.grad is not None])
        figures.end_step(1)
        measured = figures.last_step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert measured.loss_scale is not None
    assert measured.loss_scale.item() == 65536.0
    assert 0 < measured.seconds() < 10
    say("to keep the figures of a step waits for nothing")


def measurements() -> None:
    """Images on the device train as those of a loader do, and a window of steps has its time."""
    still = {"noise": 0, "net": {"dropout": 0.0}}
    strategy = ("--strategy", "ddp" if dist.get_world_size() > 1 else "none")
    records = []
    for source in ("loader", "device"):
        name = ("--run-id", f"input-{source}", "--input", source, "--epochs", "2", "--deterministic")
        records.append(tiny(*strategy, *name, **still)["records"])
    assert records[0] == records[1], records
    value = tiny(*strategy, *("--run-id", "measured", "--measure-steps", "30"), **still)
    assert value["ended"] == "done", value
    if dist.get_rank() == 0:
        with (FOLDER / "measured" / "run.csv").open(newline="") as file:
            row = list(csv.DictReader(file))[-1]
        assert row["measured_steps"] == "30", row
        assert float(row["step_time_s"]) > 0, row
        assert row["device"] == torch.cuda.get_device_name(), row
        assert row["driver"], row
        say(f"a step takes {float(row['step_time_s']) * 1e6:.0f} us on {row['device']}, {row['versions']}")


def changed_images_are_the_loaders() -> None:
    """Cropped, mirrored and normalised on the GPU: the numbers that the CPU makes of them."""
    device = torch.device("cuda", torch.cuda.current_device())
    datasets = load_datasets("shapes", None, cache_dir=FOLDER, augment=True, seed=3)
    inputs, chosen = put_on_device(datasets.train, device), list(range(0, 5_120, 5))
    for epoch in (1, 2):
        datasets.train.set_epoch(epoch)
        ((images, labels),) = inputs.batches([chosen], epoch)
        expected, theirs = default_collate(datasets.train.__getitems__(chosen))
        assert torch.equal(images.cpu(), expected)
        assert torch.equal(labels.cpu(), theirs)
    say("images that are changed on the GPU are those of the loader, bit for bit")


def signals_are_shared() -> None:
    """Last: it leaves the process group."""
    value = tiny(
        "--strategy",
        "fsdp",
        "--epochs",
        "1",
        "--run-id",
        "sig",
        images=320,
        signal=[1, 7, int(signal.SIGUSR1)],
        only=dist.get_world_size() - 1,
    )
    assert value["ended"] == "exit code 85", value
    if int(os.environ["RANK"]) == 0:
        state = torch.load(FOLDER / "sig" / "checkpoints" / "latest.pth", weights_only=True)
        print(f"HOLDS a signal at step 7 is acted on by all ranks at step {state['step_in_epoch']}", flush=True)


def main() -> None:
    join()
    default_is_mixed()
    strategies = ("ddp", "fsdp") if dist.get_world_size() > 1 else ("none", "fsdp")
    for strategy in strategies:
        for precision in ("fp32", "bf16", "fp16"):
            resumes(strategy, precision)
    bad_loss_is_named()
    vote_costs_little()
    figures_wait_for_nothing()
    measurements()
    changed_images_are_the_loaders()
    signals_are_shared()


if __name__ == "__main__":
    main()
