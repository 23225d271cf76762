"""The wording and the look of what a student reads, to the letter."""

import io
import re
from pathlib import Path

import pytest

from lab.grading.diagnosis import Blocked, Diagnosis, Failed, LabError, NotStarted, Passed
from lab.grading.feedback import Feedback
from lab.grading.suite import CheckResult, ExerciseResult
from lab.syllabus.syllabus import syllabus

DIAGNOSIS = Diagnosis(
    "no-distributed-sampler",
    saw="rank 0 and rank 1 both drew samples 0, 3, 7, 12 and 240 others in epoch 1.",
    means="Every rank trains on the same data: two ranks do the work of one.",
    look="data.py:71  train_loader = DataLoader(train_set, batch_size=batch_size, shuffle=True)",
)


class Page(io.TextIOWrapper):
    """A stream that remembers what was written; a terminal if so wished."""

    def __init__(self, encoding: str = "utf-8", terminal: bool = False) -> None:
        self.bytes = io.BytesIO()
        self.terminal = terminal
        super().__init__(self.bytes, encoding=encoding, write_through=True)

    def isatty(self) -> bool:
        return self.terminal

    @property
    def text(self) -> str:
        return self.bytes.getvalue().decode(self.encoding)


def feedback(page: Page, width: int = 60) -> Feedback:
    return Feedback(page, Path("/home/ada/my-lab/exercises"), width=width, cwd=Path("/home/ada/my-lab"))


def result(name: str, outcome, *checks: CheckResult, seconds: float = 0.3) -> ExerciseResult:
    return ExerciseResult(syllabus()[name], outcome, checks, seconds)


LADDER = [
    result("1.1", Passed(), CheckResult("any batch size", Passed(), 0.2)),
    result("2.1", NotStarted("2.1"), CheckResult("torchrun's variables", NotStarted("2.1"), 0.1)),
    result("2.2", Blocked("2.1"), CheckResult("joins", Blocked("2.1"), 0.1)),
    result(
        "3.2",
        Failed(DIAGNOSIS),
        CheckResult("global batch is divided among the ranks", Passed(), 0.2),
        CheckResult("every rank draws its own samples, in a new order each epoch", Failed(DIAGNOSIS), 0.4),
        seconds=12.34,
    ),
    result("4.1", LabError("the process that starts the ranks ended with code 1", "Traceback ..."), seconds=0.0),
]


def test_the_ladder_at_60_columns():
    page = Page()
    say = feedback(page)
    for one in LADDER:
        say.running(one.exercise)
        say.result(one)
    say.failures(LADDER)
    say.summary(LADDER, syllabus())
    assert (
        page.text
        == """\
 1.1  A network for any batch size     ✓ passed        0.3 s
 2.1  Who am I? Rank and world size    · not started   0.3 s
 2.2  Join the process group           ○ blocked: 2.1  0.3 s
 3.2  Every rank its own samples       ✗ failed       12.3 s
 4.1  Let DDP do it                    ! lab error     0.0 s

3.2  Every rank its own samples
  ✗ failed: every rank draws its own samples, in a new order
    each epoch
    saw    rank 0 and rank 1 both drew samples 0, 3, 7, 12
           and 240 others in epoch 1.
    means  Every rank trains on the same data: two ranks do
           the work of one.
    look   data.py:71
           train_loader = DataLoader(train_set,
           batch_size=batch_size, shuffle=True)

4.1  Let DDP do it
  ! lab error: the lab's fault, not yours; it costs you no
    points
    the process that starts the ranks ended with code 1
    lab doctor looks whether it is this machine

1 of 5 passed, 6 of 100 points.
Next: 2.1 Who am I? Rank and world size
      open exercises/distributed_utils.py
      look for TODO 2.1
      then type: lab check 2.1
      stuck? lab hint 2.1
"""
    )


@pytest.mark.parametrize("width", [40, 60, 100])
def test_nothing_is_wider_than_the_terminal(width: int):
    page = Page()
    say = feedback(page, width)
    for one in LADDER:
        say.result(one)
        say.details(one, verbose=True)
    say.summary(LADDER, syllabus())
    assert max(map(len, page.text.splitlines())) <= width


def page_of(one: ExerciseResult, **options) -> str:
    page = Page()
    feedback(page).details(one, **options)
    return page.text


def test_details_of_each_check_and_what_the_ranks_printed():
    checks = [
        CheckResult("the batch is divided", Passed(), 0.1, ((0, "hello\nagain\n"), (1, "hi\n"))),
        CheckResult("own samples", Failed(DIAGNOSIS), 0.1),
        CheckResult("a new order", Failed(DIAGNOSIS), 0.1),
    ]
    one = result("3.2", Failed(DIAGNOSIS), *checks)
    lines = """\
    saw    rank 0 and rank 1 both drew samples 0, 3, 7, 12
           and 240 others in epoch 1.
    means  Every rank trains on the same data: two ranks do
           the work of one.
    look   data.py:71
           train_loader = DataLoader(train_set,
           batch_size=batch_size, shuffle=True)
"""
    assert page_of(one) == (
        "  ✓ the batch is divided\n"
        f"  ✗ failed: own samples\n{lines}"
        "  ✗ failed: a new order\n    for the same reason\n"
    )  # fmt: skip
    printed = "    rank 0 printed:\n    | hello\n    | again\n    rank 1 printed:\n    | hi\n"
    assert page_of(one, verbose=True).startswith(f"  ✓ the batch is divided\n{printed}  ✗")
    assert page_of(one, every_check=False) == f"  ✗ failed: own samples\n{lines}"


