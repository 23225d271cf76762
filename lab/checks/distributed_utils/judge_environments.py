"""Judges what read_launch_environment() makes of good and of broken environments."""

import re
from collections.abc import Sequence
from typing import Any

from lab.base.source import searchable
from lab.checks.common.look import Look
from lab.checks.common.look_around import beside, condition_of, in_helpers, swallows
from lab.checks.common.report import ERROR, error_place, error_text, expect, expect_as_many
from lab.checks.distributed_utils.draw import FIELDS, SRUN, TORCHRUN, Case
from lab.checks.distributed_utils.judge_refused import (
    first_node_refused,
    judge_group_asked,
    judge_message,
    judge_mixed,
    judge_refused,
    mixed_place,
    only_refused,
)
from lab.grading.diagnosis import Diagnosis
from lab.grading.parts import compared, part

TORCHRUN_READ, SRUN_READ = "torchrun's variables", "srun's variables"
NOT_GUESSED = "what is missing is refused"
REFUSED = dict.fromkeys(("number", "contradiction"), "what cannot be is refused")


def judge_environments(look: Look, cases: Sequence[Case], reports: Sequence[Any], decoy: list[int]) -> None:
    """Raise the diagnosis of the first case that went wrong.

    Args:
        reports: of the only rank, for each case, the fields of what was returned, its type, and the error.
        decoy: the numbers that os.environ held.
    """
    expect(
        reports,
        [
            {
                "type": str,
                "error": (None, ERROR | {"compared_as_text": bool}),
                "changed": [str],
                "mixed": int,
                **dict.fromkeys(FIELDS, (int, str)),
            }
        ],
    )
    expect_as_many(reports, len(cases))
    pairs = list(zip(cases, reports[0], strict=True))
    constant = len({answer["world_size"] for case, answer in pairs if case.expected}) == 1
    for case, answer in pairs:
        if case.expected is not None:
            with part(SRUN_READ if case.kind == "srun" else TORCHRUN_READ):
                judge_remembered(look, pairs, case, answer)
                judge_numbers(look, case, answer, decoy, constant, only_refused(pairs), first_node_refused(pairs))
        got = f"{answer['error']['type']}" if answer["error"] else [answer[name] for name in FIELDS]
        compared(str(case), [got], "ValueError" if case.expected is None else list(case.expected))
    for case, answer in pairs:
        if case.expected is None:
            with part(REFUSED.get(case.kind, NOT_GUESSED), after=[TORCHRUN_READ]):
                judge_refusal(look, case, answer)
    for case, answer in pairs:
        with part(TORCHRUN_READ):
            judge_changes(look, case, answer)
    for case, answer in pairs:
        if case.kind == "missing":
            with part(NOT_GUESSED):
                judge_message(look, case, answer["error"])


def judge_changes(look: Look, case: Case, answer: dict[str, Any]) -> None:
    if changed := answer["changed"]:
        raise Diagnosis(
            "environment-changed",
            saw=f"{case}: afterwards {', '.join(map(str, changed[:3]))} "
            f"{'is' if len(changed) == 1 else 'are'} "
            "no longer what was there before.",
            means="os.environ is handed in here: whoever reads it next, PyTorch too, misses what you took out.",
            look=look(r"\bpop|\bdel\b|\.clear\(|\.update\(|setdefault|environ\[.*\]\s*="),
        )


COMPUTED = r"%|divmod|//"  # of the rank
BY_NAMES = r"endswith|startswith|\bin key\b|\.search\(|\.match\("  # what goes by a part of a variable's name


def mentions_modulo(look: Look) -> bool:
    return bool(re.search(COMPUTED, searchable(look(COMPUTED))))


def judge_remembered(
    look: Look, pairs: Sequence[tuple[Case, dict[str, Any]]], case: Case, answer: dict[str, Any]
) -> None:
    """What comes out is of this environment, and not of one that was asked for before."""
    got = tuple(answer[name] for name in FIELDS)
    earlier = [one.expected for one, _ in pairs[: [one for one, _ in pairs].index(case)] if one.expected]
    if not answer["error"] and got != case.expected and got in earlier:
        raise Diagnosis(
            "result-remembered",
            saw=f"{case}: you returned {list(got)}, which an earlier call with other variables got rightly.",
            means="What is kept from one call to the next is wrong in the next: read the variables in each.",
            look=place
            if (place := look.kept()) != look()
            else look(r"\bglobal\b|\bnonlocal\b|hasattr|cache|memo|\bif (not )?_\w+", r"^return (?!Launch)"),
        )


