"""What this machine is, without its name, its users and its paths. What cannot be found out is left out."""

import hashlib
import importlib
import os
import platform
import re
import subprocess
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from lab import __version__
from lab.base.machine import driver_version, nvidia_smi, usable_cores
from lab.base.paths import PACKAGE
from lab.runs.records.provenance import git_commit

GIB = 2**30
IMAGES = ("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER")  # the image's path, where one is running
Facts = dict[str, str]  # what -> as a person reads it; only what is known


def machine() -> Facts:
    """The computer and its operating system."""
    known = {
        "operating system": _operating_system(),
        "kernel": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "processor": _processor(),
        "cores": _cores(),
        "memory": _memory(),
    }
    return {name: value for name, value in known.items() if value}


def cards() -> Facts:
    """The GPUs that PyTorch sees, and their driver; empty without any."""
    torch = _import("torch")
    if torch is None or not torch.cuda.is_available():
        return {}
    found: dict[str, int] = {}
    for index in range(torch.cuda.device_count()):
        card = torch.cuda.get_device_properties(index)
        name = f"{card.name}, {card.total_memory / GIB:.1f} GiB, compute capability {card.major}.{card.minor}"
        found[name] = found.get(name, 0) + 1
    known = {
        "GPUs": "; ".join(f"{count} x {name}" for name, count in found.items()),
        "driver": driver_version(),
    }
    return {name: value for name, value in known.items() if value}


def topology() -> str:
    """How several GPUs are connected, as nvidia-smi draws it; empty where there is nothing to draw."""
    drawn = re.sub(r"\x1b\[[0-9;]*m", "", nvidia_smi("topo", "-m")).partition("Legend")[0].rstrip()
    return drawn if "\tGPU1" in drawn else ""


def software() -> Facts:
    """Versions of what matters for a run."""
    torch, torchvision = _import("torch"), _import("torchvision")
    known = {
        "Scaling Lab": __version__,
        "commit": git_commit(PACKAGE),
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "PyTorch": str(torch.__version__) if torch else "not here",
        "torchvision": str(torchvision.__version__) if torchvision else "not here",
        "modules": " ".join(os.environ.get("LOADEDMODULES", "").split(":")).strip(),
        "container": _container(),
        "Slurm": _said("sinfo", "--version").strip().removeprefix("slurm-wlm ").removeprefix("slurm "),
    }
    if torch is not None and torch.cuda.is_available():
        known["CUDA"] = torch.version.cuda or ""
        known["cuDNN"] = str(torch.backends.cudnn.version() or "")
        if torch.distributed.is_nccl_available():
            known["NCCL"] = ".".join(map(str, torch.cuda.nccl.version()))
    return {name: value for name, value in known.items() if value}


def packages() -> list[str]:
    """NAME==VERSION of every installed package: a pip freeze without the places that packages came from."""
    found: dict[str, str] = {}
    for package in distributions():
        name, version = package.metadata["Name"], package.metadata["Version"]
        if name and version:  # else the remains of one that was removed badly
            found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), f"{name}=={version}")
    return [found[name] for name in sorted(found)]


def _container() -> str:
    """The image that this runs in, by its contents: another file of the same name is another system."""
    image = next((path for name in IMAGES if (path := os.environ.get(name))), "")
    if not image:
        return ""
    file = Path(image)
    try:
        with file.open("rb") as stream:
            return f"{file.name}, SHA-256 {hashlib.file_digest(stream, 'sha256').hexdigest()}"
    except OSError:  # an unpacked image, or one that is not seen from inside
        return f"{file.name}, whose contents cannot be read from inside"


def _import(name: str) -> Any:
    """A module, or None where it is not installed or is broken."""
    try:
        return importlib.import_module(name)
    except (
        ImportError,
        OSError,
        RuntimeError,
    ):  # of a library that it cannot load, of another torch than it wants
        return None


def _operating_system() -> str:
    if platform.system() == "Darwin":
        return f"macOS {platform.mac_ver()[0]}"
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return ""


def _processor() -> str:
    names = (
        re.search(r"^model name\s*:\s*(.+)$", _read("/proc/cpuinfo"), re.MULTILINE),
        re.search(r"^Model name:\s*(.+)$", _said("lscpu"), re.MULTILINE),  # ARM has no name in /proc
    )
    found = next((match[1].strip() for match in names if match), "")
    return found or _said("sysctl", "-n", "machdep.cpu.brand_string").strip()


def _cores() -> str:
    everywhere = os.cpu_count() or 0
    ours = usable_cores()
    return f"{everywhere}" if ours == everywhere else f"{everywhere}, of which a process here may use {ours}"


def _memory() -> str:
    try:
        return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / GIB:.1f} GiB"
    except (ValueError, OSError):
        return ""


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _said(*command: str) -> str:
    """What a program prints; nothing where it is not there, fails or hangs."""
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, timeout=20, env=environment
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
