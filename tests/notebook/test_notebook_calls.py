"""What cells call: check, hint, progress, trace, in a kernel and outside of one."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from nbclient.exceptions import CellExecutionError
from notebook_runs import errors, run_cells, run_notebooks, shown

from lab.cli import main
from lab.grading.diagnosis import Blocked, Diagnosis, Failed, LabError, NotStarted, Passed
from lab.grading.suite import CheckResult, ExerciseResult
from lab.student.outcomes import store
from lab.syllabus.syllabus import syllabus

IMPORT = "from lab.notebook import check, figures, hint, progress, trace"
NOTEBOOKS = (
    *("0_start", "1_model", "2_distributed_setup", "3_data", "4_wrapping"),
    *("5_putting_it_together", "6_training_loop", "7_benchmarks"),
)
SILENT = {"LAB_GRADING": "1"}  # nothing is started
HOSTILE = '<script>alert("x")</script><img src=x onerror=alert(1)> \x1b[31mred'


@pytest.fixture
def package(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    folder = tmp_path / "my-lab"
    assert main(["start", str(folder)]) == 0
    capsys.readouterr()
    return folder


@pytest.fixture
def solved(package: Path, root: Path) -> Path:
    shutil.copytree(root / "solutions", package / "exercises", dirs_exist_ok=True)
    return package


# Whole notebooks ------------------------------------------------------------------------------------------


def test_on_the_stubs_all_notebooks_run_with_only_not_started_and_a_saved_edit_counts_at_once(package, root):
    solution = root / "solutions" / "distributed_utils.py"
    edit = f"import shutil; shutil.copy({str(solution)!r}, '../exercises')"
    more = [edit, 'check("2.3")', "progress()"]
    cells = run_notebooks(package / "notebooks", [f"{name}.ipynb" for name in NOTEBOOKS], more)
    assert errors(cells) == []
    *checks, after_the_edit = [cell for cell in cells if cell.source.startswith("check(")]
    assert len(checks) == len(syllabus().exercises)
    for cell in checks:
        assert "not started" in shown(cell), cell.source
    assert "passed" in shown(after_the_edit)
    assert "1 of 14 exercises passed, 4 of 100 points" in shown(cells[-1])
    assert "2.1  Who am I? Rank and world size     ? to check" in shown(cells[-1])


def test_who_passes_in_order_has_all_points_whatever_was_written_later(package, root):
    """3.3 changes what 3.2 uses, and 3.2 is checked again without being asked for."""
    from lab.student import outcomes

    solution, file = (root / "solutions" / "data.py").read_text(), package / "exercises" / "data.py"
    begin, end = solution.index("    ### BEGIN SOLUTION 3.3a"), solution.index("def get_dataloaders")
    stub = "    def __len__(self):\n        raise NotImplementedError('Exercise 3.3a is not done yet: it')\n\n\n"
    without = solution[: solution.rindex("    def __len__", 0, begin)] + stub + solution[end:]
    save = "open('../exercises/data.py', 'w').write({!r})"
    break_it = "open('../exercises/data.py', 'a').write('\\n\\ndef load_once(load, is_first): return load()\\n')"
    cells = run_cells(
        package / "notebooks",
        [
            *(IMPORT, save.format(without), 'check("3.1")', 'check("3.2")', "progress()"),
            *(save.format(solution), 'check("3.3")', "progress()"),
            *(f"{break_it}\nprogress()",),
        ],
    )
    assert errors(cells) == []
    said = [shown(cell) for cell in cells]
    assert "2 of 14 exercises passed, 16 of 100 points" in said[4]
    assert "3.2 had passed" not in said[6]
    assert "3 of 14 exercises passed, 24 of 100 points" in said[7]
    assert "2 of 14 exercises passed, 18 of 100 points" in said[8]
    assert "✗ failed" in said[8]
    assert outcomes.to_check_again(file.parent, syllabus()) == set()


def _all_pass(cells) -> None:
    assert errors(cells) == []
    checks = [cell for cell in cells if cell.source.startswith("check(")]
    assert checks
    for cell in checks:
        assert "✓ passed" in shown(cell), shown(cell)


def test_a_notebook_runs_on_the_solutions(solved):
    _all_pass(run_notebooks(solved / "notebooks", ["2_distributed_setup.ipynb"]))


@pytest.mark.slow
def test_all_notebooks_run_on_the_solutions(solved):
    cells = run_notebooks(solved / "notebooks", [f"{name}.ipynb" for name in NOTEBOOKS])
    _all_pass(cells)
    assert "14 of 14 exercises passed, 100 of 100 points" in shown(cells[-1])
    [traced] = [cell for cell in cells if cell.source.startswith("trace(")]
    assert "<svg" in traced.outputs[0]["data"]["text/html"]


# Grading ----------------------------------------------------------------------------------------------------


def plain(program: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **environ}
    return subprocess.run(
        [sys.executable, "-c", program], cwd=cwd, env=env, capture_output=True, text=True, timeout=120
    )


def test_while_grading_a_check_says_one_line_and_starts_nothing(package):
    program = (
        f"{IMPORT}\nimport sys, threading\ncheck('3.2')\n"
        "assert 'torch' not in sys.modules and threading.active_count() == 1\n"
        "from lab.ranks import server; assert not server._shared"
    )
    result = plain(program, package / "notebooks", LAB_GRADING="1")
    assert (result.stdout, result.stderr) == ("3.2: checked by the grader, outside of this notebook.\n", "")


def test_nbgrader_sees_a_check_that_has_not_passed_as_an_error_without_a_traceback(package):
    with pytest.raises(CellExecutionError) as caught:
        run_cells(package / "notebooks", [IMPORT, 'check("2.3")'], NBGRADER_EXECUTION="validate")
    assert caught.value.ename == "CheckFailed"
    assert caught.value.evalue == "2.3 not started"
    assert "Traceback" not in str(caught.value)


def test_what_is_misused_is_said_in_one_sentence(tmp_path, package):
    for call, folder, sentence in (
        ('check("9.9")', package, "there is no exercise 9.9; choose from 1.1"),
        ('hint("3")', package, "one exercise at a time: 3.1, 3.2, 3.3"),
        ('trace("3")', package, "3 is a section; trace one of its exercises"),
        ('check("1.1")', tmp_path, "no exercises here"),
        ("figures.rank_map(nodes=0)", package, "nodes=0: this figure takes a whole number from 1 to 4"),
    ):
        environ = SILENT if folder == package else {}
        program = f"{IMPORT}\ntry: {call}\nexcept Exception as error: print(error._render_traceback_())"
        result = plain(program, folder, **environ)
        assert sentence in result.stdout, result.stderr
        assert result.stdout.count("\n") == 1


def test_an_interrupted_check_says_so_without_a_traceback_and_stops_what_follows(package):
    program = (
        f"{IMPORT}\nimport os, signal, threading\nfrom lab.notebook import session\n"
        "session.warm = lambda: signal.raise_signal(signal.SIGINT)\n"
        "del os.environ['LAB_GRADING']\n"
        "try: check('3.2', '3.3')\n"
        "except KeyboardInterrupt as stopped: print(stopped._render_traceback_())"
    )
    result = plain(program, package / "notebooks", **SILENT)
    running, stopped, error = result.stdout.splitlines()
    assert running.startswith("3.2")
    assert stopped == "Stopped. Nothing was left running."
    assert error == "['interrupted']"


# Both layouts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("beside", [False, True])
def test_the_exercises_are_found_from_a_folder_of_notebooks_and_from_beside(package, beside):
    folder = package if beside else package / "notebooks"
    program = f"{IMPORT}\nfrom lab.notebook import session\nprint(session.code())"
    assert plain(program, folder, **SILENT).stdout.strip() == str((package / "exercises").resolve())


# Processes -----------------------------------------------------------------------------------------------------

NURSERY = """
from lab.ranks import server
while not server._shared: pass
print(server._shared[0]._nursery.pid, flush=True)
"""


def gone(pid: int, seconds: float = 60) -> bool:
    """Whether a process has ended, or does so within some seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/stat").exists():
                if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                    return True
            else:
                os.kill(pid, 0)
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.05)
    return False


