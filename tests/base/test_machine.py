"""What this machine has, as the driver's own tool says it."""

import subprocess
from pathlib import Path

import pytest

from lab.base import machine


@pytest.fixture
def tool(tmp_path, monkeypatch):
    """Puts a nvidia-smi that runs these lines of shell where programs are looked for, alone."""

    def put(script: str) -> None:
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(machine, "Path", lambda name: Path("/none"))  # no kernel module either
    return put


def test_the_gpus_are_counted_and_named(tool):
    tool(
        "echo 'GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-1)'\n"
        "echo '  MIG 1g.10gb     Device  0: (UUID: MIG-2)'\n"
        "echo 'GPU 1: NVIDIA H100 NVL (UUID: GPU-3)'"
    )
    assert machine.gpus() == ["NVIDIA A100-SXM4-80GB", "NVIDIA H100 NVL"]


def test_without_the_tool_there_are_no_gpus(tool):
    assert machine.gpus() == []
    assert machine.driver_version() == ""


def test_a_tool_that_fails_counts_for_what_it_found_before(tool):
    tool("echo 'GPU 0: NVIDIA H100 NVL (UUID: GPU-3)'; echo 'Unable to determine the handle for GPU1'; exit 255")
    assert machine.gpus() == ["NVIDIA H100 NVL"]
    tool("echo 'NVIDIA-SMI has failed because it could not reach the driver 3. It is not there.'; exit 9")
    assert machine.gpus() == []
    assert machine.driver_version() == ""


def test_a_tool_that_hangs_is_as_none(monkeypatch):
    def hangs(command, timeout, **_):
        assert timeout == 20
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(subprocess, "run", hangs)
    assert machine.nvidia_smi("-L") == ""


def test_the_driver_says_its_version(tool, tmp_path, monkeypatch):
    tool('[ "$1 $2" = "--query-gpu=driver_version --format=csv,noheader" ] && printf "570.86.15\\n570.86.15\\n"')
    assert machine.driver_version() == "570.86.15"
    module = tmp_path / "version"
    module.write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.1  Release\nGCC version:  gcc version 12.2.0\n"
    )
    monkeypatch.setattr(machine, "Path", lambda name: module)
    assert machine.driver_version() == "580.1"
