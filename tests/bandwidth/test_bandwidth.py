"""lab bandwidth: constants of made-up times, the file, real gloo ranks, the figure, what is refused."""

import csv
import math
import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from lab.bandwidth import launch
from lab.bandwidth.fit import fit, fits, table, timing_table
from lab.bandwidth.launch import launched
from lab.bandwidth.timings import COLLECTIVES, COLUMNS, Timing, load, save
from lab.base.errors import UsageError, UserError
from lab.cli import main

ALPHA, BETA = 5e-6, 20e9
SIZES = [2**n for n in range(10, 27, 2)]
LAUNCHERS = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "SLURM_STEP_ID", "SLURM_NTASKS")


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    for name in LAUNCHERS:
        monkeypatch.delenv(name, raising=False)


def ring(collective="all-reduce", ranks=4, sizes=SIZES, nodes=1, device="cpu") -> list[Timing]:
    """What a ring takes: it sends `ranks`-ths of the buffer, one after the other."""
    rounds = (ranks - 1) * (2 if collective == "all-reduce" else 1)
    return [
        Timing(collective, ranks, nodes, size, rounds * (ALPHA + size / ranks / BETA), "gloo", device)
        for size in sizes
    ]


def disturbed(timings: list[Timing], place: int, factor: float) -> list[Timing]:
    return [
        replace(one, seconds=one.seconds * factor) if number == place else one
        for number, one in enumerate(timings)
    ]


@pytest.mark.parametrize("collective", COLLECTIVES)
@pytest.mark.parametrize("ranks", [2, 3, 8])
@pytest.mark.parametrize("sizes", [SIZES, SIZES[::4]])
def test_the_constants_of_a_ring_come_back(collective, ranks, sizes):
    found = fit(ring(collective, ranks, sizes))
    assert (found.alpha, found.beta) == (pytest.approx(ALPHA), pytest.approx(BETA))
    assert found.worst_off < 1e-9
    assert found.aside is None
    assert found.holds


@pytest.mark.parametrize("place", range(len(SIZES)))
@pytest.mark.parametrize("factor", [0.3, 2, 30])
def test_one_disturbed_size_is_set_aside_and_named(place, factor):
    found = fit(disturbed(ring(), place, factor))
    assert (found.alpha, found.beta) == (pytest.approx(ALPHA), pytest.approx(BETA))
    assert found.aside is not None
    assert found.aside.bytes == SIZES[place]
    assert "was set aside" in "\n".join(table([found]))


def test_noise_is_no_disturbance_and_counts_alike_at_every_size():
    noisy = [replace(one, seconds=one.seconds * (1.1 if n % 2 else 0.9)) for n, one in enumerate(ring())]
    found = fit(noisy)
    assert found.aside is None
    assert (found.alpha, found.beta) == (pytest.approx(ALPHA, rel=0.1), pytest.approx(BETA, rel=0.1))
    assert 0.05 < found.typically_off < 0.15


def test_fewer_than_three_sizes_are_not_fitted():
    with pytest.raises(UserError, match="2 sizes: at least 3"):
        fit(ring(sizes=SIZES[:2]))
    found, why_not = fits([*ring(), *ring("all-gather", sizes=[1024, 4096])])
    assert [one.collective for one in found] == ["all-reduce"]
    assert why_not == ["all-gather on 4 ranks: 2 sizes: at least 3 tell what a message costs from a byte"]


def test_sizes_that_are_only_latency_are_named():
    text = "\n".join(table([fit(ring())]))
    # ALPHA BETA is 100 kB a round: of 4 x 11 kB nine tenths are latency
    assert "all-reduce on 4 ranks: up to 16 KiB it is no more than latency." in text
    small = [Timing("all-reduce", 4, 1, size, 6 * ALPHA, "gloo", "cpu") for size in (16, 32, 64)]
    found = fit(small)
    assert math.isinf(found.beta)
    assert not found.holds
    assert "every size is latency only" in "\n".join(table([found]))


def test_times_that_follow_no_curve_give_no_constants():
    seconds = (5e-3, 1e-5, 8e-3, 1e-4, 1e-3, 2e-5)
    wild = [replace(one, seconds=t) for one, t in zip(ring(), seconds, strict=False)]
    found = fit(wild)
    assert not found.holds
    text = "\n".join(table([found]))
    assert "follow no such curve" in text
    assert "latency" not in text


