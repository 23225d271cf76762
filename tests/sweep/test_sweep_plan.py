"""Which jobs a sweep has, and the commands that run_benchmarks.py shows for them."""

import shlex
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import run_benchmarks
from lab.base.errors import UsageError
from lab.runs import options
from lab.slurm import query
from lab.sweep.launch import launch, local, slurm
from lab.sweep.plan.plan import plan_jobs
from lab.sweep.plan.presets import GPU_GROUPS, PRESETS
from lab.sweep.plan.sweep import Sweep


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
    jobs = plan_jobs(*PRESETS["demo"])
    assert [(job.strategy, job.devices) for job in jobs] == [
        *(("none", 1), ("ddp", 1), ("fsdp", 1), ("ddp", 2), ("fsdp", 2))
    ]
    flags = jobs[0].parsed_flags()
    assert (flags.dataset, flags.model, flags.epochs, flags.global_batch_size) == ("shapes", "cnn", 3, 256)
    assert (jobs[0].sweep.code, jobs[0].sweep.launcher) == ("solutions", "local")


def described(sweep: Sweep) -> list[str]:
    return [" ".join(job.title.split()) for job in plan_jobs(sweep)]


def test_strong_and_weak_have_a_baseline_each():
    sweep = Sweep(devices=(2,), strategies=("ddp",), scalings=("strong", "weak"), global_batches=(64,))
    jobs = plan_jobs(replace(sweep, per_device_batches=(16,)))
    assert [(job.strategy, job.scaling, job.global_batch) for job in jobs] == [
        *(("none", "strong", 64), ("ddp", "strong", 64), ("none", "weak", 16), ("ddp", "weak", 32))
    ]
    args = options.parse(jobs[3].main_flags)
    assert (args.per_device_batch_size, args.global_batch_size, args.scaling) == (16, None, "weak")


def test_every_precision_batch_and_number_of_workers_has_its_baseline_and_buckets_share_one():
    one = Sweep(devices=(4,), strategies=("ddp", "fsdp"), scalings=("weak",))
    assert described(replace(one, precisions=("fp32", "bf16"), strategies=("ddp",))) == [
        *("none 1 device fp32", "ddp 4 devices fp32", "none 1 device bf16", "ddp 4 devices bf16")
    ]
    assert len(plan_jobs(replace(one, per_device_batches=(64, 128, 256)))) == 9
    assert len(plan_jobs(replace(one, workers=(0, 2)))) == 6
    assert described(replace(one, bucket_caps=(25, 50, 100))) == [
        *("none 1 device", "ddp 4 devices 25 MiB", "ddp 4 devices 50 MiB", "ddp 4 devices 100 MiB"),
        "fsdp 4 devices",
    ]


def test_repeats_come_round_by_round_and_are_named_alike():
    jobs = plan_jobs(Sweep(devices=(2,), strategies=("ddp",), repeats=3))
    assert [(job.strategy, job.repeat) for job in jobs] == [
        *(("none", 1), ("ddp", 1), ("none", 2), ("ddp", 2), ("none", 3), ("ddp", 3))
    ]
    assert [job.run_id for job in jobs[1::2]] == [jobs[1].run_id + end for end in ("", "-r2", "-r3")]


def test_before_and_after_is_every_job_twice():
    sweep = Sweep(devices=(2,), strategies=("ddp",), compare=("--deterministic",))
    assert described(sweep) == [
        *("none 1 device", "ddp 2 devices", "none 1 device --deterministic", "ddp 2 devices --deterministic")
    ]


@pytest.mark.parametrize(
    ("compare", "also"),
    [
        (("--bucket-cap-mb", "50"), ["ddp 2 devices --bucket-cap-mb 50"]),
        (
            ("--bucket-cap-mb=50", "--augment"),
            [
                f"{job} --bucket-cap-mb=50 --augment"
                for job in ("none 1 device", "ddp 2 devices", "fsdp 2 devices")
            ],
        ),
    ],
)
def test_a_job_that_compare_leaves_as_it_is_is_run_once(compare, also):
    assert described(Sweep(devices=(2,), compare=compare)) == [
        *("none 1 device", "ddp 2 devices", "fsdp 2 devices"),
        *also,
    ]


