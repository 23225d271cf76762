"""Judges the second half of main.run(): the wrapped model, its optimizer, training and the end."""

import math
from pathlib import Path
from typing import Any

from lab.checks._command_lines import Rehearsal
from lab.checks._look import look, mentions
from lab.checks._report import expect
from lab.grading.check import Diagnosis

WRAPPERS = {
    "ddp": "wrapped in DistributedDataParallel",
    "fsdp": "sharded with fully_shard",
    "fsdp1": "wrapped in FullyShardedDataParallel",
    "none": "not wrapped",
}

WRAPPED = {
    "kind": str, "bucket_mb": float, "devices": [str], "parameters": int, "held": int, "foreign": int,
    "optimizer": str, "lr": float, "momentum": float, "weight_decay": float,
}  # fmt: skip

Events = list[dict[str, Any]]


def where(code: Path, *patterns: str, function: str = "run") -> str:
    return look(code, "main.py", function, *patterns)


def calls(events: Events, name: str) -> Events:
    return [event for event in events if event["call"] == name]


def judge_model(code: Path, rehearsal: Rehearsal, events: Events) -> None:
    """How the model is wrapped, and whether the optimizer is of that model."""
    used = (calls(events, "train") or calls(events, "begin"))[0]
    if used["kind"] not in WRAPPERS:
        raise Diagnosis(
            "wrong-arguments",
            f"{rehearsal}: {used['call']}() got {used['kind']} in place of model and optimizer.",
            "Its docstring says in which order they come.",
            where(code, rf"\b{used['call']}\("),
        )
    expect([used], WRAPPED)
    if used["kind"] != rehearsal.strategy:
        bare = used["kind"] == "none"
        raise Diagnosis(
            "model-not-wrapped" if bare else "wrong-strategy",
            f"{rehearsal}: the model was {WRAPPERS[used['kind']]} when it came to {used['call']}().",
            "Nothing averages the gradients: each rank would train a model of its own."
            if bare
            else f"Expected: {WRAPPERS[rehearsal.strategy]}. The figures would be of another strategy.",
            thrown_away(code, rehearsal.strategy) or where(code, r"wrap_model", r"build_model")
            if bare and (calls(events, "wrap") or not mentions(code, "main.py", "run", "wrap_model"))
            else where(code, rf"[\"']{rehearsal.strategy}[\"']", r"strategy", function="wrap_model"),
        )
    if rehearsal.strategy == "ddp" and not math.isclose(used["bucket_mb"], rehearsal.bucket_mb, rel_tol=1e-3):
        raise Diagnosis(
            "bucket-cap-ignored",
            f"{rehearsal} --bucket-cap-mb {rehearsal.bucket_mb}: DDP has buckets of {used['bucket_mb']:g} MiB.",
            "A sweep over bucket sizes would measure the same thing every time.",
            where(code, r"get_ddp_model|DistributedDataParallel", function="wrap_model"),
        )
    wraps = [event for event in calls(events, "wrap") if event["by"] == "get_fsdp_model"]
    if rehearsal.strategy == "fsdp" and wraps and wraps[-1]["precision"] != rehearsal.precision:
        raise Diagnosis(
            "precision-ignored",
            f"{rehearsal} --precision {rehearsal.precision}: get_fsdp_model() got {wraps[-1]['precision']}.",
            "The run would be compared with others at a precision that it does not have.",
            where(code, r"get_fsdp_model", function="wrap_model"),
        )
    if rehearsal.strategy == "none" and used["devices"] != ["meta"]:
        raise Diagnosis(
            "not-on-its-device",
            f"{rehearsal}: the model was on the {' and '.join(used['devices'])}, not on the device of setup().",
            "The images go to that device: with a GPU the first forward pass would fail.",
            where(code, r"return model", r"\.to\(", function="wrap_model"),
        )
    judge_optimizer(code, rehearsal, used)


def thrown_away(code: Path, strategy: str) -> str:
    """The line of wrap_model that wraps the model without keeping it; "" if there is none."""
    place = where(code, rf"^get_{strategy}_model\(", function="wrap_model")
    return place if f"  get_{strategy}_model(" in place else ""


