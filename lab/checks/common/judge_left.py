"""For judges: what a student's function must not leave behind, or keep to itself."""

from collections.abc import Sequence
from typing import Any

from lab.checks.common.look import Look
from lab.checks.common.report import error_place, error_text, expect
from lab.grading.diagnosis import Diagnosis

LEFT = {"changed": [str], "files": [{"name": str, "line": int}]}

# Key of left_behind.py -> what it is, what comes of it, and the line that has done it.
CHANGES = {
    "requires_grad": (
        "parameters' requires_grad",
        "The next backward() finds nothing that wants a gradient: torch.no_grad() is enough.",
        r"requires_grad",
    ),
    "types": (
        "parameters' type",
        "The rest of the run goes on in it: run.autocast() is there for that.",
        r"half|bf",
    ),
    "weights": ("weights", "Only the optimizer's step trains.", r"copy_|\.data\b|_\(|load_state|reduce|broadcast"),
    "hooks": (
        "number of the model's hooks",
        "Each call adds one more: remove() what was registered.",
        r"register",
    ),
    "options": (
        "optimizer's options",
        "The run sets them, as --base-lr and --schedule ask: this is another training.",
        r"param_groups|scheduler|\blr\b|defaults",
    ),
    "gradients": (
        "switch that records gradients",
        "The next backward() fails. `with torch.no_grad():` ends by itself.",
        r"set_grad_enabled|grad|inference",
    ),
    "autocast": ("autocast", "All that follows computes in it: `with` ends by itself.", r"autocast"),
    "default type": ("default dtype", "All tensors made from now on have it.", r"default"),
    "default device": ("default device", "All tensors made from now on are there.", r"default"),
    "seed": (
        "seed of the random numbers",
        "Dropout and the like draw the same in every epoch; the run sets --seed.",
        r"seed",
    ),
}


def judge_left(look: Look, lefts: Sequence[Any]) -> None:
    """Args: `lefts` is one of left_behind.watched of each rank."""
    expect(lefts, LEFT)
    for rank, left in enumerate(lefts):
        for key in CHANGES.keys() & set(left["changed"]):
            what, means, pattern = CHANGES[key]
            raise Diagnosis(
                "left-changed",
                saw=f"{look.function}() left the {what} changed, on rank {rank}.",
                means=means,
                look=look(pattern),
            )
    names = [{file["name"]: file["line"] for file in left["files"]} for left in lefts]
    for name in names[0]:
        if len(names) > 1 and all(name in own for own in names):
            raise Diagnosis(
                "written-by-every-rank",
                saw=f"{look.function}() wrote the file {name[:60]} on every rank.",
                means="The ranks write over each other: a file may hold half of each. The run saves, on one.",
                look=look.line(names[0][name]),
            )


def judge_swallowed(look: Look, swallowed: str, where: str) -> None:
    """Args: `swallowed` is what left_behind.swallowed says, `where` what raised: "the model's forward"."""
    if swallowed:
        raise Diagnosis(
            "error-swallowed",
            saw=f"{where} raised OutOfMemoryError; {look.function}() went on and returned: {swallowed}.",
            means="The real reason is lost, and a rank that goes on alone leaves the others waiting.",
            look=look(r"except|suppress", r"\breturn\b"),
        )


def judge_asked(look: Look, asked: str) -> None:
    """Args: `asked` is what pretended_gpu.asks_for_another says."""
    if asked:
        raise Diagnosis(
            "another-gpu",
            saw=f"on cuda:5 (here only pretended) {look.function}() asked for {asked}.",
            means="Each rank has one GPU, whose number is not the rank's on a second node. Take the one given.",
            look=look(r"cuda|rank", r"\.to\("),
        )


def judge_unwrapped(look: Look, error: dict[str, Any] | None) -> None:
    """Args: `error` is what a model without a wrapper led to, as attempt() has it."""
    if error is not None:
        raise Diagnosis(
            "wrapper-assumed",
            saw=f"with --strategy none, where the model has no wrapper, {look.function}() raised "
            f"{error_text(error)}.",
            means="The same code has to run under every strategy: use what all models have.",
            look=error_place(error, look),
        )


def judge_pending(look: Look, pending: int, what: str) -> None:
    """Args: `what` is reduced."""
    if pending:
        raise Diagnosis(
            "not-waited-for",
            saw=f"{pending} collectives were started with async_op=True, and nobody waited for them.",
            means=f"What is in {what} then depends on which comes first: the sum, or the line that uses it.",
            look=look(r"async_op", r"reduce"),
        )


def judge_overtaken(look: Look, overtaken: bool, what: str) -> None:
    """Args: `what` is changed between a collective with async_op=True and its wait()."""
    if overtaken:
        raise Diagnosis(
            "not-waited-for",
            saw=f"{what} was changed after its collective had been started with async_op=True, and before wait().",
            means=f"What {what} then holds depends on which comes first: change it only after wait().",
            look=look(r"/=|\*=|\bdiv_?\(|\bmul_?\(|[/*] ", r"async_op", r"reduce"),
        )