def test_a_measurement_takes_the_place_of_epochs():
    args = plan_jobs(Sweep(devices=(1,), measure_steps=50, measure_warmup=7))[0].parsed_flags()
    assert (args.measure_steps, args.measure_warmup) == (50, 7)


def test_sweeps_that_share_jobs_run_them_once():
    one = Sweep(devices=(2,), strategies=("ddp",))
    assert len(plan_jobs(one, replace(one, bucket_caps=(25, 50)))) == 3


def test_preset_course_is_two_ranks_strong_and_weak_twice_with_fifty_steps_measured():
    jobs = plan_jobs(*PRESETS["course"])
    assert len(jobs) == 20
    assert {(job.scaling, job.batch) for job in jobs} == {("strong", 256), ("weak", 128)}
    assert {job.parsed_flags().measure_steps for job in jobs} == {50}
    assert jobs[0].sweep.cpu


def test_preset_eight_measures_three_networks_eager_and_at_their_best_on_one_to_eight_devices():
    jobs = plan_jobs(*PRESETS["eight"])
    points = {
        (job.parsed_flags().model, job.scaling, job.extra != (), job.strategy, job.devices, job.repeat)
        for job in jobs
    }
    curves = {("none", 1), *((strategy, count) for strategy in ("ddp", "fsdp") for count in (1, 2, 4, 8))}
    assert points == {
        (model, scaling, faster, *point, repeat)
        for model in ("cnn", "resnet18", "vit")
        for scaling in ("strong", "weak")
        for faster in (False, True)
        for point in curves
        for repeat in (1, 2, 3)
    }
    for job in jobs:
        flags = job.parsed_flags()
        assert flags.capture == flags.compile == (job.extra != ())


@pytest.mark.parametrize("name", sorted(set(PRESETS) - {"demo", "batches"}))
def test_every_preset_has_its_baseline_and_at_least_fifty_measured_steps(name):
    sweeps = [sweep for sweep in PRESETS[name] if not knows_no(sweep.compare)]
    for sweep in sweeps:
        jobs = plan_jobs(sweep)
        assert (jobs[0].strategy, jobs[0].devices) == ("none", 1)
        assert all(job.parsed_flags().measure_steps >= 50 for job in jobs)


def test_preset_batches_varies_the_global_batch_alone_in_epochs_because_accuracy_is_what_it_asks_for():
    (sweep,) = PRESETS["batches"]
    jobs = plan_jobs(sweep)
    assert {job.global_batch for job in jobs} == {64, 128, 256, 512, 1024}
    assert {(job.strategy, job.devices) for job in jobs} == {("none", 1), ("ddp", 1), ("ddp", 2)}
    assert all(job.parsed_flags().measure_steps is None and job.parsed_flags().epochs == 8 for job in jobs)


def knows_no(compare: tuple[str, ...]) -> bool:
    """Whether main.py has no such option."""
    return bool(compare) and not hasattr(options.parse([]), compare[0].strip("-").replace("-", "_"))


def test_the_groups_for_gpus_are_what_the_preset_gpu_consists_of():
    assert PRESETS["gpu"] == tuple(sweep for group in GPU_GROUPS.values() for sweep in group)


def test_run_id_is_stable_and_differs_with_every_setting():
    sweep = Sweep()
    others = [
        replace(sweep, global_batches=(256,)),
        replace(sweep, scalings=("weak",)),
        replace(sweep, precisions=("bf16",)),
        replace(sweep, workers=(2,)),
        replace(sweep, measure_steps=50),
        replace(sweep, card="NVIDIA H100 80GB HBM3"),
        replace(sweep, launcher="slurm"),
        replace(sweep, launcher="slurm", cpu=True),
        replace(sweep, epochs=1),
        replace(sweep, code="solutions"),
        replace(sweep, flags=("--seed", "1")),
    ]
    first = plan_jobs(sweep)[0].run_id
    assert first == plan_jobs(Sweep())[0].run_id
    assert len({first, *(plan_jobs(other)[0].run_id for other in others)}) == 12
    assert len({job.run_id for job in plan_jobs(sweep)}) == 9


