"""lab tensorboard: what it says, and that it serves."""

import os
import re
import subprocess
import sys
import urllib.request

import pytest

from lab.cli import main
from lab.commands.tensorboard import address, instructions


def test_through_ssh_it_prints_the_tunnel():
    said = instructions(6006, "ada", "login1.cluster", remote=True)
    assert "ssh -N -L 6006:127.0.0.1:6006 ada@login1.cluster" in said
    assert "ssh" not in instructions(6006, "ada", "laptop", remote=False)


@pytest.mark.parametrize(
    ("name", "connection", "host"),
    [
        ("login1.cluster", "10.0.0.9 50000 10.0.0.7 22", "login1.cluster"),
        ("localhost", "10.0.0.9 50000 10.0.0.7 22", "10.0.0.7"),  # a container knows no other name
        ("localhost.localdomain", "::1 50000 fd00::7 22", "fd00::7"),
        ("localhost", "", "NAME-OF-THIS-MACHINE"),
    ],
)
def test_the_tunnel_never_leads_to_localhost(name, connection, host):
    assert address(name, connection) == host


def test_a_folder_that_is_not_there_is_one_sentence(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["tensorboard"]) == 1
    assert "results is not there" in capsys.readouterr().err


def test_a_port_that_is_taken_is_one_sentence(tmp_path, capsys):
    assert main(["tensorboard", str(tmp_path), "--port", "70000"]) == 1
    assert "port 70000 cannot be used here" in capsys.readouterr().err


def test_it_serves_the_page_it_names(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "SSH_CONNECTION"}
    command = [sys.executable, "-m", "lab.cli", "tensorboard", str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    ) as server:
        try:
            page = ""
            for line in server.stdout:
                page = page or (re.search(r"http://127\.0\.0\.1:\d+", line) or [""])[0]
                if "TensorBoard" in line and "Press CTRL+C" in line:
                    break
            with urllib.request.urlopen(page, timeout=60) as answer:
                assert answer.status == 200
        finally:
            server.kill()  # asked to end, it has been seen to hang on its way out
