"""Facts that a library states, rights that a run loses, empty values of a launch, and what was tried again."""

import pytest

from lab.diagnose import ended_well
from lab.diagnose.evidence import Evidence
from lab.diagnose.told.finding import Finding
from lab.diagnose.verdict import came_through, findings

STEPS = "".join(
    f"Epoch [{epoch}] step {step} loss: {2 - epoch / 10:.2f}\n" for epoch in range(3) for step in (1, 2)
)
END = "Training complete in 5 h\n"
CONNECTS = "n1:5:9 [0] NCCL INFO Call to connect returned Connection refused, retrying\n"
LIMIT = "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2024-01-01T00:00:00 DUE TO TIME LIMIT ***\n"
NO_ADDRESS = (
    'Traceback (most recent call last):\n  File "/u/train.py", line 64, in <module>\n    init("nccl")\n'
    "ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable MASTER_ADDR "
    "expected, but not set\n"
)


def evidence(log: str) -> Evidence:
    return Evidence(name="train.log", log=log, files=("train.log",))


def found_in(log: str) -> list[Finding]:
    return findings(evidence(log))


def raised(message: str, file: str = "/v/lib/python3.11/site-packages/libx/core.py") -> str:
    frames = f'  File "/u/train.py", line 64, in <module>\n    go(x)\n  File "{file}", line 9, in f\n    check()\n'
    return f"Traceback (most recent call last):\n{frames}{message}\n"


# What was tried again ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "before",
    [
        CONNECTS,
        "n1:5:5 [0] NCCL INFO NET/Plugin: Plugin load returned 2 : libnccl-net.so: cannot open it\n",
        "WARNING: Connection refused, retrying (1/5)\ndownload succeeded after 2 attempts\n",
    ],
)
def test_what_was_tried_again_is_no_finding_of_a_run_that_came_to_its_end(before):
    log = before + STEPS + END
    assert came_through(evidence(log)) is not None
    assert found_in(log) == []
    assert ended_well.end_of("failed (exitcode: 1) local_rank: 0\n" + log) is None


def test_nor_of_one_that_was_ended_later():
    assert [one.name for one in found_in(CONNECTS + STEPS + LIMIT)] == ["time-limit"]


def test_ranks_that_joined_had_found_each_other():
    joined = "n1:5:9 [0] NCCL INFO comm 0x1 rank 0 nranks 8 - Init COMPLETE\n"
    assert "nobody-listens" not in [one.name for one in found_in(CONNECTS + joined + raised("RuntimeError: no"))]
    assert found_in(CONNECTS)[0].name == "nobody-listens"  # where nothing else is known


def test_what_nccl_tells_without_a_warning_comes_behind_an_exception_of_another_matter():
    tells = "n1:5:9 [0] NCCL INFO NET/OFI Unable to find libcudart.so\n"
    assert found_in(tells + raised("RuntimeError: no"))[0].name == "unknown"
    warns = tells.replace("INFO", "WARN")
    assert found_in(tells + warns + raised("RuntimeError: no"))[0].name == "network-plugin"


# Rights that went ----------------------------------------------------------------------------------------------

DENIED = "PermissionError: [Errno 13] Permission denied: '{}'"
LOADER = "/v/lib/python3.11/site-packages/torch/utils/data/dataloader.py"
SAVES = "/v/lib/python3.11/site-packages/torch/serialization.py"


def test_data_that_had_been_read_for_epochs():
    found = found_in(STEPS + raised(DENIED.format("/proj/d/1.jpg"), LOADER))
    assert [one.name for one in found] == ["access-lost"]
    assert "mounted anew" in found[0].means
    afs = found_in(STEPS + raised(DENIED.format("/afs/d/1.jpg"), LOADER))[0]
    assert (afs.name, "Kerberos, AFS" in afs.means, "klist" in afs.do[0]) == ("access-lost", True, True)


def test_a_folder_that_had_been_written_to():
    saved = "Checkpoint saved to /proj/me/out/1.pt\n"
    denied = raised(DENIED.format("/proj/me/out/2.pt"), SAVES)
    assert found_in(saved + STEPS + denied)[0].name == "access-lost"
    assert found_in(saved.replace("saved", "will be saved") + STEPS + denied)[0].name == "no-permission"


def test_a_folder_or_a_file_that_was_never_theirs():
    assert found_in(STEPS + raised(DENIED.format("/proj/me/out/2.pt"), SAVES))[0].name == "no-permission"
    in_first_epoch = "Epoch [0] step 1 loss: 2.0\n" + raised(DENIED.format("/proj/d/1.jpg"), LOADER)
    assert found_in(in_first_epoch)[0].name == "no-permission"
    assert found_in(raised(DENIED.format("/proj/d/1.jpg"), LOADER))[0].name == "no-permission"


