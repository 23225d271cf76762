"""run.sh on a real Slurm: the practice cluster's two nodes, gloo, both launchers.

All jobs are submitted at the start and overlap; each test waits for its own.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cluster_jobs import EPOCHS, MIRROR, SMALL, losses, write_package, write_program
from mnist_files import checksums, tiny_mnist, write, zipped
from practice_cluster import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]

LAUNCHERS = ("srun", "torchrun")
WORLDS = {(1, 1): 1, (1, 2): 2, (2, 2): 4}  # (nodes, ranks on each): world size
INTERRUPTED = 85


@pytest.fixture(scope="module")
def package(root, tmp_path_factory) -> Path:
    return write_package(root, tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="module")
def jobs(cluster, package) -> dict[str, str]:
    """What each job is for -> its number."""
    train = (*SMALL, "--data-dir", package / "data", "--epochs", EPOCHS)

    def submit(nodes: int, ranks: int, *rest: object, code: str = "solutions", **environment: str) -> str:
        size = (f"--nodes={nodes}", f"--ntasks-per-node={ranks}", "--gpus-per-node=1", "--cpus-per-task=1")
        return cluster.submit(package, *size, *rest, CODE=code, **environment)

    found = {}
    for name in ("killed", "cancelled"):
        found[name] = submit(2, 1, "run.sh", *train, code="waits")
    # An array of one task: its number alone is the array's, so run.sh has to name the task.
    found["signal-srun"] = submit(1, 2, "--array=3", "run.sh", *train, code="waits") + "_3"
    found["signal-torchrun"] = submit(2, 1, "run.sh", *train, code="waits", LAUNCHER="torchrun")
    found["requeued"] = submit(1, 1, "run.sh", *train, code="waits")
    gpus = ("--gpus-per-node=2", "--gpus-per-task=1")
    found["look-srun"] = submit(2, 2, *gpus, "run.sh", code="look", FLIGHT_RECORDER="1")
    found["look-torchrun"] = submit(1, 2, *gpus, "run.sh", code="look", LAUNCHER="torchrun")
    found["look-cpu"] = submit(1, 2, "--gpus-per-node=0", "run.sh", code="look", NCCL_DEBUG="INFO")
    found["raises"] = submit(2, 1, "run.sh", *train, code="raises")
    for launcher in LAUNCHERS:  # both on node1 at once: their ports must not collide
        found[f"{launcher}-1x2"] = submit(1, 2, "--nodelist=node1", "run.sh", *train, LAUNCHER=launcher)
    for launcher in LAUNCHERS:
        for nodes, ranks in ((1, 1), (2, 2)):
            found[f"{launcher}-{nodes}x{ranks}"] = submit(nodes, ranks, "run.sh", *train, LAUNCHER=launcher)
    few = ("--epochs", 1, "--model", "cnn")
    found["array"] = submit(1, 1, "--array=0-3", "slurm/sensitivity.sh", *train[:-2], *few)
    return found


@pytest.fixture(scope="module")
def local(package) -> dict[int, list[tuple[str, ...]]]:
    """World size -> the losses of the same run without Slurm."""
    found = {}
    for world in sorted(set(WORLDS.values())):
        flags = (*SMALL, "--data-dir", package / "data", "--epochs", EPOCHS, "--run-id", f"local-{world}")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
        environment |= {"CODE": "solutions", "NPROC": str(world), "OMP_NUM_THREADS": "1"}
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
        subprocess.run(
            ["./run.sh", *map(str, flags)],
            cwd=package,
            env=environment,
            check=True,
            capture_output=True,
            timeout=280,
        )
        found[world] = losses(package / "results" / f"local-{world}")
    return found


def folder_of(package: Path, job: str) -> Path:
    return package / "results" / f"scaling-lab-{job}"


def status_of(folder: Path) -> dict[str, str]:
    return json.loads((folder / "status.json").read_text())


def two_epochs_are_done(folder: Path) -> bool:
    """Where the programs in waits/ wait for what comes."""
    log = folder / "train.log"
    return log.exists() and "[METRIC] epoch=2 " in log.read_text()


def test_a_rank_that_is_killed_ends_the_job(cluster, package, jobs):
    job = jobs["killed"]
    folder = folder_of(package, job)
    wait_until("two epochs are done", lambda: two_epochs_are_done(folder))
    cluster.run("kill", "-9", *cluster.ranks(job, rank=1))
    shown = cluster.wait(job, "FAILED")
    assert shown["ExitCode"] == "137:0"
    wait_until("its ranks are gone", lambda: not cluster.ranks(job), patience=10)
    assert "node2: task 1: Killed" in (folder / "train.err").read_text()
    assert (folder / "checkpoints" / "latest.pth").is_file()


def test_after_scancel_it_has_saved_and_stays_cancelled(cluster, package, jobs):
    job = jobs["cancelled"]
    folder = folder_of(package, job)
    wait_until("two epochs are done", lambda: two_epochs_are_done(folder))
    cluster.run("scancel", job)
    shown = cluster.wait(job, "CANCELLED")
    assert shown["Restarts"] == "0"
    wait_until("its ranks are gone", lambda: not cluster.ranks(job), patience=10)
    assert "stopped by SIGTERM: saved at epoch 3, step 1" in (folder / "train.log").read_text()
    assert status_of(folder)["status"] == "interrupted"
    assert (folder / "checkpoints" / "latest.pth").is_file()
    assert f"JOB {job} ON node1 CANCELLED" in (folder / "train.err").read_text()


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_after_the_warning_it_saves_queues_again_and_ends_with_the_same_losses(cluster, package, jobs, launcher):
    job = jobs[f"signal-{launcher}"]
    folder = folder_of(package, job)
    wait_until("two epochs are done", lambda: two_epochs_are_done(folder))
    cluster.run("scancel", "--signal=USR1", job)  # as Slurm does a minute before the time is up
    shown = cluster.wait(job, "COMPLETED")
    assert (shown["Restarts"], shown["ExitCode"]) == ("1", "0:0")
    log = (folder / "train.log").read_text()
    assert log.count("stopped by SIGUSR1: saved at epoch 3, step 1") == 1
    assert log.count(f"job {job}: saved before its time is up; it queues again") == 1
    assert log.count("  resumed    from ") == 1
    assert [log.count(f"[METRIC] epoch={epoch} ") for epoch in (1, EPOCHS)] == [1, 1]
    assert status_of(folder)["status"] == "done"
    undisturbed = jobs["srun-1x2"]
    cluster.wait(undisturbed, "COMPLETED")
    assert losses(folder) == losses(folder_of(package, undisturbed))
    assert not list(package.glob(f"train-{job.partition('_')[0]}.*"))
    assert (folder / "train.err").read_text().count(f"run.sh: here begins job {job}\n") == 1


def test_a_job_that_is_put_back_by_others_goes_on_in_its_log(cluster, package, jobs):
    job = jobs["requeued"]
    folder = folder_of(package, job)
    wait_until("two epochs are done", lambda: two_epochs_are_done(folder))
    cluster.run("scontrol", "requeue", job)  # as preemption does
    assert cluster.wait(job, "COMPLETED")["Restarts"] == "1"
    log = (folder / "train.log").read_text()
    assert [log.count(f"[METRIC] epoch={epoch} ") for epoch in range(1, EPOCHS + 1)] == [1] * EPOCHS
    assert not list(package.glob(f"train-{job}.*"))


def test_the_link_beside_run_sh_leads_to_a_log(package, jobs):
    for name in ("train.log", "train.err"):
        assert (package / name).is_symlink()
        assert (package / name).resolve().parent.parent == package / "results"


def test_a_rank_that_raises_ends_the_job_with_its_traceback(cluster, package, jobs):
    job = jobs["raises"]
    folder = folder_of(package, job)
    shown = cluster.wait(job, "FAILED")
    # The other rank loses its partner and ends by itself, or srun is sooner and ends it (128 + SIGTERM).
    assert shown["ExitCode"] in ("1:0", "143:0")
    wait_until("its ranks are gone", lambda: not cluster.ranks(job), patience=10)
    errors = (folder / "train.err").read_text()
    assert "Traceback (most recent call last)" in errors
    assert "RuntimeError: a bug on rank 1" in errors


@pytest.mark.parametrize(("nodes", "ranks"), WORLDS)
@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_job_has_the_losses_of_a_local_run(cluster, package, jobs, local, launcher, nodes, ranks):
    job = jobs[f"{launcher}-{nodes}x{ranks}"]
    assert cluster.wait(job, "COMPLETED")["ExitCode"] == "0:0"
    folder = folder_of(package, job)
    assert losses(folder) == local[nodes * ranks]
    log = (folder / "train.log").read_text()
    assert f"  ranks      {nodes * ranks} on {nodes} node{'s' * (nodes > 1)} (" in log
    assert log.count("[METRIC] epoch=1 ") == 1
    config = json.loads((folder / "config.json").read_text())
    assert (config["world_size"], config["nodes"]) == (nodes * ranks, nodes)


def test_two_jobs_on_one_node_met_at_two_ports(cluster, package, jobs):
    one, other = (cluster.wait(jobs[f"{launcher}-1x2"], "COMPLETED") for launcher in LAUNCHERS)
    assert one["NodeList"] == other["NodeList"] == "node1"
    assert one["StartTime"] < other["EndTime"]
    assert other["StartTime"] < one["EndTime"]
    ports = {
        (folder_of(package, shown["JobId"]) / "train.log").read_text().split("meet at node1:")[1].split()[0]
        for shown in (one, other)
    }
    assert len(ports) == 2


def test_an_array_maps_its_index_to_bucket_and_precision(cluster, package, jobs):
    job = jobs["array"]
    found = []
    for index in range(4):
        assert cluster.wait(f"{job}_{index}", "COMPLETED")
        folder = package / "results" / f"sensitivity-{job}_{index}"
        config = json.loads((folder / "config.json").read_text())
        records = folder / f"slurm-{job}_{index}"  # of this task, and no other
        assert re.findall(r"ArrayTaskId=(\d+)", (records / "scontrol.txt").read_text()) == [str(index)]
        assert set(re.findall(r"^\d+_\d+", (records / "sacct.txt").read_text(), re.M)) == {f"{job}_{index}"}
        found.append((config["bucket_cap_mb"], config["precision"]))
    assert found == [(1, "fp32"), (1, "bf16"), (5, "fp32"), (5, "bf16")]


def test_what_the_ranks_are_given(cluster, package, jobs):
    def looks(name: str) -> list[list[str]]:
        job = jobs[name]
        cluster.wait(job, "COMPLETED")
        log = (folder_of(package, job) / "train.log").read_text()
        return sorted(line.split()[1:] for line in log.splitlines() if line.startswith("look "))

    srun = looks("look-srun")
    recorder = str(folder_of(package, jobs["look-srun"]) / "flight-recorder-")
    assert [look[0] for look in srun] == ["0", "1", "2", "3"]
    assert all(len(look[2].split(",")) == 1 for look in srun)  # a GPU for each
    assert {(look[3], look[4]) for look in srun} == {("1", recorder)}
    assert [look[6] for look in srun] == ["node1", "node1", "node2", "node2"]

    torchrun = looks("look-torchrun")
    assert [look[1] for look in torchrun] == ["0", "1"]
    assert all(len(look[2].split(",")) == 2 for look in torchrun)  # all of the node, chosen by the local rank

    cpu = looks("look-cpu")
    assert [look[2] for look in cpu] == ["-", "-"]
    assert all(look[5].endswith("/nccl-%h-%p.log") for look in cpu)


def test_the_system_is_recorded_by_job(cluster, package, jobs):
    job = jobs["srun-2x2"]
    cluster.wait(job, "COMPLETED")
    records = folder_of(package, job) / f"slurm-{job}"
    assert f"JobId={job} " in (records / "scontrol.txt").read_text()
    assert f"{job}.0|" in (records / "sacct.txt").read_text()
    assert not list(records.glob("gpus-*"))  # there is no nvidia-smi here


def test_gpus_are_sampled_on_every_node_while_the_ranks_run(cluster, package, jobs, tmp_path):
    def write_tool(name: str, *lines: str) -> None:
        (tmp_path / name).write_text("\n".join(("#!/bin/sh", *lines, "")))
        (tmp_path / name).chmod(0o755)

    # Both lines at once: the job looks until there is something in the file.
    write_tool("nvidia-smi", 'printf "%s\\n%s\\n" "$*" "$CUDA_VISIBLE_DEVICES"; exec sleep 1000')
    # The sampler is late: the ranks have taken what the job has of CPUs and memory.
    ranks_are_there = f'grep -qs "^look" {package}/results/*-$SLURM_JOB_ID/train.log'
    write_tool(
        "srun",
        f'case "$*" in *--job-name=gpus*) until {ranks_are_there}; do sleep 0.1; done ;; esac',
        f'exec {shutil.which("srun")} "$@"',
    )
    path = f"{tmp_path}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    job = cluster.submit(
        *(package, "--nodes=2", "--ntasks-per-node=2", "--cpus-per-task=1"),
        *("--gpus-per-node=2", "--gpus-per-task=1", "run.sh"),
        CODE="look",
        PATH=path,
        LOOK_UNTIL="2 results/*/slurm-*/gpus-*.csv",
    )
    cluster.wait(job, "COMPLETED")
    records = folder_of(package, job) / f"slurm-{job}"
    written = sorted(path.name for path in records.glob("gpus*"))
    refused = records / "gpus.err"
    assert written == ["gpus-node1.csv", "gpus-node2.csv"], refused.read_text() if refused.exists() else written
    for node in ("node1", "node2"):
        text = (records / f"gpus-{node}.csv").read_text()
        assert "--loop=5 --query-gpu=timestamp,index,utilization.gpu" in text
        assert text.splitlines()[1].count(",") == 1  # both GPUs of the node


@pytest.mark.parametrize("kind", ["shared", "node-local"])
def test_mnist_is_downloaded_once_for_each_file_system(cluster, package, jobs, tmp_path, kind):
    files = zipped(tiny_mnist())
    write(tmp_path / "mirror", files)
    script = "python3 -u -m http.server 0 --bind 10.77.0.1 --directory mirror 2>requests"
    server = subprocess.Popen(
        [cluster.script, "exec", cluster.folder, "sh", "-c", f"exec {script}"],
        cwd=tmp_path, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        url = server.stdout.readline().split("(")[1].split(")")[0]
        write_program(package / f"mnist-{kind}", MIRROR.format(mirrors=[url], resources=checksums(files)))
        data = package / "mnist" if kind == "shared" else cluster.scratch / "mnist"
        flags = ("--dataset", "mnist", "--model", "mnist_cnn", "--data-dir", data, "--epochs", 1)
        job = cluster.submit(
            *(package, "--nodes=2", "--ntasks-per-node=2", "--cpus-per-task=1", "run.sh"),
            *(*flags, "--global-batch-size", 8),
            CODE=f"mnist-{kind}",
        )
        cluster.wait(job, "COMPLETED")
    finally:
        server.terminate()
        server.wait()
    requests = (tmp_path / "requests").read_text()
    times = 1 if kind == "shared" else 2
    assert {name: requests.count(f"GET /{name} ") for name in files} == dict.fromkeys(files, times)
