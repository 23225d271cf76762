"""Evaluation in the run's precision and memory format, whatever the strategy, below a call of the model."""

import contextlib

import pytest
import tiny_run
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.data import DataLoader, TensorDataset

from lab.runs import options
from lab.training.run import Run
from lab.training.stepping.evaluating import FastEvaluation

CPU = torch.device("cpu")


@pytest.fixture
def group(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def wrapped(strategy: str, precision: str) -> nn.Module:
    torch.manual_seed(0)
    model = tiny_run.TinyNet(dropout=0.0)
    if strategy == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if strategy == "fsdp":
        half = torch.bfloat16 if precision == "bf16" else None
        policy = MixedPrecisionPolicy(param_dtype=half, output_dtype=torch.float32)
        return fully_shard(model, mesh=init_device_mesh("cpu", (1,)), mp_policy=policy)
    return model


@pytest.mark.parametrize(("precision", "inside"), [("bf16", torch.bfloat16), ("fp32", torch.float32)])
@pytest.mark.parametrize("strategy", ["none", "ddp", "fsdp"])
def test_one_precision_for_all_strategies(group, tmp_path, strategy, precision, inside):
    argv = ["--strategy", strategy, "--precision", precision, "--output-dir", str(tmp_path), "--epochs", "1"]
    loader = DataLoader(TensorDataset(torch.randn(8, 3, 8, 8), torch.arange(8) % 4), batch_size=8)
    model = wrapped(strategy, precision)
    seen = []
    images = torch.randn(4, 3, 8, 8)
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.register_forward_hook(lambda module, inputs, output: seen.append(output.dtype))
    with Run(options.parse(argv), CPU) as run:
        run.begin(model, torch.optim.SGD(model.parameters(), lr=0.1), loader)
        model.eval()
        with torch.no_grad():
            logits = model(images)
            with run.autocast():
                expected = model._call_impl.__self__._plain(images)
        assert seen == [inside, inside]
        assert logits.dtype == torch.float32
        torch.testing.assert_close(logits, expected.float(), rtol=0, atol=0)
    assert "_call_impl" not in vars(model)  # its own again


def test_only_an_evaluation_is_touched():
    model = nn.Linear(2, 2)
    asked = []

    def autocast():
        asked.append(True)
        return torch.autocast("cpu", dtype=torch.bfloat16)

    evaluation = FastEvaluation(model, autocast, torch.preserve_format, None)
    x = torch.ones(1, 2)
    for mode, grad, expected in ((True, True, 0), (True, False, 0), (False, True, 0), (False, False, 1)):
        model.train(mode)
        with contextlib.nullcontext() if grad else torch.no_grad():
            assert model(x).dtype == torch.float32
        assert len(asked) == expected
    evaluation.release()
    with torch.no_grad():
        model(x)
    assert len(asked) == 1


def test_double_precision_stays():
    model = nn.Linear(2, 2, dtype=torch.float64).eval()
    FastEvaluation(model, contextlib.nullcontext, torch.preserve_format, None)
    with torch.no_grad():
        assert model(torch.ones(1, 2, dtype=torch.float64)).dtype == torch.float64


def test_images_are_laid_out_as_in_training():
    model = nn.Conv2d(3, 4, 1).eval()
    seen = []
    model.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    FastEvaluation(model, contextlib.nullcontext, torch.channels_last, None)
    images = torch.randn(2, 3, 4, 4)
    with torch.no_grad():
        model(images)
    assert seen[0].is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(seen[0], images)
