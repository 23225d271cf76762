"""--startup-times: every part of a run's start is there, and together they are all of the time."""

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from mnist_files import tiny_mnist, write

from lab.base import startup
from lab.ranks.rank import Rank
from lab.ranks.server import server
from lab.runs import options
from lab.training.watching.startup import STAGES

CODE = Path(__file__).resolve().parents[2] / "solutions"


def run_main(rank: Rank) -> float:
    main = rank.student("main")
    began = time.monotonic()
    main.main(rank.receive())
    return time.monotonic() - began


def test_every_part_of_the_start_is_printed_once(tmp_path):
    write(tmp_path / "data", tiny_mnist())
    argv = ["--model", "mnist_cnn", "--dataset", "mnist", "--data-dir", str(tmp_path / "data"), "--epochs", "2"]
    argv += ["--global-batch-size", "12", "--output-dir", str(tmp_path), "--run-id", "r", "--startup-times"]
    result = server().run(run_main, 2, code=CODE, inputs=argv, timeout=60, set_up_process_group=False)
    assert result.ok, result.reports
    log = (tmp_path / "r" / "train.log").read_text()
    (block,) = re.findall(r"^start-up, seconds .*\n((?:  .*\n)+)", log, re.M)
    rows = re.findall(r"^  (.+?) +([\d.]+)  \(([\d.]+)\)$", block, re.M)
    found = {name: (float(mine), float(most)) for name, mine, most in rows}
    stages = STAGES if sys.platform == "linux" else STAGES[1:]
    assert tuple(found) == (*stages, "in all")
    assert all(0 <= mine <= most for mine, most in found.values())
    assert found["in all"][0] == pytest.approx(sum(found[stage][0] for stage in stages), abs=0.05)
    assert found["in all"][0] - found.get("imports", (0, 0))[0] < result.values[0]


def test_the_clock_starts_with_the_process():
    if sys.platform != "linux":
        pytest.skip("only Linux tells when a process began")
    program = (
        "import time; began = time.monotonic(); time.sleep(0.3)\n"
        "from lab.base import startup; startup.reach('imports'); time.sleep(0.2); startup.reach('data')\n"
        "print(*startup.seconds().values(), time.monotonic() - began)"
    )
    before = time.monotonic()
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    imports, data, inside = map(float, done.stdout.split())
    assert 0.3 <= imports + 0.02 <= time.monotonic() - before  # the kernel counts hundredths
    assert data >= 0.2
    assert imports + data >= inside - 0.05


def test_where_nobody_knows_when_the_process_began_the_first_part_is_left_out(monkeypatch):
    monkeypatch.setattr(startup, "_reached", {"imports": 2.0, "data": 5.0})
    monkeypatch.setattr(startup, "_process_began", lambda: None)
    assert startup.seconds() == {"data": 3.0}


def test_a_dry_run_has_no_first_step():
    _, warnings = options.resolve(options.parse(["--startup-times", "--dry-run"]), 1)
    assert "--startup-times has no effect in a dry run" in warnings
