"""Runs that ended well and trained wrongly, and what ranks had in hand at once: what is said, and when nothing."""

import re
from pathlib import Path

import pytest

from lab.diagnose import nccl_log
from lab.diagnose.evidence import Evidence
from lab.diagnose.told import exceptions
from lab.diagnose.told.finding import Finding
from lab.diagnose.trained import at_once, passed_over, steps, wrongly
from lab.diagnose.verdict import findings

CASES = {
    case.partition(" | ")[0].rpartition("-")[2]: case.partition("\n")[2]
    for case in re.split(
        r"^=== ",
        (Path(__file__).parent / "corpus" / "eighteenth_try.txt").read_text(encoding="utf-8"),
        flags=re.M,
    )[1:]
}
DDP = "[main] strategy=ddp world=2\n"


def found_in(log: str) -> list[Finding]:
    return findings(Evidence(name="train.log", log=log, files=("train.log",)))


def said(found: Finding) -> str:
    return " ".join((found.saw, found.means, *found.do))


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("r01", ["Likeliest", "branch", "one of these ranks only"]),
        ("r04", ["compiler's cache", "TRITON_CACHE_DIR", "node's own disk"]),
        ("r06", ["Rank 0", "epoch_0_step_69999", "LATEST", "quota"]),
        ("r07", ["since step 500 of 2000", "4 batches", "accumulated"]),
        ("r07b", ["since step 1250 of 10000", "8 processes"]),
        ("r07c", ["since step 300", "shorter than the run"]),
        ("r09", ["HDF5", "forked", "--num-workers 0", "opened /scratch/homog/train.h5"]),
        ("r09b", ["HDF5", "inflate"]),
        ("r09c", ["zip file", "__getitem__"]),
        ("r11", ["163 tensors", "_orig_mod.", "strict=False", "random weights"]),
        ("r11b", ["module.", "DDP puts there"]),
        ("r14", ["model.forward()", "hooks", "model(x)"]),
        ("r14b", ["model.encode()", "register_fsdp_forward_method"]),
        ("r15", ["step 600", "exactly 0", "masked"]),
        ("r17", ["CUDA graph", "cudagraph_mark_step_begin"]),
        ("r18", ["Rank 0 alone", "training was over", "rank == 0"]),
        ("r19", ["bfloat16", "rounded away"]),
        ("r21", ["rank 0: 0.3877, rank 1: 0.6034", "past DDP"]),
        ("r21b", ["sum of the weights"]),
        ("r22", ["cpu:gloo,cuda:nccl", "offload"]),
        ("r23", ["ranks 1, 2 and 3", "rank 0 is 1.7313", "persistent=False", "to_empty"]),
        ("r23b", ["loss of rank 1 is no finite number"]),
        ("r24", ["Ranks 0, 1 and 2 made the same cache", "before the job"]),
        ("r25", ["no_sync()", "off by one"]),
        ("r28", ["decoupled_weight_decay", "allow_partial_load"]),
        ("r30", ["recompile_limit (8)", "expected 611", "mark_dynamic", "right"]),
        ("r30b", ["cache_size_limit (8)", "as a tensor"]),
        ("s01", ["--gres= without a value", "NGPU is empty"]),
        ("s01b", ["--time= without a value", "T is empty"]),
        ("s13", ["not proved", "NCCL_P2P_DISABLE=1", "ACS"]),
        ("s14", ["RoCE", "show_gids", "NCCL_IB_GID_INDEX=3"]),
        ("s15", ["169.254.3.1 is a link-local address", "NCCL_SOCKET_IFNAME"]),
        ("s15b", ["169.254.95.118 is a link-local address"]),
        ("s20", ["host's own", "--nv", "image"]),
        ("s23", ["no locks", "Lustre", "HF_HOME"]),
        ("s24", ["compiler's cache", "TRITON_CACHE_DIR"]),
    ],
)
def test_what_a_log_proves_or_makes_likely_is_said(case, words):
    text = said(found_in(CASES[case])[0])
    assert [word for word in words if word not in text] == []


def test_what_went_wrong_in_training_comes_before_that_somebody_ended_it():
    assert [one.name for one in found_in(CASES["r15"])] == ["loss-zero", "cancelled"]
    assert found_in(CASES["r15d"])[0].name == "loss-zero"
    sound = re.sub(r"^.*0\.0{3}.*\n", "", CASES["r15"], flags=re.M)
    assert [one.name for one in found_in(sound)] == ["cancelled"]


@pytest.mark.parametrize(
    ("zero", "others", "exact"),
    [
        ("0.00e+00", ["3.00e-04", "0.00e+00"], True),
        ("0.0", ["2e-05", "6.6e-06", "0.0"], True),
        ("0.0000", ["0.0003", "0.0001", "0.0000"], False),
        ("0.0000", ["7.2013", "6.3301", "0.0000"], True),
        ("0.000", ["0.000", "0.000"], False),
        ("0.1", ["7.2013"], False),
    ],
)
def test_a_zero_may_be_a_small_number_of_few_digits(zero, others, exact):
    assert steps.is_exact_zero(zero, others) == exact


def rates(*lines: tuple[int, str]) -> str:
    return "".join(f"step {step} loss 2.3 lr {rate}\n" for step, rate in lines)


def test_a_rate_is_over_early_only_where_much_is_left():
    begun = [(100, "3e-04"), (200, "2e-04")]
    early = [*begun, (300, "0e+00"), (400, "0e+00"), (500, "0e+00")]
    assert wrongly.went_wrong(rates(*early), alone=True).name == "rate-ended-early"
    assert wrongly.went_wrong(rates(*begun, (480, "0e+00"), (490, "0e+00"), (500, "0e+00")), alone=True) is None
    assert wrongly.went_wrong(rates(*early, (600, "1e-04")), alone=True) is None


