"""The practice cluster for tests: one for the session, on its nodes real jobs through sbatch."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

SCRIPT = Path(__file__).resolve().parents[2] / "lab" / "slurm" / "cluster.sh"
ENDED = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "DEADLINE"}
PATIENCE = 280  # seconds for anything that is waited for


def wait_until(what: str, holds: Callable[[], object], patience: float = PATIENCE) -> None:
    """Poll until `holds` is true; fail with `what` after a generous time."""
    end = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < end, f"waited in vain: {what}"
        time.sleep(0.1)


class Cluster:
    """A context manager. It ends with the tests however those end: it reads a pipe that only they hold open."""

    script = SCRIPT

    def __enter__(self) -> Self:
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_"))},
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "OMP_NUM_THREADS": "1",
        }
        self._process = subprocess.Popen(
            [SCRIPT, "run", "sh", "-c", 'echo "$CLUSTER_DIR"; exec cat'],
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.folder = Path(self._process.stdout.readline().strip() or "no-cluster")
        assert self.folder.is_dir(), "the practice cluster did not start"
        return self

    def __exit__(self, *error: object) -> None:
        self._process.communicate(timeout=60)
        assert not self.folder.exists()

    @property
    def scratch(self) -> Path:
        """A folder of each node's own."""
        return self.folder / "scratch"

    def run(
        self, *command: object, cwd: Path | None = None, check: bool = True, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the login node."""
        done = subprocess.run(
            [SCRIPT, "exec", self.folder, *map(str, command)],
            env=self._environment | environment,
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert done.returncode == 0 or not check, f"{command}: {done.stdout}{done.stderr}"
        return done

    def on(self, node: str, *command: object) -> str:
        """Run a command on a node, as ssh would."""
        done = subprocess.run(
            [SCRIPT, "on", self.folder, node, *map(str, command)], capture_output=True, text=True, check=False
        )
        return done.stdout

    def submit(self, folder: Path, *arguments: object, **environment: str) -> str:
        """sbatch in this folder; the job's number."""
        return self.run("sbatch", "--parsable", *arguments, cwd=folder, **environment).stdout.strip()

    def show(self, job: str) -> dict[str, str]:
        """What `scontrol show job` knows of it."""
        text = self.run("scontrol", "--oneliner", "show", "job", job).stdout.splitlines()[0]
        return dict(re.findall(r"(\S+?)=(\S*)", text))

    def state(self, job: str) -> str:
        return self.show(job)["JobState"]

    def wait(self, job: str, *states: str) -> dict[str, str]:
        """Wait until the job is in one of these states, or has ended; what Slurm knows of it then."""
        wanted = set(states) or ENDED
        wait_until(f"job {job} {' or '.join(sorted(wanted))}", lambda: self.state(job) in wanted | ENDED)
        shown = self.show(job)
        assert shown["JobState"] in wanted, f"job {job}: {shown['JobState']}, not {wanted}"
        return shown

    def ranks(self, job: str, rank: int | None = None) -> list[str]:
        """The process numbers of the job's ranks, or of one rank, on all nodes; found by their environment."""
        marks = [
            f"^SLURM_JOB_ID={job}$",
            "^SLURM_STEP_ID=",
            f"^SLURM_PROCID={rank}$" if rank is not None else "^SLURM_PROCID=",
        ]
        script = "ls -d /proc/[0-9]*" + "".join(
            f" | while read -r p; do grep -qsz '{mark}' $p/environ && echo $p; done" for mark in marks
        )
        return [path.rpartition("/")[2] for path in self.run("sh", "-c", script, check=False).stdout.split()]


def why_not() -> str:
    """Why there can be no cluster here; empty where there can."""
    if shutil.which("slurmctld") is None and not Path("/usr/sbin/slurmctld").exists():
        return "needs Slurm (make services)"
    return "" if os.geteuid() == 0 else "needs root"
