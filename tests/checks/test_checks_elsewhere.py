"""What would fail on a GPU is seen without one; what would not, or cannot be told, is left alone."""

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from lab.checks.common.meta_device import META, pretending, put_on_meta, runs_elsewhere
from lab.checks.common.pretended_gpu import GPU, asks_for_another, pretended_gpu
from lab.checks.common.tensors import close

LAID_OUT = torch.preserve_format
SUMS = {
    "on its device": (lambda loss: dist.all_reduce(torch.zeros(2, device=META) + loss), ""),
    "on the CPU": (lambda loss: dist.all_reduce(torch.zeros(2)), "all_reduce was given a tensor on the CPU"),
    "gathered on the CPU": (
        lambda loss: dist.all_gather([torch.zeros(1)], loss),
        "all_gather was given a tensor on the CPU",
    ),
    "read": (lambda loss: float(loss) + loss.item() + loss.sum().tolist(), ""),
    "taken to the CPU": (lambda loss: loss.cpu() + loss.to("cpu") + torch.zeros(2), ""),
    "read through a mask": (
        lambda loss: dist.all_reduce(
            torch.tensor([loss[loss > 0].sum().item(), loss.masked_select(loss > 0).sum()])
        ),
        "all_reduce was given a tensor on the CPU",
    ),
    "compared": (
        lambda loss: dist.all_reduce(torch.zeros(int(loss.equal(loss)) + torch.allclose(loss, loss, rtol=0.1))),
        "all_reduce was given a tensor on the CPU",
    ),
    "read with arguments": (
        lambda loss: dist.all_reduce(torch.from_numpy(loss.numpy(force=True)) + loss.cpu(memory_format=LAID_OUT)),
        "all_reduce was given a tensor on the CPU",
    ),
    "mixed": (
        lambda loss: nn.Linear(2, 2)(loss),
        "it raised: Tensor on device cpu is not on the expected device cuda",
    ),
    "another error": (lambda loss: {}["missing"], ""),
}


@pytest.mark.parametrize(("use", "expected"), SUMS.values(), ids=SUMS)
def test_what_mixes_devices_is_told(use: object, expected: str):
    def function(loss: Tensor) -> None:
        use(loss)

    said = runs_elsewhere(function, torch.ones(2, device=META))
    assert said.startswith(expected)
    assert bool(said) == bool(expected)


def test_without_a_list_of_problems_collectives_stay_as_they_are():
    with pretending(None):
        assert torch.ones(2, device=META).sum().item() == 1.0
        with pytest.raises(ValueError, match="process group has not been initialized"):
            dist.all_reduce(torch.ones(2))


def test_nothing_is_left_of_the_pretence():
    before = (Tensor.item, Tensor.to, dist.all_reduce)
    runs_elsewhere(lambda: None)
    assert (Tensor.item, Tensor.to, dist.all_reduce) == before
    with pytest.raises(RuntimeError):
        torch.ones(2, device=META).sum().item()


def test_which_gpu_is_asked_for_is_told():
    seen: list[object] = []

    def function(device: torch.device) -> None:
        tensor = torch.zeros(2, device=device).cuda().to("cuda")
        seen.extend([tensor.device, tensor.is_cuda, tensor.sum().item(), torch.cuda.current_device()])

    assert asks_for_another(function, GPU) == ""
    assert seen == [GPU, True, 0.0, GPU.index]
    for other in (1, "cuda:1", torch.device("cuda", 1)):
        assert asks_for_another(lambda other=other: torch.zeros(2).to(other)) == "cuda:1"
        assert asks_for_another(lambda other=other: torch.zeros(2, device=torch.device(other))) == "cuda:1"
    assert asks_for_another(lambda: torch.zeros(2).cuda(1)) == "cuda:1"
    assert asks_for_another(lambda: torch.device("cuda", 1)) == "", "nothing is there yet"
    assert asks_for_another(lambda: {}["missing"]) == ""
    assert torch.zeros(2).device.type == "cpu"


def test_whatever_tells_the_device_tells_the_same(world_of_one: None):
    model = nn.parallel.DistributedDataParallel(nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    put_on_meta(model, optimizer)
    seen: list[object] = []

    def function() -> None:
        parameter = optimizer.param_groups[0]["params"][0]
        seen.extend([parameter is next(model.parameters()), parameter.device, model.device, parameter.is_cuda])
        seen.extend([torch.zeros(1).is_cuda, dist.get_backend(), torch.accelerator.current_accelerator()])
        seen.extend([torch.cuda.is_available(), parameter.new_zeros(2).device, torch.zeros_like(parameter).device])

    assert runs_elsewhere(function) == ""
    assert seen == [True, META, META, True, False, "nccl", META, True, META, META]
    assert not torch.zeros(1, device=META).is_cuda
    assert dist.get_backend() == "gloo"


def test_the_line_of_a_collective_that_goes_wrong():
    def function() -> None:
        dist.all_reduce(torch.zeros(2, device=META))
        dist.all_reduce(torch.zeros(2))

    lines: list[int] = []
    assert runs_elsewhere(function, lines=lines)
    assert lines == [function.__code__.co_firstlineno + 2]
    lines.clear()
    assert runs_elsewhere(lambda: None, lines=lines) == ""
    assert lines == []


READING = {
    ".cpu()": lambda loss: loss.cpu(),
    ".to('cpu')": lambda loss: loss.to(torch.device("cpu"), non_blocking=True),
    ".item()": lambda loss: loss.item(),
    ".tolist()": lambda loss: loss.tolist(),
    ".numpy()": lambda loss: loss.numpy(),
    "float()": lambda loss: float(loss),
    "int()": lambda loss: int(loss),
    "its text": lambda loss: f"{loss:.2f}",
    "synchronize()": lambda loss: torch.cuda.synchronize(),
}


@pytest.mark.parametrize(("by", "read"), READING.items(), ids=READING)
def test_what_waits_for_the_gpu_is_told_with_its_line(by: str, read: Callable[[Tensor], object]):
    loss = torch.ones(())
    with pretended_gpu(__file__) as devices:
        read(loss)
    assert [one.by for one in devices.waits][:1] == [by]
    assert devices.waits[0].line == read.__code__.co_firstlineno
    with pretended_gpu("another.py") as devices:
        read(loss)
    assert devices.waits == []


def test_what_does_not_wait_is_left_alone():
    with pretended_gpu(__file__) as devices:
        loss = torch.ones(2, device=GPU).to(GPU).double().sum().detach().clone()
        assert loss.isfinite(), "to stop at a nan is right"
        assert close(loss, 2.0), "the lab's own lines may read it"
    assert devices.waits == []


def test_where_a_tensor_is_that_came_to_a_collective():
    loss = torch.ones(())
    places = {
        (lambda: torch.zeros(2, device=GPU)): True,
        (lambda: torch.zeros(2)): False,
        (lambda: torch.zeros(2).to(GPU)): True,
        (lambda: torch.zeros(2).cuda()): True,
        (lambda: loss.new_zeros(2)): True,
        (lambda: torch.stack([loss, torch.full_like(loss, 3)])): True,
        (lambda: torch.stack([loss]).cpu()): False,
        (lambda: loss.to("cpu") * 2): False,
        (lambda: torch.zeros(()) + loss): True,
        (lambda: torch.zeros(()).add_(2)): False,
    }
    with pretended_gpu() as devices:
        for make in places:
            dist.all_reduce(make())
    assert devices.reduced == list(places.values())
