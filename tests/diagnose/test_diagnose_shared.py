"""What ranks and nodes share and ought not to, a thread that ended, a node's memory, a silent log, and more."""

import re
from pathlib import Path

import pytest

from lab.diagnose.evidence import Evidence, gather
from lab.diagnose.told.finding import Finding
from lab.diagnose.verdict import findings

CASES = {
    case.partition(" | ")[0]: case.partition("\n")[2]
    for case in re.split(
        r"^=== ", (Path(__file__).parent / "corpus" / "fifteenth_try.txt").read_text(encoding="utf-8"), flags=re.M
    )[1:]
}
RENAME = "[Errno {}] {}: '/scratch/m/blobs/8a.incomplete' -> '/scratch/m/blobs/8a'"
TIMEOUT = (
    "[rank{}]:[E ProcessGroupNCCL.cpp:563] [Rank {}] Watchdog caught collective operation timeout: WorkNCCL("
    "SeqNum=88, OpType={}, NumelIn={}, NumelOut=1, Timeout(ms)=600000) ran for 600094 milliseconds before timing "
    "out.\n"
)
LIMIT = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2024-03-02T{} DUE TO TIME LIMIT ***\n"
FULL = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has a total capacity of "
    "39.39 GiB of which 20.00 MiB is free.\n"
)
ROW = "|    {}   N/A  N/A   {}      C   python                {}MiB |\n"


def found_in(log: str) -> list[Finding]:
    return findings(Evidence(name="train.log", log=log, files=("train.log",)))


def first(log: str) -> Finding:
    return found_in(log)[0]


def traceback(*frames: str) -> str:
    lines = "".join(f'  File "{frame}", line 9, in f\n    go(x)\n' for frame in frames)
    return f"Traceback (most recent call last):\n{lines}"


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ("stale-lock-01", ["the lock is still there", "-name lock"]),
        ("lora-dtypes-05", ["torch.bfloat16 and torch.float32", "LoRA", "wrap policy"]),
        ("triton-blocks-08", ["147456 of shared memory", "101376", "another model of card"]),
        ("val-thread-09", ["UnboundLocalError", "val-thread", "gn05"]),
        ("offload-host-11", ["74.7 % full", "offload", "not of the GPU"]),
        ("orig-mod-12", ["_orig_mod.", "torch.compile"]),
        ("tmp-checkpoint-15", ["Several ranks", "4.36.0"]),
        ("resume-gpu0-18", ["3 that have a GPU of their own", "map_location='cpu'"]),
        ("lid-closed-21", ["nohup does not help", "tmux"]),
        ("winscp-23", ["DOS"]),
        ("cpus-72-27", ["72 CPUs", "has 64", "drained"]),
        ("scale-minimum-29", ["bf16", "65504"]),
        ("efa-group-31", ["security group", "from that group itself"]),
        ("spawn-lambda-32", ["spawn()", "no file is damaged"]),
        ("fsdp-rank0-33", ["rank 0 alone called _ALLGATHER_BASE", "if rank == 0"]),
        ("stale-master-34", ["MASTER_ADDR is tg-c12", "tg-c02, tg-c05"]),
        ("node-rank-0-35", ["node1 and node2", "--node_rank=0"]),
        ("miopen-home-38", ["MIOpen", "MIOPEN_USER_DB_PATH"]),
    ],
)
def test_a_report_is_answered_by_what_is_particular_to_it(case, said, tmp_path):
    log = tmp_path / "train.err"
    log.write_text(CASES[case], encoding="utf-8")
    found = findings(gather(log))[0]
    text = " ".join((found.saw, found.means, *found.do))
    assert [words for words in said if words not in text] == []


# One thread, lock, card or number of several ranks ---------------------------------------------------------------


@pytest.mark.parametrize("kind", ["KeyError: 'auc'", "TypeError: 'NoneType' object is not callable"])
@pytest.mark.parametrize("prefix", ["", "[rank0]: ", "[n7:0] "])
def test_an_exception_in_a_thread_comes_before_the_timeouts_whatever_their_order(kind, prefix):
    said = f"Exception in thread Thread-9 (evaluate):\n{traceback('/u/me/loop.py')}{kind}\n"
    said = "".join(f"{prefix}{line}\n" for line in said.splitlines())
    waits = TIMEOUT.format(1, 1, "BROADCAST", 1)
    for log in (said + waits, waits + said):
        assert first(log).name == "raised"
        assert "thread Thread-9" in first(log).means
    lost = traceback("/u/me/loop.py") + "RuntimeError: NCCL communicator was aborted on rank 1.\n"
    assert first(waits + lost).name == "nccl-timeout"


