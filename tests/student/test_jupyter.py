"""lab jupyter: JupyterLab with the student's profile, in the student's folder."""

import json
import os
import re
import sys
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest
from browser import jupyterlab
from rank_helpers import wait_for
from websocket import create_connection

from lab.cli import main


class Started(Exception):
    """JupyterLab would run now."""


@pytest.fixture
def started(monkeypatch) -> list[tuple[list[str], dict[str, str]]]:
    """The command lines and environments that lab jupyter has become."""
    calls = []

    def execve(path, command, env):
        calls.append((command, env))
        raise Started

    monkeypatch.setattr(os, "execve", execve)
    return calls


def read(file: Path) -> dict:
    return json.loads(file.read_text())


def test_it_makes_the_folder_and_becomes_jupyterlab_on_the_first_notebook(tmp_path, started, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Started):
        main(["jupyter", "work", "--no-browser", "--port", "9999"])
    [(command, env)] = started
    work = tmp_path / "work"
    assert (work / "exercises" / "model.py").is_file()
    assert command[:3] == [sys.executable, "-m", "jupyterlab"]
    assert {f"--ServerApp.root_dir={work}", "--LabApp.default_url=/lab"} <= set(command)
    assert {"--no-browser", "--ServerApp.port=9999"} <= set(command)
    assert env["PATH"].split(os.pathsep)[0] == str(Path(sys.executable).parent)
    assert env["JUPYTER_CONFIG_PATH"].split(os.pathsep)[0] == str(work / ".lab" / "jupyter" / "config")


def test_the_profile_hides_the_instructors_half_asks_nobody_for_news_and_names_this_python(tmp_path, started):
    with pytest.raises(Started):
        main(["jupyter", str(tmp_path / "work")])
    home = tmp_path / "work" / ".lab" / "jupyter"
    disabled = read(home / "config" / "labconfig" / "page_config.json")["disabledExtensions"]
    assert disabled["@jupyter/nbgrader:formgrader"]
    assert disabled["@jupyterlab/apputils-extension:announcements"]
    server = read(home / "config" / "jupyter_server_config.json")["ServerApp"]["jpserver_extensions"]
    assert server == {
        "nbgrader.server_extensions.formgrader": False,
        "nbgrader.server_extensions.course_list": False,
    }
    assert read(home / "data" / "kernels" / "python3" / "kernel.json")["argv"][0] == sys.executable
    _, env = started[0]
    assert env["JUPYTER_PATH"].split(os.pathsep)[0] == str(home / "data")


def test_the_first_layout_has_a_file_beside_the_notebook_and_a_students_own_layout_stays(tmp_path, started):
    folder = tmp_path / "work"
    with pytest.raises(Started):
        main(["jupyter", str(folder)])
    [layout] = (folder / ".lab" / "jupyter" / "workspaces").iterdir()
    assert {"notebook:notebooks/0_start.ipynb", "editor:exercises/model.py", "editor:exercises/train.py"} <= set(
        read(layout)["data"]
    )
    layout.write_text("{}")
    (folder / "exercises" / "model.py").write_text("mine")
    with pytest.raises(Started):
        main(["jupyter", str(folder)])
    assert layout.read_text() == "{}"
    assert (folder / "exercises" / "model.py").read_text() == "mine"


@pytest.mark.parametrize(("name", "first"), [("lab", "0_start.ipynb"), ("lab2", "8_fast.ipynb")])
def test_an_assignment_that_nbgrader_has_handed_out_opens_too(tmp_path, started, name, first):
    folder = tmp_path / name
    assert main(["start", str(folder)]) == 0
    for notebook in (folder / "notebooks").glob("*.ipynb"):
        if name == "lab" or notebook.name == first:
            notebook.rename(folder / notebook.name)
        else:
            notebook.unlink()
    with pytest.raises(Started):
        main(["jupyter", str(folder)])
    [layout] = (folder / ".lab" / "jupyter" / "workspaces").iterdir()
    assert f"notebook:{first}" in read(layout)["data"]
    settings = read(folder / ".lab" / "jupyter" / "config" / "nbgrader_config.json")
    assert settings == {"Exchange": {"assignment_dir": str(tmp_path)}}  # so that Submit in JupyterLab finds it


def listens(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/api?token=letmein", timeout=60):
            return True
    except urllib.error.URLError:
        return False


def test_a_terminal_of_jupyterlab_has_torchrun_where_it_was_started_without_one(tmp_path, monkeypatch):
    """A login shell, which JupyterLab would take there, begins with a PATH of its own."""
    home = tmp_path / "home"
    home.mkdir()
    (home / ".profile").write_text("export PATH=/usr/bin:/bin\n")
    (home / ".bash_profile").write_text("export PATH=/usr/bin:/bin\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("SHELL", "/bin/bash")
    assert main(["start", str(tmp_path / "my-lab")]) == 0
    with jupyterlab(tmp_path / "my-lab") as address:
        wait_for(lambda: listens(address), "the server's answer")  # it says its address a little before
        made = urllib.request.Request(f"{address}/api/terminals?token=letmein", method="POST")
        with urllib.request.urlopen(made, timeout=60) as answer:
            name = json.load(answer)["name"]
        place = f"{address.replace('http', 'ws')}/terminals/websocket/{name}?token=letmein"
        with closing(create_connection(place, timeout=60)) as terminal:
            terminal.send(json.dumps(["stdin", 'echo "it: $(command -v torchrun)."\r']))
            said = ""
            while not (found := re.search(r"it: (/\S*|)\.", said)):
                kind, *text = json.loads(terminal.recv())
                said += text[0] if kind == "stdout" else ""
    assert found[1] == str(Path(sys.executable).parent / "torchrun")


def test_it_refuses_the_lab_itself_and_a_folder_without_notebooks(tmp_path, started, monkeypatch, capsys, root):
    monkeypatch.chdir(root)
    assert main(["jupyter"]) == 1
    assert "this is the lab itself" in capsys.readouterr().err
    assert main(["jupyter", str(root)]) == 1
    assert "is the lab itself" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    assert main(["jupyter", str(tmp_path / "empty")]) == 1
    assert "has no notebooks/0_start.ipynb" in capsys.readouterr().err
    monkeypatch.setattr("lab.student.jupyter.find_spec", lambda name: None)
    assert main(["jupyter", str(tmp_path / "work")]) == 1
    assert "JupyterLab is not installed here" in capsys.readouterr().err
    assert started == []
