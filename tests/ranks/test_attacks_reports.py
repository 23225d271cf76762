"""Reports that a student's code forges: what comes out of a rank is never the lab's fault, and gains nothing.

A mark that stays open for such a report would be better than the 0 points it deserves.
"""

from __future__ import annotations

import errno
from pathlib import Path

import attack_observers as observers
import pytest
from attack_helpers import FORGE, LIMIT, PERFECT, Grader, write

from lab.course.marks import SubmissionRecord, mark
from lab.grading.check import Check, Group, Order
from lab.grading.diagnosis import UNUSABLE_REPORT, Diagnosis, Failed, LabError, unusable_report
from lab.grading.suite import CheckResult, ExerciseResult, run_check
from lab.ranks.server import server
from lab.syllabus.syllabus import syllabus

# What a student's code may write on the lab's own channel, after FORGE.
FORGED = {
    "an error of the lab's": """
import lab.ranks.server as ours
said = {"type": "AssertionError", "message": "I know it", "todo": None}
forge({**said, "frames": [[ours.__file__, 1, "run", ""]]}, b"X")
""",
    "an error of a check's": """
import lab.checks.model.observe as ours
said = {"type": "NameError", "message": "I know it", "todo": None}
forge({**said, "frames": [[ours.__file__, 1, "run", ""]]}, b"X")
""",
    "an error without frames": (
        'forge({"type": "OSError", "message": "I know it", "frames": [], "todo": None}, b"X")'
    ),
    "an import error": 'forge({"type": "ImportError", "message": "I know it", "frames": [], "todo": None}, b"X")',
    "an error that is none": 'forge("I know it", b"X")',
    "an error of other types": 'forge({"type": {}, "message": [], "frames": 1, "todo": "x"}, b"X")',
    "an error in line infinity": (
        'forge({"type": "E", "message": "", "frames": [["x", float("inf"), "f", ""]], "todo": None}, b"X")'
    ),
    "an error in a line of 300 digits": (
        'forge({"type": "E", "message": "I know it", "frames": [["x", 10**300, "f", ""]], "todo": None}, b"X")'
    ),
    "an exit with infinity": (
        'forge({"exit_code": float("inf"), "type": "E", "message": "I know it", "frames": [], "todo": None}, b"E")'
    ),
    "an error without anything": """
import lab.ranks.wire as wire
for sock in [one for one in gc.get_objects() if isinstance(one, socket.socket)]:
    try: sock.sendall(wire.frame(b"X"))
    except OSError: pass
""",
    "code under a name of the lab's": """
import lab.ranks.wire as ours
exec(compile("def answer(numbers):\\n    raise RuntimeError('I know it')", ours.__file__, "exec"))
""",
    "code under a name of a check's": """
import lab.checks.model.observe as ours
exec(compile("def answer(numbers):\\n    raise AssertionError('I know it')", ours.__file__, "exec"))
""",
    "code under no name": """
exec(compile("def answer(numbers):\\n    raise ImportError('I know it')", "/nowhere.py", "exec"))
""",
}
# Messages in place of the ranks' result, written by hand: (JSON, what comes behind it).
MESSAGES = {
    "float8": ('{"sum":{"$":"tensor","dtype":"float8_e5m2","shape":[5]}}', b"12345"),
    "bits": ('{"sum":{"$":"tensor","dtype":"bits8","shape":[5]}}', b"12345"),
    "a deep list": ('{"sum":' + "[" * 900 + "]" * 900 + "}", b""),
    "a deeper list": ('{"sum":' + "[" * 100_000 + "]" * 100_000 + "}", b""),
    "an integer of 900 bits": ('{"sum":' + str(2**900) + "}", b""),
    "an integer of 5000 digits": ('{"sum":' + "1" * 5000 + "}", b""),
    "keys that are nan": ('{"$":"dict","v":[[NaN,1],[NaN,2],["sum",NaN]]}', b""),
    "two keys alike": ('{"sum":1,"sum":[]}', b""),
    "a key that cannot be one": ('{"$":"dict","v":[[{},1]]}', b""),
    "a tuple of text": ('{"$":"tuple","v":"sum"}', b""),
    "a tensor of no numbers": ('{"sum":{"$":"tensor","dtype":"float32","shape":[0,4611686018427387904,9]}}', b""),
    "a complex tensor": ('{"sum":{"$":"tensor","dtype":"complex64","shape":[5]}}', bytes(40)),
    "half a message": ('{"sum":', b""),
    "nothing": ("null", b""),
    "no JSON": ("I know it", b""),
    "what is left over": ('{"sum":1}', b"more"),
    "two million numbers": ("[" + "1," * 2_000_000 + "1]", b""),
}
SEND = """
import struct
def send(text, behind):
    message = struct.pack(">I", len(text)) + text.encode() + behind
    for sock in [one for one in gc.get_objects() if isinstance(one, socket.socket)]:
        try: sock.sendall(struct.pack(">cQ", b"R", len(message)) + message)
        except OSError: pass
"""


