"""From what a student's code does in the ranks to the outcome of an exercise."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest

from lab.grading import suite
from lab.grading.check import CHECKS, Check, Group, Order, check
from lab.grading.diagnosis import (
    UNUSABLE_REPORT,
    Blocked,
    CheckEnded,
    Diagnosis,
    Failed,
    LabError,
    NotStarted,
    Outcome,
    Passed,
)
from lab.grading.suite import ExerciseResult, Suite, run_exercise
from lab.ranks.rank import Rank
from lab.ranks.server import RankServerError
from lab.syllabus.syllabus import Exercise, Syllabus

EXERCISE = Exercise("3.2", "Data", "data", "answer", 5, 10, (), ("One.", "Two."))


# Observe halves, run in the ranks ---------------------------------------------------------------------------


def call_answer(rank: Rank) -> object:
    return rank.student("data").answer(rank.rank)


def use_answer(rank: Rank) -> int:
    return rank.student("data").answer(rank.rank) + 1


def mistake_of_the_lab(rank: Rank) -> object:
    rank.student("data")
    return undefined_name  # noqa: F821


# Helpers ----------------------------------------------------------------------------------------------------


def expects_42(observe: Callable[[Rank], object] = call_answer, **options: object) -> Check:
    def judge(group: Group) -> None:
        values = group.observe(Order(observe, **options))
        if values != [42] * len(values):
            raise Diagnosis("not-42", saw=f"the ranks said {values}", means="It is 42.", look="data.py")

    return Check("3.2", "the answer is 42", judge)


def run(tmp_path: Path, code: str, *checks: Check) -> ExerciseResult:
    (tmp_path / "data.py").write_text(dedent(code))
    return run_exercise(EXERCISE, tmp_path, checks=checks or [expects_42()])


def diagnosis(outcome: Outcome) -> Diagnosis:
    assert isinstance(outcome, Failed), outcome
    return outcome.diagnosis


# Outcomes ---------------------------------------------------------------------------------------------------


def test_a_right_answer_passes_and_gets_its_points(tmp_path: Path):
    result = run(tmp_path, "def answer(rank): print('thinking', rank); return 42")
    assert result.outcome == Passed()
    assert result.points == 5
    assert [c.title for c in result.checks] == ["the answer is 42"]
    assert [(rank, text.strip()) for rank, text in result.checks[0].outputs] == [
        (0, "thinking 0"),
        (1, "thinking 1"),
    ]


def test_a_wrong_answer_gets_the_judges_diagnosis_and_no_points(tmp_path: Path):
    result = run(tmp_path, "def answer(rank): return 41")
    assert diagnosis(result.outcome) == Diagnosis(
        "not-42", saw="the ranks said [41, 41]", means="It is 42.", look="data.py"
    )
    assert result.points == 0


@pytest.mark.parametrize("region", ["3.2", "3.2b"])
def test_the_stubs_error_means_not_started(tmp_path: Path, region: str):
    result = run(
        tmp_path, f"def answer(rank): raise NotImplementedError('Exercise {region} is not done yet: answer()')"
    )
    assert result.outcome == NotStarted(region)


def test_the_first_stub_in_the_file_is_the_one_to_begin_with(tmp_path: Path):
    """What runs first may be the second TODO: in 9.1 the loop comes before the exchange() that it calls."""
    result = run(
        tmp_path,
        """
        def exchange():
            raise NotImplementedError("Exercise 3.2a is not done yet: exchange()")

        def answer(rank):
            raise NotImplementedError(
                "Exercise 3.2b is not done yet: answer()"
            )
        """,
    )
    assert result.outcome == NotStarted("3.2a")


def test_the_stub_of_another_exercise_means_blocked(tmp_path: Path):
    result = run(tmp_path, "def answer(rank): raise NotImplementedError('Exercise 3.1a is not done yet: x()')")
    assert result.outcome == Blocked("3.1")


def test_an_exercise_that_there_is_not_is_an_error_like_others(tmp_path: Path):
    result = run(tmp_path, "def answer(rank): raise NotImplementedError('Exercise X is not done yet: answer()')")
    assert diagnosis(result.outcome).name == "raised"


def test_not_started_on_one_rank_wins_over_what_the_others_did(tmp_path: Path):
    result = run(
        tmp_path,
        """
        def answer(rank):
            if rank == 1:
                raise NotImplementedError('Exercise 3.2 is not done yet: answer()')
            raise ValueError("no")
        """,
    )
    assert result.outcome == NotStarted("3.2")


def test_an_exception_is_shown_with_rank_file_line_and_source(tmp_path: Path):
    result = run(tmp_path, "def answer(rank):\n    return 1 // (1 - rank)\n")
    said = diagnosis(result.outcome)
    assert said.name == "raised"
    assert said.saw.startswith("rank 1 raised ZeroDivisionError: ")
    assert said.means == "answer() did not come to its end."
    assert said.look == "data.py:2  return 1 // (1 - rank)"


def test_a_rank_that_loses_its_peer_is_not_the_headline(tmp_path: Path):
    result = run(
        tmp_path,
        """
        import torch, torch.distributed as dist
        def answer(rank):
            if rank == 1:
                raise KeyError("cause")
            dist.all_reduce(torch.ones(1))
        """,
    )
    assert diagnosis(result.outcome).saw == "rank 1 raised KeyError: 'cause'"


def test_a_missing_return_is_an_unusable_result(tmp_path: Path):
    said = diagnosis(run(tmp_path, "def answer(rank): pass", expects_42(use_answer)).outcome)
    assert said.name == "unusable-result"
    assert "NoneType" in said.saw


def test_a_missing_function_is_named(tmp_path: Path):
    said = diagnosis(run(tmp_path, "def my_answer(rank): return 42").outcome)
    assert (said.name, said.saw) == ("no-function", "data.py has no answer.")


def test_a_module_that_fails_to_import_is_named_with_its_line(tmp_path: Path):
    said = diagnosis(run(tmp_path, "import os\nimport torch_lightning\n").outcome)
    assert said.name == "import-failed"
    assert said.saw == ("data.py cannot be imported: ModuleNotFoundError: No module named 'torch_lightning'")
    assert said.look == "data.py:2  import torch_lightning"


def test_a_broken_or_missing_sibling_is_named(tmp_path: Path):
    said = diagnosis(run(tmp_path, "import model\ndef answer(rank): return 42").outcome)
    assert said.saw.startswith("data.py cannot be imported: ModuleNotFoundError: No module named 'model'")
    (tmp_path / "model.py").write_text("def f(:\n")
    assert run(tmp_path, "import model\ndef answer(rank): return 42").outcome == Blocked("1.1")


def must_not_run(group: Group) -> None:
    raise AssertionError("no rank is needed to see this")


@pytest.mark.parametrize(
    ("source", "name", "saw"),
    [
        (b"def answer(rank)\n    return 42\n", "syntax-error", "Python cannot read data.py:1: expected ':'."),
        (b"x = '\xff'\n", "syntax-error", "Python cannot read data.py"),
        (b"x = 1\0\n", "syntax-error", "Python cannot read data.py"),
        ("x = 'é'\n".encode("utf-16"), "syntax-error", "Python cannot read data.py: it was saved in UTF-16"),
        (b"x\0=\0 \0001\0", "syntax-error", "Python cannot read data.py: it was saved in UTF-16"),
        (b"(" * 5000, "syntax-error", "Python cannot read data.py"),
        (b"#" * 1_500_000, "file-too-large", "data.py is 1.5 MB large."),
        (None, "no-file", "data.py is not there."),
    ],
)
def test_a_file_that_python_cannot_read_needs_no_ranks(tmp_path: Path, source: bytes | None, name: str, saw: str):
    if source is not None:
        (tmp_path / "data.py").write_bytes(source)
    result = run_exercise(EXERCISE, tmp_path, checks=[Check("3.2", "never", must_not_run)])
    said = diagnosis(result.outcome)
    assert said.name == name
    assert said.saw.startswith(saw)


@pytest.mark.parametrize("call", ["breakpoint()", "__import__('pdb').set_trace()"])
def test_a_debugger_that_was_left_in_is_named(tmp_path: Path, call: str):
    said = diagnosis(run(tmp_path, f"def answer(rank):\n    {call}\n    return 42").outcome)
    assert said.name == "raised"
    assert f"{call.split('.')[-1].split('(')[0]}() was left in the code, and nobody can type" in said.saw
    assert said.look.startswith(("data.py:2", "data.py:3"))  # pdb stops at the next line


def test_a_folder_in_place_of_a_file(tmp_path: Path):
    (tmp_path / "data.py").mkdir()
    result = run_exercise(EXERCISE, tmp_path, checks=[Check("3.2", "never", must_not_run)])
    assert diagnosis(result.outcome).saw == "data.py is no ordinary file."


@pytest.mark.parametrize(
    ("code", "name", "saw"),
    [
        ("sys.exit(3)", "exited", "rank 0 ended with exit code 3 in the middle of the check."),
        ("os._exit(0)", "exited", "rank 0 ended with exit code 0 in the middle of the check."),
        ("os.kill(os.getpid(), 9)", "killed", "rank 0 was killed by SIGKILL."),
    ],
)
def test_a_rank_that_ends_by_itself(tmp_path: Path, code: str, name: str, saw: str):
    result = run(tmp_path, f"import os, sys\ndef answer(rank):\n    if rank == 0: {code}\n    return 42\n")
    said = diagnosis(result.outcome)
    assert (said.name, said.saw) == (name, saw)


def test_a_hang_names_the_ranks_and_their_lines_and_ends_the_exercise(tmp_path: Path):
    result = run(
        tmp_path,
        """
        import torch.distributed as dist
        def answer(rank):
            if rank == 0:
                while True: pass
            return 42
        """,
        expects_42(timeout=4.0),
        Check("3.2", "never", must_not_run),
    )
    said = diagnosis(result.outcome)
    assert said.name == "hang"
    assert said.saw == "after 4 s rank 0 had not finished, while rank 1 had."
    assert said.look == "rank 0 was at data.py:5  while True: pass"
    assert len(result.checks) == 1


def test_all_ranks_in_an_endless_loop(tmp_path: Path):
    result = run(
        tmp_path, "def answer(rank):\n    while True:\n        pass\n", expects_42(timeout=4.0, world_size=3)
    )
    assert diagnosis(result.outcome).saw == "after 4 s ranks 0, 1 and 2 had not finished."


# The lab's own faults ---------------------------------------------------------------------------------------


def test_a_mistake_in_an_observe_function_may_be_forged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lab.grading.explain.PACKAGE", Path(__file__).parent.parent)
    monkeypatch.setattr("lab.grading.explain.CHECKS", Path(__file__).parent)
    outcome = run(tmp_path, "def answer(rank): return 42", expects_42(mistake_of_the_lab)).outcome
    said = diagnosis(outcome)
    assert said.name == UNUSABLE_REPORT
    assert "undefined_name" in said.details
    assert "undefined_name" not in " ".join(said.lines)


def test_a_mistake_in_a_judge_is_the_labs(tmp_path: Path):
    def judge(group: Group) -> None:
        raise ZeroDivisionError("oops")

    outcome = run(tmp_path, "", Check("3.2", "broken", judge)).outcome
    assert isinstance(outcome, LabError)
    assert outcome.text == "the check judge failed itself: ZeroDivisionError: oops"
    assert "test_suite.py" in outcome.details


def test_ranks_that_cannot_be_started_are_the_labs_fault(tmp_path: Path):
    def judge(group: Group) -> None:
        raise RankServerError("no rank has started within 300 s")

    assert run(tmp_path, "", Check("3.2", "x", judge)).outcome == LabError("no rank has started within 300 s")


def test_a_check_module_that_cannot_be_imported_is_the_labs_fault(tmp_path: Path, monkeypatch):
    (tmp_path / "data.py").write_text("")

    def fail(exercise: Exercise) -> None:
        raise ImportError("broken")

    monkeypatch.setattr(suite, "checks_of", fail)
    outcome = run_exercise(EXERCISE, tmp_path).outcome
    assert outcome == LabError("lab/checks/data/checks.py cannot be imported: broken")
    assert run_exercise(EXERCISE, tmp_path, checks=[]).outcome == LabError(
        "lab/checks/data/checks.py has no check for 3.2"
    )


# Several checks, several exercises --------------------------------------------------------------------------


def ends_with(outcome: Outcome) -> Check:
    def judge(group: Group) -> None:
        if isinstance(outcome, Failed):
            raise outcome.diagnosis
        if not isinstance(outcome, Passed):
            raise CheckEnded(outcome)

    return Check("3.2", outcome.word, judge)


WRONG = Failed(Diagnosis("wrong", saw="a", means="b", look="c"))
WRONG_TOO = Failed(Diagnosis("wrong-too", saw="a", means="b", look="c"))


@pytest.mark.parametrize(
    ("outcomes", "headline", "run_checks"),
    [
        ([Passed(), Passed()], Passed(), 2),
        ([Passed(), WRONG, WRONG_TOO], WRONG, 3),
        ([WRONG, NotStarted("3.2b")], WRONG, 2),
        ([NotStarted("3.2a"), WRONG], NotStarted("3.2a"), 1),
        ([Passed(), Blocked("3.1"), WRONG], Blocked("3.1"), 2),
        ([LabError("x"), WRONG], LabError("x"), 1),
    ],
)
def test_the_first_check_that_does_not_pass_is_the_headline(
    tmp_path: Path, outcomes: list[Outcome], headline: Outcome, run_checks: int
):
    result = run(tmp_path, "", *map(ends_with, outcomes))
    assert result.outcome == headline
    assert len(result.checks) == run_checks


def test_a_check_that_builds_on_an_earlier_one_is_left_out_after_its_failure(tmp_path: Path):
    later = replace(ends_with(WRONG_TOO), after_passed=True)
    assert [one.outcome for one in run(tmp_path, "", ends_with(WRONG), later).checks] == [WRONG]
    assert [one.outcome for one in run(tmp_path, "", ends_with(Passed()), later).checks] == [Passed(), WRONG_TOO]


def ladder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, outcomes: dict[str, Outcome]) -> dict[str, Outcome]:
    """Outcomes of 2.1 <- 2.2 <- 6.3 when their own checks end as given."""
    builds_on = {"2.1": (), "2.2": ("2.1",), "6.3": ("2.2",)}
    exercises = tuple(
        Exercise(name, name, "data", "f", 1, 1, builds_on[name], ("One.", "Two.")) for name in outcomes
    )
    (tmp_path / "data.py").write_text("")
    monkeypatch.setattr(suite, "checks_of", lambda exercise: [ends_with(outcomes[exercise.id])])
    runner = Suite(tmp_path, of=Syllabus(exercises))
    return {exercise.id: runner.run(exercise).outcome for exercise in reversed(exercises)}


def test_a_failure_on_top_of_a_wrong_answer_is_blocked_by_it(tmp_path, monkeypatch):
    found = ladder(monkeypatch, tmp_path, {"2.1": WRONG, "2.2": WRONG_TOO, "6.3": WRONG_TOO})
    assert found == {"2.1": WRONG, "2.2": Blocked("2.1"), "6.3": Blocked("2.1")}


def test_a_right_answer_on_top_of_a_wrong_one_passes(tmp_path, monkeypatch):
    found = ladder(monkeypatch, tmp_path, {"2.1": WRONG, "2.2": Passed(), "6.3": WRONG_TOO})
    assert found == {"2.1": WRONG, "2.2": Passed(), "6.3": WRONG_TOO}


def test_a_lab_error_below_blames_nobody(tmp_path, monkeypatch):
    found = ladder(monkeypatch, tmp_path, {"2.1": LabError("x"), "2.2": WRONG})
    assert found["2.2"] == WRONG


def test_check_registers_in_file_order_and_replaces_on_reload(monkeypatch):
    monkeypatch.delitem(CHECKS, "9.9", raising=False)

    @check("9.9", "first")
    def one(group: Group) -> None: ...

    @check("9.9", "second")
    def two(group: Group) -> None: ...

    check("9.9", "second again")(two)
    assert [(c.title, c.name) for c in CHECKS.pop("9.9")] == [("first", "one"), ("second again", "two")]


# An error in the guarded lines must come out, or change nothing ---------------------------------------------

GUARDED = """
    from contextlib import suppress

    def answer(rank):
        found = 0
        {guard}
            found = 42
        {handler}
        return found
