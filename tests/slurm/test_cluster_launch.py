"""run.sh on a real Slurm, submitted from a shell that another launcher has left its variables in, or by srun."""

import json

import pytest
from cluster_jobs import SMALL, write_package
from PIL import Image

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


def test_staged_data_are_read_from_each_nodes_own_copy(cluster, package, tmp_path):
    images = package / "images"
    for split, count in (("train", 8), ("test", 4)):
        for name in ("cat", "dog"):
            (images / split / name).mkdir(parents=True)
            for index in range(count):
                Image.new("RGB", (32, 32), (20 * index, 90, 30)).save(images / split / name / f"{index}.png")
    size = ("--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=0", "--cpus-per-task=1")
    train = ("--dataset", "imagefolder", "--data-dir", images, "--epochs", 1, "--per-device-batch-size", 4)
    job = cluster.submit(package, *size, "run.sh", *train, CODE="solutions", STAGE=str(tmp_path / "local"))
    cluster.wait(job, "COMPLETED")
    folder = package / "results" / f"scaling-lab-{job}"
    staged = tmp_path / "local" / f"scaling-lab-{job}"
    log = (folder / "train.log").read_text()
    assert log.count(f"MiB of {images} copied to {staged} in") == 1
    assert log.count(f"{images} lies in {staged} already") == 1  # both nodes are this machine
    assert json.loads((folder / "config.json").read_text())["data_dir"] == str(staged)
    assert not list(staged.parent.iterdir())  # removed when the ranks had ended