def test_groups_are_not_mixed():
    found, _ = fits([*ring(ranks=2), *ring(ranks=4), *ring(ranks=4, nodes=2), *ring(ranks=4, device="A card")])
    assert [(one.ranks, one.nodes, one.device) for one in found] == [
        *((2, 1, "cpu"), (4, 1, "A card"), (4, 1, "cpu"), (4, 2, "cpu"))
    ]


@pytest.mark.parametrize(
    ("collective", "factor"), [("all-reduce", 2 * 3 / 4), ("all-gather", 3 / 4), ("reduce-scatter", 3 / 4)]
)
def test_bus_bandwidth_is_that_of_nccl_tests(collective, factor):
    one = Timing(collective, 4, 1, 10**9, 0.5, "nccl", "A card")
    assert one.algorithm_gb_s == pytest.approx(2)
    assert one.bus_gb_s == pytest.approx(2 * factor)


def test_the_file_keeps_everything(tmp_path):
    timings = [
        replace(one, seconds=float(f"{one.seconds:.6g}")) for one in [*ring(), *ring("all-gather", nodes=2)]
    ]
    save(timings, tmp_path / "bandwidth.csv")
    assert load(tmp_path / "bandwidth.csv") == timings
    with (tmp_path / "bandwidth.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    assert float(rows[0]["bus_gb_s"]) == pytest.approx(1.5 * float(rows[0]["algorithm_gb_s"]), rel=1e-4)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("all-reduce,4", "all-reduce,1", "line 2 of .* is damaged"),
        ("all-reduce,4,1", "all-reduce,4,5", "line 2 of .* is damaged"),
        ("all-reduce,4", "broadcast,4", "line 2 of .* is damaged"),
        (",1024,", ",1024.5,", "line 2 of .* is damaged"),
        (",1024,", ",-1024,", "line 2 of .* is damaged"),
        (",1024,3.", ",1024,nan", "line 2 of .* is damaged"),
        (",seconds,", ",minutes,", "lacks columns of a table of collectives"),
    ],
)
def test_a_damaged_file_is_said(tmp_path, capsys, old, new, sentence):
    path = tmp_path / "bandwidth.csv"
    save(ring(), path)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(UserError, match=sentence):
        load(path)
    assert main(["bandwidth", str(path)]) == 1
    assert re.search(sentence, capsys.readouterr().err)


def test_a_file_is_drawn_again_in_80_columns(tmp_path, capsys):
    save([one for name in COLLECTIVES for n in (2, 4) for one in ring(name, n)], tmp_path / "bandwidth.csv")
    assert main(["bandwidth", str(tmp_path / "bandwidth.csv")]) == 0
    out = capsys.readouterr().out
    table_rows = [line.split() for line in out.splitlines() if line.startswith("reduce-scatter  ")]
    assert table_rows[-1] == ["reduce-scatter", "4", "1", "5", "20", "0%", "0%"]
    assert max(map(len, out.split("\nDrawn")[0].splitlines())) <= 80
    assert (tmp_path / "bandwidth.png").stat().st_size > 10_000
    assert (tmp_path / "bandwidth.svg").is_file()


