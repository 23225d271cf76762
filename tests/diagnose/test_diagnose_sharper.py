"""What a log says beyond a line that is known (an errno, a tool, a limit, numbers) decides what is said."""

import re

import pytest
from test_diagnose_corpus import cases

from lab.diagnose.evidence import Evidence, gather
from lab.diagnose.symptoms.containers import CONTAINERS
from lab.diagnose.told.finding import Finding
from lab.diagnose.verdict import findings

_OF_CONTAINERS = {symptom.name for symptom in CONTAINERS}


def first(log: str) -> Finding:
    return findings(Evidence(name="train.err", log=log, jobid="7", files=("train.err",)))[0]


def text(finding: Finding) -> str:
    return "\n".join((finding.means, *finding.do))


@pytest.mark.parametrize(("what", "right", "log"), [pytest.param(*one, id=one[0]) for one in cases()])
def test_the_advice_is_of_the_layer_that_the_line_is_of(what, right, log):
    found = findings(Evidence(name="train.err", log=log, files=("train.err",)))
    said = text(found[0]) if found else ""
    if found and found[0].name in _OF_CONTAINERS and re.search("pyxis|enroot", log):
        assert "pptainer" not in said  # enroot reads none of its variables
    if found and re.search(r"ibv_\w|NET/IB : ", found[0].saw):
        assert "SOCKET_IFNAME" not in said  # InfiniBand uses no sockets


QP = "n1:1:2 [5] ibvwrap.cc:262 NCCL WARN Call to ibv_modify_qp failed with {why}, on dev mlx5_1:1\n"
PYXIS = "slurmstepd: error: pyxis: failed to import docker image\nslurmstepd: error: pyxis: {why}\n"
REFUSED = "sbatch: error: {why}Batch job submission failed: {then}\n"
POLICY = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
NOT_JOINED = "[c10d] The client socket has timed out after 600000ms while trying to connect to (n1, 29500).\n"
WARNED = (
    "[W1128 1.2 socket.cpp:752] [c10d] The client socket has failed to connect to [n1]:29500 (errno: {why}).\n"
)


@pytest.mark.parametrize(
    ("log", "name", "words"),
    [
        (QP.format(why="110 Connection timed out"), "infiniband", "NCCL_CROSS_NIC=0"),
        (QP.format(why="22 Invalid argument"), "infiniband", "NCCL_IB_GID_INDEX"),
        (QP.format(why="error No such device"), "infiniband", "/dev/infiniband"),
        (
            "n1:1:2 [0] transport/net_ib.cc:9 NCCL WARN NET/IB : Got completion with error 5\n",
            "infiniband",
            "first error",
        ),
        ("n1:1:2 [0] NCCL WARN NET/IB : Got completion with error 4, opcode 0\n", "infiniband", "GDR_LEVEL"),
        (
            PYXIS.format(why="    Write failed because No space left on device"),
            "container-disk",
            "ENROOT_CACHE_PATH",
        ),
        (
            PYXIS.format(why="    [ERROR] URL https://x.io/v2/a/manifests/b returned error code: 404 Not Found"),
            "image-not-pulled",
            ".credentials",
        ),
        ("enroot-mount: failed to mount: /data at /x: Permission denied\n", "bind-missing", "--container-mounts"),
        (
            "Error: podman: writing blob: storing blob to file: no space left on device\n",
            "container-disk",
            "podman image prune",
        ),
        (
            "FATAL:   While making image from singularity build: unable to write: no space left on device\n",
            "container-disk",
            "SINGULARITY_TMPDIR",
        ),
        (
            "FATAL:   While making image from oci registry: unable to write: no space left on device\n",
            "container-disk",
            "APPTAINER_TMPDIR",
        ),
        (
            REFUSED.format(why="QOSMaxNodePerUserLimit\nsbatch: error: ", then=POLICY),
            "sbatch-refused",
            "sacctmgr show qos",
        ),
        (REFUSED.format(why="", then=POLICY), "sbatch-refused", "sacctmgr show qos"),
        (
            REFUSED.format(why="", then="Invalid account or account/partition combination"),
            "sbatch-refused",
            "assoc",
        ),
        (REFUSED.format(why="", then="Requested time limit is invalid"), "sbatch-refused", "%P %l'"),
        (
            REFUSED.format(why="", then="Invalid partition name specified"),
            "sbatch-refused",
            "no partition of this name",
        ),
        (WARNED.format(why="113 - No route to host") + NOT_JOINED, "ranks-missing", "(No route to host)"),
        (WARNED.format(why="111 - Connection refused") + NOT_JOINED, "ranks-missing", "nobody listened"),
        ("OSError: [Errno 122] Disk quota exceeded: 'a'\n", "disk-full", "number of files"),
        (
            "OSError: [Errno 28] No space left on device: '/tmp/torchinductor_u/x'\n",
            "disk-full",
            "TMPDIR=$SCRATCH",
        ),
        (
            "n1:1:2 [0] misc/shmutils.cc:87 NCCL WARN Error: failed to extend /dev/shm/nccl-x to 33030532 bytes\n",
            "shared-memory",
            "NCCL_SHM_DISABLE=1",
        ),
        (
            "RuntimeError: unable to mmap 3145728 bytes from file </torch_5_2_6>: Cannot allocate memory (12)\n",
            "out-of-memory",
            "65530",
        ),
    ],
)
def test_the_most_specific_words_decide(log, name, words):
    found = first(log)
    assert found.name == name
    assert words in text(found)