def test_flags_are_understood_by_main_and_the_users_come_last():
    job = plan_jobs(Sweep(devices=(2,), flags=("--precision", "bf16")))[1]
    args = options.parse(job.main_flags)
    assert (args.strategy, args.global_batch_size, args.epochs, args.precision) == ("ddp", 512, 6, "bf16")
    assert (args.run_id, args.scaling, args.repeat) == (job.run_id, "strong", 1)
    assert job.main_flags[-2:] == ["--precision", "bf16"]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"devices": (0,)}, "--devices 0"),
        ({"devices": (3,)}, "--global-batch-size 510"),
        ({"global_batches": (512, 0)}, "--global-batch-size 0"),
        ({"scalings": ("weak",), "per_device_batches": (0,)}, "--per-device-batch-size 0"),
        ({"scalings": ("strange",)}, "strange is unknown"),
        ({"precisions": ("fp8",)}, "--precision fp8 is unknown"),
        ({"precisions": ("bf16",), "flags": ("--precision", "fp32")}, "use --precision before the --"),
        ({"repeats": 0}, "--repeat 0"),
        ({"measure_steps": 5, "measure_warmup": 0}, "need at least one step"),
        ({"compare": ("--no-such-option",)}, "unrecognized arguments: --no-such-option"),
        ({"flags": ("--measure-steps", "9")}, "use --measure-steps before the --"),
        ({"epochs": 0}, "--epochs 0"),
        ({"strategies": ("zero",)}, "zero is unknown"),
        ({"flags": ("--strategy", "ddp")}, "use --strategies before the --"),
        ({"flags": ("--output-dir=x",)}, "use --output-dir before the --"),
        ({"flags": ("--run-id", "x")}, "--run-id after -- is set by the sweep"),
        ({"flags": ("--modle", "cnn")}, "unrecognized arguments: --modle cnn"),
        ({"flags": ("--precision", "fp7")}, "invalid choice: 'fp7'"),
        (
            {"compare": ("--strategy", "fsdp")},
            "--strategy in --compare is set by the sweep itself for each job: use",
        ),
        ({"compare": ("--run-id=x",)}, "--run-id in --compare is set by the sweep"),
        ({"compare": ("--precision", "bf16"), "precisions": ("fp32",)}, "use --precision instead"),
        ({"compare": ("--print-every", "1")}, "--compare=--print-every 1 makes the same runs again"),
        ({"compare": ("--input", "device"), "flags": ("--input", "loader")}, "makes the same runs again"),
        ({"compare": ("--bucket-cap-mb", "50"), "strategies": ("fsdp",)}, "makes the same runs again"),
        ({"compare": ("--bucket-cap-mb", "25")}, "makes the same runs again"),
        ({"measure_steps": 50, "flags": ("--profile",)}, "with --epochs 3 -- --profile"),
        ({"measure_steps": 50, "compare": ("--profile",)}, "none 1 device --profile: --profile slows the steps"),
        (
            {"compare": ("--capture",), "strategies": ("fsdp1",)},
            "fsdp1 1 device --capture: --capture cannot record --strategy fsdp1",
        ),
        (
            {"compare": ("--compile",), "strategies": ("fsdp1",)},
            "fsdp1 1 device --compile: --compile cannot compile --strategy fsdp1",
        ),
        ({"flags": ("--accumulate", "3")}, "none 1 device: a global batch of 512 images cannot be divided"),
    ],
)
def test_a_senseless_sweep_is_one_sentence_before_any_job(wrong, says, capsys):
    with pytest.raises(UsageError, match=says.replace("(", r"\(")):
        plan_jobs(replace(Sweep(), **wrong))
    assert capsys.readouterr().err == ""