@pytest.mark.parametrize(
    "line",
    [
        "OSError: [Errno 127] Key has expired: '/proj/me/1.pt'",
        "OSError: [Errno 126] Required key not available: '/proj/me/1.pt'",
        "rpc.gssd: GSSAPI Error: Unspecified GSS failure. Ticket expired",
        "aklog: Couldn't get phys.example.edu AFS tickets:",
        "klist: No credentials cache found (filename: /tmp/krb5cc_1000)",
    ],
)
def test_words_of_tickets(line):
    assert found_in(raised(line) if "Error:" in line[:9] else f"{line}\n")[0].name == "access-lost"


# Values of a launch that are empty -----------------------------------------------------------------------------


@pytest.mark.parametrize("line", ["launch.sh: line 9: scontrol: command not found", "go: 3: hostname: not found"])
@pytest.mark.parametrize(
    "follows",
    [
        NO_ADDRESS,
        "torchrun: error: argument --master-addr/--master_addr: expected one argument\n",
        raised(
            "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to "
            "connect to (, 29500)."
        ),
    ],
)
def test_a_command_that_was_to_tell_the_address_comes_first(line, follows):
    found = found_in(f"{line}\n{follows}")
    assert [one.name for one in found] == ["lookup-not-found"]
    assert found[0].do[0].startswith(f"grep -n {'scontrol' if 'scontrol' in line else 'hostname'} ")
    assert ("MASTER_ADDR stayed empty" in found[0].means) == (follows == NO_ADDRESS)


def test_it_is_not_to_blame_for_what_needs_no_address():
    line = "launch.sh: line 9: scontrol: command not found\n"
    shapes = raised("RuntimeError: mat1 and mat2 shapes cannot be multiplied (3x4 and 5x6)")
    assert found_in(line + shapes)[0].name == "shapes-differ"
    assert (
        found_in("launch.sh: line 9: nvidia-smi: command not found\n" + NO_ADDRESS)[0].name == "no-meeting-point"
    )


def test_an_option_of_the_launcher_without_its_value():
    empty = raised("ValueError: Unsupported nproc_per_node value: ", "/v/site-packages/torch/distributed/run.py")
    assert found_in(empty)[0].name == "launch-value-empty"
    first = found_in("launch.sh: line 9: nvidia-smi: command not found\n" + empty)[0]
    assert (first.name, "launcher's option" in first.means) == ("program-not-found", True)


# Facts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "means"),
    [
        (
            "RuntimeError: The checkpoint used a DP world size of 8 but the current world size is 16.",
            "saved by another",
        ),
        ("AssertionError: world size (6) is not divisible by tensor_model_parallel_size (4)", "layout"),
        ("RuntimeError: FlashAttention only supports Ampere GPUs or newer.", "a card"),
        ("AssertionError: Device compute capability 8.9 or higher required for FP8 execution.", "a card"),
        ("RuntimeError: Expected is_sm80 || is_sm90 to be true, but got false.", "a card"),
        ("RuntimeError: FlashAttention only support fp16 and bf16 data type", "precision"),
        ("libx.CUDAMismatchException: CUDA version 12.2 does not match that of torch, 11.7", "of versions"),
        ("ImportError: accelerate>=0.26.0 is required, but found accelerate==0.20", "of versions"),
        (
            "ValueError: Size mismatch between saved torch.Size([8]) and current: torch.Size([4]) for w",
            "loaded into",
        ),
        ("ValueError: Attention using SDPA is not supported with output_attentions=True", "do not go together"),
        ("libx.errors.VersionMismatchError: 2, 3", "do not go together"),
    ],
)
def test_a_fact_is_told_in_the_words_of_the_library(message, means):
    found = found_in(raised(message))
    assert [one.name for one in found] == ["library-said"]
    assert means in found[0].means
    assert "refused by libx" in found[0].saw
    assert message.rstrip(".") in found[0].saw


@pytest.mark.parametrize(
    "message",
    [
        "RuntimeError: CUDA error: operation not supported",
        "RuntimeError: NCCL error: version mismatch",
        "RuntimeError: internal error, versions do not match",
        "RuntimeError: INTERNAL ASSERT FAILED: version mismatch",
        "RuntimeError: shape mismatch: indexing tensors could not be broadcast",
        "RuntimeError: element 0 of tensors does not require grad",
        "TypeError: unsupported operand type(s) for +: 'int' and 'str'",
        "RuntimeError: something went wrong",
    ],
)
def test_other_words_of_libraries_stay_unknown(message):
    assert found_in(raised(message))[0].name == "unknown"


def test_a_fact_that_the_users_own_line_states_is_its_own():
    own = (
        'Traceback (most recent call last):\n  File "/u/train.py", line 64, in <module>\n    raise ValueError(x)\n'
    )
    assert found_in(f"{own}ValueError: version 2 does not match\n")[0].name == "raised"
