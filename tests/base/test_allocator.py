"""Memory that a step frees stays with the process, unless its user has said something else."""

import ctypes
import os
import subprocess
import sys

import pytest

from lab.base.allocator import KEEPS, keep_freed_memory

FAULTS = """
import resource, sys
from lab.base.allocator import keep_freed_memory
if sys.argv[1:]: print(keep_freed_memory(), file=sys.stderr)
def step():
    blocks = [bytearray(b"x") * 2**26 for _ in range(2)]  # 64 MiB each
step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5): step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""

glibc = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"), reason="needs glibc")


def faults(*argv: str) -> int:
    """Pages that the kernel has to hand out in five steps, each of which asks for 128 MiB and frees them."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    command = [sys.executable, "-c", FAULTS, *argv]
    return int(subprocess.run(command, env=environ, check=True, capture_output=True, text=True).stdout)


@glibc
def test_the_kernel_is_not_asked_for_the_same_memory_in_every_step():
    assert faults("keep") * 10 < faults()


@glibc
@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({"MALLOC_TRIM_THRESHOLD_": "131072"}, "MALLOC_TRIM_THRESHOLD_=131072"),
        ({"GLIBC_TUNABLES": "glibc.cpu.x=1:glibc.malloc.top_pad=4096"}, "glibc.malloc.top_pad=4096"),
        ({"LD_PRELOAD": "/opt/lib/libjemalloc.so.2 /opt/lib/other.so"}, "libjemalloc.so.2"),
    ],
)
def test_settings_of_ones_own_stay_and_are_recorded(environ, says, monkeypatch):
    def fail(*args: int) -> int:
        raise AssertionError(f"mallopt{args}")

    with monkeypatch.context() as patched:
        patched.setattr(
            ctypes, "CDLL", lambda name: type("Libc", (), {"gnu_get_libc_version": 1, "mallopt": fail})
        )
        assert keep_freed_memory(environ) == says


@pytest.mark.parametrize(
    ("refuses", "calls", "says"),
    [
        ((), [(-3, 2**30), (-1, -1)], KEEPS),
        ((-3,), [(-3, 2**30), (-4, 0), (-1, -1)], KEEPS),  # before glibc 2.35
        ((-3, -4), [(-3, 2**30), (-4, 0)], "glibc"),
    ],
)
def test_it_says_what_glibc_took(refuses, calls, says, monkeypatch):
    asked = []

    class Libc:
        gnu_get_libc_version = None

        @staticmethod
        def mallopt(name: int, value: int) -> int:
            asked.append((name, value))
            return int(name not in refuses)

    with monkeypatch.context() as patched:
        patched.setattr(ctypes, "CDLL", lambda name: Libc)
        assert keep_freed_memory({}) == says
    assert asked == calls


def test_another_libc_is_left_alone(monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(ctypes, "CDLL", lambda name: object())
        assert keep_freed_memory({"MALLOC_TOP_PAD_": "1"}) == ""
