"""Judges the middle of main.run(): the model with its first weights, prepared and wrapped, and its optimizer."""

import math
from itertools import combinations
from typing import Any

from lab.base.words import one_line
from lab.checks.common.judge_left import judge_swallowed
from lab.checks.common.look import Look
from lab.checks.common.report import expect
from lab.checks.main.draw import Rehearsal
from lab.checks.main.judge_calls import Events, calls
from lab.checks.main.look_made import asks_for_truth, by_rank, is_fixed, seeded_wrong
from lab.grading.diagnosis import Diagnosis

WRAPPERS = {
    "ddp": "wrapped in DistributedDataParallel",
    "fsdp": "sharded with fully_shard",
    "fsdp1": "wrapped in FullyShardedDataParallel",
    "none": "not wrapped",
}

# A loader's role, as the ranks report it, in words.
LOADERS = {
    "train": "the training loader",
    "valid": "the validation loader",
    "shuffled valid": "a training loader of the validation images",
    "shuffled test": "a training loader of the test images",
    "unshuffled train": "a validation loader of the training images",
}

WRAPPED = {
    "kind": str, "prepared": bool, "bucket_mb": float, "devices": [str], "types": [str], "parameters": int,
    "held": int, "foreign": int, "optimizer": str, "lr": float, "momentum": float, "weight_decay": float,
}  # fmt: skip


def judge_model(look: Look, rehearsal: Rehearsal, events: Events) -> None:
    """How the model is wrapped, and whether the optimizer is of that model."""
    used = (calls(events, "train") or calls(events, "begin"))[0]
    if used["kind"] not in WRAPPERS:
        raise Diagnosis(
            "wrong-arguments",
            saw=f"{rehearsal}: {used['call']}() got {used['kind']} in place of model and optimizer.",
            means="Its docstring says in which order they come.",
            look=look(rf"\b{used['call']}\("),
        )
    expect([used], WRAPPED)
    if used["kind"] != rehearsal.strategy:
        bare = used["kind"] == "none"
        raise Diagnosis(
            "model-not-wrapped" if bare else "wrong-strategy",
            saw=f"{rehearsal}: the model was {WRAPPERS[used['kind']]} when it came to {used['call']}().",
            means="Nothing averages the gradients: each rank would train a model of its own."
            if bare
            else f"Expected: {WRAPPERS[rehearsal.strategy]}. The figures would be of another strategy.",
            look=thrown_away(look, rehearsal.strategy) or look(r"wrap_model", r"build_model")
            if bare and (calls(events, "wrap") or not look.mentions("wrap_model"))
            else look.into("wrap_model")(
                r"startswith|\bin\b.*strategy", rf"[\"']{rehearsal.strategy}[\"']", r"strategy"
            ),
        )
    if rehearsal.strategy == "ddp" and not math.isclose(used["bucket_mb"], rehearsal.bucket_mb, rel_tol=1e-3):
        rounded = abs(used["bucket_mb"] - rehearsal.bucket_mb) < 1
        raise Diagnosis(
            "bucket-cap-rounded" if rounded else "bucket-cap-ignored",
            saw=f"{rehearsal} --bucket-cap-mb {rehearsal.bucket_mb}: DDP has buckets of {used['bucket_mb']:g} "
            "MiB.",
            means="The size need not be a whole number: below 1 MiB, where small models need it, none would be "
            "left."
            if rounded
            else "A sweep over bucket sizes would measure the same thing every time.",
            look=look.into("wrap_model")(r"get_ddp_model|DistributedDataParallel"),
        )
    function = f"get_{rehearsal.strategy}_model"
    wraps = [event for event in calls(events, "wrap") if event["by"] == function and event["precision"]]
    handed = [(rehearsal.precision, event["precision"]) for event in wraps[-1:]]
    asked_again = [event for event in calls(events, "asked") if event["by"] == function]
    handed += [(event["asked"], event["precision"]) for event in asked_again if event["precision"]]
    for asked, got in handed:
        if got != asked:
            raise Diagnosis(
                "precision-ignored",
                saw=f"{rehearsal} --precision {asked}: {function}() got {one_line(got, 40)}.",
                means="The run would be compared with others at a precision that it does not have.",
                look=look.into("wrap_model")(function),
            )
    if other := next((event["device"] for event in asked_again if event["device"] != "meta"), ""):
        raise Diagnosis(
            "not-on-its-device",
            saw=f"{rehearsal}: {function}() got the device {one_line(other, 40)}, whatever wrap_model() was "
            "given.",
            means="On a GPU the model must be on this rank's device: hand `device` on.",
            look=look.into("wrap_model")(function),
        )
    if rehearsal.strategy == "none" and used["devices"] != ["meta"]:
        raise Diagnosis(
            "not-on-its-device",
            saw=f"{rehearsal}: the model was on the {' and '.join(used['devices'])}, not on the device of "
            "setup().",
            means="The images go to that device: with a GPU the first forward pass would fail.",
            look=look.into("wrap_model")(r"return model", r"\.to\("),
        )
    if used["types"] != ["float32"]:
        raise Diagnosis(
            "parameters-not-fp32",
            saw=f"{rehearsal} --precision {rehearsal.precision}: the model's parameters were "
            f"{', '.join(used['types'])} when it came to {used['call']}().",
            means="In low precision small updates are rounded away: wrapper and autocast compute in it, no more.",
            look=look(r"float|half|\.to\(", r"wrap_model"),
        )
    if not calls(events, "wrap_model"):
        raise Diagnosis(
            "wrap-model-not-called",
            saw=f"{rehearsal}: the model is {WRAPPERS[used['kind']]}, but wrap_model() was not called.",
            means="One function knows all strategies and their options; a second one differs from it some day.",
            look=look(r"get_\w+_model\(|Parallel\(|fully_shard\(|\.to\(", r"build_optimizer"),
        )
    for failed in calls(events, "wrap_failed"):
        what = "model.to(device)" if rehearsal.strategy == "none" else f"{function}()"
        judge_swallowed(look.into("wrap_model"), failed["instead"], f"{rehearsal}: {what}")
    judge_prepared(look, rehearsal, used, calls(events, "prepare_model")[0])
    judge_optimizer(look, rehearsal, used)
    judge_begin(look, rehearsal, used, events)


