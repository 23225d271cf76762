"""`lab cluster`: up with one command, gone with it, and a sentence where it cannot be."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from practice_cluster import SCRIPT, why_not

from lab.diagnose.symptoms.table import SYMPTOMS

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


def test_a_node_has_the_memory_that_lab_diagnose_tells_to_ask_for():
    asked = [int(size) for symptom in SYMPTOMS for do in symptom.do for size in re.findall(r"--mem=(\d+)G", do)]
    (has,) = re.findall(r"^NODES=.* MEMORY=(\d+)", SCRIPT.read_text(encoding="utf-8"), re.M)
    assert asked
    assert max(asked) << 10 <= int(has)


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


def test_its_jobs_begin_after_those_that_left_something_here(tmp_path):
    text = SCRIPT.read_text()
    first_job = text[text.index("first_job() {") : text.index("write_config() {")]

    def number() -> str:
        command = ["bash", "-c", f"set -euo pipefail\n{first_job}\nfirst_job"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip()

    assert number() == "1"
    (tmp_path / "train-3.err").touch()
    assert number() == "4"
    for name in ("scaling-lab-9/slurm-9", "local-20261128-034000", "sensitivity-12_3/slurm-12_3"):
        (tmp_path / "results" / name).mkdir(parents=True)
    assert number() == "13"


@pytest.mark.skipif(sys.platform != "linux", reason="setpriv is Linux's")
@pytest.mark.parametrize("lab", [True, False])
def test_without_root_it_says_what_to_do(lab):
    command = ["bash", "-s", "run", "true"]
    if os.geteuid() == 0:
        command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *command]
    text = SCRIPT.read_text()  # by a pipe: who is not root may not see the file
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # pytest's own are hidden from who is not root
        program = Path(folder) / "ada's lab" / "lab"
        program.parent.mkdir()
        program.touch()
        for path in (program, program.parent, Path(folder)):
            path.chmod(0o755)
        environment = os.environ | {"PATH": f"{program.parent}:/usr/bin:/bin" if lab else "/usr/bin:/bin"}
        done = subprocess.run(
            command, input=text, cwd="/", env=environment, capture_output=True, text=True, check=False
        )
    assert done.returncode == 1
    in_quotes = str(program).replace("'", "\\'").replace(" ", "\\ ")
    how = f"sudo {in_quotes} cluster  or, in the repository,  sudo make cluster"
    assert done.stderr == (
        f"practice cluster: it needs root: type  {how if lab else 'sudo make cluster  in the repository'}\n"
    )


def test_without_slurm_it_says_what_to_install(root, tmp_path):
    if os.geteuid() != 0 or sys.platform != "linux":
        pytest.skip("needs root on Linux: without it, that is what is said first")
    for name in ("bash", "uname", "readlink", "sed"):
        (tmp_path / name).symlink_to(shutil.which(name))
    text = SCRIPT.read_text().replace("PATH=$PATH:/usr/sbin:/sbin\n", f"PATH={tmp_path}\n")
    done = subprocess.run(["bash", "-s", "run", "true"], input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    packages = re.findall(r"slurm-wlm [\w -]+ procps", (root / "Makefile").read_text())[0]  # of make services
    assert done.stderr.startswith(
        f"practice cluster: slurmctld is not installed; type  apt-get install {packages}  "
    )


def test_its_shell_has_the_path_of_the_one_it_was_started_from(tmp_path):
    text = SCRIPT.read_text()
    written = text[
        text.index('cat >"$CLUSTER_DIR/bashrc"') : text.index("        # shellcheck disable=SC2016 # expanded")
    ]
    folder = "/home/ada's (old)/b in"
    read = f"HOME={tmp_path}; PATH=/bin; source $CLUSTER_DIR/bashrc >/dev/null; echo $PATH"
    environment = {"PATH": f"{os.environ['PATH']}{os.pathsep}{folder}", "CLUSTER_DIR": str(tmp_path)}
    done = subprocess.run(
        ["bash", "-c", f"NODES=2 CPUS=1 GPUS=1\n{written}{read}"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.rstrip("\n"), done.stderr) == (environment["PATH"], "")
