"""In what precision a run computes, by default and when told to; BatchNorm under FSDP; checkpoints in fp16."""

import pytest
import torch
from torch import nn

from lab.base.errors import UsageError
from lab.runs import options
from lab.training.stepping import precision

CPU = torch.device("cpu")
CUDA = torch.device("cuda")  # only named here, not used


def resolved(*argv: str, device: str = "cuda", default: str = "bf16") -> str:
    args, _ = options.resolve(options.parse(argv), 1, device=device, default_precision=default)
    return args.precision


def test_mixed_precision_is_the_default_on_a_gpu_and_no_amp_turns_it_off():
    assert resolved() == "bf16"
    assert resolved(default="fp16") == "fp16"
    assert resolved("--no-amp") == "fp32"
    assert resolved("--precision", "fp16") == "fp16"
    assert resolved(device="cpu", default=precision.default_precision(CPU)) == "fp32"
    assert resolved("--precision", "bf16", device="cpu", default="fp32") == "bf16"


@pytest.mark.parametrize(("works", "expected"), [(True, "bf16"), (False, "fp16")])
def test_an_older_gpu_computes_in_fp16(monkeypatch, works, expected):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: works)
    assert precision.default_precision(CUDA) == expected


@pytest.mark.parametrize(
    ("argv", "device", "sentence"),
    [
        (["--precision", "fp16"], "cpu", "--precision fp16 needs a GPU: on the CPU use --precision bf16 or fp32"),
        (["--precision", "bf16", "--no-amp"], "cuda", "contradict each other"),
        (["--strategy", "fsdp1", "--precision", "fp16"], "cuda", "--strategy fsdp1 has no fp16 here"),
    ],
)
def test_a_precision_that_cannot_be_had_is_refused(argv, device, sentence):
    with pytest.raises(UsageError, match=sentence):
        resolved(*argv, device=device)


@pytest.mark.parametrize(
    ("name", "strategy", "expected"),
    [
        ("fp32", "ddp", torch.float32),
        ("bf16", "ddp", torch.bfloat16),
        ("bf16", "none", torch.bfloat16),
        ("fp16", "none", torch.float16),
        ("bf16", "fsdp", torch.float32),  # FSDP casts the parameters itself
    ],
)
def test_autocast_gives_the_forward_pass_its_precision(name, strategy, expected):
    with precision.autocast(CPU, name, strategy):
        assert nn.Linear(2, 2)(torch.zeros(1, 2)).dtype == expected


def test_only_fp16_has_a_scaler():
    assert precision.make_scaler(CPU, "fp32") is None
    assert precision.make_scaler(CPU, "bf16") is None
    assert isinstance(precision.make_scaler(CPU, "fp16"), torch.amp.GradScaler)


def test_channels_last_is_for_convolutions_on_a_gpu_and_not_for_fsdp1():
    convolution, linear = nn.Sequential(nn.Conv2d(3, 4, 3)), nn.Linear(2, 2)
    assert precision.wants_channels_last(convolution, CUDA, "ddp")
    assert precision.wants_channels_last(convolution, CUDA, "none")
    assert precision.wants_channels_last(convolution, CUDA, "fsdp")
    assert not precision.wants_channels_last(convolution, CUDA, "fsdp1")
    assert not precision.wants_channels_last(convolution, CPU, "ddp")
    assert not precision.wants_channels_last(linear, CUDA, "ddp")


def test_the_start_report_says_what_fp32_means_on_a_gpu():
    """These are PyTorch's defaults, which a run leaves as they are."""
    assert precision.describe(CUDA, "fp32", True) == (
        "fp32; fp32 convolutions run in TF32, fp32 matrix products in fp32; channels_last"
    )
    assert precision.describe(CPU, "bf16", False) == "bf16"


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
@pytest.mark.parametrize("name", ["fp32", "bf16"])
def test_a_net_with_batchnorm_trains_resumes_and_evaluates_alike(tiny, tmp_path, strategy, name):
    """Its running statistics too are the same on all ranks, in the checkpoint and after a resume in mid-epoch."""
    argv = (
        "--strategy",
        strategy,
        "--precision",
        name,
        "--epochs",
        "2",
        "--output-dir",
        str(tmp_path / "results"),
    )
    net = {"norm": True}
    whole = tiny(*argv, "--run-id", "whole", net=net).values[0]
    tiny(*argv, "--save-every-steps", "1", net=net, stop=[1, 2])
    second = tiny(*argv, "--resume", "latest", net=net).values[0]
    assert second["records"] == whole["records"]
    assert all(torch.equal(tensor, second["weights"][key]) for key, tensor in whole["weights"].items())
    loaded = tiny(*argv, "--resume", "latest", net=net, evaluate_first=True)
    for value in loaded.values:
        assert value["evaluation"] == pytest.approx(whole["records"][-1][3:], abs=1e-6)


def test_what_fsdp_casts_itself_gives_the_numbers_of_autocast(tiny, tmp_path):
    """Parameters and inputs in bf16, sums of gradients and BatchNorm's parameters in fp32: so does autocast."""
    values = [
        tiny(
            *("--strategy", strategy, "--precision", "bf16", "--epochs", "2", "--run-id", strategy),
            *("--output-dir", str(tmp_path / "results")),
            net={"norm": True},
        ).values[0]
        for strategy in ("ddp", "fsdp")
    ]
    assert values[0]["records"] == values[1]["records"]
    assert all(torch.equal(tensor, values[1]["weights"][name]) for name, tensor in values[0]["weights"].items())