"""
GUARDS = {  # the guard, the handler -> whether it is refused
    ("try:", "except Exception:\n            print('never mind')"): True,
    ("try:", "except (KeyError, RuntimeError):\n            pass"): True,
    ("try:", "except:\n            pass"): True,
    ("with suppress(Exception):", ""): True,
    ("try:", "except Exception as error:\n            raise ValueError('no answer') from error"): False,
    ("try:", "except Exception:\n            raise SystemExit(1)"): False,
    ("try:", "except KeyError:\n            pass"): False,  # asked for by name
    ("try:", "except Exception:\n            found = 42"): False,  # another way to the same
    ("try:", "finally:\n            print('done')"): False,
}


@pytest.mark.parametrize(("guard", "handler"), GUARDS)
def test_an_error_that_is_kept_is_refused_where_it_changes_the_answer(tmp_path: Path, guard: str, handler: str):
    code = dedent(GUARDED).format(guard=guard, handler=dedent(handler).replace("\n        ", "\n    "))
    result = run(tmp_path, code, expects_42())
    if not GUARDS[guard, handler]:
        assert isinstance(result.outcome, Passed)
        return
    assert isinstance(result.outcome, Failed)
    assert result.outcome.diagnosis.name == "error-swallowed"
    line = next(i for i, text in enumerate(code.splitlines(), 1) if text.strip().startswith(("except", "with")))
    assert result.outcome.diagnosis.look.startswith(f"data.py:{line}  ")
    assert "the ranks said [0, 0]" in result.outcome.diagnosis.saw
