"""Checks of section 5: everything together, once for each strategy, up to where training would begin."""

from itertools import combinations
from typing import Any

from lab.checks._command_lines import Rehearsal, draw_rehearsals
from lab.checks._look import at
from lab.checks._rehearsal import rehearse
from lab.checks._report import end, expect, one_line
from lab.checks._tiny import LIMIT
from lab.checks._wrapped import calls, judge_end, judge_model, judge_training, where
from lab.grading.check import Diagnosis, Ranks, check

DETAILS: dict[str, dict[str, Any]] = {
    "load_once": {"is_first": bool},
    "load_datasets": {"inside": bool, "name": str, "data_dir": str, "validation": str},
    "get_dataloaders": {"sets": [str], "global_batch_size": int, "num_workers": int, "seed": int},
    "build_model": {"name": str, "num_classes": int, "digest": str, "weight": float},
    "wrap": {"by": str, "precision": str},
    "train": {"loaders": [str], "run": bool, "group": bool, "kind": str},
    "begin": {"kind": str},
}


@check("5.1", "sets up, loads, wraps, optimises and cleans up, for every strategy")
def puts_it_all_together(ranks: Ranks) -> None:
    rehearsals = draw_rehearsals()
    digests = []
    for rehearsal in rehearsals:
        result = ranks.report(
            rehearse, rehearsal.world_size, rehearsal.inputs, set_up_process_group=False, timeout=LIMIT
        )
        if not result.ok:
            judge_failure(ranks, rehearsal, result)
        reports = result.values
        expect(reports, {"events": [{"call": str}], "returned": str, "group_left": bool})
        for report in reports:
            for event in report["events"]:
                expect([event], DETAILS.get(event["call"], {}))
        for rank, report in enumerate(reports):
            judge_data(ranks, rehearsal, rank, report["events"])
        digests.append(judge_weights(ranks, rehearsal, [report["events"] for report in reports]))
        for report in reports:
            judge_model(ranks.code, rehearsal, report["events"])
            judge_training(ranks.code, rehearsal, report["events"])
            judge_end(ranks.code, rehearsal, report)
    judge_seeds(ranks, rehearsals, digests)


def judge_failure(ranks: Ranks, rehearsal: Rehearsal, result: Any) -> None:
    """Errors that a known mistake leads to; all others as they are."""
    for report in result.reports:
        if report.error is None or report.error.todo:
            continue
        kind, message, frame = report.error.type, report.error.message, report.error.student_frame
        place = at("main.py", frame.line, frame.text) if frame else where(ranks.code)
        if kind == "WrongCallError" or (kind == "AttributeError" and "'Namespace' object has no" in message):
            raise Diagnosis(
                "options-not-resolved",
                f"{rehearsal}: {message}.",
                "Batch sizes and learning rate depend on the number of ranks: only this_run.args has them.",
                place,
            )
        if kind == "NeedlessWrapperError":
            raise Diagnosis(
                "wrong-strategy",
                f"{rehearsal}: {message}.",
                "A run on one device, without a wrapper, is the baseline that all others are compared with.",
                place,
            )
        if "prefetch_factor option could only" in message:
            raise Diagnosis(
                "loader-option-ignored",
                f"{rehearsal}: the loaders have no workers; the command line says {rehearsal.num_workers}.",
                "An option that does nothing makes two runs look alike that should differ.",
                where(ranks.code, r"num_workers|loading\s*=", r"get_dataloaders"),
            )
        if "process group has not been initialized" in message:
            raise Diagnosis(
                "no-process-group",
                f"{rehearsal}: rank {report.rank} raised {kind}: {one_line(message, 80)}",
                "Something needed the other ranks before setup() had joined the group, or after cleanup().",
                place,
            )
    end(ranks, result)