def test_the_limit_that_refused_a_job_is_named():
    found = first(REFUSED.format(why="QOSMaxNodePerUserLimit\nsbatch: error: ", then=POLICY))
    assert "the limit QOSMaxNodePerUserLimit" in found.saw


@pytest.mark.parametrize(
    ("log", "node"),
    [
        ("srun: error: Task launch for StepId=7.0 failed on node n02: Job credential expired\n", "n02"),
        (
            "slurmstepd: error: container_g_join failed: 7\nsrun: error: n4: task 0: Exited with exit code 1\n",
            "n4",
        ),
        (
            "job 7: 8 ranks on n5; they meet at n5:1\nRuntimeError: x: Error 802: system not yet initialized\n",
            "n5",
        ),
        ("n9:1:2 [0] transport/nvls.cc:254 NCCL WARN Cuda failure 401 'x'\n", "n9"),
        (
            "job 7: 8 ranks on n5 n6; they meet at n5:1\nRuntimeError: x: Error 802: system not yet initialized\n",
            "NODE",
        ),
    ],
)
def test_a_node_that_is_known_is_named_in_the_command(log, node):
    assert any(f"--exclude={node} " in command for command in first(log).do)


# GPU memory ----------------------------------------------------------------------------------------------------

NEW = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {asked}. GPU 0 has a total capacity of {total} "
    "of which {free} is free. {others}Including non-PyTorch memory, this process has {own} memory in use. Of the "
    "allocated memory 1.00 GiB is allocated by PyTorch, and {idle} is reserved by PyTorch but unallocated.\n"
)
OLD = (
    "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 39.59 GiB total capacity; {own} "
    "already allocated; 17.19 MiB free; {own} reserved in total by PyTorch)\n"
)


def new(
    asked="50.00 MiB", total="79.10 GiB", free="3.19 MiB", own="78.90 GiB", idle="10.00 MiB", others=""
) -> str:
    return NEW.format(asked=asked, total=total, free=free, own=own, idle=idle, others=others)


@pytest.mark.parametrize(
    ("log", "name"),
    [
        (new(), "out-of-gpu-memory"),
        (new(own="2.06 GiB", others="Process 2117 has 77.02 GiB memory in use. "), "gpu-memory-of-others"),
        (new(own="60.00 GiB", others="Process 9 has 474.00 MiB memory in use. "), "gpu-memory-of-others"),
        (new(own="77.90 GiB", others="Process 9 has 474.00 MiB memory in use. "), "out-of-gpu-memory"),
        (new(own="17179869184.00 GiB"), "out-of-gpu-memory"),  # what some containers' drivers say
        (new(asked="4.00 GiB", idle="12.00 GiB"), "gpu-memory-in-pieces"),
        (new(asked="4.00 GiB", idle="3.00 GiB"), "out-of-gpu-memory"),
        (new(asked="200.00 GiB", own="2.00 GiB", free="77.00 GiB"), "tensor-too-large"),
        (new(total="9.50 GiB", own="9.40 GiB"), "out-of-gpu-memory"),
        (OLD.format(own="37.00 GiB"), "out-of-gpu-memory"),
        (OLD.format(own="962.69 MiB"), "gpu-memory-of-others"),
    ],
)
def test_the_numbers_of_a_full_gpu_say_whose_fault_it_was(log, name):
    assert first(log).name == name


def test_a_slice_of_a_card_is_asked_about():
    assert "MIG" in text(first(new(total="9.50 GiB", own="9.40 GiB")))
    assert "MIG" not in text(first(new()))


# Consequences --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "log",
    [
        "slurmstepd: error: Step 7.0 exceeded memory limit (9 > 8), being killed\n"
        "srun: error: n1: tasks 0-3: Killed\n",
        "srun: error: Application launch failed: Job credential expired\nsrun: error: n1: tasks 0-3: Killed\n",
        "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026 DUE TO NODE n2 FAILURE ***\n"
        "srun: error: n1: task 0: Killed\n",
    ],
)
def test_that_ranks_were_killed_is_no_second_cause(log):
    assert [one.name for one in findings(Evidence(name="x", log=log)) if one.name == "killed"] == []


def test_of_one_line_only_one_thing_is_said():
    names = [one.name for one in findings(Evidence(name="x", log=QP.format(why="110 Connection timed out")))]
    assert names == ["infiniband"]


# Slurm's own errors --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("log", "name"),
    [
        (
            "slurmstepd: error: container_p_join: open failed for /s/7/.ns: No such file or directory\n",
            "node-trouble",
        ),
        ("slurmstepd: error: _switch_x: it does not attach\n", "slurm-daemon"),
        ("slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026 ***\n", ""),
        ("slurmstepd: error: _switch_x: it does not attach\nsrun: error: n1: task 1: Killed\n", "killed"),
        ("slurmstepd: error: execve(): nosuch: No such file or directory\n", "program-not-found"),
    ],
)
def test_what_slurms_daemons_say_is_the_nodes_where_nothing_else_is_known(log, name):
    found = findings(Evidence(name="x", log=log))
    assert (found[0].name if found else "") == name


def test_a_command_takes_the_name_that_the_line_holds(tmp_path):
    log = tmp_path / "a.err"
    log.write_text("pyxis: importing docker image: torch-26.sqsh\nslurmstepd: error: pyxis: child 7 failed\n")
    found = findings(gather(log))[0]
    assert (found.name, "torch-26.sqsh" in found.saw, "torch-26.sqsh" in found.do[0]) == ("image-name", True, True)
