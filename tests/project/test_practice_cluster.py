"""`lab cluster`: up with one command, gone with it, and a sentence where it cannot be."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from practice_cluster import SCRIPT, why_not

LAB = [sys.executable, "-m", "lab.cli", "cluster"]


def processes_with(text: str) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if text in entry.read_text():
                found.append(entry.read_text().replace("\0", " "))
        except OSError:
            continue
    return found


@pytest.mark.slurm
def test_it_lives_as_long_as_the_command_and_leaves_nothing_behind(root):
    if why_not():
        pytest.skip(why_not())
    said = "echo $CLUSTER_DIR; sinfo --noheader --format=%D; srun --nodes=2 hostname | sort; exit 7"
    done = subprocess.run([*LAB, "sh", "-c", said], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 7, done.stderr
    folder, nodes, *hosts = done.stdout.split()
    assert (nodes, hosts) == ("2", ["node1", "node2"])
    assert not Path(folder).exists()
    assert processes_with(folder) == []


@pytest.mark.skipif(sys.platform != "linux", reason="setpriv is Linux's")
def test_without_root_it_says_what_to_do():
    command = ["bash", "-s", "run", "true"]
    if os.geteuid() == 0:
        command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *command]
    text = SCRIPT.read_text()  # by a pipe: who is not root may not see the file
    done = subprocess.run(command, input=text, cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "practice cluster: it needs root; try again with sudo\n"


def test_without_slurm_it_says_what_to_install(tmp_path):
    if os.geteuid() != 0 or sys.platform != "linux":
        pytest.skip("needs root on Linux: without it, that is what is said first")
    for name in ("bash", "uname", "readlink", "sed"):
        (tmp_path / name).symlink_to(shutil.which(name))
    text = SCRIPT.read_text().replace("PATH=$PATH:/usr/sbin:/sbin\n", f"PATH={tmp_path}\n")
    done = subprocess.run(["bash", "-s", "run", "true"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("practice cluster: slurmctld is not installed; type  make services ")
