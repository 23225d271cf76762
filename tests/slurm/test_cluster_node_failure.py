"""A node that dies in mid-run: Slurm finds out, and the job goes on from its last epoch on another node."""

import pytest
from cluster_jobs import EPOCHS, SMALL, losses, write_package
from practice_cluster import Cluster, wait_until, why_not

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.timeout(900)]


def test_the_job_of_a_dead_node_goes_on_elsewhere(root, tmp_path):
    if why_not():
        pytest.skip(why_not())
    package = write_package(root, tmp_path / "package")
    train = ("--nodes=1", "--ntasks-per-node=2", "--gpus-per-node=1", "--cpus-per-task=1", "run.sh", *SMALL)
    train = (*train, "--data-dir", package / "data", "--epochs", EPOCHS)
    with Cluster() as cluster:  # of its own: one of its nodes will not come back
        undisturbed = cluster.submit(package, *train, CODE="solutions")
        job = cluster.submit(package, *train, CODE="waits")
        log = package / "results" / f"scaling-lab-{job}" / "train.log"
        wait_until("two epochs are done", lambda: log.exists() and "[METRIC] epoch=2 " in log.read_text())

        node = cluster.show(job)["NodeList"]
        slurmd = (cluster.folder / "nodes" / node / "pid").read_text().strip()
        of_the_job = f"pgrep -f 'slurmstepd: .{job}[.]'; grep -lsz '^SLURM_JOB_ID={job}$' /proc/[0-9]*/environ"
        cluster.run("sh", "-c", f"kill -STOP {slurmd}; kill -9 $({{ {of_the_job}; }} | tr -dc '0-9\\n')")

        wait_until("it is queued again", lambda: cluster.show(job)["Restarts"] == "1")
        shown = cluster.wait(job, "COMPLETED")
        assert shown["NodeList"] != node
        assert "  resumed    from " in log.read_text()
        assert "the end of epoch 2" in log.read_text()
        cluster.wait(undisturbed, "COMPLETED")
        assert losses(log.parent) == losses(package / "results" / f"scaling-lab-{undisturbed}")