def test_a_killed_kernel_leaves_no_process(package):
    program = f"import lab.notebook\n{NURSERY}import time; time.sleep(600)"
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=package / "notebooks", stdout=subprocess.PIPE, text=True
    ) as kernel:
        assert kernel.stdout
        pid = int(kernel.stdout.readline())
        kernel.send_signal(signal.SIGKILL)
    assert gone(pid)


def test_a_kernel_that_ends_while_it_warms_up_ends_and_leaves_no_process(package):
    result = plain(f"import lab.notebook\n{NURSERY}", package / "notebooks")
    assert gone(int(result.stdout))
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""


# Cards -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def cards(monkeypatch):
    """The functions that make cards, without starting anything."""
    monkeypatch.setenv("LAB_GRADING", "1")
    from lab.notebook import card

    return card


def result(outcome, outputs=()) -> ExerciseResult:
    check = CheckResult("every rank draws its own samples", outcome, 0.4, tuple(outputs))
    return ExerciseResult(syllabus()["3.2"], outcome, (check,), 0.4)


def test_a_card_escapes_whatever_a_student_has_written(cards, package):
    failed = Failed(Diagnosis("x", saw=HOSTILE, means=HOSTILE, look=f"data.py:1  {HOSTILE}"))
    card = cards.result_card(result(failed, [(0, HOSTILE)]), package / "exercises", None)
    assert "<script" not in card.html
    assert "<img" not in card.html
    assert "\x1b" not in card.html + card.text
    assert card.html.count("&lt;script&gt;") == 4


