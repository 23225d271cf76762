"""docs/checks.md: which settings of main.py each exercise's checks look at, and why not at the others.

make mistakes        writes it; tests/checks/test_settings.py holds it to main.py's parser and to the checks

A new option of main.py belongs to a setting here, with what that means for the checks, before the tests pass.
"""

from dataclasses import dataclass
from pathlib import Path

from answers.mistakes import cell

from lab.checks.main.draw import draw_rehearsals
from lab.syllabus.syllabus import syllabus

PAGE = Path(__file__).resolve().parents[2] / "docs" / "checks.md"

INTRODUCTION = """\
# What the checks look at

For instructors, and for who changes a check. A wrong answer may be right in one setting and wrong in another:
without a GPU, on two ranks, in fp32. So this is the list of all that `main.py` offers, and for each exercise of
part one whether its check tries an answer there. `make mistakes` writes this page from
`tests/answers/settings.py`; a test fails where an option of `main.py` is in none of these settings.

## The settings

| setting | options | where no exercise below names it |
|---|---|---|
"""

EXERCISES = """
## The exercises

"""


@dataclass(frozen=True)
class Setting:
    """Something in which two runs may differ.

    options  of main.py; none where the machine or the launcher decides
    reason   why an exercise that says nothing of it does not look at it
    """

    title: str
    options: tuple[str, ...]
    reason: str


def _of_the_run(what: str) -> str:
    return f"{what}, which the exercise's function neither gets nor asks for: tests of the lab hold it"


SETTINGS = {
    "ranks": Setting("number of ranks", (), "each check says how many below"),
    "gpu": Setting("a GPU, pretended", (), "nothing in the function chooses a device"),
    "launcher": Setting("torchrun, srun", (), "only 2.1 to 2.3 read what the launcher says"),
    "partial": Setting(
        "a last partial batch", ("--global-batch-size", "--per-device-batch-size"), "it sees no batches"
    ),
    "strategy": Setting(
        "strategy",
        ("--strategy", "--shard", "--shard-ranks", "--bucket-cap-mb"),
        "it has no model in its hands. my-ddp, my-zero and my-fsdp wrap in the Run, with what section 9 has made: "
        "main.py sees a model that is not wrapped",
    ),
    "precision": Setting("precision", ("--precision", "--no-amp"), "it computes nothing in it"),
    "accumulate": Setting("accumulation", ("--accumulate",), _of_the_run("the Run's stepping")),
    "capture": Setting(
        "a captured step",
        ("--capture",),
        "a CUDA graph needs a real GPU, which the checks cannot count on; what would end it, a number read in the "
        "step, is looked at on a device without numbers (1.1, 6.1)",
    ),
    "compile": Setting("compiled networks", ("--compile",), _of_the_run("the Run compiles, in prepare_model()")),
    "resume": Setting(
        "a run that is continued",
        ("--resume", "--no-checkpoints", "--save-every-steps", "--checkpoint-format", "--save-frequency"),
        _of_the_run("the Run's checkpoints"),
    ),
    "evaluate": Setting("evaluating only", ("--evaluate-only",), "only main.py asks for it"),
    "dry": Setting("a dry run", ("--dry-run",), "only main.py asks for it"),
    "input": Setting(
        "images on the device", ("--input",), "the Run hands out the batches either way, in the same shapes"
    ),
    "loader": Setting(
        "loader processes",
        ("--num-workers", "--pin-memory", "--persistent-workers", "--prefetch"),
        "it gets loaders, and makes none",
    ),
    "network": Setting(
        "network",
        (
            *("--model", "--width", "--depth", "--pretrained", "--checkpoint-activations"),
            "--sync-batchnorm",
        ),
        "any network with .blocks: each check has a small one",
    ),
    "data": Setting(
        "data set",
        ("--dataset", "--image-size", "--data-dir", "--validation", "--augment", "--randaugment"),
        "any data set: each check has a small one of its own",
    ),
    "optimizer": Setting(
        "optimizer and rate",
        (
            *("--optimizer", "--base-lr", "--scale-lr", "--schedule", "--warmup-epochs", "--momentum"),
            *("--weight-decay", "--clip-norm"),
        ),
        _of_the_run("rate, schedule and clipping are the Run's; build_optimizer() is complete"),
    ),
    "length": Setting(
        "length",
        ("--epochs", "--measure-steps", "--measure-warmup"),
        "run.epochs() and run.batches() say when to end",
    ),
    "seed": Setting("seed", ("--seed", "--deterministic"), "nothing in it is drawn"),
    "records": Setting(
        "reports and records",
        (
            *("--profile", "--nvtx", "--startup-times", "--output-dir", "--print-every", "--tensorboard"),
            *("--run-id", "--scaling", "--repeat"),
        ),
        _of_the_run("the Run writes and reports"),
    ),
}

