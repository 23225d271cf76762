"""run.sh on a real Slurm, submitted from a shell that another launcher has left its variables in, or by srun."""

import pytest
from cluster_jobs import SMALL, write_package

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def package(root, tmp_path_factory):
    return write_package(root, tmp_path_factory.mktemp("package"))


def test_no_node_trains_by_itself(cluster, package):
    left = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "CODE": "solutions"}
    size = ("--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=1", "--cpus-per-task=1")
    train = (*SMALL, "--data-dir", package / "data", "--epochs", 1)
    job = cluster.submit(package, *size, "run.sh", *train, **left)
    cluster.wait(job, "COMPLETED")
    assert "ranks      2 on 2 nodes" in (package / "results" / f"scaling-lab-{job}" / "train.log").read_text()


def test_srun_of_the_script_that_calls_srun_is_refused(cluster, package):
    done = cluster.run("srun", "--ntasks=2", "run.sh", "--epochs", "1", cwd=package, check=False)
    assert done.returncode == 1
    assert "srun has started this script, which calls srun itself" in done.stderr
