"""What only one operating system has is in lab/ranks/platform.py, and the lab works without it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from rank_helpers import processes_in, wait_for

from lab.syllabus.package import start

# What Linux has and macOS has not, or the other way round.
SPECIFIC = re.compile(
    r"/proc\b|/dev/shm|prctl|memfd_create|waitid|SIGRTMIN|RTMIN|sched_getaffinity|epoll|unshare"
    r"|sys\.platform|platform\.system|os\.uname|darwin|\blo0\b|['\"]lo['\"]"
)

# Where else it may be, and why.
ALLOWED = {
    "diagnose/overcome.py": "words about Linux machines, of which the jobs on clusters are",
    "diagnose/symptoms/containers.py": "the same",
    "diagnose/symptoms/files.py": "the same",
    "diagnose/symptoms/memory.py": "the same",
    "diagnose/told/cut_off.py": "the same",
    "grading/reach.py": "names that a student's code may reach for",
    "base/startup.py": "begins at its own import where there is no /proc",
    "base/user_ids.py": "for sandboxes of root only, which are Linux's",
    "runs/records/lock.py": "a machine and a process are known by less where there is no /proc",
    "checks/data/observe_loading.py": "names the host of a pretended node, in each function that tells it",
    "training/stepping/compiling.py": "which compiler PyTorch looks for",
    "ranks/confine.py": "runs inside bubblewrap only; hide_memory() does nothing where there is no prctl",
    "ranks/sandbox.py": "starts bubblewrap; refuses with a sentence elsewhere",
    "ranks/seccomp.py": "runs inside bubblewrap only",
    "base/processes.py": "asks ps where there is no /proc",
    "training/watching/tabs.py": "names the operating system, whichever it is",
    "doctor/machine.py": "describes the machine: sysctl on macOS, /proc and lscpu on Linux, else nothing",
    "base/machine.py": "nvidia-smi where the driver has no file; ru_maxrss has bytes on macOS, KiB elsewhere",
}


def test_platform_specific_code_is_in_one_place(root: Path):
    found: dict[str, list[str]] = {}
    for file in sorted((root / "lab").rglob("*.py")):
        name = file.relative_to(root / "lab").as_posix()
        for number, line in enumerate(file.read_text().splitlines(), 1):
            if SPECIFIC.search(line) and "hasattr(os" not in line and name != "ranks/platform.py":
                found.setdefault(name, []).append(f"{number}: {line.strip()}")
    assert {name: lines for name, lines in found.items() if name not in ALLOWED} == {}
    assert set(ALLOWED) == set(found), "no longer needed in ALLOWED"


# Python imports this before anything else, in the grader and in the process that starts the ranks. A stand-in for
# macOS as far as the lab is concerned; the interface of loopback has to keep the name it has here.
ELSEWHERE = """
import importlib.abc, importlib.machinery, os, signal, sys

for module, names in {os: ("waitid", "memfd_create", "sched_getaffinity"), signal: ("SIGRTMIN",)}.items():
    for name in names:
        if hasattr(module, name):
            delattr(module, name)


class Loader(importlib.machinery.SourceFileLoader):
    def get_data(self, path):
        data = super().get_data(path)
        here, there = b'LINUX = sys.platform == "linux"', b'LINUX = False'
        if here in data:
            data = data.replace(here, there).replace(b'else "lo0"', b'else "lo"').replace(b"/proc/", b"/none/")
            with open(os.environ["LAB_TEST_USED"], "a") as file:
                file.write("once\\n")
        return data

    def get_code(self, name):
        return self.source_to_code(self.get_data(self.path), self.path)


class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "lab.ranks.platform":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        spec.loader = Loader(name, spec.origin)
        return spec


sys.meta_path.insert(0, Finder())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the real thing is tested by all the other tests")
def test_checks_work_without_what_only_linux_has(tmp_path: Path, root: Path):
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "sitecustomize.py").write_text(ELSEWHERE)
    lab = tmp_path / "my-lab"
    start(lab)
    for name in ("distributed_utils.py", "data.py"):
        shutil.copyfile(root / "solutions" / name, lab / "exercises" / name)
    data = lab / "exercises" / "data.py"
    data.write_text("import subprocess\nsubprocess.Popen(['sleep', '600'])\n" + data.read_text())
    env = {
        **os.environ,
        "PYTHONPATH": str(tmp_path / "path"),
        "LAB_TEST_USED": str(tmp_path / "used"),
        "TMPDIR": str(tmp_path),
        "COLUMNS": "60",
    }
    result = subprocess.run(
        [sys.executable, "-m", "lab.cli", "check", "2.3", "3.2"],
        cwd=lab,
        env=env,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert (tmp_path / "used").read_text() == "once\n" * 2, "by the grader and one nursery, which did not crash"
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("✓ passed") == 2
    assert result.stderr == ""
    wait_for(lambda: not processes_in(tmp_path), "the end of the ranks and of what they started")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["my-lab", "path", "used"]
