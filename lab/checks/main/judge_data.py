"""Judges the first half of main.run(): who loads the data, with which options, and the loaders made of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lab.base.words import one_line, ordinal
from lab.checks.common.look import Look, line_of
from lab.checks.main.draw import Rehearsal
from lab.checks.main.judge_calls import Events, calls
from lab.grading.diagnosis import Diagnosis
from lab.runs import options

NO_EFFECT = "An option that does nothing makes two runs look alike that should differ."
# Lines that set what get_dataloaders() gets, where not in the call itself.
SET_BY = {
    "global_batch_size": r"per_device_batch_size|global_batch_size|batch_size\s*=",
    "num_workers": r"num_workers|loading\s*=",
    "seed": r"[\"']?seed[\"']?\]?\s*[:=]|seed\s+or\b",
    "options": r"loading\s*=|loader_options|options\s*=",
}
OPTION_OF = {"name": "dataset", "cache_dir": "output_dir"}  # where an argument is called otherwise


def earlier(missing: Diagnosis, judge: Callable[[], None]) -> Diagnosis:
    """Of a call that is missing and of what another judge says, what stands further up in run()."""
    try:
        judge()
    except Diagnosis as other:
        return other if 0 < line_of(other.look) < line_of(missing.look) else missing
    except IndexError:  # of what is missing nothing can be judged
        pass
    return missing


def judge_data(look: Look, rehearsal: Rehearsal, rank: int, events: Events) -> None:
    """One rank's calls, from load_once to build_model."""
    judge_loading(look, rehearsal, rank, events)
    judge_options(look, rehearsal, calls(events, "load_datasets")[0]["arguments"])
    used = calls(events, "train")[0]["made_by"] if calls(events, "train") else []
    judge_loaders(look, rehearsal, calls(events, "get_dataloaders"), used)
    judge_network(look, rehearsal, calls(events, "build_model")[0])


def judge_loading(look: Look, rehearsal: Rehearsal, rank: int, events: Events) -> None:
    loads = calls(events, "load_datasets")
    if not all(load["inside"] for load in loads):
        raise Diagnosis(
            "load-once-missing",
            saw=f"{rehearsal}: rank {rank} called load_datasets() by itself, not through load_once().",
            means="All ranks would download and unpack at once, over each other's files.",
            look=look(r"load_datasets|read_datasets"),
        )
    if len(loads) > 1:
        raise Diagnosis(
            "loaded-twice",
            saw=f"{rehearsal}: rank {rank} loaded the data sets {len(loads)} times.",
            means="Reading and decoding a data set takes minutes on a real one; once is enough.",
            look=look(r"load_once"),
        )
    wanted = rehearsal.data_dir or rehearsal.output_dir
    asked = calls(events, "is_first_on_filesystem")
    if asked and Path(asked[-1]["path"]).name != wanted:
        raise Diagnosis(
            "first-of-another-folder",
            saw=f"{rehearsal}: is_first_on_filesystem() was asked about {one_line(asked[-1]['path'], 60)}, "
            f"not about {wanted}.",
            means="Without a --data-dir, the folder of the output is the only one that is written to."
            if rehearsal.data_dir is None
            else "Each folder can be on another disk: the data on one of each node, the results on a shared one.",
            look=look(r"is_first_on_filesystem"),
        )
    is_first, got = rank == rehearsal.world_size - 1, calls(events, "load_once")[0]["is_first"]
    if not asked or got != is_first:
        raise Diagnosis(
            "is-first-guessed",
            saw=f"{rehearsal}: is_first_on_filesystem() said {is_first} on rank {rank}, load_once got {got}."
            if asked
            else f"{rehearsal}: is_first_on_filesystem() was not called; load_once got {got} on rank {rank}.",
            means="Which ranks share a disk is a question to the disk: rank 0 downloads for its own node only.",
            look=look(r"^\w*first\w*\s*=[^=]", r"is_first", r"load_once"),
        )


def judge_options(look: Look, rehearsal: Rehearsal, got: dict[str, Any]) -> None:
    """What load_datasets() was told."""
    args = rehearsal.resolved
    names = ["name", *(["data_dir"] if rehearsal.data_dir else []), "cache_dir", "validation"]
    wanted = {name: getattr(args, OPTION_OF.get(name, name)) for name in names} | options.input_options(args)
    for name, value in wanted.items():
        right = value if isinstance(value, int) else str(value)
        if got.get(name) == right:
            continue
        if got.get(name) == "None" and name != "data_dir":
            raise Diagnosis(
                "options-not-resolved",
                saw=f"{rehearsal}: load_datasets() got {name}=None; this_run.args.{name} is {right!r}.",
                means="What follows from the other options only this_run.args has.",
                look=look(r"read_datasets|load_datasets"),
            )
        raise Diagnosis(
            "dataset-option-ignored",
            saw=f"{rehearsal}: load_datasets() got {name}={one_line(repr(got.get(name)), 40)}; "
            + (
                f"args.{OPTION_OF.get(name, name)} is {right!r}."
                if name in names
                else f"options.input_options(args) has {name}={right!r}."
            ),
            means="Decoded images are kept in there; the folder of the data can be read-only."
            if name == "cache_dir"
            else "The run would use other images than it was told to.",
            look=look(r"load_datasets|read_datasets"),
        )