def test_a_lock_of_a_build():
    build = "Using /home/me/.cache/torch_extensions/py310_cu121 as PyTorch extensions root...\n"
    late = LIMIT.format("10:00:00")
    assert first(build + late).name == "build-lock"
    assert first(build + "    wait (torch/utils/file_baton.py:48)\n" + late).name == "build-lock"
    trained = build + "Epoch 1 step 10 loss: 2.1\n" * 3
    assert first(trained + late).name == "time-limit"
    assert (
        first(build + "Time to load fused_adam op: 2.1 seconds\nbuilding the model\n" + late).name == "time-limit"
    )


def test_a_card_on_which_nvidia_smi_shows_other_ranks():
    raised = traceback("/u/me/t.py") + FULL
    rows = ROW.format(0, 11, 20795) + ROW.format(0, 12, 1137) + ROW.format(1, 12, 20779)
    assert first(raised + rows).name == "same-gpu"
    assert "1 that have a GPU of their own" in first(raised + rows).saw
    one_each = ROW.format(0, 11, 39000) + ROW.format(1, 12, 20779)
    assert first(raised + one_each).name == "out-of-gpu-memory"


@pytest.mark.parametrize("launcher", ["torchrun --nnodes 2", "accelerate launch --num_machines 2"])
def test_two_nodes_of_one_number(launcher):
    option = "--machine_rank" if "accelerate" in launcher else "--node-rank"
    waits = "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to "
    waits += "connect to (10.0.0.1, 29500).\n"
    command = "[me@{}]$ " + launcher + f" {option}={{}} train.py\n"
    same = command.format("a1", 1) + command.format("a2", 1) + waits
    assert (first(same).name, "a1 and a2" in first(same).saw) == ("rank-twice", True)
    for others in (("a1", 0, "a2", 1), ("a1", 0, "a1", 0)):
        log = command.format(*others[:2]) + command.format(*others[2:]) + waits
        assert first(log).name == "ranks-missing"


def test_an_address_of_an_earlier_start():
    missed = "[W socket.cpp:558] [c10d] The client socket has failed to connect to [gpu3]:29500 (errno: 113 - No "
    missed += (
        "route to host).\nTimeoutError: The client socket has timed out after 900s while trying to connect to "
    )
    missed += "(gpu3, 29500).\n"
    old = "SLURM_JOB_NODELIST=gpu[11-12]\nMASTER_ADDR=gpu3\n"
    assert first(old + missed).name == "meeting-point-elsewhere"
    for there in ("gpu[1-4]", "gpu3,gpu7", "login1"):
        log = f"SLURM_JOB_NODELIST={there}\nMASTER_ADDR=gpu3\n{missed}"
        assert first(log).name == "ranks-missing"


def test_a_job_that_was_started_again_is_judged_by_its_last_start(tmp_path):
    put_back = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2024-03-02T01:00:00 DUE TO {} ***\n"
    raised = traceback("/u/me/t.py") + "KeyError: 'rate'\n"
    log = tmp_path / "train.err"
    for why in ("PREEMPTION", "JOB REQUEUE", "NODE FAILURE"):
        for again in ("SLURM_RESTART_COUNT=2\n", "==== job 7 restarted on n[2,5] ====\n"):
            log.write_text(put_back.format(why) + again + raised)
            assert findings(gather(log))[0].name == "raised"
    log.write_text(put_back.format("PREEMPTION") + "[rank 0] writing a checkpoint\n")
    assert findings(gather(log))[0].name == "preempted"


