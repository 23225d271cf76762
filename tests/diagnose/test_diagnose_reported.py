"""What is particular to a report, and where a rule that was made for one of them must be silent."""

import re
from pathlib import Path

import pytest

from lab.diagnose import nccl_log, shared
from lab.diagnose.evidence import Evidence, gather
from lab.diagnose.told import course, waited
from lab.diagnose.told.finding import Finding
from lab.diagnose.verdict import findings

CASES = {
    case.partition(" | ")[0]: case.partition("\n")[2]
    for case in re.split(
        r"^=== ",
        (Path(__file__).parent / "corpus" / "seventeenth_try.txt").read_text(encoding="utf-8"),
        flags=re.M,
    )[1:]
}
TIMEOUT = (
    "[rank{rank}]:[E1 12:02:33.7 ProcessGroupNCCL.cpp:685] [Rank {rank}] Watchdog caught collective operation "
    "timeout: "
    "WorkNCCL(SeqNum={number}, OpType=ALLREDUCE, NumelIn={size}, NumelOut={size}, Timeout(ms)=600000) ran for "
    "600018 "
    "milliseconds before timing out.\n"
)
RETRY = (
    "h1:9:9 [0] NCCL WARN NET/IB: Got completion from peer 10.0.0.1<4> with status=IBV_WC_RETRY_EXC_ERR(12) {}\n"
)


def found_in(log: str) -> list[Finding]:
    return findings(Evidence(name="train.log", log=log, files=("train.log",)))


def said(found: Finding) -> str:
    return " ".join((found.saw, found.means, *found.do))


def waits(*ranks: int, number: int = 7, size: int = 1) -> str:
    return "".join(TIMEOUT.format(rank=rank, number=number, size=size) for rank in ranks)


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("quota-cp-01", ["Disk quota exceeded", "Your quota"]),
        ("gpus-per-task-03", ["--gpus-per-task", "--gpus-per-node=4", "number 0"]),
        ("pad-token-05", ["embedding", "resize_token_embeddings"]),
        ("no-libibverbs-06", ["TCP", "libibverbs", "/dev/infiniband"]),
        ("two-nccl-wheels-08", ["nvidia-nccl-cu12 and nvidia-nccl-cu13", "uninstall"]),
        ("module-forward-09", ["r0=18.77012", "model.module", "not averaged"]),
        ("apt-cudnn-11", ["the system's own", "LD_DEBUG=libs"]),
        ("compiled-fsdp-12", ["_orig_mod", "get_model_state_dict"]),
        ("horovodrun-13", ["slots", "localhost:2"]),
        ("srun-22-05-14", ["12 cores", "got 1", "SRUN_CPUS_PER_TASK"]),
        ("early-stop-16", ["rank 1 said", "stopping at epoch 17", "decide together"]),
        ("home-hub-19", ["~/.local", "PYTHONNOUSERSITE=1"]),
        ("optimizer-first-20", ["never moved", "59,101", "wrap first, then the optimizer"]),
        ("rank0-silent-22", ["Ranks 1, 2 and 3", "rank 0 did not come", "py-spy", "xid"]),
        ("both-download-29", ["2 ranks fetched the same file (170M)", "init_process_group"]),
        ("roce-link-local-30", ["RoCE", "NCCL_IB_GID_INDEX=3"]),
        ("own-address-32", ["192.168.252.41", "/etc/hosts", "is_host=1"]),
        ("prepared-schedule-33", ["step 2500 of 10000", "4 processes", "prepare()"]),
        ("acs-36", ["NCCL_P2P_DISABLE=1", "ACS", "administrators"]),
        ("save-on-zero-37", ["Rank 0 alone", "ranks 1, 2 and 3 had gone", "is_global_zero"]),
        ("no-squashfuse-38", ["squashfuse", "/tmp", "APPTAINER_TMPDIR"]),
        ("eth2-40", ["NCCL_SOCKET_IFNAME is eth2"]),
    ],
)
def test_a_report_is_answered_by_what_is_particular_to_it(case, words, tmp_path):
    log = tmp_path / "train.log"
    log.write_text(CASES[case], encoding="utf-8")
    text = said(findings(gather(log))[0])
    assert [one for one in words if one not in text] == []


