"""Judges the last part of main.run(): training, the test images, and what is left behind."""

import ast
import math
from typing import Any, NoReturn

from lab.base.words import one_line
from lab.checks.common.look import RETURN, Look, line_of
from lab.checks.common.syntax import calls_of, names_in
from lab.checks.main.draw import Rehearsal
from lab.checks.main.judge_calls import Events, calls
from lab.checks.main.judge_model import LOADERS
from lab.checks.main.look_made import condition_of, handed_for_training
from lab.grading.diagnosis import Diagnosis


def judge_evaluation(look: Look, rehearsal: Rehearsal, events: Events) -> bool:
    """Whether this is a run that evaluates a checkpoint, and nothing else is to be judged of it.

    A main.py of a package handed out before the option was there trains: the Run says so, and stops it.
    """
    evaluated, line = calls(events, "run_evaluate"), look(r"\w\.evaluate\(")
    if not evaluated:
        return False
    if not rehearsal.evaluate_only:
        raise Diagnosis(
            "evaluates-unasked",
            saw=f"{rehearsal}: this_run.evaluate() was called, without --evaluate-only.",
            means="It prints how a checkpoint does; a run that trains has train() and evaluate() for that.",
            look=condition_of(look, r"\w\.evaluate\(") or line,
        )
    if calls(events, "train"):
        raise Diagnosis(
            "train-in-evaluation",
            saw=f"{rehearsal}: train() was called, beside this_run.evaluate().",
            means="It is to say how a checkpoint does, and that is no longer the one.",
            look=condition_of(look, r"(?<!_)\btrain\(") or look(r"(?<!_)\btrain\("),
        )
    got = evaluated[0]["loaders"]
    if wrong := next((pair for pair in zip(got, ("valid", "test"), strict=False) if pair[0] != pair[1]), None):
        what = "validation" if wrong[1] == "valid" else "test"
        raise Diagnosis(
            "evaluates-other-images",
            saw=f"{rehearsal}: for the {what} images, loader(images) gave "
            f"{LOADERS.get(wrong[0], one_line(wrong[0], 40) + ' not from get_dataloaders()')}.",
            means="loader(images) makes the loader of these images, as get_dataloaders() made valid_loader.",
            look=line,
        )
    judge_sets(look, rehearsal, events)
    return True


def judge_sets(look: Look, rehearsal: Rehearsal, events: Events) -> None:
    """Every loader is made with the training set, whatever images the other one is for."""
    for call in calls(events, "get_dataloaders"):
        trained, measured = call["sets"]
        if trained in ("valid", "test"):
            images = {"valid": "validation", "test": "test"}
            raise Diagnosis(
                "training-set-replaced",
                saw=f"{rehearsal}: for the {images.get(measured, 'other')} images, get_dataloaders() got the "
                f"{images[trained]} images in place of the training set.",
                means="It refuses a training set that is smaller than a batch, as these few images may be.",
                look=handed_for_training(look, call["line"], trained) or look.line(call["line"]),
            )


def judge_training(look: Look, rehearsal: Rehearsal, events: Events) -> None:
    trained, line = calls(events, "train"), look(r"(?<!_)\btrain\(", r"dry_run")
    if len(trained) > 1:
        line = look(r"\b(for|while)\b", r"(?<!_)\btrain\(")
    if rehearsal.dry_run:
        if trained:
            raise Diagnosis(
                "train-in-dry-run",
                saw=f"{rehearsal}: train() was called.",
                means="A dry run shows whether everything fits, and costs seconds instead of hours.",
                look=condition_of(look, r"(?<!_)\btrain\(") or line,
            )
        return
    if len(trained) != 1:
        raise Diagnosis(
            "train-not-called" if not trained else "train-twice",
            saw=f"{rehearsal}: train() was " + (f"called {len(trained)} times." if trained else "not called."),
            means="train() goes through all the epochs by itself, so it is called once.",
            look=line,
        )
    if trained[0]["loaders"] != ["train", "valid"] or not trained[0]["run"]:
        got = " and ".join(one_line(loader, 40) for loader in trained[0]["loaders"])
        raise Diagnosis(
            "wrong-arguments",
            saw=f"{rehearsal}: train() got the loaders {got}"
            + (", and no Run." if not trained[0]["run"] else "."),
            means="Its arguments are model, optimizer, train_loader, valid_loader, run.",
            look=line,
        )