def judge_prepared(look: Look, rehearsal: Rehearsal, used: dict[str, Any], prepare: dict[str, Any]) -> None:
    """Whether the model was prepared, and then used."""
    if prepare["kind"] != "none":
        raise Diagnosis(
            "prepared-after-wrapping",
            saw=f"{rehearsal}: the model was already {WRAPPERS.get(prepare['kind'], 'wrapped')} when it came to "
            "this_run.prepare_model().",
            means="The wrapper lays out its buckets or shards by the model that it is given: prepare that first.",
            look=look(r"prepare_model"),
        )
    if not used["prepared"]:
        raise Diagnosis(
            "prepared-model-unused",
            saw=f"{rehearsal}: {used['call']}() got the model that build_model() returned, not the one from "
            "this_run.prepare_model().",
            means="Like wrap_model, it returns the model to go on with.",
            look=look(r"prepare_model"),
        )


def judge_begin(look: Look, rehearsal: Rehearsal, used: dict[str, Any], events: Events) -> None:
    """Whether begin() got what is trained, before that."""
    names, begin = [event["call"] for event in events], calls(events, "begin")[0]
    if "train" in names and names.index("begin") > names.index("train"):
        raise Diagnosis(
            "begin-after-train",
            saw=f"{rehearsal}: this_run.begin() came after train().",
            means="It reports what is about to run, and follows the training accuracy from the first step on.",
            look=look(r"begin"),
        )
    if begin["loader"] != "train":
        raise Diagnosis(
            "wrong-arguments",
            saw=f"{rehearsal}: this_run.begin() got {LOADERS.get(begin['loader'], one_line(begin['loader'], 40))} "
            "in place of train_loader.",
            means="Its arguments are model, optimizer, train_loader: it counts the steps of an epoch.",
            look=look(r"begin\("),
        )
    if begin["kind"] != used["kind"]:
        raise Diagnosis(
            "begin-before-wrapping",
            saw=f"{rehearsal}: the model was {WRAPPERS.get(begin['kind'], 'another')} when it came to "
            f"this_run.begin(), and {WRAPPERS[used['kind']]} when it came to {used['call']}().",
            means="It saves, resumes and accumulates with the model that it is given, which is the wrapped one.",
            look=look(r"begin\("),
        )
    if used["call"] != "train" or not used["run"]:
        return
    for name in ("model", "optimizer"):
        if not used[f"same_{name}"]:
            raise Diagnosis(
                f"{name}-after-begin",
                saw=f"{rehearsal}: train() got another {name} than this_run.begin().",
                means="It takes over the optimizer's stepping: schedule and accumulation would not reach this one."
                if name == "optimizer"
                else "It saves, resumes and accumulates with the model that it is given.",
                look=look(r"begin\("),
            )