def judge_loaders(look: Look, rehearsal: Rehearsal, made: Events, used: list[bool]) -> None:
    """What get_dataloaders() was told: in every call what the loaders need, in one what training needs.

    Args:
        used: whether each call's training loader came to train(); empty where nothing was trained.
    """
    fitting = [one for one in made if one["sets"] == ["train", "valid"]]
    trains = [one for one, came in zip(made, used, strict=False) if came and one in fitting]
    first = next(iter([*trains, *fitting]), None)
    if first is None:
        raise Diagnosis(
            "data-sets-swapped",
            saw=f"{rehearsal}: get_dataloaders() got the sets {' and '.join(made[0]['sets'])}; expected "
            "train and valid.",
            means="The model must not train on the images it is measured with.",
            look=look(r"\.valid\b", r"get_dataloaders"),
        )
    got = first["global_batch_size"]
    if got == rehearsal.global_batch != rehearsal.loader_batch:
        raise Diagnosis(
            "accumulation-ignored",
            saw=f"{rehearsal}: get_dataloaders() got the global batch of {got} images; with --accumulate "
            f"{rehearsal.accumulate} it should get args.loader_batch_size, {rehearsal.loader_batch}.",
            means="The gradients of several such batches are added up: a step would see too many images.",
            look=look(r"^(?!.*return).*global_batch_size", r"global_batch_size", r"get_dataloaders"),
        )
    args = rehearsal.resolved
    for name, option in (
        ("global_batch_size", "loader_batch_size"),
        ("num_workers", "num_workers"),
        ("seed", "seed"),
    ):
        for one in made if name == "num_workers" else [first]:
            if one[name] != getattr(args, option):
                raise Diagnosis(
                    "loader-option-ignored",
                    saw=f"{rehearsal}: get_dataloaders() got {name}={one[name]}{which(one, made)}; "
                    f"args.{option} is {getattr(args, option)}.",
                    means=NO_EFFECT,
                    look=told_by(look, one, name, SET_BY[name] if one is first else ""),
                )
    for name, value in options.loader_options(args, "cpu").items():
        for one in made:
            if (got := one["options"].get(name, repr(False))) != repr(value):
                got_what = f"{name}={one_line(str(got), 40)}" if name in one["options"] else f"no {name}"
                raise Diagnosis(
                    "loader-option-ignored",
                    saw=f"{rehearsal}: get_dataloaders() got {got_what}{which(one, made)}; "
                    f"loading_options(args, device) has {name}={value}.",
                    means=NO_EFFECT,
                    look=told_by(look, one, name, SET_BY["options"] if one is first else ""),
                )


def which(call: dict[str, Any], made: Events) -> str:
    """Of several calls of get_dataloaders(), in words."""
    if "test" in call["sets"]:
        return " for the test images"
    several = len([one for one in made if "test" not in one["sets"]]) > 1
    return f" in its {ordinal(made.index(call) + 1)} call" if several else ""


def told_by(look: Look, call: dict[str, Any], name: str, set_by: str) -> str:
    """The line that should tell get_dataloaders() an option: the call, or the one that sets what it hands on.

    Args:
        set_by: what such a line looks like; "" where only the call itself is meant.
    """
    named = look.keywords(call["line"])
    if set_by == SET_BY["options"] and "**" in named and (made := look.unpacked_in(call["line"])):
        return made
    if not call["line"] or (set_by and (name in named or "**" in named or name == "global_batch_size")):
        return look(*([set_by] if set_by else []), r"get_dataloaders", last=not set_by)
    return look.line(call["line"])


def judge_network(look: Look, rehearsal: Rehearsal, build: dict[str, Any]) -> None:
    """What build_model() was told."""
    classes = len(rehearsal.classes)
    if build["name"] != rehearsal.model or build["num_classes"] != classes:
        raise Diagnosis(
            "num-classes-hard-coded" if build["name"] == rehearsal.model else "model-option-ignored",
            saw=f"{rehearsal}: build_model() got {one_line(repr(build['name']), 40)} and {build['num_classes']} "
            f"classes; expected '{rehearsal.model}' and {classes}.",
            means="The data set knows how many classes it has; the command line names the model.",
            look=look(r"build_model"),
        )
    wanted = {name: repr(value) for name, value in options.model_options(rehearsal.resolved).items()}
    if build["options"] != wanted:
        raise Diagnosis(
            "model-option-ignored",
            saw=f"{rehearsal} --model {rehearsal.model} {' '.join(rehearsal.more)}: build_model() got "
            f"{in_words(build['options'])}; options.model_options(args) has {in_words(wanted)}.",
            means="The model would have another size than the command line says.",
            look=look(r"build_model"),
        )


def in_words(arguments: dict[str, str]) -> str:
    return one_line(", ".join(f"{name}={value}" for name, value in arguments.items()), 60) or "no more arguments"
