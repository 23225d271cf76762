"""Which jobs a sweep has, and the commands that run_benchmarks.py shows for them."""

import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import run_benchmarks
from lab.sweep import launch, local, slurm
from lab.sweep.plan import PRESETS, Sweep, plan_jobs
from lab.training import options
from lab.training.errors import UsageError


@pytest.fixture
def package(tmp_path, monkeypatch) -> Path:
    """A folder as a student has it: run.sh, exercises/main.py and solutions/main.py, all of them empty."""
    for name in ("exercises/main.py", "solutions/main.py", "run.sh"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def points(sweep: Sweep) -> list[tuple[str, int]]:
    return [(job.strategy, job.devices) for job in plan_jobs(sweep)]


def test_default_sweep_has_every_strategy_on_every_count_and_the_baseline_once():
    assert points(Sweep()) == [
        ("none", 1),
        *(("ddp", 1), ("fsdp", 1), ("ddp", 2), ("fsdp", 2), ("ddp", 4), ("fsdp", 4), ("ddp", 8), ("fsdp", 8)),
    ]


@pytest.mark.parametrize("strategies", [("ddp",), ("ddp", "none"), ("ddp", "ddp")])
def test_baseline_is_always_in_and_nothing_twice(strategies):
    assert points(Sweep(devices=(4, 2, 4), strategies=strategies)) == [("none", 1), ("ddp", 2), ("ddp", 4)]


def test_preset_demo_is_the_embedded_data_on_one_and_two_ranks_of_the_reference():
    jobs = plan_jobs(PRESETS["demo"])
    assert [(job.strategy, job.devices) for job in jobs] == [
        *(("none", 1), ("ddp", 1), ("fsdp", 1), ("ddp", 2), ("fsdp", 2))
    ]
    flags = jobs[0].parsed_flags()
    assert (flags.dataset, flags.model, flags.epochs, flags.global_batch_size) == ("shapes", "cnn", 3, 256)
    assert (jobs[0].sweep.code, jobs[0].sweep.launcher) == ("solutions", "local")


def test_run_id_is_stable_and_differs_with_every_setting():
    sweep = Sweep()
    others = [
        replace(sweep, global_batch=256),
        replace(sweep, epochs=1),
        replace(sweep, code="solutions"),
        replace(sweep, flags=("--seed", "1")),
    ]
    first = plan_jobs(sweep)[0].run_id
    assert first == plan_jobs(Sweep())[0].run_id
    assert len({first, *(plan_jobs(other)[0].run_id for other in others)}) == 5
    assert len({job.run_id for job in plan_jobs(sweep)}) == 9


def test_flags_are_understood_by_main_and_the_users_come_last():
    job = plan_jobs(Sweep(devices=(2,), flags=("--precision", "bf16")))[1]
    args = options.parse(job.main_flags)
    assert (args.strategy, args.global_batch_size, args.epochs, args.precision) == ("ddp", 512, 5, "bf16")
    assert (args.run_id, args.scaling, args.repeat) == (job.run_id, "strong", 1)
    assert job.main_flags[-2:] == ["--precision", "bf16"]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"devices": (0,)}, "--devices 0"),
        ({"devices": (3,)}, "--global-batch-size 510"),
        ({"global_batch": 0}, "--global-batch-size 0"),
        ({"epochs": 0}, "--epochs 0"),
        ({"strategies": ("zero",)}, "zero is unknown"),
        ({"flags": ("--strategy", "ddp")}, "use --strategies before the --"),
        ({"flags": ("--output-dir=x",)}, "use --output-dir before the --"),
        ({"flags": ("--run-id", "x")}, "--run-id after -- is set by the sweep"),
        ({"flags": ("--modle", "cnn")}, "unrecognized arguments: --modle cnn"),
        ({"flags": ("--precision", "fp7")}, "invalid choice: 'fp7'"),
    ],
)
def test_a_senseless_sweep_is_one_sentence_before_any_job(wrong, says, capsys):
    with pytest.raises(UsageError, match=says.replace("(", r"\(")):
        plan_jobs(replace(Sweep(), **wrong))
    assert capsys.readouterr().err == ""