@pytest.fixture
def grader(tmp_path: Path) -> Grader:
    write(tmp_path / "perfect", {"data.py": PERFECT})
    return Grader(server(), tmp_path)


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_error_is_a_failed_check(grader: Grader, name: str) -> None:
    code = f"{FORGE}\n{FORGED[name]}\nif 'answer' not in globals():\n    def answer(numbers): return numbers\n"
    outcome = grader.outcome(write(grader.place / "attack", {"data.py": code}), LIMIT)
    assert isinstance(outcome, Failed), outcome
    assert outcome.diagnosis.name == UNUSABLE_REPORT, outcome.diagnosis.lines
    assert outcome.diagnosis.saw.startswith("The report could not be used: ")
    assert "I know it" not in " ".join(outcome.diagnosis.lines)


def naive(group: Group) -> None:
    """A judge that uses what it is told without looking."""
    for report in group.observe(Order(observers.answer, 2, {"numbers": [0, 0]}, timeout=LIMIT)):
        total = report["sum"]
        if not bool(abs(total.double() - 1).max() < 1) or sorted(report) != ["sum"] or total.sum() > 1:
            raise Diagnosis("wrong-sum", saw="", means="", look="")


@pytest.mark.parametrize("name", MESSAGES)
def test_a_judge_that_stumbles_over_a_report_has_found_a_wrong_one(grader: Grader, name: str) -> None:
    code = write(grader.place / "attack", {"data.py": f"{SEND}\nsend(*{MESSAGES[name]!r})\n"})
    result = run_check(Check("3.2", "x", naive), code, server=grader.server)
    assert isinstance(result.outcome, Failed), result.outcome
    assert result.outcome.diagnosis.name in (UNUSABLE_REPORT, "wrong-sum")
    assert "I know it" not in " ".join(result.outcome.diagnosis.lines)


def test_the_mark_is_none_and_somebody_has_to_look() -> None:
    wrong = CheckResult("x", Failed(unusable_report("x")), 0.1)
    result = ExerciseResult(syllabus()["3.2"], wrong.outcome, (wrong,), 0.1)
    record = SubmissionRecord("eve", "key", (mark(result, 2),))
    assert record.points == 0
    assert record.to_look == ["the report of 3.2 could not be used"]


def test_before_a_students_code_has_begun_a_failure_is_the_labs(grader: Grader) -> None:
    """With the same exception, told by the same ranks."""
    folder = write(grader.place / "code", {"data.py": ""})
    for observe, kind in ((observers.fails_early, LabError), (observers.fails_late, Failed)):
        check = Check("3.2", "x", lambda group, o=observe: group.observe(Order(o)))
        assert isinstance(run_check(check, folder, server=grader.server).outcome, kind)


# The machine's limits -----------------------------------------------------------------------------------------


def test_a_rank_that_never_came_to_the_students_code_is_named(grader: Grader) -> None:
    """Another one's code was running already: it may have been the reason, so it is not the lab's fault."""
    folder = write(grader.place / "code", {"data.py": ""})
    check = Check("3.2", "x", lambda group: group.observe(Order(observers.ends_early_on_one)))
    outcome = run_check(check, folder, server=grader.server).outcome
    assert isinstance(outcome, Failed)
    assert outcome.diagnosis.name == UNUSABLE_REPORT
    assert "rank 1 had ended before it came to your code" in outcome.diagnosis.saw


@pytest.mark.parametrize("error", [OSError(errno.EAGAIN, "x"), RuntimeError("can't start new thread")], ids=str)
def test_a_grader_without_processes_or_threads_is_the_labs_fault(grader: Grader, error: Exception) -> None:
    def judge(group: Group) -> None:
        group.observe(Order(observers.answer, 2, {"numbers": [0, 0]}))
        raise error

    folder = write(grader.place / "right", {"data.py": "def answer(numbers): return numbers"})
    outcome = run_check(Check("3.2", "x", judge), folder, server=grader.server).outcome
    assert isinstance(outcome, LabError)