def thrown_away(look: Look, strategy: str) -> str:
    """The line of wrap_model that wraps the model without keeping it; "" if there is none."""
    place = look.into("wrap_model")(rf"^get_{strategy}_model\(")
    return place if f"  get_{strategy}_model(" in place else ""


def judge_optimizer(look: Look, rehearsal: Rehearsal, used: dict[str, Any]) -> None:
    if used["held"] != used["parameters"]:
        raise Diagnosis(
            "optimizer-before-wrapping",
            saw=f"{rehearsal}: the optimizer holds {used['held']} of the model's {used['parameters']} parameters, "
            f"and {used['foreign']} that are not in the model.",
            means="Wrapping or moving the model has replaced its parameters: step() would change the old ones.",
            look=look(r"build_optimizer|SGD\(|Adam\("),
        )
    wanted = {
        "optimizer": {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW"}[rehearsal.optimizer],
        "lr": rehearsal.learning_rate,
    }
    wanted |= {"weight_decay": rehearsal.weight_decay}
    if rehearsal.optimizer == "sgd":
        wanted["momentum"] = rehearsal.momentum
    for name, value in wanted.items():
        right = math.isclose(used[name], value, rel_tol=1e-6) if isinstance(value, float) else used[name] == value
        if not right:
            raise Diagnosis(
                "wrong-learning-rate" if name == "lr" else "wrong-optimizer",
                saw=f"{rehearsal} --optimizer {rehearsal.optimizer}, global batch {rehearsal.global_batch}: "
                f"{'learning rate' if name == 'lr' else name.replace('_', ' ')} {used[name]}; expected {value}.",
                means="SGD's rate follows the global batch, base * batch / 256: args.learning_rate has it done."
                if name == "lr"
                else "The run would not be what its command line says.",
                look=look(
                    rf"args\.(learning_rate|base_lr|optimizer|{name})\s*[-+*/]?=[^=]",
                    r"build_optimizer|SGD\(|Adam\(",
                ),
            )


def judge_weights(look: Look, rehearsal: Rehearsal, everyone: list[Events]) -> dict[str, Any]:
    """All ranks must start from the same weights. Returns what rank 0 built."""
    built = [calls(events, "build_model")[0] for events in everyone]
    if len({one["digest"] for one in built}) > 1:
        first = ", ".join(f"{one['weight']:.4f} on rank {rank}" for rank, one in enumerate(built))
        raise Diagnosis(
            "ranks-start-differently",
            saw=f"{rehearsal}: the first weight of the model is {first}.",
            means="Without the same torch.manual_seed before build_model, every rank draws weights of its own.",
            look=seeded_wrong(look, by_rank) or look(r"manual_seed", r"\bseed\(", r"build_model"),
        )
    return built[0]


def judge_seeds(look: Look, rehearsals: list[Rehearsal], built: list[dict[str, Any]]) -> None:
    """The weights follow from --seed."""
    for a, b in combinations(range(len(rehearsals)), 2):
        one, other = rehearsals[a], rehearsals[b]
        if one.model != other.model:
            continue
        same = built[a]["digest"] == built[b]["digest"]
        if one.seed == other.seed and not same:
            raise Diagnosis(
                "weights-not-reproducible",
                saw=f"two runs with --seed {one.seed} started from different weights.",
                means="Nobody could repeat a run.",
                look=look(r"manual_seed", r"build_model"),
            )
        if one.seed != other.seed and same:
            raise Diagnosis(
                "seed-hard-coded",
                saw=f"--seed {one.seed} and --seed {other.seed} gave the same weights.",
                means="Repeating a run with other seeds would say nothing about its spread.",
                look=seeded_wrong(look, is_fixed) or look(r"manual_seed", r"seed"),
            )
    used = {rehearsal.seed: one["seed"] for rehearsal, one in zip(rehearsals, built, strict=True)}
    if used.pop(0) != 0 and all(seed == other for seed, other in used.items()):
        raise Diagnosis(
            "seed-zero-replaced",
            saw=f"--seed {next(iter(used))} seeded torch with {next(iter(used))}, --seed 0 with another number.",
            means="0 is a seed like any other, and false to `or` and `if`: a sweep would run one seed twice.",
            look=seeded_wrong(look, asks_for_truth) or look(r"manual_seed", r"seed"),
        )
