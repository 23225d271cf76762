"""The captured step against the eager one, on the GPUs of this machine.

Started by test_run_on_gpus.py: torchrun --nproc-per-node N gpu_capture.py FOLDER. It prints a line for each thing
that holds.
"""

import csv
import os
import sys
from functools import partial
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from gpu_run import FOLDER, join, say, tiny, try_all

from lab.training.stepping import capture
from lab.training.stepping.capture import capturable

LONG = ("--epochs", "3", "--schedule", "cosine", "--warmup-epochs", "0.5", "--base-lr", "1")
MORE: dict[str, Any] = {"images": 320, "valid_images": 90, "net": {"norm": True, "dropout": 0.0}, "noise": 0.0}


def losses(result: dict[str, Any]) -> list[float]:
    assert result["ended"] == "done", result["ended"]
    return [record[1] for record in result["records"]] + [record[3] for record in result["records"]]


def apart(first: list[float], second: list[float]) -> float:
    return max(abs(one - other) for one, other in zip(first, second, strict=True))


def step_figures(run_id: str) -> list[tuple[str, str]]:
    """Gradient norm and loss scale of each epoch."""
    with (FOLDER / run_id / "run.csv").open(newline="") as file:
        return [(row["grad_norm"], row["loss_scale"]) for row in csv.DictReader(file)]


def captured_is_eager(strategy: str, precision: str, *more: str, bound: float, dropout: float = 0.0) -> None:
    name = "-".join((strategy, precision, f"dropout{dropout}", *(word.strip("-") for word in more)))
    argv = ("--strategy", strategy, "--precision", precision, "--deterministic", *LONG, *more)
    inputs = {**MORE, "net": {"norm": True, "dropout": dropout}}
    eager = losses(tiny(*argv, "--run-id", name, **inputs))
    captured = losses(tiny(*argv, "--capture", "--run-id", name + "-captured", **inputs))
    difference = apart(eager, captured)
    assert difference < bound, (name, eager, captured)
    if dist.get_rank() == 0:
        texts = [(FOLDER / f"{name}{end}" / "run.csv").read_text() for end in ("", "-captured")]
        rows = [list(csv.DictReader(text.splitlines())) for text in texts]
        accuracies = [[float(row["train_top1"]) for row in table] for table in rows]
        assert apart(*accuracies) < 0.02, accuracies
    say(f"{name}: captured, the losses {[round(x, 4) for x in captured]} differ by {difference:.1e} at most")


def bit_for_bit(strategy: str, precision: str, optimizer: str, *more: str) -> None:
    """200 different batches, evaluations in between: captured to the last bit as the same steps one by one; and so
    are the evaluations, whose batches are replays too.
    """
    argv = ("--strategy", strategy, "--precision", precision, "--optimizer", optimizer, "--deterministic")
    argv += ("--epochs", "5", "--schedule", "cosine", "--base-lr", "0.3" if optimizer == "sgd" else "0.01")
    argv += ("--clip-norm", "1", "--capture", *more)
    name = "-".join((strategy, precision, optimizer, *(word.strip("-") for word in more)))
    never = {"CAPTURE_WARM_UP": 10**9, "EVALUATION_WARM_UP": 10**9}
    with mock.patch.multiple(capture, **never):  # never recorded: the same optimizer, step by step
        eager = tiny(*argv, "--run-id", f"{name}-steps", **MORE)
    plain, seen = capture.Capture._record_forward, []

    def noting(*arguments: Any) -> Any:
        seen.append(True)
        return plain(*arguments)

    with mock.patch.object(capture.Capture, "_record_forward", noting):
        recorded = tiny(*argv, "--run-id", f"{name}-graph", **MORE)
    assert len(seen) == 1, "no evaluation was recorded"
    assert eager["ended"] == recorded["ended"] == "done", (eager["ended"], recorded["ended"])
    assert len(recorded["records"]) == 5
    assert recorded["records"] == eager["records"], (name, eager["records"], recorded["records"])
    different = [
        key for key, tensor in eager["weights"].items() if not torch.equal(tensor, recorded["weights"][key])
    ]
    assert not different, (name, different)
    if dist.get_rank() == 0:
        figures = [step_figures(f"{name}-{how}") for how in ("steps", "graph")]
        assert figures[0] == figures[1], (name, figures)
        assert all(float(norm) > 0 for norm, _ in figures[1]), (name, figures)
    say(f"{name}: 200 batches and 5 evaluations, captured, give the same bits as step by step")