def test_dry_run_prints_the_local_commands(package, capsys):
    argv = ["--launcher", "local", "--devices", "2", "--strategies", "fsdp", "--epochs", "3", "--dry-run"]
    assert run_benchmarks.main([*argv, "--", "--dataset", "imagefolder", "--data-dir", "my data"]) == 0
    baseline, fsdp = capsys.readouterr().out.splitlines()
    words = shlex.split(fsdp)
    assert words[:2] == ["OMP_NUM_THREADS=1", sys.executable]
    assert words[2:7] == ["-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
    assert words[7:10] == ["--nproc-per-node", "2", "exercises/main.py"]
    assert words[10:14] == ["--strategy", "fsdp", "--global-batch-size", "512"]
    assert words[-2:] == ["--data-dir", "my data"]
    assert "--nproc-per-node 1 exercises/main.py --strategy none" in baseline
    assert sorted(path.name for path in package.iterdir()) == ["exercises", "run.sh", "solutions"]  # no results


def test_dry_run_prints_the_slurm_commands(package, capsys):
    argv = ["--launcher", "slurm", "--devices", "8", "--strategies", "ddp", "--code", "solutions", "--dry-run"]
    assert run_benchmarks.main(argv) == 0
    baseline, ddp = capsys.readouterr().out.splitlines()
    assert ddp.startswith("CODE=solutions sbatch --parsable --nodes=2 --ntasks-per-node=4 ")
    assert " run.sh --strategy ddp " in ddp
    assert " --nodes=1 --ntasks-per-node=1 " in baseline
    words = shlex.split(ddp)
    run_id = words[words.index("--run-id") + 1]
    assert f"--output=results/{run_id}/train.log" in words
    assert f"--error=results/{run_id}/train.err" in words
    for unwanted in ("account", "partition", "time"):
        assert f"--{unwanted}" not in ddp


@pytest.mark.parametrize(
    ("devices", "expected"), [(1, (1, 1)), (4, (1, 4)), (6, (2, 3)), (8, (2, 4)), (12, (3, 4))]
)
def test_layout_uses_as_few_nodes_as_possible(devices, expected):
    assert slurm.layout(devices) == expected


def test_layout_refuses_an_uneven_spread():
    with pytest.raises(UsageError, match="7 devices cannot be spread evenly over 2 nodes"):
        slurm.layout(7)


def test_launcher_is_slurm_where_sbatch_is(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert launch.choose_launcher() == "local"
    (tmp_path / "sbatch").touch(mode=0o755)
    assert launch.choose_launcher() == "slurm"


def test_default_counts_stop_at_what_this_machine_has_and_asked_ones_do_not(package, capsys, monkeypatch):
    monkeypatch.setattr(local, "available_devices", lambda: (2, "CPU cores"))
    run_benchmarks.main(["--launcher", "local", "--dry-run"])
    assert capsys.readouterr().out.count("\n") == 5  # on 1 and 2 devices
    run_benchmarks.main(["--launcher", "local", "--devices", "4", "--dry-run"])
    assert "--nproc-per-node 4" in capsys.readouterr().out


def test_available_devices_are_the_visible_gpus(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3,5")
    assert local.available_devices() == (3, "GPUs")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert local.available_devices()[1] == "CPU cores"


@pytest.mark.parametrize(
    ("argv", "code", "says"),
    [
        (["--code", "nowhere", "--launcher", "local"], 1, "no nowhere/main.py in"),
        (["--launcher", "local", "--devices", "3"], 2, "cannot be divided evenly among 3 devices"),
        (["--launcher", "local", "--", "--epochs", "3"], 2, "use --epochs before the --"),
    ],
)
def test_bad_input_ends_with_one_sentence(package, argv, code, says, capsys):
    assert run_benchmarks.main(argv) == code
    error = capsys.readouterr().err
    assert says in error
    assert error.startswith("run_benchmarks.py: ")
    assert error.count("\n") == 1


def test_slurm_needs_run_sh(package, capsys):
    (package / "run.sh").unlink()
    assert run_benchmarks.main(["--launcher", "slurm"]) == 1
    assert "no run.sh in" in capsys.readouterr().err