# Runs that came to their end, and are worth nothing --------------------------------------------------------------


def losses(*values: float, every: int = 50) -> str:
    return "".join(f"step {every * number}: loss {value}\n" for number, value in enumerate(values))


@pytest.mark.parametrize(
    ("log", "still"),
    [
        (losses(*[2.3026] * 9), True),
        (losses(2.3026, 2.303, 2.3019, 2.3024, 2.3031, 2.302, 2.3025, 2.3027), True),
        (losses(*[2.3026] * 5), False),  # too few
        (losses(*[2.3026] * 9, every=1), False),  # the rate is still warming up
        (losses(2.3026, 2.29, 2.25, 2.1, 1.9, 1.8, 1.7, 1.6), False),
        (losses(*[2.3026] * 9).replace("step 0:", "step 900:"), False),  # it may have learned before
        (losses(*[2.3026] * 9) + "(with ddp: step 400: loss 0.41)\n", True),  # another run's
    ],
)
def test_a_loss_that_never_moves(log, still):
    told = course.went_wrong(log, alone=True)
    assert (told is not None and told.name == "learned-nothing") == still


def schedule(ends: int, of: int = 1000, last: float = 1e-6) -> str:
    steps = range(0, of + 1, 50)
    rates = [max(1e-4 * (1 - step / ends), last) for step in steps]
    return "".join(
        f"step {step}/{of} loss {1 - step / 2000:.4f} lr {rate:.3g}\n"
        for step, rate in zip(steps, rates, strict=True)
    )


@pytest.mark.parametrize(
    ("log", "early"),
    [
        ("num_processes 4\n" + schedule(250), True),
        ("world_size=2\n" + schedule(500), True),
        ("num_processes 4\n" + schedule(1000), False),
        ("num_processes 8\n" + schedule(500), False),  # a schedule that was meant to end there
        (schedule(250), False),  # one process
        ("num_processes 4\n" + schedule(10**9), False),  # constant all the time
    ],
)
def test_a_rate_that_several_processes_brought_to_its_end(log, early):
    told = course.went_wrong(log, alone=True)
    assert (told is not None and told.name == "rate-ended-early") == early


def test_copies_that_differ_are_none_of_a_sharded_run():
    differ = "step 50 param checksum r0=1.25 r1=1.26\nstep 99 param checksum r0=1.35 r1=1.37\n"
    assert course.went_wrong("wrapped in DDP\n" + differ, alone=True).name == "replicas-differ"
    assert course.went_wrong("wrapped in FSDP\n" + differ, alone=True) is None
    assert (
        course.went_wrong("wrapped in DDP\n" + differ.replace("1.26", "1.25").replace("1.37", "1.35"), alone=True)
        is None
    )


# Cores, networks, files ------------------------------------------------------------------------------------------


def test_tasks_with_fewer_cores_than_were_asked_for():
    asks = "#SBATCH --ntasks-per-node=4 --cpus-per-task=8\n+ {}\n"
    warns = "UserWarning: Our suggested max number of worker in current system is {}, which is smaller\n"
    log = asks.format("srun python train.py") + warns.format(1)
    assert shared.one_core(log).name == "few-cores"
    assert shared.one_core(asks.format("srun python train.py") + warns.format(8)) is None
    assert shared.one_core(asks.format("srun --cpus-per-task=8 python train.py") + warns.format(1)) is None
    assert (
        shared.one_core(asks.format("export SRUN_CPUS_PER_TASK=8; srun python train.py") + warns.format(1)) is None
    )
    assert shared.one_core(asks.format("python train.py") + warns.format(1)) is None


