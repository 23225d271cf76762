"""Judges is_main_process(), and what cleanup() leaves behind."""

import ast
import re
from collections.abc import Sequence
from typing import Any

from lab.base.source import searchable
from lab.checks.common.look import Look, line_of
from lab.checks.common.look_around import value_outside, with_helpers
from lab.checks.common.report import ERROR, error_place, error_text, expect, expect_as_many, fail
from lab.checks.common.syntax import calls_of
from lab.checks.distributed_utils.draw import SRUN_AND_TORCHRUN
from lab.grading.diagnosis import Diagnosis
from lab.grading.parts import compared, part

_Function = ast.FunctionDef | ast.AsyncFunctionDef

LEAVES = "leaves the group"
LINE = (r"\bif not\b.*is_initialized(?!.*return)", r"destroy", r"is_initialized")

LEFT_BY_OTHERS = r"gloo.*(reset|closed|Broken pipe|Read error|refused)|Connection (reset|closed)"
OF_THE_LAUNCHER = r"environ\b.*(RANK|WORLD|SLURM)|(RANK|WORLD|SLURM).*environ\b"

UNCALLED = r"is_initialized\b(?!\()"  # the function itself, which is always true


def judge_leaving(look: Look, values: Sequence[Any], given: dict[str, Any]) -> None:
    """Raise the diagnosis of the first thing that is wrong.

    Args:
        look: in cleanup().
        values: what the ranks reported; which is which while they are asked is drawn, and told by `given`, which
            they received. They leave as what they are.
    """
    reports = [values[given["order"].index(rank)] for rank in range(len(values))]
    attempt = {"error": (None, ERROR)}
    expect(
        reports,
        {
            "main": [{"value": (None, bool, int, str), **attempt}],
            "left": [{"still_there": bool, **attempt}],
            "anew": object,
            "later": (None, bool, int, str),
            "collectives": int,
            "told": bool,
            "destroyed": bool,
        },
    )
    expect_as_many([report["main"] for report in reports], len(given["launchers"]))
    expect_as_many([report["left"] for report in reports], 4)
    anew = [report["anew"] for report in reports]  # as the first launcher's ranks
    answered = zip(*(report["main"] for report in reports), strict=True)  # a launcher at a time
    for launcher, answers in zip(given["launchers"], answered, strict=True):
        compared(f"main process, by {launcher}", [a["value"] for a in answers], [True, False, False], each=True)
        with part("which is the main process"):
            judge_main_process(look.into("is_main_process"), launcher, list(answers), anew)
        anew = []
    with part("which is the main process"):
        judge_asking(look.into("is_main_process"), reports, values)
    for number, what in enumerate(
        ("cleanup()", "cleanup() without a group", "cleanup() of another group", "cleanup() of one rank")
    ):
        compared(f"group left by {what}", [report["left"][number]["still_there"] for report in values], False)
    with part(LEAVES):
        judge_left(look, values)
    with part("leaves where there is none", after=[LEAVES]):
        judge_without_group(look, values)
    with part(LEAVES):
        judge_another(look, values)
        judge_alone(look, values)
        judge_told(look, values)


def _guard(look: Look) -> str:
    """The place of the `if` around destroy_process_group() that asks for more or else than is_initialized()."""
    place = look.under(r"destroy")
    condition = re.sub(r"(torch\.)?(distributed|dist)\.|\bis_available\(\) and ", "", searchable(place))
    told = re.search(r"  if is_initialized\(\):|rank|main", searchable(condition))  # of ranks another word is said
    return "" if told else place


def instead(look: Look) -> str:
    """The place of what is to end the group where destroy_process_group() is not named; "" without such a line."""
    place = look(r"^del\b|=\s*None\b|abort|shutdown|\.close\(")
    return place if line_of(place) and not look.mentions("destroy_process_group") else ""