# Exercise -> the numbers of ranks of its check's groups; a slow test counts them.
RANKS = {
    "1.1": [1],
    "2.1": [1],
    "2.2": [2],
    "2.3": [3],
    "3.1": [1, 4],
    "3.2": [1, 2, 3],
    "3.3": [1, 2, 3],
    "4.0": [2, 3],
    "4.1": [3],
    "4.2": [1, 2, 3],
    "5.1": [1, 2],
    "6.1": [2],
    "6.2": [2, 3],
    "6.3": [2],
}

# Exercise -> setting -> what is looked at there, or "not: why".
LOOKED_AT: dict[str, dict[str, str]] = {
    "1.1": {
        "gpu": "on a device without numbers: what stays on the CPU, or reads a number, fails there",
        "partial": "batches of several sizes, one image among them",
        "precision": "in float64, where a cast to one type fails as it does in bf16 under FSDP",
        "strategy": "every parameter gets a gradient, as DDP needs; .blocks, for FSDP",
        "capture": "not on a GPU: a number that is read fails on the device without numbers",
        "data": "other images are refused; another number of classes",
        "network": "not: the other networks are the lab's own",
    },
    "2.1": {
        "launcher": "torchrun, srun, both, neither, each variable missing or no number, mixtures of the two; "
        "other variables beside them",
        "ranks": "places on several nodes of unequal size, given as variables",
    },
    "2.2": {
        "launcher": "torchrun, srun, srun with one GPU a task; MASTER_ADDR of another node; changed variables; "
        "numbers of GPUs in CUDA_VISIBLE_DEVICES",
        "gpu": "none; 1, 4 and 8, of which the local rank's is to be chosen",
    },
    "2.3": {
        "launcher": "both in turn, each rank alone on its node",
        "gpu": "one, while it is asked who is the main process",
        "ranks": "a group of three, none, and one of one",
    },
    "3.1": {
        "ranks": "one file system whose first is not rank 0, and two file systems",
        "launcher": "not: which process goes first is an argument",
    },
    "3.2": {
        "partial": "training sets that do not divide, and global batches that do not",
        "loader": "workers, and other options handed on to both loaders; what the one for validation reads",
        "seed": "several, and seed 0",
        "resume": "late epochs: the order of each is one of its own",
        "input": "not: the Run reads the sampler's order of the same loader",
        "gpu": "one on each of several nodes: the batch is shared by all ranks, not by a node's GPUs",
    },
    "3.3": {
        "partial": "sets that do not divide by ranks or batches, smaller than a batch, smaller than the ranks",
        "loader": "not: 3.2 looks at what both loaders are handed",
        "data": "images of two shapes",
        "strategy": "as many batches on every rank, without which FSDP hangs",
    },
    "4.0": {
        "precision": "gradients of fp64 and bf16; an inf stays one, as fp16 tells by it that a step is left out",
        "strategy": "not: it is for a model that is not wrapped, and main.py does not call it",
        "gpu": "one on each of several nodes: the mean is that of all ranks",
        "network": "parameters without gradient, frozen ones, some of one shape; gradients of zero; three calls",
        "accumulate": "not: who calls it decides when",
    },
    "4.1": {
        "strategy": "the size of the buckets",
        "gpu": "cuda:0, 2 and 3, none of them the rank; the CPU of a machine with GPUs; groups of all nodes",
        "precision": "not: under DDP the Run's autocast decides it, and weights stay in fp32",
        "ranks": "on one rank too DDP must wrap: 5.1 looks at that",
        "network": "rank 0's weights on all; not: buffers, which DDP sends itself",
    },
    "4.2": {
        "precision": "fp32, bf16, fp16, with a BatchNorm in the network",
        "strategy": "every block, the root, their order; not: --shard hybrid and grad, which are not asked for",
        "gpu": "cuda:1: moved before anything is sent, a mesh of all ranks' GPUs; the CPU beside GPUs",
        "network": "frozen parameters and buffers",
        "ranks": "on one rank, whether bf16 is computed in",
        "capture": "not: the lab captures FSDP's step itself, on GPUs",
        "resume": "not: the lab's checkpoints read DTensors, and these are looked at",
    },
    "5.1": {},
    "6.1": {
        "ranks": "unequal numbers of samples on them",
        "partial": "a last batch of another size than the others",
        "precision": "fp32 and bf16; for fp16, that the loss goes through run.backward(), and a step with a nan",
        "accumulate": "two batches",
        "strategy": "DDP, and a model that is not wrapped; not: FSDP, under which the same two calls are made",
        "capture": "the loss is computed from the network's results, and is no number made into one",
        "resume": "epochs from late in a run, and one again",
        "gpu": "an epoch on a device without numbers",
        "optimizer": "one with momentum, of which gradients are noted; rates are the Run's",
        "length": "the Run's batches are those that are trained on, all of them",
        "input": "not by itself: images come from run.batches() or they are not looked at, and that is told",
    },
    "6.2": {
        "strategy": "DDP and FSDP",
        "partial": "filler, whole batches of it, and a last batch of another size",
        "gpu": "on a device without numbers",
        "precision": "not: the figures are compared in fp32, and no option reaches it",
        "evaluate": "not by itself: a second evaluation, of other samples, is right too",
    },
    "6.3": {
        "resume": "a run that goes on at a later epoch, one with no epoch left, two after each other",
        "gpu": "run.device is another one than the CPU",
        "length": "three epochs and one",
        "strategy": "not: the model is handed on as it is",
    },
}

