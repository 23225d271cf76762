"""Judges which calls main.run() makes: all that every run needs, on every rank, while the Run is open."""

from collections.abc import Sequence
from typing import Any

from lab.checks.common.look import Look
from lab.checks.common.report import expect
from lab.checks.main.draw import Rehearsal
from lab.grading.diagnosis import Diagnosis

Events = list[dict[str, Any]]

DETAILS: dict[str, dict[str, Any]] = {
    "setup": {"device": str},
    "Run": {"device": str, "records": bool},
    "exit": {"group": bool},
    "is_first_on_filesystem": {"path": str},
    "load_once": {"is_first": bool},
    "load_datasets": {"inside": bool, "arguments": dict},
    "get_dataloaders": {
        "line": int, "sets": [str], "global_batch_size": int, "num_workers": int, "seed": int, "options": dict,
    },
    "build_model": {
        "name": str, "num_classes": int, "options": dict, "digest": str, "weight": float, "seed": int,
    },
    "prepare_model": {"kind": str},
    "wrap": {"by": str, "precision": str},
    "wrap_failed": {"instead": str},
    "asked": {"by": str, "asked": str, "precision": str, "device": str},
    "train": {"loaders": [str], "run": bool, "same_model": bool, "same_optimizer": bool,
              "made_by": [bool], "kind": str},
    "begin": {"kind": str, "loader": str},
    "evaluate": {"on": str},
    "run_evaluate": {"loaders": [str]},
    "record_test": {"loss": float, "accuracy": float},
}  # fmt: skip

ARGUMENTS = [(str, bool, int)]

# What every run calls: the name of the diagnosis without it, what it means, where it would be.
NEEDED = {
    "setup": ("no-setup", "It chooses the device and joins the process group.", ""),
    "Run": ("no-run", "Nothing would record what this run did.", ""),
    "enter": ("run-not-entered", "Its records are never closed.", r"\bRun\("),
    "load_datasets": ("no-data", "There is nothing to train on.", ""),
    "get_dataloaders": ("no-loaders", "Every rank needs its own part.", ""),
    "build_model": ("no-build-model", "--model would have no effect.", r"CNN\(|build_network\(|model\s*="),
    "prepare_model": (
        "no-prepare-model",
        "It makes the model ready for the options: on a GPU, in the memory layout of the fastest kernels.",
        r"wrap_model",
    ),
    "begin": (
        "no-begin",
        "It hands the optimizer to the run: no report, no schedule, no accumulation, no resuming without it.",
        r"(?<!_)\btrain\(",
    ),
}

TOGETHER = ("is_first_on_filesystem", *NEEDED, "train", "evaluate", "record_test")

IN_THE_RUN = (
    *("load_datasets", "get_dataloaders", "build_model", "begin", "train", "evaluate", "record_test"),
    "run_evaluate",
)


def calls(events: Events, name: str) -> Events:
    return [event for event in events if event["call"] == name]


def events_of(reports: Sequence[Any]) -> list[Events]:
    """The calls of each rank. Raises Diagnosis for reports that cannot be read."""
    expect(reports, {"events": [{"call": str}], "returned": str, "group_left": bool})
    for report in reports:
        for event in report["events"]:
            expect([event], DETAILS.get(event["call"], {}))
            for name in ("arguments", "options"):
                expect([list(event.get(name, {}).values())], ARGUMENTS)
    return [report["events"] for report in reports]


def judge_calls(look: Look, rehearsal: Rehearsal, everyone: list[Events]) -> None:
    """Every rank makes the same calls, and those of a run while that is open."""
    made = [[event["call"] for event in events] for events in everyone]
    for name in TOGETHER:
        with_it = [rank for rank, names in enumerate(made) if name in names]
        if with_it and len(with_it) < len(made):
            raise Diagnosis(
                "not-on-every-rank",
                saw=f"{rehearsal}: {in_words(name)} on rank {with_it[0]} only.",
                means="It needs every rank, or what comes after it does: the others wait for those that do not "
                "come.",
                look=look(r"is_main_process|get_rank|\brank\b", rf"\b{name}\("),
            )
    names = made[0]
    for name, (diagnosis, means, line) in NEEDED.items():
        if name not in names:
            what = f"{in_words(name).replace(' was called', ' was not called')}."
            if name == "enter":
                what = "the Run was made, but not used with `with`."
            raise Diagnosis(
                diagnosis,
                saw=f"{rehearsal}: {what}",
                means=means,
                look=look(rf"\b{name}\(", *([line] if line else [])),
            )
    for name, diagnosis, means in (
        ("Run", "two-runs", "Each opens a folder of its own, and the records are parted between them."),
        ("begin", "begins-twice", "It takes over the optimizer's stepping, so it is called once."),
    ):
        if (count := names.count(name)) > 1:
            raise Diagnosis(
                diagnosis,
                saw=f"{rehearsal}: {in_words(name)} {count} times.",
                means=means,
                look=look(rf"\b{name}\(", last=True),
            )
    run = calls(everyone[0], "Run")[0]
    if not run["records"]:
        raise Diagnosis(
            "run-without-records",
            saw=f"{rehearsal}: the Run was made with records=False.",
            means="It would print nothing, write no files and save no checkpoints.",
            look=look(r"\bRun\("),
        )
    if run["device"] != calls(everyone[0], "setup")[0]["device"]:
        raise Diagnosis(
            "device-guessed",
            saw=f"{rehearsal}: the Run got another device than the one that setup() returned.",
            means="The run moves the images to its device: they would not be where the model is.",
            look=look(r"\bRun\("),
        )
    left = names.index("exit") if "exit" in names else len(names)
    if late := next((name for name in names[left:] if name in IN_THE_RUN), ""):
        raise Diagnosis(
            "run-closed-too-early",
            saw=f"{rehearsal}: {in_words(late)} after the `with` had ended.",
            means="Leaving it closes the records as done: nothing that follows is in them. Is it indented far "
            "enough?",
            look=look(rf"(?<![_\w]){late}\(", r"\bwith\b"),
        )


def in_words(name: str) -> str:
    """ "train() was called"."""
    if name in ("Run", "enter"):
        return {"Run": "a Run was made", "enter": "the Run was entered"}[name]
    if name == "run_evaluate":
        return "this_run.evaluate() was called"
    method = name in ("prepare_model", "begin", "record_test")
    return f"{'this_run.' if method else ''}{name}() was called"