def test_tcp_between_nodes_is_told_where_the_time_did_not_suffice():
    log = CASES["no-libibverbs-06"]
    assert nccl_log.by_tcp(log).name == "slow-network"
    assert nccl_log.by_tcp(log.replace("DUE TO TIME LIMIT", "")) is None
    assert nccl_log.by_tcp(log.replace("Using network Socket", "Using network IB")) is None
    assert nccl_log.by_tcp(log.replace("q102", "q101")) is None  # one node
    assert nccl_log.by_tcp(re.sub(r"^0: step.*\n", "", log, flags=re.M)) is None  # it hung


def test_a_file_that_two_ranks_fetched_and_one_that_was_fetched_once():
    log = CASES["both-download-29"]
    assert "2 ranks fetched" in found_in(log)[0].saw
    once = re.sub(r"^100%.*44\.9MB/s\]\n", "", log, flags=re.M)
    assert found_in(once)[0].name == "broken-data"
    assert "ranks fetched" not in found_in(once)[0].saw


def test_a_link_local_address_is_told_of_roce_only_and_not_of_a_port_that_went_down():
    gid = "localGid fe80::e42:a1ff:fe9a:1 remoteGids fe80::e42:a1ff:fe9a:2 hca mlx5_0"
    down = "h1:9:9 [0] NCCL WARN NET/IB : mlx5_0:1 Got async event : port error\n"
    assert "RoCE" in found_in(RETRY.format(gid))[0].means
    assert "RoCE" not in found_in(RETRY.format(""))[0].means
    assert all("RoCE" not in one.means for one in found_in(down + RETRY.format(gid)))


@pytest.mark.parametrize(
    "line", ["export NCCL_DEBUG=INFO", "module load cuda", "NCCL_IB_DISABLE=1 srun python x.py"]
)
def test_a_line_of_the_script_is_no_refusal_of_it(line):
    assert not found_in(f"run.sh: {line}\n")
    assert found_in("run.sh: there is no exercises/main.py here\n")[0].name == "not-submitted-right"


# Who waited for whom ---------------------------------------------------------------------------------------------


def test_the_rank_that_did_not_come_is_named_where_one_only_is_missing():
    assert "rank 0 did not come" in waited.one_missing(waits(1, 2, 3)).saw
    assert waited.one_missing(waits(2, 3)) is None  # two are missing
    assert waited.one_missing(waits(0, 1, 2)) is None  # none, as far as is known
    assert waited.one_missing("job 7: 4 ranks on a b;\n" + waits(0, 1, 2)) is not None
    assert waited.one_missing("[rank0]: something\n" + waits(1, 2, 3)) is None  # it has said something
    assert waited.one_missing(waits(1, 2) + waits(3, number=9)) is None


def test_a_rank_that_waited_after_the_others_had_gone():
    gone = "rank 1: shutting down\nrank 2: shutting down\n"
    assert "ranks 1 and 2 had gone" in waited.left_alone(gone + waits(0)).saw
    assert waited.left_alone(waits(0)) is None
    assert waited.left_alone(gone + "rank 0: shutting down\n" + waits(0)) is None
    assert waited.left_alone(gone + waits(0, 3)) is None
    assert waited.left_alone(waits(0) + gone) is None  # they were told to, then


def test_a_rank_that_stopped_by_itself():
    differ = waits(0, size=100) + waits(1)
    assert "decide together" in waited.apart("[rank1] early stopping at epoch 3\n" + differ).means
    both = "[rank1] early stopping at epoch 3\n[rank0] early stopping at epoch 3\n"
    assert "decide together" not in waited.apart(both + differ).means


def test_what_ran_without_p2p_stood_still_because_of_it():
    again = "+ NCCL_P2P_DISABLE=1 torchrun train.py\n"
    assert waited.together(waits(0, 1) + again + "step 20 loss 6.7\n").name == "gpu-peer-access"
    assert waited.together(waits(0, 1) + again).name == "unknown"
    assert waited.together(again + "step 20 loss 6.7\n" + waits(0, 1)).name == "unknown"
