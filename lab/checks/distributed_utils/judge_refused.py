"""Judges why a good environment was refused, and what is said of one in which something is missing."""

from collections.abc import Sequence
from typing import Any, NoReturn

from lab.checks.common.look import Look
from lab.checks.common.look_around import condition_of, first_of, for_around
from lab.checks.common.report import error_place, error_text, fail
from lab.checks.common.syntax import truth_of_numbers
from lab.checks.distributed_utils.draw import SRUN, TORCHRUN, Case
from lab.grading.diagnosis import Diagnosis

ASKED_AS_NUMBER = (
    r"^(?!raise).*(\bif\b.*\bint\(|\bor\b|\band\b)|\bif (not )?\w+\[\w+\]\s*(\]|:)"  # whether a variable is there
)

OTHERS = r"SLURM_(?!PROCID|LOCALID|NTASKS\b)\w+"  # that say nothing of the launcher


def judge_group_asked(look: Look, case: Case, error: dict[str, Any]) -> None:
    """The error is not that of a process group, which nobody has joined yet."""
    if "process group" in error["message"] and not error["text"].startswith("raise"):
        raise Diagnosis(
            "group-not-there-yet",
            saw=f"{case}: raised {error_text(error)}",
            means="setup() reads this before there is a process group: go by the variables alone.",
            look=error_place(error, look),
        )


def only_refused(pairs: Sequence[tuple[Case, dict[str, Any]]]) -> list[int]:
    """The world sizes of the good environments with a rank 0, where not all of them are refused."""
    firsts = [
        (case.expected[2], answer["error"]) for case, answer in pairs if case.expected and not case.expected[0]
    ]
    refused = {size for size, error in firsts if error}
    return sorted(refused) if len(refused) < len({size for size, _ in firsts}) else []


def first_node_refused(pairs: Sequence[tuple[Case, dict[str, Any]]]) -> bool:
    """Whether of the good environments of several processes those with rank and local rank equal are refused."""
    several = [(case.expected, answer) for case, answer in pairs if case.expected and case.expected[2] > 1]
    refused = {expected[0] == expected[1] if answer["error"] else None for expected, answer in several}
    accepted = [expected for expected, answer in several if not answer["error"]]
    return True in refused and False not in refused and all(rank != local for rank, local, _ in accepted)


def judge_mixed(look: Look, case: Case, answer: dict[str, Any]) -> None:
    """What was refused are the right numbers in the wrong places."""
    if answer["mixed"] and answer["error"]["text"].startswith("raise"):
        raise Diagnosis(
            "wrong-numbers",
            saw=f"{case}: raised {error_text(answer['error'])}",
            means="The numbers are there, but in each other's places, and so they seem to contradict each other.",
            look=mixed_place(look, answer["mixed"]),
        )


def mixed_place(look: Look, number: int) -> str:
    """The line that brings the numbers, or the variables' names, into another order; "" where none is known."""
    return for_around(look, look.line(number)) if number else ""


def judge_refused(look: Look, case: Case, error: dict[str, Any], refused: list[int], first_node: bool) -> NoReturn:
    """A good environment ended in an error, which may be the student's own.

    Args:
        refused: the world sizes that are refused, where rank 0 of others is not.
        first_node: whether the processes of the first node are refused, and no others.
    """
    judge_group_asked(look, case, error)
    saw = f"{case}: raised {error_text(error)}"
    if "ValueError" not in error["bases"] or not error["text"].startswith("raise"):
        fail(error, f"{case}: {look.function}()", look)
    if error["compared_as_text"]:
        raise Diagnosis(
            "strings-compared",
            saw=saw,
            means="Variables are text, and as text '11' < '9': turn the values into integers before you compare.",
            look=condition_of(look, error) or look(r"^(?!.*\bint\b).*environ(\[|\.get)", r"[<>]"),
        )
    if refused == [1] and case.expected and case.expected[2] == 1:
        raise Diagnosis(
            "world-of-one-refused",
            saw=saw,
            means="A launcher may start a single process: that is a world of one, and nobody has guessed it.",
            look=look(
                r"size\w*\s*(<|<=|==|!=|>|>=)\s*[12]\b|\b[12]\s*(<|<=|==|!=|>|>=)\s*\w*size",
                r"\b(if|assert)\b.*[<>]",
            ),
        )
    if first_node:
        raise Diagnosis(
            "first-node-refused",
            saw=saw,
            means="On the first node a process's local rank is its rank: they may be equal.",
            look=condition_of(look, error)
            or look(
                r"local\w*\s*<(?!=)|>(?!=)\s*local|local\w*\s*(>=|==|!=)|(<=|==|!=)\s*local",
                r"\b(if|assert)\b.*[<>]",
            ),
        )
    if "0" in case.environ.values():
        raise Diagnosis(
            "zero-taken-for-missing",
            saw=saw,
            means="A zero is a value like every other: ask whether the variable is there, not whether it is true.",
            look=first_of(look, truth_of_numbers) or look(ASKED_AS_NUMBER, r"\.get\(", r"\bif\b"),
        )
    if case.kind != "srun" and any(name in error["message"] for name in SRUN):
        raise Diagnosis(
            "torchrun-not-read",
            saw=saw,
            means=f"Any one of {', '.join(TORCHRUN)} says that torchrun's names count, however it was started.",
            look=look(OTHERS, r"(TORCHRUN|TORCHELASTIC).*SRUN|TORCHELASTIC|SLURM", r"\bTORCHRUN\b", r"\bSRUN\b"),
        )
    raise Diagnosis(
        "good-environment-refused",
        saw=saw,
        means="All three are there, are numbers, and 0 <= local_rank <= rank < world_size holds.",
        look=condition_of(look, error) or look(r"\b(if|assert)\b.*[<>]", r"\bif\b"),
    )


def judge_message(look: Look, case: Case, error: dict[str, Any]) -> None:
    """What is missing is named."""
    named = [name for name in case.missing if name in error["message"]]
    others = [name for name in SRUN if name in error["message"]]
    if not named and others and set(case.missing) < set(TORCHRUN) and set(case.environ.values()) == {"0"}:
        raise Diagnosis(
            "zero-taken-for-missing",
            saw=f"{case}: the error says {error_text(error)}; only {case.missing[0]} is missing.",
            means="A zero is a value like every other: ask whether the variable is there, not whether it is true.",
            look=first_of(look, truth_of_numbers) or look(ASKED_AS_NUMBER, r"\.get\(", r"\bif\b"),
        )
    if not named:
        raise Diagnosis(
            "error-names-nothing",
            saw=f"{case}: the error says {error_text(error)}; it does not name {case.missing[0]}.",
            means="Whoever starts the job reads only this line: it must say which variable is missing.",
            look=error_place(error, lambda: look(r"raise")),
        )
