"""Judges a rehearsal in which a rank failed: errors that a known mistake leads to."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from lab.base.source import searchable
from lab.base.words import one_line
from lab.checks.common.look import Look, at, line_of
from lab.checks.common.look_around import display_around
from lab.checks.common.report import expect
from lab.checks.main.draw import Rehearsal
from lab.checks.main.judge_calls import calls, events_of
from lab.checks.main.judge_data import NO_EFFECT
from lab.grading.check import Group
from lab.grading.diagnosis import Diagnosis

# The error's type or what its message holds -> diagnosis, what it means.
KNOWN: dict[str, tuple[str, str]] = {
    "UnresolvedOptionsError|'Namespace' object has no": (
        "options-not-resolved",
        "Batch sizes and learning rate depend on the number of ranks: only this_run.args has them.",
    ),
    "NeedlessWrapperError": (
        "wrong-strategy",
        "A run on one device, without a wrapper, is the baseline that all others are compared with.",
    ),
    "GroupLeftError": (
        "cleanup-too-early",
        "What the ranks do together needs the group: cleanup() comes last.",
    ),
    "NoTestImagesError": (
        "test-images-assumed",
        "With --validation test they are the validation images already, and some data sets have none at all.",
    ),
    "WrongArgumentsError.*not a function that loads": (
        "loaded-before-load-once",
        "read_datasets(args) runs at once, before load_once can make a rank wait. `lambda:` puts it off.",
    ),
    "WrongArgumentsError.*needs arguments": (
        "wrong-arguments",
        "It is called without any: `lambda: read_datasets(args)` needs none.",
    ),
    "WrongArgumentsError.*the device that setup": (
        "wrong-arguments",
        "Its arguments are model, loader, device: the images go to that device, where the model is.",
    ),
    "WrongArgumentsError.*another model than": (
        "wrong-arguments",
        "What is measured is the model that was trained, in its wrapper: `model` after wrap_model().",
    ),
    "WrongArgumentsError.*tuple in place of num_classes": (
        "wrong-arguments",
        "datasets.classes are the names; num_classes is how many: len(datasets.classes).",
    ),
    "WrongArgumentsError": ("wrong-arguments", "Its docstring says what comes in which order."),
    "NameError.* is not defined": (
        "unknown-name",
        "main.py neither imports nor defines this name: is it misspelt, or a result that was not kept?",
    ),
    "UnboundLocalError|cannot access free variable": (
        "used-before-made",
        "Each step needs what the one before it returned: this line comes too early, or that result was not kept.",
    ),
    "process group has not been initialized": (
        "no-process-group",
        "Something needed the other ranks before setup() had joined the group, or after cleanup().",
    ),
}

NO_SUCH_OPTION = (
    "no-such-option",
    "`main.py --help` lists the options; this_run.args has, besides, what follows from them.",
)

IN_MAIN = ("unknown-name", "used-before-made")  # of main.py only if it was raised there

# Raised for the judge's own purposes: only the message is for the student.
OURS = (
    "UnresolvedOptionsError",
    "NeedlessWrapperError",
    "NoTestImagesError",
    "WrongArgumentsError",
    "GroupLeftError",
)

NO_WORKERS = r"prefetch_factor option could only|persistent_workers option needs"


def without_workers(look: Look, frames: Sequence[Any]) -> str:
    """The call of get_dataloaders() that names the workers itself, or what it was handed."""
    own = [frame for frame in frames if Path(frame.file).name == "main.py" and "num_workers" in frame.text]
    return look.line(own[-1].line) if own else look(r"num_workers|loading\s*=", r"get_dataloaders")


def takes_none_for_images(message: str, frame: Any) -> bool:
    """Whether an error is that of a line of main.py that uses datasets.test where it is None."""
    if frame is None or Path(frame.file).name != "main.py" or "NoneType" not in message:
        return False
    return re.search(r"\btests?\b", searchable(frame.text)) is not None


def judge_failure(group: Group, look: Look, rehearsal: Rehearsal, result: Any) -> None:
    """Raise the diagnosis of a known mistake; all other failures as they are."""
    for report in result.reports:
        if report.error is None or report.error.todo:
            continue
        kind, message, frame = report.error.type, report.error.message, report.error.student_frame
        if re.search(NO_WORKERS, searchable(message)):
            raise Diagnosis(
                "loader-option-ignored",
                saw=f"{rehearsal}: the loaders have no workers; args.num_workers is {rehearsal.num_workers}.",
                means=NO_EFFECT,
                look=without_workers(look, report.error.frames),
            )
        if not rehearsal.test_set and takes_none_for_images(message, frame):
            raise Diagnosis(
                "test-images-assumed",
                saw=f"{rehearsal}: datasets.test is None here, and run() raised {kind}: {one_line(message, 80)}",
                means=KNOWN["NoTestImagesError"][1],
                look=at("main.py", frame.line, frame.text),
            )
        for pattern, (name, means) in KNOWN.items():
            in_main = frame is not None and frame.file.endswith("main.py")
            if not re.search(pattern, searchable(f"{kind}: {message}")) or (name in IN_MAIN and not in_main):
                continue
            missing = re.search(r"'Namespace' object has no attribute '(\w+)'", searchable(message))
            if missing and not hasattr(rehearsal.resolved, missing[1]):
                name, means = NO_SUCH_OPTION
            if kind in OURS or kind == "AttributeError":
                saw = f"{rehearsal}: {message}."
            else:
                saw = f"{rehearsal}: run() raised {kind}: {one_line(message, 80)}"
            place = at("main.py", frame.line, frame.text) if frame and in_main else look()
            if name == "test-images-assumed":
                place = next(
                    (
                        at("main.py", one.line, one.text)
                        for one in report.error.frames
                        if Path(one.file).name == "main.py" and re.search(r"\btest\b", searchable(one.text))
                    ),
                    place,
                )
            if name == "options-not-resolved" and not line_of(look(r"=.*\w\.args\b")):
                place = look(r"\bwith\b.*\bRun\(|\bas\s+\w+\s*:|\bRun\(")  # below it the line is missing
            elif name == "options-not-resolved":  # whoever was handed the other options only uses them
                calling = [one for one in report.error.frames if one.function == look.function]
                place = at("main.py", calling[-1].line, calling[-1].text) if calling else place
            if name == "cleanup-too-early":
                place = look(r"cleanup|destroy")
            raise Diagnosis(name, saw=saw, means=means, look=place)
    end_in_main(look, group, rehearsal, result)


def judge_error(look: Look, rehearsal: Rehearsal, result: Any) -> None:
    """An error of train() comes out of run(), so that the program ends with it."""
    events = events_of(result.values)[0]
    expect(result.values, {"come_out": [str]})
    if not calls(events, "train") or result.values[0]["come_out"]:
        return
    said = result.reports[0].conduct.caught
    caught = next((one for one in said if Path(one.file).name == look.name), None)
    raise Diagnosis(
        "error-swallowed",
        saw=f"{rehearsal}: train() raised an error, and run() ended as if there had been none"
        + (f": line {caught.handler} caught it." if caught else "."),
        means="The job would end as done, with exit code 0, while other ranks wait: let the error come out.",
        look=look.line(caught.handler)
        if caught
        else look.in_finally()
        or look(r"SystemExit|\bexit\(", r"\bfinally\b", r"__exit__|suppress|push", r"\btry\b"),
    )


def end_in_main(look: Look, group: Group, rehearsal: Rehearsal, result: Any) -> NoReturn:
    """End the check; what main.py has led to in another file is looked for where main.py called it."""
    try:
        group.end(result)
    except Diagnosis as diagnosis:
        for report in result.reports:
            frame = report.error.student_frame if report.error else None
            if diagnosis.name != "raised" or frame is None or Path(frame.file).name == "main.py":
                continue
            file, main = Path(frame.file).name, Path(frame.file).with_name("main.py")
            callers = [one for one in report.error.frames if Path(one.file) == main]
            if callers and diagnosis.look.startswith(f"{file}:{frame.line}"):
                error = f"{report.error.type}: {one_line(report.error.message, 100)}"
                other = re.fullmatch(r"get_(ddp|fsdp|fsdp1)_model", searchable(frame.function))
                if other and other[1] != rehearsal.strategy:
                    raise Diagnosis(
                        "wrong-strategy",
                        saw=f"{rehearsal}: {frame.function}() was called, and raised {error}",
                        means="Only the wrapper that was asked for may be called: "
                        "a dict of calls makes all of them.",
                        look=display_around(look.into("wrap_model"), callers[-1].line)
                        or at("main.py", callers[-1].line, callers[-1].text),
                    ) from None
                raise Diagnosis(
                    "raised",
                    saw=f"{rehearsal}: {frame.function}() raised {error} ({at(file, frame.line)})",
                    means=f"Where the checks of {file} pass, main.py has handed it something that it cannot use.",
                    look=at("main.py", callers[-1].line, callers[-1].text),
                ) from None
        raise
