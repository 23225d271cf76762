"""The compiled network against the one that is not, captured and not, on the GPUs of this machine.

Started by test_run_on_gpus.py: torchrun --nproc-per-node N gpu_compile.py FOLDER. It prints a line for each thing
that holds.
"""

import csv
import os
import sys
from functools import partial

import torch
import torch.distributed as dist
from gpu_capture import LONG, MORE, apart, losses
from gpu_run import FOLDER, join, say, tiny, try_all

from lab.training.stepping import stepper


def accuracies(name: str) -> list[float]:
    """In the records, which rank 0 alone has."""
    with (FOLDER / name / "run.csv").open(newline="") as file:
        return [float(row[column]) for row in csv.DictReader(file) for column in ("train_top1", "val_top1")]


def scale_of_256(device: torch.device, precision: str) -> torch.amp.GradScaler | None:
    """In the place of make_scaler."""
    return torch.amp.GradScaler(device.type, init_scale=256.0) if precision == "fp16" else None


def compiled_is_the_same(strategy: str, precision: str, *more: str, bound: float, compiled: str) -> None:
    """Trains, and evaluates, as without --compile, but for the rounding of kernels that add in another order.

    In fp16 the scaler begins where no gradient overflows (`scale_of_256`). From its own 65,536 it comes down by
    skipping steps, which rounding can decide: such runs were 0.12 apart on one day, 0.006 on another.
    """
    name = "-".join((strategy, precision, *(word.strip("-") for word in more)))
    argv = ("--strategy", strategy, "--precision", precision, *LONG, *more)
    plain = tiny(*argv, "--run-id", name, **MORE)
    with_it = tiny(*argv, "--compile", "--run-id", f"{name}-compiled", **MORE)
    difference = apart(losses(plain), losses(with_it))
    assert difference < bound, (name, plain["records"], with_it["records"])
    assert list(with_it["weights"]) == list(plain["weights"])
    if dist.get_rank() == 0:
        both = [accuracies(name), accuracies(f"{name}-compiled")]
        assert apart(*(figures[-2:] for figures in both)) < 0.03, both
        with (FOLDER / f"{name}-compiled" / "run.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert {row["compiled"] for row in rows} == {compiled}, rows
        assert {row["captured"] for row in rows} == {"yes" if "--capture" in more else "no"}, rows
    say(
        f"{name}: compiled, the losses {[round(x, 4) for x in losses(with_it)]} differ by {difference:.1e} at most"
    )


def dropout_draws_anew(strategy: str) -> None:
    """A captured and compiled dropout has another mask in each replay: the losses of one batch go up and down."""
    argv = ("--strategy", strategy, "--precision", "fp32", "--capture", "--compile", "--base-lr", "1e-9")
    argv += ("--weight-decay", "0", "--epochs", "4", "--run-id", f"{strategy}-dropout")
    result = tiny(*argv, **{**MORE, "net": {"norm": False, "dropout": 0.5}})
    assert result["ended"] == "done", result["ended"]
    trained = [record[1] for record in result["records"]]
    evaluated = [record[3] for record in result["records"]]
    assert len({round(loss, 7) for loss in trained}) == 4, trained  # the weights stay, the masks do not
    assert max(evaluated) - min(evaluated) < 1e-5, evaluated  # and there are none in an evaluation
    say(f"{strategy}: dropout draws anew in each replay: {[round(loss, 4) for loss in trained]}")


def a_compiled_run_is_resumed(strategy: str) -> None:
    """Stopped in mid-epoch and gone on with, captured and compiled both times."""
    argv = ("--strategy", strategy, "--precision", "bf16", "--deterministic", *LONG, "--capture", "--compile")
    whole = tiny(*argv, "--run-id", f"{strategy}-kept", **MORE)
    stopped = tiny(*argv, "--run-id", f"{strategy}-killed", "--save-every-steps", "10", stop=[2, 20], **MORE)
    assert stopped["ended"].startswith("Stop"), stopped
    rest = tiny(*argv, "--run-id", f"{strategy}-killed", "--resume", "latest", **MORE)
    difference = apart(losses(rest), losses({**whole, "records": whole["records"][1:]}))
    assert difference < 1e-3, (strategy, whole["records"], rest["records"])
    say(f"{strategy}: a compiled run that was killed goes on, the losses {difference:.1e} apart at most")


def checkpoints_are_the_same(strategy: str) -> None:
    """A compiled run goes on without --compile, and the other way round."""
    argv = ("--strategy", strategy, "--precision", "fp32", "--capture", *LONG)
    whole = tiny(*argv, "--run-id", f"{strategy}-whole", **MORE)
    for first, second in (((), ("--compile",)), (("--compile",), ())):
        name = f"{strategy}-{'compiled' if first else 'plain'}-first"
        stopped = tiny(*argv, *first, "--run-id", name, "--save-every-steps", "20", stop=[2, 20], **MORE)
        assert stopped["ended"].startswith("Stop"), stopped
        rest = tiny(*argv, *second, "--run-id", name, "--resume", "latest", **MORE)
        worst = apart(losses(rest), losses({**whole, "records": whole["records"][1:]}))
        assert worst < 5e-3, (name, whole["records"], rest["records"])
    say(f"{strategy}: a compiled run goes on without --compile, and the other way round")


def compiled_code_is_kept(strategy: str) -> None:
    """Last, and the same options as one before: nothing is compiled anew."""
    counters = torch._dynamo.utils.counters["inductor"]
    argv = ("--strategy", strategy, "--precision", "bf16", *LONG, "--capture", "--compile")
    before = dict(counters)
    tiny(*argv, "--run-id", f"{strategy}-again", **MORE)
    assert counters["fxgraph_cache_miss"] == before.get("fxgraph_cache_miss", 0), (before, counters)
    assert (FOLDER / ".compiled").is_dir()
    say(f"{strategy}: a second run finds the compiled code in the output folder")


def main() -> None:
    join()
    if "own-scale" not in sys.argv:  # for a look at what it changes
        stepper.make_scaler = scale_of_256
    strategy = "ddp" if dist.get_world_size() > 1 else "none"
    parts = {strategy: "model", "fsdp": "blocks"}
    checks = [
        *(
            partial(compiled_is_the_same, one, precision, *more, bound=bound, compiled=parts[one])
            for one in (strategy, "fsdp")
            for precision, bound, more in (
                ("fp32", 5e-3, ()),
                ("fp32", 5e-3, ("--capture",)),
                ("bf16", 3e-2, ("--capture",)),
                ("fp16", 3e-2, ("--capture",)),
                ("fp32", 5e-3, ("--capture", "--accumulate", "2", "--clip-norm", "1")),
                ("fp32", 5e-3, ("--capture", "--checkpoint-activations")),
            )
        ),
        *(partial(check, one) for check in (dropout_draws_anew, a_compiled_run_is_resumed) for one in parts),
        *(partial(check, one) for check in (checkpoints_are_the_same, compiled_code_is_kept) for one in parts),
    ]
    try_all(checks)


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)
