"""In a real browser: a student submits from JupyterLab, and an instructor marks an answer in the formgrader.

Whatever is asked from the internet gets no reply at all, which is worse than a refusal: nothing may wait for it.
"""

import json
import re
import shutil
import sys
from pathlib import Path

import class_kinds
import pytest
from browser import PATIENCE, config_folder, jupyterlab, keep, page, server
from nbgrader.api import Gradebook
from nbgrader_chain import Course
from playwright.sync_api import FrameLocator, Page, Route, expect

from lab.cli import main

expect.set_options(timeout=PATIENCE)
ANSWER = (
    "The batch *differs*: $B$ images, and <fewer> at the end. [Press](javascript:alert(1)) ![](http://a.b/c.png)"
)


def cut_off(on: Page) -> list[str]:
    """Let no address outside of this machine answer; returns those that were asked, now and later."""
    asked: list[str] = []

    def hold(route: Route) -> None:
        asked.append(route.request.url)

    on.route(re.compile(r"^https?://(?!127\.0\.0\.1[:/])"), hold)
    return asked


def choose(on: Page, entry: str) -> None:
    """An entry of nbgrader's menu."""
    on.locator(".lm-MenuBar-item", has_text="Nbgrader").click()
    on.get_by_role("menuitem", name=entry, exact=True).click()


def submit(home: Path, exchange: Path) -> None:
    """As a student: open the fetched assignment, and press Submit in the Assignment List."""
    settings = config_folder(home / "lab")
    settings.mkdir()
    (settings / "nbgrader_config.py").write_text(
        f'c.Exchange.root = "{exchange}"\n'
        f'c.Exchange.cache = "{settings / "cache"}"\n'
        'c.CourseDirectory.course_id = "scaling-lab"\n'
    )
    with jupyterlab(home / "lab") as address, page() as on:
        asked = cut_off(on)
        on.goto(f"{address}/?token=letmein")
        choose(on, "Assignment List")
        fetched = on.locator("#fetched_assignments_list")
        expect(fetched).to_contain_text("lab")
        expect(on.locator("#released_assignments_list")).not_to_contain_text("Fetch")  # it would go into lab/lab
        fetched.get_by_role("button", name="Submit").click()
        expect(on.locator("#submitted_assignments_list")).to_contain_text("lab")
        keep(on, "student-submitted")
        assert asked == []


def formgrader(on: Page, address: str) -> FrameLocator:
    """Open it by JupyterLab's menu."""
    on.goto(f"{address}/?token=letmein")
    choose(on, "Formgrader")
    return on.frame_locator("iframe")


def mark(course: Path) -> None:
    """As an instructor: see the submission, find the answer to mark, and give it 1.5 points and a comment."""
    settings = config_folder(course) / "labconfig"
    settings.mkdir(parents=True)
    no_news = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}
    (settings / "page_config.json").write_text(json.dumps(no_news))
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ServerApp.port=0"]
    with server(command, course) as address, page() as on:
        asked = cut_off(on)
        inside = formgrader(on, address)
        row = inside.locator("tr", has=inside.get_by_role("link", name="lab", exact=True))
        expect(row.locator(".num-submissions")).to_have_text("1")
        keep(on, "formgrader-assignments")

        inside.get_by_role("link", name="Manual Grading").click()
        inside.get_by_role("link", name="lab", exact=True).click()
        ticked = inside.locator("tr", has=inside.locator(".glyphicon-ok"))
        expect(ticked).to_have_count(1)
        expect(ticked).to_contain_text("1_model")
        keep(on, "formgrader-notebooks")
        ticked.get_by_role("link").click()
        inside.get_by_role("link", name="Submission #1").click()

        cell = inside.locator(".nbgrader_cell", has_text="Student's answer")
        expect(cell).to_contain_text("The batch differs: $B$ images, and <\u200bfewer> at the end.")
        expect(cell).to_contain_text("Press (a picture that is not shown:")
        expect(cell.locator("a[href], img")).to_have_count(0)
        loaded = "() => window.formgrader?.grades?.loaded && formgrader.comments?.loaded"
        points = cell.locator("input.score")  # what is typed before nbgrader's script has read the grades is lost
        points.element_handle().owner_frame().wait_for_function(loaded)
        for box, text, path in ((points, "1.5", "grade"), (cell.locator("textarea"), "Which end?", "comment")):
            box.fill(text)
            with on.expect_response(lambda reply, path=path: f"/api/{path}/" in reply.url and reply.ok):
                box.blur()
        points.scroll_into_view_if_needed()
        keep(on, "formgrader-marked")

        inside.get_by_role("link", name="lab", exact=True).click()
        expect(inside.locator("tr", has_text="1_model")).to_contain_text("1.5 / 2")
        expect(ticked).to_have_count(0)
        assert {url.partition("?")[0].rpartition("/mathjax/")[1] for url in asked} == {"/mathjax/"}


@pytest.mark.timeout(600)
def test_a_student_submits_and_an_instructor_marks_the_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    course = Course(tmp_path / "course")
    course.build_and_release()
    home = tmp_path / "homes" / "ada"
    shutil.copytree(course.folder / "release" / "lab", home / "lab")  # as fetching does
    class_kinds.say(home / "lab", "1_model.ipynb", "answer-why-shape", ANSWER)
    submit(home, course.folder / "exchange")
    course.nbgrader("collect", "lab", "--update")
    [submission] = (course.folder / "submitted").iterdir()
    assert main(["grade", str(submission.parent)]) == 0
    mark(course.folder)
    course.nbgrader("autograde", "lab", "--force")  # the answer is the same: it stays marked
    with Gradebook(f"sqlite:///{course.folder / 'gradebook.db'}") as gradebook:
        where = ("1_model", "lab", submission.name)
        grade = gradebook.find_grade("answer-why-shape", *where)
        assert (grade.manual_score, grade.needs_manual_grade) == (1.5, False)
        assert gradebook.find_comment("answer-why-shape", *where).comment == "Which end?"
    course.nbgrader("generate_feedback", "lab", "--force")
    feedback = (course.folder / "feedback" / submission.name / "lab" / "1_model.html").read_text()
    assert "Which end?" in feedback
    assert "1.5" in feedback