# What main.py hands on as it is, and which nobody can get wrong alone.
_WITH_THE_OTHERS = {
    "--no-amp": "the same as --precision fp32",
    "--pin-memory": "is in loading_options(), with the workers",
    "--augment": "is in options.input_options(), with --randaugment",
    "--image-size": "is in options.input_options(), with --randaugment",
    "--pretrained": "is in options.input_options() and options.model_options()",
}


def given_in_rehearsals() -> list[str]:
    """The options of main.py that 5.1's check gives in one of its command lines."""
    rehearsals = draw_rehearsals()
    given = [part for one in rehearsals for part in one.argv if part.startswith("--")]
    return list(dict.fromkeys([*given, *["--evaluate-only"] * any(one.evaluate_only for one in rehearsals)]))


def rehearsed() -> dict[str, str]:
    """5.1's column: which options of each setting are given, from the check's own command lines."""
    given, texts = given_in_rehearsals(), {}
    for name, setting in SETTINGS.items():
        here = [option for option in setting.options if option in given]
        told = [f"{one} {_WITH_THE_OTHERS[one]}" for one in setting.options if one in _WITH_THE_OTHERS]
        if here:
            texts[name] = "; ".join([f"given: {' '.join(here)}", *told])
    strategies = dict.fromkeys(one.strategy for one in draw_rehearsals())
    texts["strategy"] += f" ({', '.join(strategies)}); wrap_model() for a made-up device and another precision"
    texts["ranks"] = "one rank with DDP, which is to be wrapped there too"
    texts["gpu"] = "a device without numbers, with --strategy none"
    texts["resume"] = "not: begin() resumes, and that it gets model, optimizer and loader is looked at"
    texts["capture"] = texts["compile"] = (
        "not: prepare_model() and begin() do it, and that both are called is looked at"
    )
    texts["partial"] += "; the set is a sample longer than three batches"
    return texts


def page() -> str:
    """The page's text."""
    lines = [INTRODUCTION.rstrip("\n")]
    for setting in SETTINGS.values():
        options = ", ".join(f"`{one}`" for one in setting.options) or "(the machine, the launcher)"
        lines.append(f"| {setting.title} | {options} | {cell(setting.reason)} |")
    lines.append(EXERCISES.rstrip("\n"))
    for exercise in syllabus().exercises:
        looked_at = LOOKED_AT[exercise.id] or rehearsed()
        ranks = ", ".join(map(str, RANKS[exercise.id]))
        lines += ["", f"### {exercise.id} {exercise.title}", "", "| setting | looked at |", "|---|---|"]
        own = looked_at.get("ranks")
        lines.append(f"| number of ranks | {ranks}{f': {cell(own)}' if own else ''} |")
        lines += [
            f"| {SETTINGS[name].title} | {cell(looked_at[name])} |"
            for name in SETTINGS
            if name in looked_at and name != "ranks"
        ]
    return "\n".join(lines) + "\n"


def write() -> None:
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    write()
