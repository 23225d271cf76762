"""A headless Chromium for the tests, and JupyterLab as `lab jupyter` starts it."""

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import nbgrader
import pytest
from playwright.sync_api import Page, sync_playwright

CHROMIUM = shutil.which("chromium")
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
NBGRADER = Path(nbgrader.__file__).parents[4]  # where its files for Jupyter are too
PATIENCE = 120_000  # milliseconds for anything that a page waits for
SCREENSHOTS = Path(__file__).resolve().parents[2] / "build" / "screenshots"


@contextmanager
def page(width: int = 1500, height: int = 950) -> Iterator[Page]:
    """An empty page; every address that it has asked outside of this machine is in page.elsewhere."""
    if CHROMIUM is None:
        pytest.skip("there is no chromium: make services")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        try:
            opened = chromium.new_page(viewport={"width": width, "height": height})
            opened.set_default_timeout(PATIENCE)
            yield opened
        finally:
            chromium.close()


def keep(page: Page, name: str) -> None:
    """Keep a screenshot, to be looked at."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{name}.png")


def jupyterlab(folder: Path) -> AbstractContextManager[str]:
    """The address of the server that `lab jupyter FOLDER` runs; it and its kernels end with the block."""
    command = [sys.executable, "-m", "lab.cli", "jupyter", str(folder), "--no-browser", "--port", "0"]
    return server(command, folder)


def config_folder(folder: Path) -> Path:
    """Where a server in this folder looks for its user's settings: not those of whoever runs the tests."""
    return folder.parent / "jupyter-config"


@contextmanager
def server(command: list[str], folder: Path, token: str = "letmein") -> Iterator[str]:
    """The address of JupyterLab, started by this command in the folder."""
    config = config_folder(folder)
    env = {**os.environ, "JUPYTER_TOKEN": token, "JUPYTER_CONFIG_DIR": str(config)}
    if not NBGRADER.is_relative_to(sys.prefix):  # JupyterLab finds extensions in its own Python only
        env["JUPYTER_PATH"] = str(NBGRADER / "share" / "jupyter")
        env["JUPYTER_CONFIG_PATH"] = str(NBGRADER / "etc" / "jupyter")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, cwd=folder, env=env, text=True, **pipes) as running:
        try:
            assert running.stdout
            said = ""
            for line in running.stdout:
                said += line
                if found := re.search(r"http://127\.0\.0\.1:(\d+)/", line):
                    break
            else:
                pytest.fail(f"JupyterLab has not started: {said}")
            threading.Thread(target=running.stdout.read, daemon=True).start()  # a full pipe would stop it
            yield f"http://127.0.0.1:{found[1]}"
        finally:
            running.terminate()
            running.wait(timeout=60)