@pytest.mark.parametrize(
    "error",
    [
        f"FileNotFoundError: {RENAME.format(2, 'No such file or directory')}",
        f"OSError: {RENAME.format(39, 'Directory not empty')}",
        f"FileExistsError: {RENAME.format(17, 'File exists')}",
    ],
)
def test_what_several_ranks_rename(error):
    assert first(f"{traceback('/u/me/t.py', '/usr/lib/python3.11/shutil.py')}{error}\n").name == "renamed-by-all"
    plain = traceback("/u/me/t.py") + "FileNotFoundError: [Errno 2] No such file or directory: '/data/a.txt'\n"
    assert first(plain).name == "file-not-found"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("filelock._error.Timeout: The file lock '/home/me/.triton/cache/a.lock' could not be acquired.", "cache"),
        ("sqlite3.OperationalError: database is locked", "killed"),
    ],
)
def test_locked_files_of_caches_and_others(line, words):
    found = first(f"{traceback('/u/me/t.py')}{line}\n")
    assert (found.name, words in found.means) == ("file-locked", True)


# Collectives, memory, requests, a silent log --------------------------------------------------------------------


def test_one_rank_that_gathers_alone():
    gathers, waits = TIMEOUT.format(0, 0, "_ALLGATHER_BASE", 8194048), TIMEOUT.format(3, 3, "ALLREDUCE", 1)
    assert "rank 0 alone called _ALLGATHER_BASE" in first(gathers + waits).saw
    steps = waits.replace("NumelIn=1,", "NumelIn=2049000,")
    assert "alone" not in first(gathers + steps).saw
    both = gathers + TIMEOUT.format(1, 1, "_ALLGATHER_BASE", 8194048) + waits
    assert "alone" not in first(both).saw


@pytest.mark.parametrize(
    ("before", "name"),
    [
        ("host memory used: 186.2 / 190 GB (98.1 %)\n", "out-of-memory"),
        (
            "CPU Virtual Memory:  used = 142.3 GB, percent = 75.1%\nInitializing optimizer states\n",
            "out-of-memory",
        ),
        ("CPU Virtual Memory:  used = 142.3 GB, percent = 75.1%\n", "killed"),
        ("CPU Virtual Memory:  used = 12.3 GB, percent = 7.1%\nInitializing optimizer states\n", "killed"),
        ("", "killed"),
    ],
)
def test_a_kill_while_the_memory_of_the_node_was_used_up(before, name):
    killed = (
        "['/u/python', '-u', 'ft.py', '--local_rank=3', '--deepspeed', 'z.json'] exits with return code = -9\n"
    )
    assert first(before + killed).name == name
    torchruns = (
        "torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: -9) local_rank: 2 (pid: 8)\n"
    )
    assert first(before + torchruns).name == name


@pytest.mark.parametrize(
    ("asks", "said"),
    [
        ("#SBATCH --ntasks-per-node=8\n#SBATCH --cpus-per-task=16\n", "128 CPUs"),
        ("#SBATCH --mem=1T\n", "1048576 MB of memory"),
        ("#SBATCH --gres=gpu:a100:8\n", "8 GPUs"),
        ("$ sbatch -c 96 --mem=10G go.sh\n", "96 CPUs"),
        ("#SBATCH --ntasks-per-node=4\n#SBATCH --cpus-per-task=16\n#SBATCH --gres=gpu:4\n", ""),
    ],
)
def test_a_request_that_no_node_can_meet(asks, said):
    refused = "sbatch: error: Batch job submission failed: Requested node configuration is not available\n"
    tables = (
        "HOSTNAMES CPUS MEMORY GRES STATE\nn1 64 515000 gpu:a100:4 idle\nn2 32 257000 (null) idle\n",
        "NodeName=n1 Arch=x86_64 CPUTot=64 RealMemory=515000 Gres=gpu:a100:4\n",
    )
    for table in tables:
        found = first(refused + asks + table)
        assert found.name == "sbatch-refused"
        assert (f"it asks for {said}" in found.saw) if said else "does not fit this cluster" in found.means


def test_a_log_that_fell_silent_long_before_its_time_was_up():
    steps = "".join(
        f"2024-03-02 04:{minute:02d}:11 | epoch 1 step {minute}: loss 2.0\n" for minute in range(0, 60, 5)
    )
    stood = first(steps + LIMIT.format("09:40:05"))
    assert (stood.name, "4 h 44 min older" in stood.saw) == ("time-limit", True)
    for on_time in (LIMIT.format("05:00:05"), LIMIT.format("09:55:20")):  # the latter: a clock of another zone
        assert "older" not in first(steps + on_time).saw
    assert "older" not in first(steps + "epoch 2 loss 1.9\n" * 12 + LIMIT.format("09:40:05")).saw