@pytest.mark.parametrize(
    ("outcome", "word"),
    [
        (Passed(), "✓ passed"),
        (Failed(Diagnosis("x", saw="saw it", means="means it", look="data.py:1")), "✗ failed"),
        (NotStarted("3.2"), "· not started"),
        (Blocked("3.1"), "○ blocked: 3.1"),
        (LabError("it broke", "Traceback: secret"), "! lab error"),
    ],
)
def test_a_card_says_its_outcome_in_words_and_keeps_details_folded(cards, package, outcome, word):
    card = cards.result_card(result(outcome, [(1, "hello")]), package / "exercises", None)
    assert f">{word}</span>" in card.html
    assert word in card.text
    assert "Traceback" not in card.text
    before_details = card.html.partition("<details>")[0]
    assert "hello" not in before_details
    assert "Traceback" not in before_details


def test_the_strip_tells_passed_failed_blocked_not_started_and_changed_apart(cards, solved):
    from lab.notebook.strip import states, strip_card

    code, of = solved / "exercises", syllabus()
    outcomes = {
        "1.1": Passed(),
        "2.1": Failed(Diagnosis("x", saw="", means="", look="")),
        "4.0": Blocked("2.1"),
        "6.1": Passed(),
    }
    store(code, [ExerciseResult(of[name], outcome, (), 0.1) for name, outcome in outcomes.items()])
    stub = 'raise NotImplementedError("Exercise 3.2 is not done yet: get_dataloaders() in data.py")'
    (code / "data.py").write_text(f"def get_dataloaders():\n    {stub}\n    # {stub.replace('3.2', '3.1')}\n")
    with open(code / "train.py", "a") as file:
        file.write("\n\ndef train_step(): pass\n")
    found = states(code, of)
    expected = {"1.1": "passed", "2.1": "failed", "4.0": "blocked", "3.2": "not started", "6.1": "to check"}
    assert {name: found[name] for name in expected} == expected
    assert found["3.1"] == "to check"
    card = strip_card(code)
    for sign in ("✓ passed", "✗ failed", "○ blocked", "· not started", "? to check"):
        assert sign in card.text
        assert f"{sign}</li>" in card.html