def test_large_numbers_stay_in_80_columns_without_exponents():
    one = Timing("reduce-scatter", 1024, 128, 999 * 2**30, 1234.5678, "nccl", "A card")
    points = [replace(one, bytes=one.bytes // n) for n in (1, 3, 7)]
    lines = [
        *timing_table(points),
        *timing_table([replace(one, bytes=1044480, seconds=0.9)]),
        *table([fit(points)]),
    ]
    assert max(map(len, lines)) <= 80
    assert "1020 KiB" in lines[5]
    assert "e+" not in "".join(lines)


@pytest.mark.timeout(300)
def test_two_gloo_ranks_measure_every_collective(tmp_path, capsys):
    argv = ["bandwidth", "--cpu", "--ranks", "2", "--sizes", "1K", "0004k", "65536", "--output", str(tmp_path)]
    assert main(argv) == 0
    timings = load(tmp_path / "bandwidth.csv")
    assert [(one.collective, one.bytes) for one in timings] == [
        (name, size) for name in COLLECTIVES for size in (1024, 4096, 65536)
    ]
    assert {(one.ranks, one.nodes, one.backend, one.device) for one in timings} == {(2, 1, "gloo", "cpu")}
    out = capsys.readouterr().out
    assert "fitted" in out
    assert (tmp_path / "bandwidth.png").is_file()


@pytest.mark.timeout(300)
def test_under_torchrun_the_ranks_that_are_there_measure_and_one_tells(tmp_path):
    argv = ["bandwidth", "--cpu", "--sizes", "24", "2K", "30K", "--output", str(tmp_path)]
    done = subprocess.run(
        [*launch.launcher(3), "--module", "lab.cli", *argv],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Drawn: ") == 1
    assert [one.bytes for one in load(tmp_path / "bandwidth.csv")] == [24, 2040, 30720] * 3  # whole thirds
    assert {one.ranks for one in load(tmp_path / "bandwidth.csv")} == {3}


@pytest.mark.timeout(300)
def test_ranks_that_fail_are_said(monkeypatch):
    monkeypatch.setattr(launch, "launcher", lambda ranks: [sys.executable, "-c", "raise OSError('no such wire')"])
    with pytest.raises(UserError, match="2 ranks could not measure: OSError: no such wire"):
        launch.measure_here(2, [1024], cpu=True)


@pytest.mark.parametrize(
    ("argv", "sentence"),
    [
        (["--ranks", "0"], "--ranks 0: a collective takes at least 2"),
        (["--ranks", "2", "1"], "--ranks 1: a collective takes at least 2"),
        (["--sizes", "big"], "--sizes big: not a number of bytes, such as 65536, 64K or 4M"),
        (["--sizes", "0"], "--sizes 0: not a number of bytes"),
        (["--sizes", "-4"], "--sizes"),
        (["--sizes", "4", "--ranks", "2"], "--sizes 4: 2 ranks share at least 8 bytes"),
        (["none.csv"], "cannot read none.csv (No such file or directory)"),
        (["none.csv", "--ranks", "2"], "none.csv is drawn as it is: --ranks is for measuring"),
    ],
)
def test_what_cannot_be_done_is_said(argv, sentence, capsys):
    try:
        code = main(["bandwidth", *argv, "--cpu"] if "none.csv" not in argv else ["bandwidth", *argv])
    except SystemExit as error:  # argparse
        code = error.code
    assert code in (1, 2)
    assert sentence in capsys.readouterr().err


def test_more_ranks_than_gpus_are_refused(monkeypatch, capsys):
    monkeypatch.setattr("lab.sweep.launch.local.gpus", lambda: ["A card", "A card"])
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert main(["bandwidth", "--ranks", "4"]) == 2
    assert "--ranks 4: there are 2 GPUs here; take fewer, or --cpu" in capsys.readouterr().err


MEET = {"MASTER_ADDR": "node1", "MASTER_PORT": "29500"}


def test_a_launcher_says_which_rank_this_is():
    assert launched({}) is None
    assert launched({"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", **MEET}) == (3, 1, 4)
    step = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "1", "SLURM_LOCALID": "0", "SLURM_NTASKS": "2"}
    assert launched({**step, **MEET}) == (1, 0, 2)
    assert launched({**step, "SLURM_NTASKS": "1"}) is None  # a shell on a node
    with pytest.raises(UsageError, match="do not know where to meet"):
        launched(step)
    with pytest.raises(UsageError, match="LOCAL_RANK='', WORLD_SIZE='two'"):
        launched({"RANK": "3", "WORLD_SIZE": "two", **MEET})
    with pytest.raises(UsageError, match="contradict"):
        launched({"RANK": "4", "LOCAL_RANK": "0", "WORLD_SIZE": "4", **MEET})


def test_a_launcher_of_one_rank_or_with_ranks_is_refused(monkeypatch, capsys):
    for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", **MEET}.items():
        monkeypatch.setenv(name, value)
    assert main(["bandwidth"]) == 2
    assert "a single rank: a collective takes at least 2" in capsys.readouterr().err
    assert main(["bandwidth", "--ranks", "2"]) == 2
    assert "under a launcher its own 1 measure" in capsys.readouterr().err


@pytest.mark.gpu
def test_two_gpus_are_measured_with_nccl(tmp_path):
    import torch

    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    assert main(["bandwidth", "--ranks", "2", "--output", str(tmp_path)]) == 0
    timings = load(tmp_path / "bandwidth.csv")
    assert {one.backend for one in timings} == {"nccl"}
    found, why_not = fits(timings)
    assert len(found) == 3
    assert why_not == []
    for one in found:
        assert 1e9 < one.beta < 1e12
