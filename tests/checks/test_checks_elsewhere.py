"""What would fail on a GPU is seen without one; what would not, or cannot be told, is left alone."""

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from lab.checks.common.meta_device import META, pretending, runs_elsewhere
from lab.checks.common.pretended_gpu import GPU, asks_for_another

SUMS = {
    "on its device": (lambda loss: dist.all_reduce(torch.zeros(2, device=META) + loss), ""),
    "on the CPU": (lambda loss: dist.all_reduce(torch.zeros(2)), "all_reduce was given a tensor on the CPU"),
    "gathered on the CPU": (
        lambda loss: dist.all_gather([torch.zeros(1)], loss),
        "all_gather was given a tensor on the CPU",
    ),
    "read": (lambda loss: float(loss) + loss.item() + loss.sum().tolist(), ""),
    "taken to the CPU": (lambda loss: loss.cpu() + loss.to("cpu") + torch.zeros(2), ""),
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