def judge_numbers(
    look: Look,
    case: Case,
    answer: dict[str, Any],
    decoy: list[int],
    constant: bool,
    refused: list[int],
    first_node: bool,
) -> None:
    """A complete environment must give exactly its numbers.

    Args:
        refused: the world sizes that are refused, where rank 0 of others is not.
        first_node: whether the processes of the first node are refused, and no others.
    """
    assert case.expected is not None
    others = [name for name in case.environ if name not in (*TORCHRUN, *SRUN)]
    got = [answer[name] for name in FIELDS]
    expected = list(case.expected)
    if not answer["error"] and got == expected:
        return
    if got == decoy or (answer["error"] and look.mentions("os")):
        raise Diagnosis(
            "reads-os-environ",
            saw=f"{case}: you returned what os.environ holds ({got}), not what you were given."
            if got == decoy
            else f"{case}: raised {error_text(answer['error'])}, and the function reads os.environ.",
            means="A function that reads its argument can be checked and reused; this one looks past it.",
            look=look(r"\bos\."),
        )
    if answer["error"]:
        if case.kind == "srun" and others and any(name in answer["error"]["message"] for name in TORCHRUN):
            raise Diagnosis(
                "srun-not-read",
                saw=f"{case}: raised {error_text(answer['error'])}",
                means=f"{', '.join(TORCHRUN)} alone tell of torchrun, and not {' or '.join(others)}.",
                look=look(BY_NAMES, "|".join(others), r"^(?!.*raise).*(SRUN|TORCHRUN)"),
            )
        if case.kind == "srun" and not re.search(r"[<>]", searchable(condition_of(look, answer["error"]))):
            other = sorted(set(re.findall(r"SLURM_\w+", searchable(answer["error"]["message"]))) - set(SRUN))
            if other:
                raise Diagnosis(
                    "other-slurm-variables",
                    saw=f"{case}: raised {error_text(answer['error'])}",
                    means=f"{', '.join(SRUN)} count processes. Others count nodes, or the tasks of one node.",
                    look=beside(look, "|".join(other)) or look("|".join(other), r"SRUN|SLURM"),
                )
            raise Diagnosis(
                "srun-not-read",
                saw=f"{case}: raised {error_text(answer['error'])}",
                means="Under Slurm without torchrun, these three are all that a process knows about itself.",
                look=look(r"^(?!.*raise).*(SRUN|SLURM|TORCHRUN)")
                if answer["error"]["text"].startswith("raise")
                else error_place(answer["error"], lambda: look(r"SRUN|SLURM")),
            )
        judge_mixed(look, case, answer)
        judge_refused(look, case, answer["error"], refused, first_node)
    if answer["type"] != "LaunchEnvironment":
        raise Diagnosis(
            "no-launch-environment",
            saw=f"{look.function}() returned {'None' if answer['type'] == 'NoneType' else 'a ' + answer['type']}.",
            means="setup() expects a LaunchEnvironment with rank, local_rank and world_size.",
            look=look(r"\breturn\b"),
        )
    said = ", ".join(f"{name} {value!r}" for name, value in zip(FIELDS, got, strict=True))
    saw = f"{case}: you returned {said}."
    if any(isinstance(value, str) for value in got):
        raise Diagnosis(
            "strings-returned",
            saw=saw,
            means="Variables are text: '10' < '9' is true, and rank == 0 never is. Turn them into integers.",
            look=look(r"\breturn\b"),
        )
    if case.kind == "both":
        raise Diagnosis(
            "srun-before-torchrun",
            saw=saw,
            means="srun has started one torchrun a node, and each of these many processes: only torchrun "
            "counts those.",
            look=look(r"SLURM|SRUN"),
        )
    if case.kind == "srun" and not set(zip(got, expected, strict=True)) & {(n, n) for n in expected}:
        raise Diagnosis(
            "srun-not-read",
            saw=saw,
            means="Under Slurm without torchrun, these three are all that a process knows about itself.",
            look=look(r"SRUN|SLURM", r"\breturn\b"),
        )
    if got[:2] == [expected[0], expected[0]]:
        raise Diagnosis(
            "rank-as-local-rank",
            saw=saw,
            means="The local rank counts the processes of one node. With the rank instead, node 2 looks for "
            "GPU 5 of 4.",
            look=look(r"\blocal_rank\s*=", r"\breturn\b"),
        )
    if got[::2] == expected[::2] and mentions_modulo(look):
        raise Diagnosis(
            "local-rank-computed",
            saw=f"{saw} The local rank is {expected[1]} there.",
            means="How many processes a node has differs from job to job: the launcher says the local rank.",
            look=look(COMPUTED),
        )
    if got[2] != expected[2] and constant:
        raise Diagnosis(
            "world-size-hard-coded",
            saw=saw,
            means="The same world size comes out whatever the launcher says: the job works for that many ranks "
            "only.",
            look=look(rf"\b{got[2]}\b", r"world_size|WORLD_SIZE"),
        )
    wrong = next(name for name, a, b in zip(FIELDS, got, expected, strict=True) if a != b)
    raise Diagnosis(
        "wrong-numbers",
        saw=saw,
        means=f"The {wrong.replace('_', ' ')} is {expected[FIELDS.index(wrong)]} there.",
        look=mixed_place(look, answer["mixed"])
        or look(
            *([BY_NAMES] if others else []),
            *([ARGUMENTS_MIXED] if sorted(got) == sorted(expected) else []),
            rf"(?<![{{\w]){wrong}\s*=(?!=)",
            r"\breturn\b",
        ),
    )