def norms(of: str, *, more: str = "") -> str:
    return of + "".join(
        f"[rank{rank}] step {step}{more} loss 2.{rank} grad_norm {1 + rank}.5\n"
        for step in (10, 20, 30)
        for rank in (0, 1)
    )


@pytest.mark.parametrize(
    ("log", "apart"),
    [
        (norms(DDP), True),
        (norms(""), False),  # of what kind they are is not said
        (norms("[main] strategy=fsdp, not DDP\n"), False),
        (norms("[main] ddp x tensor parallel\n"), False),
        (norms(DDP, more=" micro 1"), False),
        (DDP + "[rank0] step 1 grad_norm 1.5\n[rank1] step 2 grad_norm 2.5\n" * 3, False),  # not of one step
    ],
)
def test_norms_that_differ_accuse_only_ddp(log, apart):
    found = wrongly.went_wrong(log, alone=True)
    assert (found is not None and found.name == "replicas-differ") == apart


def test_a_nan_of_all_ranks_in_the_first_step_is_no_matter_of_one():
    log = "[rank0] step 1 loss nan\n[rank1] step 1 loss nan\n[rank0] step 2 loss nan\n"
    assert "In the first step" not in wrongly.went_wrong(log, alone=True).saw
    later = "[rank0] step 1 loss 2.1\n[rank1] step 1 loss 2.1\n[rank0] step 9 loss 2.0\n[rank1] step 9 loss nan\n"
    assert "In the first step" not in wrongly.went_wrong(later, alone=True).saw


@pytest.mark.parametrize(
    "line",
    [
        "loaded: 2 missing, 2 unexpected",
        "loaded adapters: 224 missing, 0 unexpected",
        "backbone: missing keys: 31, unexpected keys: 12",
        "_IncompatibleKeys(missing_keys=['fc.weight', 'fc.bias'], unexpected_keys=['head.weight', 'head.bias'])",
        "_IncompatibleKeys(missing_keys=[], unexpected_keys=['module.a', 'module.b'])",
    ],
)
def test_a_new_head_or_an_adapter_is_loaded_well(line):
    assert passed_over.keys(f"{line}\n", 1) is None


def test_a_cache_of_one_rank_is_made_by_no_other():
    one = CASES["r24b"]
    assert at_once.cache_of_all(one).name == "cache-made-by-all"
    assert at_once.cache_of_all(re.sub(r"^\[rank0\].*\n", "", one, flags=re.M)) is None


def test_a_damaged_file_is_no_matter_of_forks_where_no_loader_process_reads_it():
    log = 'Traceback (most recent call last):\n  File "/home/u/a.py", line 3, in <module>\n'
    log += "OSError: Can't synchronously read data (inflate() failed)\n"
    assert at_once.opened_before_fork(log) is None
    truncated = (
        CASES["r09b"].replace("(inflate() failed)", "").replace("Can't synchronously read data", "truncated")
    )
    assert at_once.opened_before_fork(truncated) is None


def test_a_rank_alone_in_the_midst_of_training_is_not_at_its_end():
    log = CASES["r18"]
    assert at_once.at_the_end(log) is not None
    assert at_once.at_the_end(log.replace("NumelIn=1,", "NumelIn=4096,")) is None
    assert at_once.at_the_end(re.sub(r"^0: (?:max_epochs|writing).*\n", "", log, flags=re.M)) is None
    two = log.replace(
        "0: terminate", "1: [rank1]:" + re.search(r"\[rank0\]:(.*)", log)[1].replace("Rank 0", "Rank 1") + "\n0: t"
    )
    assert at_once.at_the_end(two) is None


def test_an_option_with_its_value_is_not_empty():
    refused = "sbatch: error: Batch job submission failed: Invalid account or account/partition combination\n"
    assert at_once.empty_option("+ sbatch --gres=gpu:2 --time=1 run.sh\n" + refused) is None
    assert at_once.empty_option("+ sbatch --account= run.sh\n" + refused).name == "sbatch-refused"
    assert at_once.empty_option("#SBATCH --account=\n" + refused) is not None
    assert at_once.empty_option("+ sbatch --gres= run.sh\n") is None
    assert at_once.empty_option("+ srun --export= a.py\nsrun: error: n1: task 3: Aborted\n") is None
    assert at_once.empty_option("+ srun -n 2 python a.py --resume= \n" + refused) is None


def test_infiniband_proper_is_not_told_of_gids():
    log = CASES["s14"]
    assert "show_gids" not in said(found_in(log.replace("/RoCE", "/IB"))[0])


def test_p2p_is_a_suspect_in_the_first_collective_only():
    log = CASES["s13"]
    assert any("first suspect" in one for one in nccl_log.explained(log))
    later = log.replace("SeqNum=1,", "SeqNum=71,")
    assert not any("first suspect" in one for one in nccl_log.explained(later))
    assert found_in(later)[0].name == "unknown"


def test_labels_of_srun_before_those_of_torch_and_padded_ones_are_read():
    for label in ("9: [rank9]:", " 9: [rank9]:", "[rank9]:", " 9:"):
        log = f'{label} Traceback (most recent call last):\n{label}   File "/home/u/a.py", line 3, in f\n'
        assert exceptions.exception(f"{log}{label} KeyError: 'x'\n").saw.startswith("Rank 9 raised KeyError")
