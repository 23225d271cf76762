"""What the lab uses where it is there: GPUs, Slurm, Jupyter, bubblewrap."""

import importlib.util
import json
import os
import re
import shutil
import sys
from pathlib import Path

from lab.base.machine import gpus
from lab.doctor.needed import INSTALL, short
from lab.doctor.probes import Probe, Reading, ask

_GPU_PROGRAM = """
import json, os, torch, torch.distributed as dist
found = {"build": torch.version.cuda or torch.version.hip, "count": torch.cuda.device_count(), "sum": None}
if found["count"]:
    found["name"] = torch.cuda.get_device_name(0)
    torch.cuda.set_device(0)
    if dist.is_nccl_available():
        found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        store = dist.TCPStore("127.0.0.1", 0, 1, True)
        dist.init_process_group("nccl", store=store, rank=0, world_size=1, device_id=torch.device("cuda", 0))
        total = torch.ones(1, device="cuda")
        dist.all_reduce(total)
        found["sum"] = total.item()
        dist.destroy_process_group()
print(json.dumps(found))
"""


def gpu() -> Reading:
    """Whether torch sees the GPUs that the driver sees, and NCCL can add up on one."""
    seen = len(gpus(ask(["nvidia-smi", "-L"], 30).out))
    answer = ask([sys.executable, "-P", "-c", _GPU_PROGRAM], 110)
    if not answer.ok:
        if not seen:
            return Reading("absent", "none that torch can use; the checks need none")
        return Reading(
            "note", f"torch fails on it: {answer.said}", "update the driver, or install another build of torch"
        )
    found = json.loads(answer.out.splitlines()[-1])
    if found["count"] == 0:
        if not seen:
            return Reading("absent", "none; the checks need none")
        if found["build"] is None:
            return Reading(
                "note",
                f"{seen} here, but this torch is a build for the CPU",
                f"{INSTALL} --force-reinstall torch torchvision, in its CUDA build",
            )
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
        if hidden is not None:
            return Reading(
                "note", f"{seen} here, hidden by CUDA_VISIBLE_DEVICES={hidden!r}", "unset CUDA_VISIBLE_DEVICES"
            )
        return Reading(
            "note", f"{seen} here, but torch sees none", f"the driver may be too old for CUDA {found['build']}"
        )
    what = f"{found['count']} x {found['name']}"
    if found["sum"] != 1.0:
        return Reading(
            "note", f"{what}, but without NCCL", "training on several GPUs needs a build of torch with NCCL"
        )
    return Reading("good", f"{what}, NCCL {found['nccl']}")


def slurm() -> Reading:
    """Whether jobs can be submitted from here."""
    if shutil.which("sbatch") is None:
        return Reading("absent", "none; ./run.sh and the sweep run on this machine")
    job = os.environ.get("SLURM_JOB_ID")
    inside = f"; this is inside job {job}" if job else ""
    answer = ask(["sinfo", "--noheader", "--format=%P %a"], 20)
    if not answer.ok:
        return Reading(
            "note",
            f"sbatch is here, but sinfo says: {answer.said}",
            "ask who runs the cluster; until then: run_benchmarks.py --launcher local",
        )
    up = [line.split()[0].rstrip("*") for line in answer.out.splitlines() if line.split()[1:] == ["up"]]
    if not up:
        return Reading(
            "note",
            f"no partition is up{inside}",
            "ask who runs the cluster; until then: run_benchmarks.py --launcher local",
        )
    return Reading("good", f"partitions {', '.join(up[:6])}{' ...' if up[6:] else ''}{inside}")


def jupyter() -> Reading:
    """Whether a notebook's kernel is this Python, for only this one is known to have the lab and torch."""
    command = shutil.which("jupyter")
    if command is None:
        return Reading("absent", "none; only the notebooks need it")
    answer = ask([command, "kernelspec", "list", "--json"], 30)
    try:
        specs = json.loads(answer.out)["kernelspecs"].items()
        argvs = {str(name): spec["spec"]["argv"] for name, spec in specs if spec["spec"]["language"] == "python"}
        kernels = {name: _prefix(str(argv[0]), Path(command)) for name, argv in argvs.items()}
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return Reading("note", f"{command} cannot list its kernels: {answer.said}", "install jupyterlab again")
    ours = [name for name, prefix in kernels.items() if prefix == Path(sys.prefix).resolve()]
    if not ours:
        others = [f"{name} is {short(prefix) if prefix else 'broken'}" for name, prefix in kernels.items()]
        return Reading(
            "note",
            f"no kernel is this Python ({', '.join(others) or 'there is none for Python'})",
            f"{INSTALL} ipykernel; python -m ipykernel install --user --name scaling-lab; choose that kernel",
        )
    if importlib.util.find_spec("ipykernel") is None:
        return Reading("note", f"the kernel {ours[0]} is this Python, but lacks ipykernel", f"{INSTALL} ipykernel")
    if "python3" in ours:
        return Reading("good", "the kernel python3 is this Python")
    return Reading("good", f"the kernel {ours[0]} is this Python; choose it in every notebook")


def _prefix(interpreter: str, command: Path) -> Path | None:
    """The environment of a kernel's interpreter; a bare `python` in a kernelspec means that of Jupyter itself."""
    if re.fullmatch(r"python[\d.]*", interpreter):
        interpreter = _interpreter_of(command)
    answer = ask([interpreter, "-c", "import sys; print(sys.prefix)"], 20)
    return Path(answer.out.strip()).resolve() if answer.ok else None


def _interpreter_of(script: Path) -> str:
    """The Python in the first lines of a script: `#!/path/python`, or pip's form for a long path."""
    with open(script, "rb") as file:
        head = file.read(500).decode("utf-8", "replace")
    match = re.match(
        r"#!\s*(/\S*python[\d.]*)\s*$|#!/bin/sh\n'''exec' \"?(/.*?python[\d.]*)\"? ", head, re.MULTILINE
    )
    return (match[1] or match[2]) if match else "python"


def sandbox() -> Reading:
    """Whether code that nobody trusts can be checked here."""
    from lab.ranks.sandbox import Sandbox, SandboxError

    if shutil.which("bwrap") is None:
        return Reading("absent", "no bubblewrap; only grading code that you do not trust needs it")
    try:
        Sandbox().require()
    except SandboxError as error:
        return Reading("note", str(error), "only grading code that you do not trust needs it")
    return Reading("good", "bubblewrap works, for grading code that you do not trust")


PROBES = (
    Probe("GPU", gpu, 120),
    Probe("Slurm", slurm, 30),
    Probe("Jupyter", jupyter, 60),
    Probe("sandbox", sandbox, 60),
)