# Arguments in another order than the fields'.
ARGUMENTS_MIXED = r"LaunchEnvironment\((?!rank, local_rank, world_size)\w+, *\w+, *\w+\)"


def _compared(case: Case) -> str:
    """A line that compares the two numbers that contradict each other, and not one of them with 0."""
    rank, _, world_size = map(int, case.environ.values())
    return rf"\b(if|assert)\b(?=.*{'size|world' if rank >= world_size else 'local'}).*[\w\])]\s*[<>]=?\s*[A-Za-z_]"


# What it means when an environment is accepted that should not be: kind -> name and meaning.
ACCEPTED = {
    "none": ("silent-world-of-one", "Every process would train alone on all the data, and nobody would notice."),
    "missing": ("missing-variable-guessed", "A guess here runs on, with every process at the wrong place."),
    "mixed": ("mixed-launchers", "torchrun's variables are there but incomplete: somebody broke them. Say so."),
    "number": ("bad-number-accepted", "A broken launch script must stop here, not hang later in a collective."),
    "contradiction": ("contradiction-accepted", "0 <= local_rank <= rank < world_size always; else ranks hang."),
}


def judge_refusal(look: Look, case: Case, answer: dict[str, Any]) -> None:
    """A broken environment must be refused with a ValueError."""
    error = answer["error"]
    if error is None:
        name, means = ACCEPTED[case.kind]
        said = ", ".join(f"{name} {answer[name]!r}" for name in FIELDS)
        hint = {
            "none": r"\.get\(|return",
            "number": r"\b(if|assert)\b.*[<>]"
            if "-1" in case.environ.values()
            else r"isdecimal|isdigit|isnumeric|\bint\b",
            "contradiction": r"\bif\b.*([<>].*(rank|size)|(rank|size).*[<>])|\bassert\b",
            "mixed": r"\ball\(|\bif\b.*(TORCHRUN|RANK|WORLD_SIZE)|TORCHRUN|WORLD_SIZE",
        }
        first = {
            "mixed": [r"\.get\(.*\.get\("],  # one variable, or else the other
            "number": [r"\b(max|min|abs)\("],  # what was wrong is made right
            "contradiction": [r"\b(max|min|abs)\(", *([_compared(case)] if case.kind == "contradiction" else [])],
        }.get(case.kind, [])
        guessed = [rf"(?<![{{\w]){field}\s*=(?!=)" for field in case.missing_fields()]
        patterns = (
            *first,
            hint.get(case.kind, r"\.get\(|setdefault|\*\*environ"),
            *guessed,
            r"\breturn\b",
        )
        if unraised := look.never_raises():
            raise Diagnosis(
                "error-not-raised",
                saw=f"{case}: you returned {said}, although a line speaks of it.",
                means="A sentence, or an exception that nobody raises, stops nothing: raise ValueError(...).",
                look=unraised,
            )
        swallowed = swallows(look) if case.kind in ("mixed", "missing", "number") else ""
        if case.kind == "number":
            swallowed = swallowed or in_helpers(look, r"(join|filter)\(.*\bis(digit|decimal|numeric)\b|\.sub\(")
        raise Diagnosis(name, saw=f"{case}: you returned {said}.", means=means, look=swallowed or look(*patterns))
    judge_group_asked(look, case, error)
    if "ValueError" not in error["bases"]:
        raise Diagnosis(
            "not-a-value-error",
            saw=f"{case}: raised {error_text(error)}",
            means="main.py turns a ValueError into one clear sentence; this would be a traceback on every rank.",
            look=error_place(error, look),
        )
