"""Checkpoints of runs on GPUs: copied while the training goes on, and sharded; and --shard with --capture.

Started by test_run_on_gpus.py: torchrun --nproc-per-node N gpu_checkpoint.py FOLDER. It prints a line for each
thing that holds.
"""

import time
from typing import Any

import torch
import torch.distributed as dist
from gpu_run import FOLDER, join, say, tiny, try_all
from torch import Tensor, nn

from lab.training.checkpoints import checkpoint_file, training_state
from lab.training.checkpoints.host_copies import HostCopies
from lab.training.stepping.stepper import Stepper

NAP = (
    600_000_000  # cycles of the GPU's clock, a good quarter of a second: steps of the tiny net take a millisecond
)
FSDP = ("--strategy", "fsdp")
SHARDED = (*FSDP, "--checkpoint-format", "sharded")


class Late:
    """Inside, no copy begins before many steps could have changed what is to be copied."""

    def __enter__(self) -> None:
        self.started = HostCopies.__init__

        def start_late(copies: HostCopies, device: torch.device) -> None:
            self.started(copies, device)
            with torch.cuda.stream(copies._stream):
                torch.cuda._sleep(NAP)

        HostCopies.__init__ = start_late  # type: ignore[method-assign]

    def __exit__(self, *_: object) -> None:
        HostCopies.__init__ = self.started  # type: ignore[method-assign]


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name].cpu(), other[name].cpu()) for name in one)


def the_cpu_goes_on_and_the_next_step_waits() -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64)).to(device)
    stepper = Stepper(model, torch.optim.Adam(model.parameters(), lr=0.1))

    def step() -> None:
        stepper.optimizer.zero_grad()
        stepper.backward(model(torch.ones(8, 64, device=device)).pow(2).sum())
        stepper.optimizer.step()

    step()
    torch.cuda.synchronize()
    weights = {name: tensor.detach().clone().cpu() for name, tensor in model.state_dict().items()}
    momenta = [state["exp_avg"].clone().cpu() for state in stepper.optimizer.state.values()]
    with Late():
        begin = time.perf_counter()
        collected = training_state.collect(stepper, {})
        step()
        seconds = time.perf_counter() - begin
        assert collected.copied is not None
        assert not collected.copied.query(), "the copy was there at once: nothing is shown"
        collected.wait()
    if dist.get_rank() == 0:
        assert same(collected.state["model"], weights)
        kept = collected.state["optimizer"]["state"].values()
        assert all(torch.equal(one["exp_avg"], other) for one, other in zip(kept, momenta, strict=True))
        assert not same(dict(model.state_dict()), weights)
    say(f"a copy that begins late is of its moment; the CPU went on after {seconds * 1e3:.1f} ms")


def saved_while_training(name: str, *argv: str, sharded: bool = False) -> None:
    """What was saved at the end of epoch 1, while epoch 2 was trained, is what a run of one epoch ends with."""
    net = {"norm": True, "dropout": 0.0}
    common = (*argv, "--optimizer", "adamw", "--deterministic")
    images = {"images": 160, "noise": 0, "net": net}  # 20 steps: with --capture the last ones are replays
    kept = () if sharded else ("--no-checkpoints",)
    wanted = tiny(*common, "--epochs", "1", "--run-id", name + "-one", *kept, **images)
    with Late():
        done = tiny(*common, "--epochs", "3", "--save-frequency", "1", "--run-id", name, **images)
    assert done["ended"] == "done", done
    file = FOLDER / name / "checkpoints" / ("epoch_001.json" if sharded else "epoch_001.pth")
    if not sharded and dist.get_rank() == 0:
        state = checkpoint_file.read(file)
        assert same(state["model"], wanted["weights"]), name
    again = ("--epochs", "2", "--resume", str(file), "--run-id", name + "-again")
    resumed = tiny(*common, *again, **images)
    # With --capture the resumed run has steps one by one where the other had replays.
    apart = [abs(a - b) for a, b in zip(resumed["records"][0], done["records"][1], strict=True)]
    assert max(apart) <= (1e-3 if "--capture" in argv else 0), (name, resumed["records"], done["records"])
    say(f"{name}: saved while training; resumed, the figures of epoch 2 differ by {max(apart):.1g}")


def shard_choices_agree() -> None:
    """Resharding or not, captured or not: the same losses."""
    records: dict[str, Any] = {}
    for name, more in {"full": (), "grad": ("--shard", "grad")}.items():
        for way, captured in {"eager": (), "captured": ("--capture",)}.items():
            run = (*FSDP, *more, *captured, "--epochs", "2", "--run-id", f"{name}-{way}", "--no-checkpoints")
            value = tiny(*run, images=160, noise=0, net={"norm": True, "dropout": 0.0})
            assert value["ended"] == "done", value
            records[f"{name} {way}"] = value["records"]
    first = records.pop("full eager")
    for name, other in records.items():
        for one, two in zip(first, other, strict=True):
            assert all(abs(a - b) < 1e-3 for a, b in zip(one, two, strict=True)), (name, one, two)
    say(f"full and grad, eager and captured: losses {[round(record[1], 5) for record in first]}")


def hybrid_on_four() -> None:
    if dist.get_world_size() < 4:
        say("hybrid needs four GPUs: not tried")
        return
    saved_while_training("hybrid", *FSDP, "--shard", "hybrid", "--shard-ranks", "2")


def main() -> None:
    join()
    plain = ("--strategy", "ddp" if dist.get_world_size() > 1 else "none")
    try_all(
        [
            the_cpu_goes_on_and_the_next_step_waits,
            lambda: saved_while_training("plain", *plain),
            lambda: saved_while_training("plain-captured", *plain, "--capture"),
            lambda: saved_while_training("fsdp", *FSDP),
            lambda: saved_while_training("fsdp-captured", *FSDP, "--capture"),
            lambda: saved_while_training("grad", *FSDP, "--shard", "grad"),
            lambda: saved_while_training("sharded", *SHARDED, sharded=True),
            lambda: saved_while_training("sharded-captured", *SHARDED, "--capture", sharded=True),
            shard_choices_agree,
            hybrid_on_four,
        ]
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