# Words of single lines -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("job.sh: line 3: $'\\r': Befehl nicht gefunden.", "dos-line-ends"),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'conf/base.yaml\\r'", "dos-line-ends"),
        ("train.py: error: argument --epochs: invalid int value: '10\\r'", "dos-line-ends"),
        ("triton.OutOfResources: out of resource: registers, Required: 80000, Hardware limit: 65536.",
         "kernel-too-large"),
        ("ptxas error   : Entry function 'k' uses too much shared data (0x1a000 bytes, 0xc000 max)",
         "kernel-too-large"),
        ("RuntimeError: CUDA error: too many resources requested for launch", "kernel-too-large"),
        ("FloatingPointError: Minimum loss scale reached (0.0001). It is exploding.", "loss-scale"),
        ("n1:2:9 [0] NCCL WARN NET/OFI Request completed with error. RC: -113. Error: 4123", "efa-unreachable"),
        ("n1:2:9 [0] NCCL WARN NET/OFI Couldn't open RDMA device. Error: No such device", "network-plugin"),
        ("RuntimeError: Error(s) in loading state_dict for Net: Unexpected key(s) in state_dict: "
         "\"layers.0._checkpoint_wrapped_module.w\"", "other-checkpoint"),
    ],
)  # fmt: skip
def test_siblings_that_one_line_tells(line, name):
    said = traceback("/u/me/t.py") if re.match(r"[\w.]+(?:Error|Resources): ", line) else ""
    assert first(f"{said}{line}\n").name == name


@pytest.mark.parametrize(
    "error", ["_pickle.UnpicklingError: pickle data was truncated", "EOFError: Ran out of input"]
)
def test_what_a_child_says_whose_parent_could_not_hand_over(error):
    child = traceback("<string>", "/usr/lib/python3.11/multiprocessing/spawn.py") + f"{error}\n"
    parent = traceback("/u/me/t.py", "/usr/lib/python3.11/multiprocessing/popen_spawn_posix.py")
    parent += "TypeError: cannot pickle '_thread.lock' object\n"
    for log in (child + parent, parent + child):
        assert first(log).name == "not-picklable"
    read = traceback("/u/me/t.py", "/v/lib/python3.11/site-packages/torch/serialization.py") + f"{error}\n"
    assert first(read).name == "broken-checkpoint"
    other = parent.replace("TypeError: cannot pickle '_thread.lock' object", "KeyError: 'seed'")
    assert first(child + other).name != "broken-checkpoint"


def test_a_hangup_without_torchrun_may_be_met_by_nohup():
    assert "nohup does not help" not in first("the run got SIGHUP\n").means


def test_a_thread_without_which_its_process_trained_on_is_no_cause():
    thread = f"Exception in thread Thread-1:\n{traceback('/u/me/log.py')}KeyError: 1\n"
    trains = "epoch 1 step 10 loss 2.0\n" * 3
    assert first(thread + trains + TIMEOUT.format(1, 1, "ALLREDUCE", 9)).name == "nccl-timeout"
    later = first(thread + trains + traceback("/u/me/t.py") + "ValueError: no such level\n")
    assert (later.name, "no such level" in later.saw) == ("raised", True)


def test_what_only_looks_like_one_of_these():
    own = (
        traceback("/u/me/t.py")
        + "FileNotFoundError: [Errno 2] No such file or directory: '/d/a.txt' -> '/d/b.txt'\n"
    )
    assert first(own).name == "file-not-found"
    peer = "n2:1:2 [0] NCCL WARN NET/OFI Request completed with error. RC: 113. Error: unreachable remote\n"
    assert first(f"{traceback('/u/me/t.py')}KeyError: 'x'\n{peer}").name == "raised"
    killed = "[ERROR] failed (exitcode: -9) local_rank: 2 (pid: 8)\n"
    assert first(f"it 20 loss 2 | GPU RAM 97%\n{killed}").name == "killed"
    build = "Using /h/.cache/torch_extensions/a as PyTorch extensions root...\n$ ls torch_extensions/a/lock\n"
    assert first(f"{build}{traceback('/u/me/t.py')}KeyError: 'x'\n").name == "raised"
