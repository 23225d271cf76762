"""JupyterLab as a student sees it: its settings, its kernel and its first layout, all below .lab/ of their folder.

Nothing of the user's own configuration is changed, and nothing here asks the internet for anything.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lab.base.errors import UserError
from lab.base.files import write_whole
from lab.base.paths import module_file
from lab.syllabus.syllabus import ALL_MODULES

# In a folder that `lab start` has made; in each assignment that nbgrader has handed out.
FIRST_NOTEBOOKS = ("notebooks/0_start.ipynb", "0_start.ipynb", "8_fast.ipynb")

# The instructor's half of nbgrader; news and updates, which ask the internet and open a window about it.
DISABLED = (
    "@jupyter/nbgrader:formgrader",
    "@jupyter/nbgrader:create-assignment",
    "@jupyter/nbgrader:course-list",
    "@jupyterlab/apputils-extension:announcements",
)
SERVER: dict[str, dict[str, Any]] = {
    "ServerApp": {
        "jpserver_extensions": {
            "nbgrader.server_extensions.formgrader": False,
            "nbgrader.server_extensions.course_list": False,
        }
    },
    "LabApp": {"extension_manager": "readonly"},
}
SETTINGS = {"@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False}}


def first_notebook(folder: Path) -> str:
    """The notebook to begin with, as a path in a student's folder.

    Raises:
        UserError: there is none.
    """
    for name in FIRST_NOTEBOOKS:
        if (folder / name).is_file():
            return name
    raise UserError(f"{folder} has no {FIRST_NOTEBOOKS[0]}: name a folder that `lab start` has made")


def profile(folder: Path) -> tuple[list[str], dict[str, str]]:
    """Write the profile for a student's folder. Returns JupyterLab's command line and environment.

    Raises:
        UserError: JupyterLab is not installed, there are no notebooks, or the folder cannot be written.
    """
    notebook = first_notebook(folder)
    if find_spec("jupyterlab") is None:
        raise UserError("JupyterLab is not installed here: pip install jupyterlab, or use lab check without it")
    home = folder / ".lab" / "jupyter"
    try:
        # Started without a terminal, JupyterLab would open login shells in its own, which set PATH anew.
        shell = {"shell_command": [os.environ.get("SHELL") or "sh"]}
        server = {**SERVER, "ServerApp": {**SERVER["ServerApp"], "terminado_settings": shell}}
        _write(home / "config" / "jupyter_server_config.json", server)
        _write(
            home / "config" / "labconfig" / "page_config.json",
            {"disabledExtensions": dict.fromkeys(DISABLED, True)},
        )
        _write(home / "config" / "labconfig" / "default_setting_overrides.json", SETTINGS)
        if notebook != FIRST_NOTEBOOKS[0]:
            # nbgrader's Assignment List, and nbgrader in a terminal, look for the assignment below this folder.
            _write(home / "config" / "nbgrader_config.json", {"Exchange": {"assignment_dir": str(folder.parent)}})
        _write(home / "data" / "kernels" / "python3" / "kernel.json", _kernel())
        _first_layout(home / "workspaces", notebook)
    except OSError as error:
        raise UserError(f"cannot write {error.filename or home}: {error.strerror}") from None
    command = [
        *(sys.executable, "-m", "jupyterlab"),
        f"--ServerApp.root_dir={folder}",
        "--LabApp.default_url=/lab",  # where the student was last; at first, the layout below
        f"--LabApp.workspaces_dir={home / 'workspaces'}",
    ]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        command.append("--allow-root")  # in containers there often is no other user
    return command, _environment(home)


def _kernel() -> dict[str, Any]:
    """This Python, whatever kernels somebody has installed."""
    return {
        "argv": [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "Python 3",
        "language": "python",
        "metadata": {"debugger": True},
    }


def _environment(home: Path) -> dict[str, str]:
    env = dict(os.environ)
    _prepend(env, "JUPYTER_CONFIG_PATH", home / "config")
    _prepend(env, "JUPYTER_PATH", home / "data")
    _prepend(env, "PATH", Path(sys.executable).parent)  # for lab, python and torchrun in JupyterLab's terminals
    return env


def _prepend(env: dict[str, str], name: str, path: Path) -> None:
    env[name] = os.pathsep.join([str(path), *filter(None, [env.get(name)])])


def _first_layout(folder: Path, first: str) -> None:
    """The exercises beside the first notebook; a layout that the student has made since then stays.

    All of them: JupyterLab would open a file that is not there yet over the notebook that links to it.
    """
    from jupyterlab_server.workspaces_handler import WorkspacesManager

    if folder.is_dir() and any(folder.iterdir()):
        return
    folder.mkdir(parents=True, exist_ok=True)
    notebook, files = f"notebook:{first}", [f"exercises/{module_file(name)}" for name in ALL_MODULES]
    sides = [
        {"type": "tab-area", "currentIndex": 0, "widgets": widgets}
        for widgets in ([notebook], [f"editor:{file}" for file in files])
    ]
    dock = {"type": "split-area", "orientation": "horizontal", "sizes": [0.55, 0.45], "children": sides}
    data = {
        "layout-restorer:data": {
            "main": {"dock": dock, "current": notebook},
            "down": {"size": 0, "widgets": []},
            "left": {"collapsed": True, "visible": True, "widgets": ["filebrowser"]},
            "right": {"collapsed": True, "widgets": []},
            "relativeSizes": [0, 1, 0],
        },
        notebook: {"data": {"path": first, "factory": "Notebook"}},
        **{f"editor:{file}": {"data": {"path": file, "factory": "Editor"}} for file in files},
    }
    WorkspacesManager(str(folder)).save("default", json.dumps({"data": data, "metadata": {"id": "default"}}))


def _write(file: Path, content: Mapping[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, json.dumps(content, indent=1) + "\n")  # a JupyterLab that runs already reads it too