def put_off(look: Look) -> str:
    """Where what destroys the group is handed to something that may call it later, as to atexit.register().

    Or where a function within the function does so, and nobody calls it; "" where there is neither.
    """
    _, _, node = look.source()
    parts = list(ast.walk(node)) if node else []
    functions = (one for one in (*parts, *with_helpers(look)[1:]) if isinstance(one, _Function))
    inner = [one for one in functions if one is not node and calls_of(one, "destroy_process_group")]
    leaving = {"destroy_process_group", *(one.name for one in inner)}

    def named(value: ast.expr) -> bool:
        value = value.body if isinstance(value, ast.Lambda) else value
        value = value.func if isinstance(value, ast.Call) else value
        return ast.unparse(value).rpartition(".")[2] in leaving

    for call in (one for one in parts if isinstance(one, ast.Call)):
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        if any(named(one) for one in given if not isinstance(one, ast.Call)):
            return look.line(call.lineno)
    for one in inner:
        if one in parts and not calls_of(node, one.name):  # type: ignore[arg-type]
            return look.line(min([one.lineno, *(decorator.lineno for decorator in one.decorator_list)]))
    return ""


def judge_asking(look: Look, reports: Sequence[dict[str, Any]], values: Sequence[dict[str, Any]]) -> None:
    """is_main_process() tells of the group that is there now, and needs no other rank for that.

    Args:
        reports: of the ranks of the first group, and `values` of those of the second.
    """
    if any(report["collectives"] for report in reports):
        raise Diagnosis(
            "waits-for-the-others",
            saw="is_main_process() has begun a collective, or made a group.",
            means="Where only one rank asks, it would wait for the others for ever: a rank knows its own number.",
            look=look(r"barrier|reduce|gather|broadcast|scatter|new_group|send|recv"),
        )
    later = [report["later"] for report in values]
    said = ", ".join(f"{value} on rank {rank}" for rank, value in enumerate(later))
    if later in ([True] * 3, [False] * 3) and look.kept() == look():  # one of them has said something else before
        raise Diagnosis(
            "several-main-processes" if later[0] else "wrong-main-process",
            saw=f"without a GPU is_main_process() was {said}.",
            means="What the machine has says nothing of the rank: ask the process group, with a GPU and without.",
            look=look(r"cuda|device|backend|nccl", r"\breturn\b"),
        )
    if later != [True, False, False]:
        raise Diagnosis(
            "result-remembered",
            saw=f"in a second group, where the ranks are others, is_main_process() was {said}.",
            means="What it said in an earlier group is not so in the next: ask the process group each time.",
            look=look.kept(),
        )


def judge_left(look: Look, reports: Sequence[dict[str, Any]]) -> None:
    """All ranks have left their group."""
    later = put_off(look)
    line = later or _guard(look) or instead(look) or look(*LINE)
    for rank, report in enumerate(reports):
        first = report["left"][0]
        if first["error"] and re.search(LEFT_BY_OTHERS, searchable(first["error"]["message"])):
            raise Diagnosis(
                "not-on-every-rank",
                saw=f"rank {rank}: cleanup() waited in a collective for ranks that had left.",
                means="A collective is for every rank of the group: what some skip ends in an error, or never.",
                look=error_place(first["error"], lambda: line),
            )
        if first["error"]:
            fail(first["error"], f"rank {rank}: cleanup()", lambda: line)
        if first["still_there"]:
            raise Diagnosis(
                "group-not-destroyed",
                saw=f"rank {rank}: the process group is still there after cleanup().",
                means="If that is called at all, it is too late: when cleanup() comes back the group must be gone."
                if later
                else "NCCL warns about leaked resources, and a rank that ends can leave the others hanging.",
                look=line,
            )


def judge_another(look: Look, reports: Sequence[dict[str, Any]]) -> None:
    """A second group of several ranks is left as the first one."""
    for report in reports:
        second = report["left"][2]
        if second["error"]:
            fail(second["error"], "cleanup() of a second group", look)
        if second["still_there"]:
            raise Diagnosis(
                "group-not-destroyed",
                saw="a second process group is still there after cleanup(), which had left the first.",
                means="Whether there is a group PyTorch knows: what a module remembers of it may be out of date.",
                look=_guard(look) or look(r"^if (?!.*is_initialized)", r"\bglobal\b", r"destroy"),
            )


def judge_told(look: Look, reports: Sequence[dict[str, Any]]) -> None:
    """An error of PyTorch's while the group is left comes out."""
    if not any(report["told"] or report["destroyed"] for report in reports):
        raise Diagnosis(
            "group-not-destroyed",
            saw="cleanup() came back without a call of destroy_process_group(), although there was a group.",
            means="Whatever hides a group does not end it: its connections stay, and NCCL warns about them.",
            look=look(r"^[^=]*(WORLD|world|group)\w*\s*=(?!=)|\bdel\b|abort|shutdown", r"is_initialized"),
        )
    if not all(report["told"] for report in reports):
        raise Diagnosis(
            "error-swallowed",
            saw="destroy_process_group() raised DistBackendError, and cleanup() came back as if all were well.",
            means="That is an error of the run, and not a missing group: ask dist.is_initialized() for that.",
            look=look(r"\bexcept\b|suppress", r"destroy"),
        )


