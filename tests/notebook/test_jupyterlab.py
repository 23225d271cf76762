"""What a student does, in a real browser: open JupyterLab, edit a file, save it, and check it red, then green."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import PATIENCE, jupyterlab, keep, page
from playwright.sync_api import Page, expect

from lab.cli import main

expect.set_options(timeout=PATIENCE)


def run_cell(on: Page, source: str) -> None:
    """Click into the code cell that begins with `source`, press Shift+Enter, and wait until it has run."""
    shown = on.locator(".jp-NotebookPanel:visible").get_attribute("id")
    name = on.locator(f'.lm-TabBar-tab[data-id="{shown}"] .lm-TabBar-tabLabel').inner_text()
    kernel = on.locator(f'#jp-main-statusbar [title="Change kernel for {name}"]')  # no other notebook's
    expect(kernel).to_have_text("Python 3 | Idle")
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


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of JupyterLab in a fresh student's package."""
    folder = tmp_path_factory.mktemp("jupyterlab") / "my-lab"
    assert main(["start", str(folder)]) == 0
    with jupyterlab(folder) as address:
        yield address


@pytest.mark.timeout(600)
def test_a_student_opens_the_lab_edits_a_file_and_checks_it_red_then_green(address: str, root: Path):
    right = (root / "solutions" / "model.py").read_text()
    wrong = right.replace("x.shape[1:] == (3, 32, 32)", "x.shape == (4, 3, 32, 32)")
    with page() as on:
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


def in_theme(on: Page, theme: str) -> None:
    for item in ("Settings", "Theme", theme):
        on.locator(".lm-MenuBar-item, .lm-Menu-item", has_text=re.compile(f"^{item}$")).first.click()
    expect(on.locator(f'body[data-jp-theme-name="{theme}"]')).to_have_count(1)


@pytest.mark.timeout(600)
def test_a_student_sees_a_training_first_asks_ranks_and_answers_a_question(address: str):
    with page() as on:
        on.goto(f"{address}/lab/tree/notebooks/0_start.ipynb?token=letmein")
        shown = on.locator(".jp-NotebookPanel:visible")
        expect(shown.locator("h1", has_text="Start here")).to_be_visible()
        run_cell(on, "from lab.notebook import")
        run_cell(on, "first_look(ranks")
        card = shown.locator(".jp-CodeCell", has_text="first_look(ranks").locator(".lab-card")
        expect(card).to_contain_text("right on new images")
        expect(card.locator("img")).to_have_count(10)

        shown.locator("a", has_text="3 The data").first.click()
        expect(shown.locator("h1", has_text="The data")).to_be_visible()
        run_cell(on, "from lab.notebook import")
        run_cell(on, "DistributedSampler(range(12)")
        ranks = shown.locator(".jp-CodeCell", has_text="DistributedSampler(range(12)").locator(".lab-card")
        expect(ranks).to_contain_text("not told, epoch 2")
        run_cell(on, 'question("no-set-epoch"')
        cell = shown.locator(".jp-CodeCell", has_text='question("no-set-epoch"')
        expect(cell.locator(".lab-card")).to_contain_text("What do the ranks draw")
        right = cell.locator("li", has_text="the same samples in the same order")
        letter = "abcd"[right.evaluate("one => [...one.parentElement.children].indexOf(one)")]
        cell.locator(".cm-content").first.click()
        on.keyboard.press("Control+a")
        on.keyboard.insert_text(f'question("no-set-epoch", "{letter}")')
        run_cell(on, 'question("no-set-epoch"')
        expect(cell.locator(".lab-card")).to_contain_text("✓ right")

        for theme in ("JupyterLab Dark", "JupyterLab Light"):
            in_theme(on, theme)
            name = theme.split()[1].lower()
            for seen, label in ((ranks, "ranks"), (cell, "question")):
                seen.scroll_into_view_if_needed()
                box = seen.bounding_box()
                assert box
                assert box["x"] + box["width"] <= 1500 * 0.55, "within its half of the window"
                keep(on, f"student-{label}-{name}")
        shown_first = on.locator(".lm-TabBar-tab", has_text="0_start.ipynb")
        shown_first.first.click()
        card.scroll_into_view_if_needed()
        keep(on, "student-first-look")