def test_details_of_what_is_not_started_blocked_or_the_labs_fault():
    assert page_of(result("3.2", NotStarted("3.2"), CheckResult("x", NotStarted("3.2"), 0.1))) == (
        "  · not started: see TODO 3.2 in exercises/data.py\n"
    )
    assert page_of(result("6.3", Blocked("6.1"), CheckResult("x", Blocked("6.1"), 0.1))) == (
        "  ○ blocked: it builds on 6.1, so get that one to pass first\n"
    )
    broken = result(
        "4.1",
        LabError("no ranks", "Traceback\n  line 1"),
        CheckResult("x", LabError("no ranks", "Traceback\n  line 1"), 0.1),
    )
    said = (
        "  ! lab error: the lab's fault, not yours; it costs you no\n    points\n    no ranks\n"
        "    lab doctor looks whether it is this machine\n"
    )
    assert page_of(broken) == said
    assert page_of(broken, verbose=True) == f"{said}    Traceback\n      line 1\n"


def test_a_file_that_cannot_be_read_has_no_checks_but_three_lines():
    diagnosis = Diagnosis(
        "no-file", saw="data.py is not there.", means="The check imports it.", look="lab reset --file data.py"
    )
    assert page_of(result("3.2", Failed(diagnosis))) == (
        "  ✗ failed\n"
        "    saw    data.py is not there.\n"
        "    means  The check imports it.\n"
        "    look   lab reset --file data.py\n"
    )


def test_one_reason_for_several_exercises_is_told_once():
    broken = Failed(
        Diagnosis("syntax-error", saw="Python cannot read data.py:3: invalid syntax.", means="b", look="c")
    )
    page = Page()
    feedback(page).failures([result("3.1", broken), result("3.2", broken)])
    assert (
        page.text
        == """\

3.1  Download once
  ✗ failed
    saw    Python cannot read data.py:3: invalid syntax.
    means  b
    look   c

3.2  Every rank its own samples
  ✗ failed, for the same reason as 3.1
"""
    )


def test_what_a_student_prints_is_bounded_and_harmless():
    noise = CheckResult("x", Passed(), 0.1, ((0, "\x1b[2J\x07" + "a line\n" * 5000),))
    text = page_of(result("3.2", Passed(), noise), verbose=True)
    assert text.count("a line") == 20
    assert "(only the end is shown)" in text
    escape = Diagnosis("x", saw="rank 0 raised \x1b[31mred\x1b[0m\nand more", means="b", look="c")
    text = page_of(result("3.2", Failed(escape), CheckResult("x", Failed(escape), 0.1)), verbose=True)
    assert "\x1b" not in text
    assert "rank 0 raised �[31mred�[0m and more" in text


def test_all_passed():
    page = Page()
    feedback(page).summary([result(e.id, Passed()) for e in syllabus().exercises], syllabus())
    assert page.text == (
        "\nAll 14 exercises passed: 100 of 100 points.\nNext: train with it: ./run.sh --strategy ddp --epochs 3\n"
    )


def test_after_a_failure_the_next_step_is_to_repair_it():
    page = Page()
    feedback(page).next_step(LADDER[2:])
    assert page.text == (
        "Next: 3.2 Every rank its own samples\n"
        "      open exercises/data.py\n"
        "      then type: lab check 3.2\n"
        "      stuck? lab hint 3.2\n"
    )


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TERM", "xterm")


def test_colour_only_on_a_terminal_and_never_with_no_color(monkeypatch: pytest.MonkeyPatch, terminal):
    monkeypatch.delenv("NO_COLOR", raising=False)
    pages = []
    for terminal, no_color in ((True, False), (True, True), (False, False)):
        if no_color:
            monkeypatch.setenv("NO_COLOR", "1")
        else:
            monkeypatch.delenv("NO_COLOR", raising=False)
        page = Page(terminal=terminal)
        feedback(page).result(LADDER[0])
        pages.append(page.text)
    assert pages[0] == (" 1.1  A network for any batch size     \x1b[32m✓ passed      \x1b[0m  0.3 s\n")
    assert pages[1] == " 1.1  A network for any batch size     ✓ passed        0.3 s\n"
    assert pages[2] == " 1.1  A network for any batch size     ✓ passed        0.3 s\n"


def test_what_is_running_is_shown_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch, terminal):
    page = Page(terminal=True)
    feedback(page).running(LADDER[0].exercise)
    assert page.text == "\r 1.1  A network for any batch size     running…"
    said = feedback(page)
    said.running(LADDER[0].exercise)
    said.result(LADDER[0])
    shown = page.text.rpartition("running…")[2]
    assert re.fullmatch(r"\r +\r 1\.1  A network for any batch size     \S+✓ passed      \S+  0\.3 s\n", shown)
    page = Page()
    feedback(page).running(LADDER[0].exercise)
    assert page.text == ""
    monkeypatch.setenv("TERM", "dumb")
    page = Page(terminal=True)
    feedback(page).running(LADDER[0].exercise)
    feedback(page).result(LADDER[0])
    assert page.text == " 1.1  A network for any batch size     ✓ passed        0.3 s\n"


def test_a_terminal_that_knows_ascii_only():
    page = Page(encoding="ascii")
    say = feedback(page, 55)
    for one in LADDER:
        say.result(one)
    assert (
        page.text
        == """\
 1.1  A network for any batch s.  + passed        0.3 s
 2.1  Who am I? Rank and world.   . not started   0.3 s
 2.2  Join the process group      - blocked: 2.1  0.3 s
 3.2  Every rank its own samples  x failed       12.3 s
 4.1  Let DDP do it               ! lab error     0.0 s
"""
    )


def test_a_file_far_away_is_named_in_full():
    page = Page()
    Feedback(page, Path("/srv/class/ada"), width=100, cwd=Path("/home/ada")).next_step(LADDER[3:])
    assert "open /srv/class/ada/data.py" in page.text