def a_captured_run_is_resumed(strategy: str) -> None:
    """Stopped in mid-epoch and gone on with, captured both times: the same bits."""
    argv = ("--strategy", strategy, "--precision", "bf16", "--deterministic", *LONG, "--capture")
    whole = tiny(*argv, "--run-id", f"{strategy}-kept", **MORE)
    stopped = tiny(*argv, "--run-id", f"{strategy}-killed", "--save-every-steps", "10", stop=[2, 20], **MORE)
    assert stopped["ended"].startswith("Stop"), stopped
    rest = tiny(*argv, "--run-id", f"{strategy}-killed", "--resume", "latest", **MORE)
    assert rest["ended"] == "done", rest["ended"]
    assert rest["records"] == whole["records"][1:], (strategy, whole["records"], rest["records"])
    assert all(torch.equal(tensor, rest["weights"][key]) for key, tensor in whole["weights"].items())
    say(f"{strategy}: a captured run that was killed goes on to the same bits")


def checkpoints_are_the_same(strategy: str, optimizer: str) -> None:
    """A captured run goes on as an eager one, and the other way round."""
    argv = ("--strategy", strategy, "--optimizer", optimizer, "--precision", "fp32", *LONG)
    argv = (*argv[:-1], "0.01") if optimizer == "adamw" else argv
    whole = tiny(*argv, "--run-id", f"{strategy}-{optimizer}-whole", **MORE)
    for first, second in (((), ("--capture",)), (("--capture",), ())):
        name = f"{strategy}-{optimizer}-{'captured' if first else 'eager'}-first"
        stopped = tiny(*argv, *first, "--run-id", name, "--save-every-steps", "20", stop=[2, 20], **MORE)
        assert stopped["ended"].startswith("Stop"), stopped
        rest = tiny(*argv, *second, "--run-id", name, "--resume", "latest", **MORE)
        assert rest["ended"] == "done", rest["ended"]
        pairs = list(zip(rest["records"], whole["records"][1:], strict=True))
        worst = max(apart(mine[1:4:2], theirs[1:4:2]) for mine, theirs in pairs)
        assert worst < 1e-3, (name, whole["records"], rest["records"])
    say(f"{strategy}, {optimizer}: an eager run goes on captured, and a captured one eager")


def a_step_that_waits_is_refused(strategy: str) -> None:
    """Last: it leaves a recording unfinished."""
    import train

    plain = train.train_step

    def waiting(model: Any, optimizer: Any, images: Any, labels: Any, run: Any) -> Any:
        loss = plain.__wrapped__(model, optimizer, images, labels, run)
        loss.item()
        return loss

    train.train_step = capturable(waiting)
    ended = tiny("--strategy", strategy, "--capture", "--run-id", "waits", images=320)["ended"]
    assert ended.startswith("UserError: --capture cannot record train_step(): nothing in it may wait"), ended
    say(f"a step that waits for the GPU: {ended}")


def main() -> None:
    join()
    strategy = "ddp" if dist.get_world_size() > 1 else "none"
    checks = [
        *(partial(captured_is_eager, one, "fp32", bound=1e-3) for one in (strategy, "fsdp")),
        *(partial(captured_is_eager, one, "bf16", bound=2e-2) for one in (strategy, "fsdp")),
        partial(captured_is_eager, strategy, "fp32", "--clip-norm", "0.5", bound=1e-3),
        partial(captured_is_eager, strategy, "fp32", bound=1e-3, dropout=0.3),
        partial(captured_is_eager, strategy, "fp32", "--sync-batchnorm", bound=1e-3),  # of two GPUs and more
        *(
            partial(bit_for_bit, one, precision, optimizer)
            for one in (strategy, "fsdp")
            for precision in ("fp32", "bf16")
            for optimizer in ("sgd", "adamw")
        ),
        *(
            partial(bit_for_bit, one, precision, optimizer, *more)
            for one in (strategy, "fsdp")
            for precision, optimizer, more in (
                ("fp16", "sgd", ()),
                ("fp16", "adamw", ()),
                ("bf16", "sgd", ("--accumulate", "2")),
                ("fp32", "adamw", ("--accumulate", "4")),
                ("fp16", "sgd", ("--accumulate", "2")),
                ("bf16", "sgd", ("--checkpoint-activations",)),
            )
        ),
        *(partial(a_captured_run_is_resumed, one) for one in (strategy, "fsdp")),
        *(
            partial(checkpoints_are_the_same, one, optimizer)
            for one in (strategy, "fsdp")
            for optimizer in ("sgd", "adamw")
        ),
        partial(a_step_that_waits_is_refused, strategy),
    ]
    try_all(checks)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # not to wait for the work that was queued in the unfinished recording
