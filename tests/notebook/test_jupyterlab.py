"""What a student does, in a real browser: open JupyterLab, edit a file, save it, and check it red, then green."""

import re
from pathlib import Path

import pytest
from browser import PATIENCE, jupyterlab, keep, page
from playwright.sync_api import Page, expect

from lab.cli import main

expect.set_options(timeout=PATIENCE)


def run_cell(on: Page, source: str) -> None:
    """Click into the code cell that begins with `source`, press Shift+Enter, and wait until it has run."""
    expect(on.locator("#jp-main-statusbar")).to_contain_text("Python 3 | Idle")  # a kernel is there
    cell = on.locator(".jp-NotebookPanel:visible .jp-CodeCell", has_text=source)
    prompt = cell.locator(".jp-InputPrompt")
    before = prompt.inner_text()
    cell.locator(".cm-content").first.click()
    on.keyboard.press("Shift+Enter")
    expect(prompt).not_to_have_text(before)
    expect(prompt).to_have_text(re.compile(r"\[\d+\]:"))


def write_file(on: Page, text: str) -> None:
    """Replace the text in the file editor, and save it."""
    on.locator(".jp-FileEditor:visible .cm-content").click()
    on.keyboard.press("Control+a")
    on.keyboard.insert_text(text)
    with on.expect_response(lambda response: "/api/contents/exercises" in response.url and response.ok):
        on.keyboard.press("Control+s")


@pytest.mark.timeout(600)
def test_a_student_opens_the_lab_edits_a_file_and_checks_it_red_then_green(tmp_path: Path, root: Path):
    right = (root / "solutions" / "model.py").read_text()
    wrong = right.replace("x.shape[1:] == (3, 32, 32)", "x.shape == (4, 3, 32, 32)")
    assert main(["start", str(tmp_path / "my-lab")]) == 0
    with jupyterlab(tmp_path / "my-lab") as address, page() as on:
        elsewhere: list[str] = []
        on.on("request", lambda request: elsewhere.append(request.url))
        on.goto(f"{address}/?token=letmein")
        expect(on.locator(".jp-NotebookPanel:visible h1", has_text="Start here")).to_be_visible()
        expect(on.locator(".jp-FileEditor:visible .cm-content")).to_contain_text("TODO 1.1")
        expect(on.locator(".jp-FileBrowser")).not_to_be_visible()  # its place belongs to the notebook and the file
        expect(on.locator(".jp-Notification-Toast, .Toastify__toast")).to_have_count(0)
        keep(on, "student-start")

        on.locator(".jp-NotebookPanel:visible a", has_text="1 The model").first.click()
        expect(on.locator(".jp-NotebookPanel:visible h1", has_text="The model")).to_be_visible()
        run_cell(on, "from lab.notebook import")
        run_cell(on, 'check("1.1")')
        card = on.locator(".jp-NotebookPanel:visible .lab-card")
        expect(card).to_contain_text("not started")

        write_file(on, wrong)
        run_cell(on, 'check("1.1")')
        expect(card).to_contain_text("✗ failed")
        card.scroll_into_view_if_needed()
        keep(on, "student-red")
        write_file(on, right)
        run_cell(on, 'check("1.1")')
        expect(card).to_contain_text("✓ passed")
        card.scroll_into_view_if_needed()
        keep(on, "student-green")

        on.locator(".lm-MenuBar-item", has_text="Nbgrader").click()
        menu = on.locator(".lm-Menu")
        expect(menu).to_contain_text("Assignment List")
        for instructors in ("Formgrader", "Course List"):
            expect(menu).not_to_contain_text(instructors)
        on.keyboard.press("Escape")
        on.locator(".jp-NotebookPanel:visible .jp-Toolbar").get_by_text("Validate").click()
        dialog = on.locator(".jp-Dialog")
        expect(dialog).to_contain_text("Success!")
        keep(on, "student-validated")
        assert [
            url for url in elsewhere if not url.startswith((address, address.replace("http", "ws"), "data:"))
        ] == []
