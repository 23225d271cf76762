"""What launchers say to their processes, as recorded on a Slurm cluster of two nodes, and what we make of it.

launch_environments.json holds, for each way of starting, the variables of every process, by rank.
"""

import json
from pathlib import Path

import pytest

from lab.base.errors import UsageError
from lab.runs.options.launcher import require_launcher

RECORDED = json.loads(Path(__file__).with_name("launch_environments.json").read_text())
IN_A_JOB = "in a job script"
GOOD = [name for name in RECORDED if name.startswith(("srun", "torchrun"))]
BAD = [name for name in RECORDED if name not in GOOD]


@pytest.fixture(scope="module")
def read(root):
    """The reference's read_launch_environment, by the path of its file."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("reference", root / "solutions" / "distributed_utils.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.read_launch_environment


@pytest.mark.parametrize("name", GOOD)
def test_srun_and_torchrun_number_all_processes(read, name):
    launches = [read(environ) for environ in RECORDED[name]]
    nodes, per_node = (2, 2) if "2 nodes" in name else (1, 2)
    assert [launch.rank for launch in launches] == list(range(nodes * per_node))
    assert [launch.local_rank for launch in launches] == [*range(per_node)] * nodes
    assert {launch.world_size for launch in launches} == {nodes * per_node}
    for environ in RECORDED[name]:
        require_launcher(environ)


def test_with_a_gpu_for_each_task_every_task_is_shown_one(read):
    recorded = RECORDED["srun --gpus-per-task=1, 1 node x 2"]
    assert [len(environ["CUDA_VISIBLE_DEVICES"].split(",")) for environ in recorded] == [1, 1]
    assert [read(environ).local_rank for environ in recorded] == [0, 1]  # and yet the device is number 0


@pytest.mark.parametrize("name", [name for name in BAD if IN_A_JOB not in name])
def test_without_slurm_mpirun_is_no_launcher(read, name):
    for environ in RECORDED[name]:
        with pytest.raises(ValueError, match="SLURM_PROCID, SLURM_LOCALID, SLURM_NTASKS not set"):
            read(environ)
        with pytest.raises(UsageError, match=r"started by mpirun(.|\n)*torchrun --standalone"):
            require_launcher(environ)


@pytest.mark.parametrize("name", [name for name in BAD if IN_A_JOB in name])
def test_inside_a_job_what_srun_did_not_start_is_refused_by_every_process(name):
    for environ in RECORDED[name]:
        with pytest.raises(UsageError, match=r"srun did not start it|mpirun says that this is rank"):
            require_launcher(environ)


def test_numbers_that_contradict_each_other_are_errors(read):
    for name in GOOD:
        for environ in RECORDED[name]:
            rank, size = ("RANK", "WORLD_SIZE") if "RANK" in environ else ("SLURM_PROCID", "SLURM_NTASKS")
            local = "LOCAL_RANK" if "RANK" in environ else "SLURM_LOCALID"
            for wrong in ({rank: environ[size]}, {size: "0"}, {local: "7"}, {rank: "-1"}, {size: ""}):
                with pytest.raises(ValueError, match=f"{rank}, {local}, {size}"):
                    read(environ | wrong)


def test_without_a_launcher_the_right_command_is_shown():
    with pytest.raises(UsageError, match=r"started by no launcher(.|\n)*torchrun --standalone --nproc-per-node 2"):
        require_launcher({"PATH": "/bin"})
    require_launcher({"RANK": "0"})


IN_A_STEP = {"SLURM_PROCID": "1", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "2", "SLURM_STEP_NUM_TASKS": "2"}


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}, "rank 0 of 1 ranks, but Slurm started 2"),
        ({"RANK": "5", "LOCAL_RANK": "5", "WORLD_SIZE": "9"}, "rank 5 of 9 ranks, but Slurm"),
        ({"RANK": "0", "WORLD_SIZE": "4", "GROUP_WORLD_SIZE": "1"}, "srun started 2 torchruns, but 1 of them met"),
        ({"RANK": "1", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}, ""),
        ({"RANK": "4", "WORLD_SIZE": "8", "GROUP_WORLD_SIZE": "2"}, ""),
    ],
)
def test_no_process_trains_in_a_world_smaller_than_slurms(environ, said):
    if said:
        with pytest.raises(UsageError, match=said):
            require_launcher(IN_A_STEP | environ)
    else:
        require_launcher(IN_A_STEP | environ)
