"""The sweep's programs as a user starts them: without torch, through plot_results.sh, and once for real."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from run_folders import write_few_images, write_run

from lab.sweep.collect.collect import collect


@pytest.fixture
def results(tmp_path) -> Path:
    write_run(tmp_path / "results", "none", 1)
    write_run(tmp_path / "results", "ddp", 2)
    return tmp_path / "results"


def start(*command: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_the_sweep_works_without_torch(root, results, tmp_path):
    """On a login node or a laptop, collecting and plotting must not need (or wait for) torch or jinja2."""
    program = f"""
import sys
sys.modules.update(dict.fromkeys(("torch", "torchvision", "jinja2"), None))  # importing one now raises ImportError
sys.path.insert(0, {str(root)!r})
import pkgutil, importlib, lab.sweep
for module in pkgutil.iter_modules(lab.sweep.__path__):
    importlib.import_module("lab.sweep." + module.name)
import collect_results, plot_results, run_benchmarks
assert collect_results.main([]) == 0
assert plot_results.main([]) == 0
assert plot_results.main(["--report", "report.html"]) == 1
import pathlib
pathlib.Path("exercises").mkdir(); pathlib.Path("exercises/main.py").touch()
for own in ([], ["--", "--model", "mynet:MyNet", "--dataset", "my.data:load"]):
    assert run_benchmarks.main(["--launcher", "local", "--dry-run", *own]) == 0
"""
    done = start(sys.executable, "-c", program, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (results / "figures" / "memory.png").exists()
    assert "pip install jinja2" in done.stderr


def test_what_launches_jobs_and_what_trains_them_needs_no_pandas(root, tmp_path):
    """A container of a cluster may have torch alone."""
    program = f"""
import sys
sys.modules["pandas"] = None
sys.path[:0] = [{str(root)!r}, {str(root / "solutions")!r}]
import lab.cli, lab.sweep, lab.training, main, run_benchmarks
import pathlib
pathlib.Path("exercises").mkdir(); pathlib.Path("exercises/main.py").touch()
assert run_benchmarks.main(["--launcher", "local", "--dry-run"]) == 0
"""
    done = start(sys.executable, "-c", program, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("asked", ["load", "card"])
def test_what_a_notebook_calls_names_a_library_that_is_missing(root, tmp_path, asked):
    calls = {
        "load": "from lab.base.errors import UserError as Said; import lab.sweep; lab.sweep.load('.')",
        "card": "from lab.notebook.show import Said; from lab.notebook.results import *; show_results('.')",
    }
    first, call = calls[asked].rsplit("; ", 1)
    program = f"""
import os, sys
os.environ["LAB_GRADING"] = "1"
sys.modules["pandas"] = None
open("results.csv", "w").close()
os.mkdir("exercises")
{first}
try:
    {call}
except Said as error:
    print(error)
"""
    done = start(sys.executable, "-c", program, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (
        0,
        "tables and figures need pandas, which this Python lacks: pip install pandas\n",
    ), done.stderr


@pytest.mark.parametrize(
    ("library", "script", "argv", "named"),
    [
        ("pandas", "collect_results.py", ["results"], "collect_results.py"),
        ("pandas", "plot_results.py", [], "plot_results.py"),
        ("matplotlib", "plot_results.py", [], "plot_results.py"),
        ("pandas", "lab/cli.py", ["predict", "results.csv", "--devices", "4"], "lab predict"),
    ],
)
def test_what_needs_a_library_says_how_to_install_it(root, results, library, script, argv, named):
    program = f"""