def test_dry_run_prints_the_local_commands(package, capsys):
    argv = ["--launcher", "local", "--devices", "2", "--strategies", "fsdp", "--epochs", "3", "--dry-run"]
    assert run_benchmarks.main([*argv, "--", "--dataset", "imagefolder", "--data-dir", "my data"]) == 0
    first, baseline, second, fsdp, total = capsys.readouterr().out.splitlines()
    assert first.startswith("# [1/2] none  1 device")
    assert second.startswith("# [2/2] fsdp  2 devices: about ")
    assert total.startswith("# 2 jobs: about ")
    assert " core-hours (a rough guess)" in total
    words = shlex.split(fsdp)
    assert words[:2] == ["OMP_NUM_THREADS=1", sys.executable]
    assert words[2:7] == ["-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
    assert words[7:10] == ["--nproc-per-node", "2", "exercises/main.py"]
    assert words[10:12] == ["--strategy", "fsdp"]
    assert words[words.index("--global-batch-size") + 1] == "512"
    assert words[-2:] == ["--data-dir", "my data"]
    assert "--nproc-per-node 1 exercises/main.py --strategy none" in baseline
    assert sorted(path.name for path in package.iterdir()) == ["exercises", "run.sh", "solutions"]  # no results


def test_counts_that_nobody_asked_for_are_left_out_with_a_word(package, capsys, monkeypatch):
    monkeypatch.setattr(local, "available_devices", lambda *, cpu=False: (2, "CPU cores"))
    assert run_benchmarks.main(["--launcher", "local", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(
        "note: no runs on 4, 8 devices: 2 CPU cores here (--devices 1 2 4 8 runs them all the same)\n"
    )
    assert "--nproc-per-node 4" not in out
    assert run_benchmarks.main(["--launcher", "local", "--dry-run", "--devices", "1", "2", "4", "8"]) == 0
    out = capsys.readouterr().out
    assert "note: no runs" not in out
    assert "--nproc-per-node 8" in out
    with pytest.raises(SystemExit):
        run_benchmarks.main(["--launcher", "local", "--dry-run", "--devices", "1 2 4 8"])
    assert "argument --devices: invalid int value: '1 2 4 8'" in capsys.readouterr().err


def test_dry_run_prints_the_slurm_commands(package, capsys, monkeypatch):
    monkeypatch.setattr(query, "unavailable", lambda: "")
    argv = ["--launcher", "slurm", "--devices", "8", "--strategies", "ddp", "--code", "solutions", "--dry-run"]
    assert run_benchmarks.main(argv) == 0
    _, baseline, _, ddp, total = capsys.readouterr().out.splitlines()
    assert " GPU-hours" in total
    assert ddp.startswith("CODE=solutions sbatch --parsable --nodes=2 --ntasks-per-node=4 --gpus-per-node=4 ")
    assert " run.sh --strategy ddp " in ddp
    assert " --nodes=1 --ntasks-per-node=1 --gpus-per-node=1 " in baseline
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
    for name, body in (("sbatch", ""), ("sinfo", "echo partition")):
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    assert launch.choose_launcher() == "slurm"


@pytest.mark.parametrize(
    ("sinfo", "why"),
    [
        (
            "echo 'slurm_load_partitions: Unable to contact slurm controller (connect failure)' >&2; exit 1",
            "Unable to contact slurm controller (connect failure)",
        ),
        ("sleep 60", "sinfo has no answer after 1 s"),
        ("exit 3", "sinfo ends with 3"),
        ("true", "it has no partition"),
        (None, "sinfo cannot be started"),
    ],
)
def test_a_slurm_that_does_not_answer_is_said_and_not_used(package, tmp_path, monkeypatch, capsys, sinfo, why):
    monkeypatch.setattr(query, "PATIENCE", 1.0)
    (tmp_path / "bin").mkdir()
    for name, body in (("sbatch", "echo 1"), ("sinfo", sinfo)):
        if body is not None:
            (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{body}\n")
            (tmp_path / "bin" / name).chmod(0o755)
    path = "/usr/bin:/bin" if sinfo and "sleep" in sinfo else ""
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{path}")
    assert launch.choose_launcher() == "local"
    assert f"note: sbatch is here, but Slurm does not answer ({why}" in capsys.readouterr().out
    assert run_benchmarks.main(["--launcher", "slurm"]) == 1
    error = capsys.readouterr().err
    assert why in error
    assert error.count("\n") == 1
    assert not (package / "results").exists()


def test_default_counts_stop_at_what_this_machine_has_and_asked_ones_do_not(package, capsys, monkeypatch):
    monkeypatch.setattr(local, "available_devices", lambda cpu=False: (2, "CPU cores"))
    run_benchmarks.main(["--launcher", "local", "--dry-run"])
    assert capsys.readouterr().out.count("\n") == 12  # a note; 5 jobs, on 1 and 2 devices
    run_benchmarks.main(["--launcher", "local", "--devices", "4", "--dry-run"])
    assert "--nproc-per-node 4" in capsys.readouterr().out


@pytest.mark.parametrize(("kind", "code"), [("CPU cores", 2), ("GPUs", 0)])
@pytest.mark.parametrize("argv", [["--precision", "fp16"], ["--", "--precision", "fp16"]])
def test_what_this_machine_cannot_do_is_refused_before_the_first_job(
    package, capsys, monkeypatch, kind, code, argv
):
    monkeypatch.setattr(local, "available_devices", lambda cpu=False: (2, kind))
    refusal = "--precision fp16 needs a GPU" if code else ""
    assert run_benchmarks.main(["--launcher", "local", "--dry-run", *argv]) == 0
    plan = capsys.readouterr().out
    assert "--precision fp16" in plan.splitlines()[2]
    assert ("# not on this machine: " in plan) == bool(refusal)
    assert refusal in plan
    monkeypatch.setattr(launch, "_run_here", lambda jobs, choices: 0)
    assert run_benchmarks.main(["--launcher", "local", *argv]) == code
    assert refusal in capsys.readouterr().err


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
        (
            ["--per-device-batch-size", "64"],
            2,
            "--per-device-batch-size has no effect without --scaling weak: add",
        ),
        (["--scaling", "weak", "--global-batch-size", "64"], 2, "has no effect without --scaling strong"),
        (["--strategies", "fsdp", "--bucket-cap-mb", "50"], 2, "no effect without --strategies ddp"),
        (
            ["--strategies", "none", "--devices", "4"],
            2,
            "--devices has no effect without --strategies ddp or fsdp",
        ),
        (["--epochs", "3", "--measure-steps", "50"], 2, "--epochs has no effect beside --measure-steps"),
        (["--measure-warmup", "5"], 2, "no effect without --measure-steps"),
        (["--preset", "course", "--epochs", "3", "--measure-warmup", "5"], 2, "no effect without --measure-steps"),
        (["--compare", " "], 2, "--compare is empty"),
        (["--launcher", "local", "--max-jobs", "2"], 2, "the jobs run here, one after the other: leave it out"),
        (["--launcher", "slurm", "--stop-after", "9"], 2, "--stop-after is for jobs that run here"),
        (["--max-jobs", "-1"], 2, "--max-jobs -1: give a number above 0"),
        (["--max-jobs", "0"], 2, "--max-jobs 0: give a number above 0"),
        (["--time-limit", "-5"], 2, "--time-limit -5"),
        (["--stop-after", "nan"], 2, "--stop-after nan"),
    ],
)
def test_bad_input_ends_with_one_sentence(package, argv, code, says, capsys):
    assert run_benchmarks.main(argv) == code
    error = capsys.readouterr().err
    assert says in error
    assert error.startswith("run_benchmarks.py: ")
    assert error.count("\n") == 1


def test_slurm_needs_run_sh(package, capsys, monkeypatch):
    monkeypatch.setattr(query, "unavailable", lambda: "")
    (package / "run.sh").unlink()
    assert run_benchmarks.main(["--launcher", "slurm"]) == 1
    assert "no run.sh in" in capsys.readouterr().err


def test_the_code_that_run_sh_is_told_of_is_run_by_the_sweep_too(package, monkeypatch, capsys):
    monkeypatch.setenv("CODE", "nowhere")
    assert run_benchmarks.main(["--launcher", "local", "--devices", "1"]) == 1
    assert "no nowhere/main.py in" in capsys.readouterr().err


@pytest.mark.parametrize(("steps", "noted"), [("10", True), ("49", True), ("50", False)])
def test_dry_run_says_that_steps_are_too_few_to_be_trusted(package, capsys, steps, noted):
    argv = ["--launcher", "local", "--devices", "1", "--strategies", "none", "--measure-steps", steps, "--dry-run"]
    assert run_benchmarks.main(argv) == 0
    assert (f"# note: --measure-steps {steps} is few: below 50" in capsys.readouterr().out) == noted
