"""run.sh without Slurm: a folder to start it in, with srun, scontrol and python played by scripts on PATH."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import TextIO

SLURM = {
    "SLURM_JOB_ID": "123456",
    "SLURM_JOB_NODELIST": "node[7-8]",
    "SLURM_JOB_NAME": "scaling-lab",
    "SLURM_JOB_NUM_NODES": "2",
    "SLURM_NTASKS": "8",
    "SLURM_CPUS_PER_TASK": "6",
}
SHOWN = ("MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS", "PYTHONPATH", "PYTHONUNBUFFERED")


def played(root: Path, folder: Path) -> Path:
    """A folder with run.sh and exercises/main.py; srun and python write down how they were started."""
    shutil.copy(root / "run.sh", folder)
    for code in ("exercises", "solutions"):
        (folder / code).mkdir()
        (folder / code / "main.py").touch()
    show = "".join(f'echo "{name}=${name}" >>"$NOTES"; ' for name in SHOWN)
    play(folder / "bin", "srun", f'pwd >"$NOTES"; echo "srun $*" >>"$NOTES"; {show}')
    play(folder / "bin", "scontrol", '[[ "$*" == "show hostnames node[7-8]" ]] && printf "node7\\nnode8\\n"')
    play_python(folder / "bin" / "python")
    return folder


def play(folder: Path, name: str, body: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!/bin/bash\n{body}\n")
    (folder / name).chmod(0o755)


def play_python(path: Path, *, torch: bool = True, exit_code: int = 0) -> None:
    """A python that has torch or not, sees no GPU, and prints a line to each stream when it is to train."""
    play(
        path.parent,
        path.name,
        f"""case "$2" in
    *find_spec*) exit {0 if torch else 1} ;;
    *device_count*) echo 2 ;;
    *) echo "$0 $*" >"$NOTES"; echo "OMP_NUM_THREADS=$OMP_NUM_THREADS" >>"$NOTES"
       echo out; echo err >&2; exit {exit_code} ;;
esac""",
    )


def start(
    package: Path,
    *flags: str,
    script: Path | None = None,
    stdout: int | TextIO = subprocess.PIPE,
    stderr: int | TextIO = subprocess.PIPE,
    **environment: str,
) -> subprocess.CompletedProcess:
    clean = {
        name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "OMP_", "PYTHON"))
    }
    path = f"{package / 'bin'}{os.pathsep}/usr/bin{os.pathsep}/bin"
    return subprocess.run(
        [str(script or package / "run.sh"), *flags],
        env={**clean, "PATH": path, "NOTES": str(package / "notes"), **environment},
        cwd=package,
        stdout=stdout,
        stderr=stderr,
        text=True,
        timeout=60,
        check=False,
    )


def notes(package: Path) -> list[str]:
    return (package / "notes").read_text().splitlines()