import runpy, sys
sys.modules[{library!r}] = None
sys.argv = {[str(root / script), *argv]!r}
runpy.run_path(sys.argv[0], run_name="__main__")
"""
    done = start(sys.executable, "-c", program, cwd=results.parent)
    sentence = f"tables and figures need {library}, which this Python lacks: pip install {library}"
    assert (done.returncode, done.stderr) == (1, f"{named}: {sentence}\n")


@pytest.mark.parametrize("command", ["collect_results.py results", "run_benchmarks.py --dry-run --launcher local"])
def test_a_reader_that_has_gone_is_no_traceback(root, results, tmp_path, command):
    (tmp_path / "exercises").mkdir()
    (tmp_path / "exercises" / "main.py").touch()
    reader, writer = os.pipe()
    os.close(reader)  # what head does, once it has seen enough
    done = subprocess.run(
        [sys.executable, root / command.split()[0], *command.split()[1:]],
        cwd=tmp_path,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        timeout=240,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.fixture
def viewer(tmp_path) -> Path:
    """A folder for PATH in which xdg-open and open note what they were asked to show."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("xdg-open", "open"):
        (folder / name).write_text(f'#!/bin/bash\necho "$1" >>{tmp_path}/shown\n')
        (folder / name).chmod(0o755)
    (folder / "python").symlink_to(sys.executable)
    return folder


def test_plot_results_sh_collects_draws_and_opens_the_figures(root, results, tmp_path, viewer):
    for strategy, devices in (("none", 1), ("ddp", 2)):
        write_run(results, strategy, devices, run_id=f"weak-{devices}", scaling="weak", per_gpu_batch=128)
    path = f"{viewer}{os.pathsep}{os.environ['PATH']}"
    done = start(root / "plot_results.sh", "results", cwd=tmp_path, PATH=path, DISPLAY=":0", PYTHONPATH=str(root))
    assert done.returncode == 0, done.stderr
    names = sorted(Path(line).name for line in (tmp_path / "shown").read_text().splitlines())
    assert names == sorted(path.name for path in (results / "figures").rglob("*.png"))
    assert names.count("memory.png") == 2  # the second setting's are in a folder of its own
    assert {"memory.png", "time_per_epoch.png", "validation.png"} <= set(names)
    assert "4 runs: 4 done" in done.stdout


@pytest.mark.skipif(sys.platform == "darwin", reason="a Mac always has a screen")
def test_plot_results_sh_without_a_screen_says_where_the_figures_are(root, results, tmp_path, viewer):
    path = f"{viewer}{os.pathsep}{os.environ['PATH']}"
    no_screen = {"DISPLAY": "", "WAYLAND_DISPLAY": ""}
    done = start(root / "plot_results.sh", cwd=tmp_path, PATH=path, PYTHONPATH=str(root), **no_screen)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "shown").exists()
    assert "results/figures/time_per_epoch.png" in done.stdout


def test_plot_results_sh_stops_at_the_first_problem(root, tmp_path, viewer):
    path = f"{viewer}{os.pathsep}{os.environ['PATH']}"
    done = start(root / "plot_results.sh", "nowhere", cwd=tmp_path, PATH=path, PYTHONPATH=str(root))
    assert done.returncode == 1
    assert done.stderr == (
        "collect_results.py: there is no folder nowhere: run_benchmarks.py makes it, "
        "or name the one that holds your runs\n"
    )


def test_a_small_sweep_of_the_reference_for_real(root, tmp_path):
    """torchrun, two ranks, records, collect: nothing is played here."""
    for name in ("solutions", "run.sh", "lab"):
        (tmp_path / name).symlink_to(root / name)
    sweep = "--launcher local --code solutions --devices 2 --strategies ddp --epochs 2 --global-batch-size 32"
    data = ("--", "--dataset", "imagefolder", "--data-dir", write_few_images(tmp_path / "data"))
    done = start(sys.executable, root / "run_benchmarks.py", *sweep.split(), *data, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 done, 0 failed" in done.stdout
    rows = collect(tmp_path / "results").rows
    assert [(row["strategy"], row["world_size"], row["status"]) for row in rows] == [
        *(("none", "1", "done"), ("ddp", "2", "done"))
    ]
    assert all(float(row["eff_strong"]) > 0 for row in rows)
    assert (rows[1]["scaling"], rows[1]["global_batch"], rows[1]["per_gpu_batch"]) == ("strong", "32", "16")
    log = (tmp_path / "results" / rows[1]["run_id"] / "train.log").read_text()
    assert log.count("[METRIC] epoch=1 ") == 1  # the run does not write a second copy into the same file