def judge_data(ranks: Ranks, rehearsal: Rehearsal, rank: int, events: list[dict[str, Any]]) -> None:
    """From the process group to the loaders."""
    names = [event["call"] for event in events]
    for name, diagnosis, what, means in (
        ("setup", "no-setup", "setup() was not called", "It chooses the device and joins the process group."),
        ("Run", "no-run", "no Run was made", "Nothing would record what this run did."),
        (
            "enter",
            "run-not-entered",
            "the Run was made, but not used with `with`",
            "Its records are never closed.",
        ),
        ("load_datasets", "no-data", "load_datasets() was not called", "There is nothing to train on."),
        ("get_dataloaders", "no-loaders", "get_dataloaders() was not called", "Every rank needs its own part."),
        ("build_model", "no-build-model", "build_model() was not called", "--model would have no effect."),
        ("begin", "no-begin", "this_run.begin() was not called", "The run would not report or count anything."),
    ):
        if name not in names:
            raise Diagnosis(
                diagnosis,
                f"{rehearsal}: {what} on rank {rank}.",
                means,
                where(ranks.code, *([r"\bRun\("] if name == "enter" else [])),
            )
    load = calls(events, "load_datasets")[0]
    if not load["inside"]:
        raise Diagnosis(
            "load-once-missing",
            f"{rehearsal}: rank {rank} called load_datasets() by itself, not through load_once().",
            "All ranks would download and unpack at once, over each other's files.",
            where(ranks.code, r"load_datasets"),
        )
    is_first = rank == rehearsal.world_size - 1
    if calls(events, "load_once")[0]["is_first"] != is_first:
        raise Diagnosis(
            "is-first-guessed",
            f"{rehearsal}: is_first_on_filesystem() said {is_first} on rank {rank}, load_once got {not is_first}.",
            "Which ranks share a disk is a question to the disk: rank 0 downloads for its own node only.",
            where(ranks.code, r"is_first", r"load_once"),
        )
    wanted = {"name": "imagefolder", "data_dir": "images", "validation": "test"}
    for name, option in (("name", "--dataset"), ("data_dir", "--data-dir"), ("validation", "--validation")):
        if load[name] != wanted[name]:
            raise Diagnosis(
                "dataset-option-ignored",
                f"{rehearsal}: load_datasets() got {load[name]!r} for {option} {wanted[name]}.",
                "The run would use other images than it was told to.",
                where(ranks.code, r"load_datasets"),
            )
    made = calls(events, "get_dataloaders")[0]
    if made["sets"] != ["train", "valid"]:
        raise Diagnosis(
            "data-sets-swapped",
            f"{rehearsal}: get_dataloaders() got the sets {' and '.join(made['sets'])}; expected train and valid.",
            "The model must not train on the images it is measured with.",
            where(ranks.code, r"\.valid\b", r"get_dataloaders"),
        )
    for name, value in (
        ("global_batch_size", rehearsal.global_batch),
        ("num_workers", rehearsal.num_workers),
        ("seed", rehearsal.seed),
    ):
        if made[name] != value:
            raise Diagnosis(
                "loader-option-ignored",
                f"{rehearsal}: get_dataloaders() got {name}={made[name]}; the command line says {value}.",
                "An option that does nothing makes two runs look alike that should differ.",
                where(ranks.code, r"get_dataloaders"),
            )
    build = calls(events, "build_model")[0]
    if build["name"] != "cnn" or build["num_classes"] != len(rehearsal.classes):
        raise Diagnosis(
            "num-classes-hard-coded" if build["name"] == "cnn" else "model-option-ignored",
            f"{rehearsal}: build_model() got {build['name']!r} and {build['num_classes']} classes; "
            f"expected 'cnn' and {len(rehearsal.classes)}.",
            "The data set knows how many classes it has; the command line names the model.",
            where(ranks.code, r"build_model"),
        )


def judge_weights(ranks: Ranks, rehearsal: Rehearsal, events: list[list[dict[str, Any]]]) -> str:
    """All ranks must start from the same weights. Returns their digest."""
    built = [calls(one, "build_model")[0] for one in events]
    if len({one["digest"] for one in built}) > 1:
        first = ", ".join(f"{one['weight']:.4f} on rank {rank}" for rank, one in enumerate(built))
        raise Diagnosis(
            "ranks-start-differently",
            f"{rehearsal}: the first weight of the model is {first}.",
            "Without the same torch.manual_seed before build_model, every rank draws weights of its own.",
            where(ranks.code, r"manual_seed", r"build_model"),
        )
    return built[0]["digest"]


def judge_seeds(ranks: Ranks, rehearsals: list[Rehearsal], digests: list[str]) -> None:
    for a, b in combinations(range(len(rehearsals)), 2):
        one, other = rehearsals[a], rehearsals[b]
        if one.seed == other.seed and digests[a] != digests[b]:
            raise Diagnosis(
                "weights-not-reproducible",
                f"two runs with --seed {one.seed} started from different weights.",
                "Nobody could repeat a run.",
                where(ranks.code, r"manual_seed", r"build_model"),
            )
        if one.seed != other.seed and digests[a] == digests[b]:
            raise Diagnosis(
                "seed-hard-coded",
                f"--seed {one.seed} and --seed {other.seed} gave the same weights.",
                "Repeating a run with other seeds would say nothing about its spread.",
                where(ranks.code, r"manual_seed", r"seed"),
            )