def judge_optimizer(code: Path, rehearsal: Rehearsal, used: dict[str, Any]) -> None:
    if used["held"] != used["parameters"]:
        raise Diagnosis(
            "optimizer-before-wrapping",
            f"{rehearsal}: the optimizer holds {used['held']} of the model's {used['parameters']} parameters, "
            f"and {used['foreign']} that are not in the model.",
            "Wrapping or moving the model has replaced its parameters: step() would change the old ones.",
            where(code, r"build_optimizer|SGD\(|Adam\("),
        )
    wanted = {"optimizer": {"sgd": "SGD", "adam": "Adam"}[rehearsal.optimizer], "lr": rehearsal.learning_rate}
    wanted |= {"weight_decay": 5e-4}
    if rehearsal.optimizer == "sgd":
        wanted["momentum"] = rehearsal.momentum
    for name, value in wanted.items():
        right = math.isclose(used[name], value, rel_tol=1e-6) if isinstance(value, float) else used[name] == value
        if not right:
            raise Diagnosis(
                "wrong-learning-rate" if name == "lr" else "wrong-optimizer",
                f"{rehearsal} --optimizer {rehearsal.optimizer}, global batch {rehearsal.global_batch}: "
                f"{'learning rate' if name == 'lr' else name.replace('_', ' ')} {used[name]}; expected {value}.",
                "SGD's rate follows the global batch, base * batch / 256: args.learning_rate has it done."
                if name == "lr"
                else "The run would not be what its command line says.",
                where(code, r"build_optimizer|SGD\(|Adam\("),
            )


def judge_training(code: Path, rehearsal: Rehearsal, events: Events) -> None:
    trained, line = calls(events, "train"), where(code, r"(?<!_)\btrain\(", r"dry_run")
    if rehearsal.dry_run:
        if trained:
            raise Diagnosis(
                "train-in-dry-run",
                f"{rehearsal}: train() was called.",
                "A dry run shows whether everything fits, and costs seconds instead of hours.",
                line,
            )
        return
    if len(trained) != 1:
        raise Diagnosis(
            "train-not-called" if not trained else "train-twice",
            f"{rehearsal}: train() was " + (f"called {len(trained)} times." if trained else "not called."),
            "train() goes through all the epochs by itself, so it is called once.",
            line,
        )
    if trained[0]["loaders"] != ["train", "valid"] or not trained[0]["run"]:
        got = " and ".join(trained[0]["loaders"])
        raise Diagnosis(
            "wrong-arguments",
            f"{rehearsal}: train() got the loaders {got}" + (", and no Run." if not trained[0]["run"] else "."),
            "Its arguments are model, optimizer, train_loader, valid_loader, run.",
            line,
        )
    names = [event["call"] for event in events]
    if names.index("begin") > names.index("train"):
        raise Diagnosis(
            "begin-after-train",
            f"{rehearsal}: this_run.begin() came after train().",
            "It reports what is about to run, and follows the training accuracy from the first step on.",
            where(code, r"begin"),
        )
    if not trained[0]["group"]:
        raise Diagnosis(
            "cleanup-too-early",
            f"{rehearsal}: the process group was gone when train() was called.",
            "The first collective of the training fails.",
            where(code, r"cleanup|destroy"),
        )


def judge_end(code: Path, rehearsal: Rehearsal, report: dict[str, Any]) -> None:
    if not report["group_left"]:
        raise Diagnosis(
            "cleanup-missing",
            f"{rehearsal}: the process group is still there when run() has ended.",
            "NCCL warns about leaked resources, and a rank that ends can leave the others hanging.",
            where(code, r"cleanup", r"\breturn\b"),
        )
    if not rehearsal.dry_run and report["returned"] != "records":
        raise Diagnosis(
            "records-not-returned",
            f"{rehearsal}: run() returned {'None' if report['returned'] == 'NoneType' else report['returned']}, "
            "not what train() gave.",
            "Whoever calls run() wants the figures of the epochs.",
            where(code, r"\breturn\b", r"(?<!_)\btrain\("),
        )
