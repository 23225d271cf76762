"""What the lab cannot do without: Python, PyTorch, ranks that find each other, names, space."""

import contextlib
import json
import os
import shutil
import socket
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lab.doctor.probes import Probe, Reading, ask
from lab.ranks import platform

if TYPE_CHECKING:
    from lab.ranks.rank import Rank

PYTHON = (3, 11)
TORCH = (2, 9)
INSTALL = "python -m pip install"
MiB, GiB = 1 << 20, 1 << 30

_TORCH_PROGRAM = """
import json, os
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", "/")  # torchvision would have torch make one in /tmp
import torch, torchvision, torch.distributed as dist
print(json.dumps({"torch": torch.__version__, "torchvision": torchvision.__version__,
                  "gloo": dist.is_available() and dist.is_gloo_available()}))
"""


def python() -> Reading:
    """This Python, and whether `python` in a terminal is the same one."""
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < PYTHON:
        return Reading("bad", f"{version}; the lab needs 3.11", "make an environment with a newer Python")
    what = f"{version} in {short(Path(sys.prefix))}"
    typed = shutil.which("python")
    if typed is None or not _same_prefix(Path(typed)):
        activate = Path(sys.prefix) / "bin" / "activate"
        is_another = f"but `python` is {short(Path(typed))}" if typed else "but there is no `python`"
        do = f"source {short(activate)}" if activate.is_file() else "activate the environment of the lab"
        return Reading("note", f"{what}, {is_another}", f"{do}, so that run.sh and the sweep find torch")
    return Reading("good", what)


def torch() -> Reading:
    """PyTorch and torchvision, imported by a process of its own: a broken build may crash it."""
    answer = ask([sys.executable, "-P", "-c", _TORCH_PROGRAM], 110)
    if not answer.ok:
        missing = "No module named 'torch" in answer.said
        do = (
            f"{INSTALL} torch torchvision"
            if missing
            else f"install it again: {INSTALL} --force-reinstall torch torchvision"
        )
        return Reading("bad", f"cannot be imported: {answer.said}", do)
    versions = json.loads(answer.out.splitlines()[-1])
    number = tuple(int(part) for part in versions["torch"].split(".")[:2])
    if number < TORCH:
        return Reading("bad", f"{versions['torch']}; the lab needs 2.9", f"{INSTALL} --upgrade torch torchvision")
    if not versions["gloo"]:
        return Reading("bad", f"{versions['torch']} was built without gloo", "install another build of torch")
    return Reading("good", f"{versions['torch']}, torchvision {versions['torchvision']}")


def meet(rank: "Rank") -> float:
    """In each of two ranks: the sum of their numbers, by gloo."""
    import torch
    import torch.distributed as dist

    total = torch.tensor([1.0 + rank.rank])
    dist.all_reduce(total)
    return total.item()


def ranks() -> Reading:
    """Two real ranks, started as the checks start them."""
    from lab.ranks.server import RankServer, RankServerError

    if not _loopback_works():
        return Reading("bad", "this machine cannot connect to itself (127.0.0.1)", "ip link set lo up, as root")
    do = "lab check does not work before this does; see the other lines"
    try:
        with RankServer() as server:
            server.run(meet, 1, code=None, timeout=60)  # with the import of torch
            begin = time.monotonic()
            result = server.run(meet, 2, code=None, timeout=60)
    except RankServerError as error:
        return Reading("bad", f"cannot be started: {str(error).strip().splitlines()[-1]}", do)
    if not result.ok:
        failed = result.first_failed
        return Reading("bad", f"two ranks did not meet through gloo: {failed}", do)
    if result.values != [3.0, 3.0]:
        return Reading("bad", f"gloo adds 1 and 2 up to {result.values}", "install another build of torch")
    return Reading("good", f"two met through gloo on loopback, in {time.monotonic() - begin:.1f} s")