def judge_test(look: Look, rehearsal: Rehearsal, events: Events) -> None:
    """The test images are evaluated once, after training, and their figures recorded."""
    evaluated, recorded = calls(events, "evaluate"), calls(events, "record_test")
    line, names = look(r"(?<![.\w])evaluate\("), [event["call"] for event in events]
    if rehearsal.dry_run:
        if evaluated or recorded:
            called = r"(?<![.\w])evaluate\(" if evaluated else r"record_test"
            raise Diagnosis(
                "test-in-dry-run",
                saw=f"{rehearsal}: {'evaluate' if evaluated else 'this_run.record_test'}() was called.",
                means="Nothing was trained, so there is nothing to measure, and a dry run is to cost seconds.",
                look=condition_of(look, called) or look(called),
            )
        return
    if not rehearsal.test_set:
        if recorded:
            raise Diagnosis(
                "test-images-assumed",
                saw=f"{rehearsal}: there are no test images, but this_run.record_test() was called.",
                means="datasets.test is None where the validation images are all there is.",
                look=look(r"record_test"),
            )
        return
    if not evaluated:
        raise Diagnosis(
            "test-not-evaluated",
            saw=f"{rehearsal}: evaluate() was not called, though there are test images.",
            means="Validation images have helped to choose what to train; only unseen ones show what it is worth.",
            look=look(r"(?<![.\w])evaluate\(", r"\.test\b", r"(?<!_)\btrain\("),
        )
    used = next((one for one in evaluated if one["on"] == "test"), None)
    if used is None:
        judge_test_loader(look, rehearsal, evaluated[-1]["on"], calls(events, "get_dataloaders"))
    if "train" in names and names.index("evaluate") < names.index("train"):
        raise Diagnosis(
            "tested-before-training",
            saw=f"{rehearsal}: evaluate() came before train().",
            means="It measured the weights that the model was born with.",
            look=line,
        )
    if not recorded:
        raise Diagnosis(
            "test-not-recorded",
            saw=f"{rehearsal}: the test images were evaluated, but this_run.record_test() was not called.",
            means="The result would be neither printed nor in the run's files.",
            look=look(r"record_test", r"(?<![.\w])evaluate\("),
        )
    if len(recorded) > 1 or len([one for one in evaluated if one["on"] == "test"]) > 1:
        raise Diagnosis(
            "tested-twice",
            saw=f"{rehearsal}: the test images were evaluated {max(len(recorded), len(evaluated))} times.",
            means="Once is enough: a number that is looked at again and again becomes one that choices are "
            "made by.",
            look=line,
        )
    loss, accuracy = rehearsal.test
    got = [recorded[0]["loss"], recorded[0]["accuracy"]]
    if not all(math.isclose(a, b) for a, b in zip(got, rehearsal.test, strict=True)):
        raise Diagnosis(
            "wrong-test-figures",
            saw=f"{rehearsal}: evaluate() gave loss {loss:g} and accuracy {accuracy:g}; recorded were loss "
            f"{got[0]:g} "
            f"and accuracy {got[1]:g}.",
            means="this_run.record_test takes the loss and the accuracy (a fraction) of the test images, in "
            "this order.",
            look=look(r"record_test"),
        )
    judge_sets(look, rehearsal, events)


def judge_test_loader(look: Look, rehearsal: Rehearsal, on: str, made: Events) -> NoReturn:
    """The test images did not come to evaluate() as they should.

    Args:
        made: the calls of get_dataloaders().
    """
    own = on.startswith("a ")
    partial = on == "shuffled test"
    if partial or own:
        name = "test-images-dropped" if partial else "test-loader-of-its-own"
        means = (
            "It leaves out what does not fill a batch on every rank; one for validation counts every image."
            if partial
            else "Every rank needs its own part, and filler that is not counted: get_dataloaders() sees to both."
        )
    else:
        name = "test-on-other-images"
        means = "The result would be taken for that of the test images, which nobody has looked at."
    raise Diagnosis(
        name,
        saw=f"{rehearsal}: evaluate() got {LOADERS.get(on, one_line(on, 40) + ' not from get_dataloaders()')}.",
        means=means,
        look=next((first_taken(look, one) for one in made if is_first(one["sets"], on)), "")
        or (
            look(r"DataLoader\(", r"(?<![.\w])evaluate\(")
            if own
            else look(r"datasets\.test\b(?!.*None)", r"(?<![.\w])evaluate\(")
            if partial
            else look(r"tests?\w*\s*=.*(valid|train\b)", r"(?<![.\w])evaluate\(")
        ),
    )


def is_first(sets: list[str], on: str) -> bool:
    """Whether evaluate() got the first of the loaders made of two sets, which is one for training."""
    return on == f"shuffled {sets[0]}" or (sets[1] == "test" and on == sets[0])