def judge_without_group(look: Look, reports: Sequence[dict[str, Any]]) -> None:
    line = look(*LINE)
    for rank, report in enumerate(reports):
        if error := report["left"][1]["error"]:
            if (asked := look(OF_THE_LAUNCHER)) != look():
                raise Diagnosis(
                    "cleanup-without-group",
                    saw=f"rank {rank}: cleanup() without a process group raised {error_text(error)}",
                    means="A launcher's variable says how the program was started, not whether there is a group.",
                    look=asked,
                )
            raise Diagnosis(
                "cleanup-without-group",
                saw=f"rank {rank}: cleanup() without a process group raised {error_text(error)}",
                means="After an error there may be no group; the error in cleanup() would hide the real one.",
                look=place
                if (place := look(UNCALLED)) != look()
                else (_guard(look) if "destroy" in error["text"] else "") or error_place(error, lambda: line),
            )


def judge_alone(look: Look, reports: Sequence[dict[str, Any]]) -> None:
    """A group of one is left too."""
    line = look(*LINE)
    for report in reports:
        alone = report["left"][3]
        if alone["error"]:
            fail(alone["error"], "cleanup() of a group of one rank", lambda: line)
        if alone["still_there"]:
            raise Diagnosis(
                "group-not-destroyed",
                saw="a process group of one rank is still there after cleanup().",
                means="A single rank has joined a group too, and leaves it like the others.",
                look=_guard(look) or look(r"world_size", r"destroy"),
            )


def judge_main_process(look: Look, launcher: str, answers: list[dict[str, Any]], anew: list[object]) -> None:
    """Args: `anew` is what a fresh copy of the module says, which nobody has asked before there was a group."""
    line = look(r"\breturn\b(?!\s*(True|False)$)", r"\breturn\b")
    if error := next((answer["error"] for answer in answers if answer["error"]), None):
        if "KeyError" in error["bases"] and launcher == "srun":
            raise Diagnosis(
                "rank-from-torchrun-only",
                saw=f"started by {launcher}: is_main_process() raised {error_text(error)}",
                means="srun sets other variables than torchrun. The process group knows the rank in both cases.",
                look=line,
            )
        fail(error, f"started by {launcher}: is_main_process()", lambda: line)
    values = [answer["value"] for answer in answers]
    said = ", ".join(f"{value} on rank {rank}" for rank, value in enumerate(values))
    if not all(isinstance(value, bool) for value in values):
        raise Diagnosis(
            "not-a-bool",
            saw=f"is_main_process() returned {said}.",
            means="The answer must be True or False. In an `if`, 0 and None count as no, every other number as "
            "yes.",
            look=line,
        )
    if values == [True, False, False]:
        return
    if anew == [True, False, False]:
        raise Diagnosis(
            "result-remembered",
            saw=f"asked before and after there was a group: is_main_process() was {said}.",
            means="What it said before setup() is not so after it: ask the process group each time.",
            look=place
            if (place := look.kept()) != look()
            else value_outside(look, r"=.*\(|environ") or look(r"\bglobal\b|cache|memo|hasattr|\bif (not )?_\w+"),
        )
    if launcher == SRUN_AND_TORCHRUN:
        raise Diagnosis(
            "several-main-processes" if sum(values) > 1 else "wrong-main-process",
            saw=f"one node, started by {launcher}: is_main_process() was {said}.",
            means="srun counts the torchruns there, and torchrun the processes. The process group knows the rank.",
            look=look(r"SLURM", r"\breturn\b"),
        )
    if sum(values) > 1:
        raise Diagnosis(
            "several-main-processes",
            saw=f"three nodes, started by {launcher}: is_main_process() was {said}.",
            means="All of them would print and write the same files. Every node has a local rank 0, and a GPU 0.",
            look=line,
        )
    raise Diagnosis(
        "wrong-main-process",
        saw=f"three nodes, started by {launcher}: is_main_process() was {said}.",
        means="Rank 0 is the one that prints and writes: without it nothing is recorded.",
        look=line,
    )