def host_name() -> Reading:
    """Whether the machine's own name leads to the machine: torchrun --standalone relies on it."""
    name = socket.gethostname()
    do = f"give torchrun --local-addr 127.0.0.1, as run.sh does; or add this line to /etc/hosts: 127.0.0.1 {name}"
    try:
        addresses = {info[4][0] for info in socket.getaddrinfo(name, None, proto=socket.IPPROTO_TCP)}
    except (OSError, UnicodeError):  # no address; or, of more than 63 characters in a row, no name of a host
        return Reading("note", f"{name} has no address: torchrun --standalone would hang", do)
    if not any(_is_ours(str(address)) for address in addresses):
        elsewhere = ", ".join(sorted(map(str, addresses)))
        return Reading("note", f"{name} is said to be at {elsewhere}, which is not here: torchrun would hang", do)
    return Reading("good", f"{name} leads to this machine")


def space_here() -> Reading:
    """Room for results and data sets."""
    return _space(
        Path.cwd(), enough=GiB, what_for="data sets and results need about 1 GB", do="remove what you do not need"
    )


def space_for_temporary_files() -> Reading:
    """Room for what torchrun and others write meanwhile."""
    do = "remove what you do not need there, or name another folder: export TMPDIR=$HOME/tmp"
    folder = Path(os.environ.get("TMPDIR") or "/tmp")
    found = _space(folder, enough=100 * MiB, what_for="torchrun and editors write there", do=do)
    if found.needs_repair:
        with contextlib.suppress(FileNotFoundError):  # no folder at all
            return Reading("note", f"{found.what}; Python uses {short(Path(tempfile.gettempdir()))} instead", do)
    return found


def shared_memory() -> Reading:
    """Room for what the workers of a DataLoader hand to their rank."""
    folder = platform.SHARED_MEMORY
    if folder is None:
        return Reading("good", "has no folder of its own on this system")
    do = "train with --num-workers 0; start a container with --shm-size=1g"
    if not folder.is_dir():
        return Reading("note", f"{folder} is not there", do)
    found = _space(folder, enough=256 * MiB, what_for="DataLoader workers pass batches through it", do=do)
    return replace(found, state="note") if found.needs_repair else found


def _space(folder: Path, *, enough: int, what_for: str, do: str) -> Reading:
    """Write a MiB, which also tells about quotas and read-only disks, and see how much is free."""
    try:
        free = shutil.disk_usage(folder).free
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(MiB))
            file.flush()
    except OSError as error:
        return Reading("bad", f"{short(folder)} cannot be written to: {error.strerror}", do)
    size = f"{free / GiB:.1f} GiB" if free >= GiB else f"{free // MiB} MiB"
    if free < enough:
        return Reading("note", f"only {size} free in {short(folder)}; {what_for}", do)
    return Reading("good", f"{size} free in {short(folder)}")


def _loopback_works() -> bool:
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), timeout=5).close()
    except OSError:
        return False
    return True


def _same_prefix(interpreter: Path) -> bool:
    if interpreter.parent == Path(sys.executable).parent:
        return True
    answer = ask([interpreter, "-c", "import sys; print(sys.prefix)"], 20)
    return answer.ok and Path(answer.out.strip()).resolve() == Path(sys.prefix).resolve()


def _is_ours(address: str) -> bool:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as probe:
        try:
            probe.bind((address.partition("%")[0], 0))
        except OSError:
            return False
    return True


def short(path: Path) -> str:
    """A path as a person would write it: from the current folder if it is below, or with ~."""
    for base, sign in ((Path.cwd(), ""), (Path.home(), "~")):
        if path.is_relative_to(base) and path != base:
            return os.path.join(sign, path.relative_to(base))
    return "this folder" if path == Path.cwd() else str(path)


PROBES = (
    Probe("Python", python, 30, needed=True),
    Probe("PyTorch", torch, 120, needed=True),
    Probe("ranks", ranks, 180, needed=True),
    Probe("host name", host_name, 15),
    Probe("disk", space_here, 15, needed=True),
    Probe("temporary", space_for_temporary_files, 15),
    Probe("shared mem", shared_memory, 15),
)