def first_taken(look: Look, call: dict[str, Any]) -> str:
    """Where the first is taken of the two loaders that a call gives; "" where its line is not known.

    That is the line itself, or the one that takes it by [0] out of what the call has given; or, where a helper
    makes the call, the line that gives the helper the test images for the training set.
    """
    number, images = call["line"], call["sets"][0]
    if images in ("valid", "test") and (handed := handed_for_training(look, number, images)):
        return handed
    _, _, node = look.source()
    parts = list(ast.walk(node)) if node else []
    for made in parts:
        around = isinstance(made, ast.Assign) and made.lineno <= number <= (made.end_lineno or 0)
        if not around or not isinstance(made.targets[0], ast.Name):  # type: ignore[attr-defined]
            continue
        pair = f"{made.targets[0].id}[0]"  # type: ignore[attr-defined]
        taken = [one.lineno for one in parts if isinstance(one, ast.Subscript) and ast.unparse(one) == pair]
        if taken:
            return look.line(min(taken))
    return taken_of_a_helper(look, number) or (look.line(number) if number else "")


def taken_of_a_helper(look: Look, number: int) -> str:
    """The last place that takes the first of what a helper gives, which returns a line's call; "" without one."""
    _, tree, node = look.source()
    parts = list(ast.walk(tree)) if tree else []
    measured = {name for call in (calls_of(tree, "evaluate") if tree else ()) for name in names_in(call)}
    for part in parts:
        name, gives = "", []
        if isinstance(part, ast.FunctionDef) and part is not node:
            name, gives = part.name, [one.value for one in ast.walk(part) if isinstance(one, ast.Return)]
        elif isinstance(part, ast.Assign) and isinstance(part.value, ast.Lambda):
            name, gives = ast.unparse(part.targets[0]), [part.value.body]
        if not any(isinstance(one, ast.Call) and one.lineno <= number <= (one.end_lineno or 0) for one in gives):
            continue
        calls = calls_of(tree, name) if tree else []
        lines = [
            one.lineno
            for one in parts
            if (isinstance(one, ast.Subscript) and one.value in calls and ast.unparse(one.slice) == "0")
            or (isinstance(one, ast.Assign) and one.value in calls and _first_name(one.targets[0]) in measured)
        ]
        if lines:
            return look.line(max(lines))
    return ""


def _first_name(target: ast.expr) -> str:
    """The first of the variables that something is parted into; "" where it is not."""
    return ast.unparse(target.elts[0]) if isinstance(target, ast.Tuple) else ""


def earlier_return(look: Look) -> str:
    """The place of a `return` above the line of cleanup(); "" without one. One of a dry run goes before others."""
    cleanup, leaves = line_of(look(r"\bcleanup\(\)")), look(RETURN)
    return leaves if line_of(leaves) < cleanup else ""


def judge_end(look: Look, rehearsal: Rehearsal, report: dict[str, Any]) -> None:
    left = calls(report["events"], "exit")
    if left and not left[0]["group"]:
        raise Diagnosis(
            "cleanup-inside-the-run",
            saw=f"{rehearsal}: the process group was gone when the `with` of the Run ended.",
            means="The Run may still need the other ranks to close its records: cleanup() comes after it.",
            look=look(r"cleanup|destroy"),
        )
    if not report["group_left"]:
        raise Diagnosis(
            "cleanup-missing",
            saw=f"{rehearsal}: the process group is still there when run() has ended.",
            means="NCCL warns about leaked resources, and a rank that ends can leave the others hanging.",
            look=earlier_return(look) or look(r"cleanup", r"\breturn\b"),
        )
    if calls(report["events"], "run_evaluate"):
        return  # what comes of a run that trains nothing is written nowhere
    right, what = ("an empty list", "[]") if rehearsal.dry_run else ("records", "what train() gave")
    if (returned := report["returned"]) != right:
        named = {"NoneType": "None", "an empty list": "an empty list", "records": "records"}
        raise Diagnosis(
            "records-not-returned",
            saw=f"{rehearsal}: run() returned {named.get(returned, f'a {one_line(returned, 40)}')}, not {what}.",
            means="Whoever calls run() counts on a list: a dry run has the records of no epochs."
            if rehearsal.dry_run
            else "Whoever calls run() wants the figures of the epochs.",
            look=look(r"\breturn(\s+None)?$", r"=\s*None$", r"\breturn\b(?!\s*\[\])")
            if rehearsal.dry_run
            else look(RETURN),
        )
