"""What the checks pretend beside real ranks: nodes with GPUs, a model on one, shards that are right."""

from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from lab.checks.common.attempt import NumberedImages
from lab.checks.common.meta_device import one_gpu_a_node
from lab.checks.common.pretended_gpu import Placed
from lab.checks.data.shard import VALID_FIRST, describe_shard, number_samples, right_shards

ASKS = """
import torch

def asked():
    return torch.cuda.device_count(), torch.cuda.is_available()
"""


@pytest.mark.parametrize(("seen", "expected"), [(True, (1, True)), (False, (1, False))])
def test_only_a_students_code_is_told_of_the_nodes_gpu(seen: bool, expected: tuple[int, bool]):
    students = ModuleType("data")
    exec(ASKS, students.__dict__)
    ours = ModuleType("lab.checks")
    exec(ASKS, ours.__dict__)
    before = students.asked()
    with one_gpu_a_node(seen=seen):
        assert students.asked() == expected
        assert ours.asked() == before
    assert students.asked() == before


def test_a_model_is_where_it_seems_to_be():
    model, other = nn.Linear(2, 2), nn.Linear(2, 2)
    placed = Placed(model)
    placed.device = torch.device("cuda", 3)
    with placed:
        assert model.weight.device == torch.device("cuda", 3)
        assert model.weight.is_cuda
        assert model.weight.get_device() == 3
        assert other.weight.device == torch.device("cpu")
    assert not model.weight.is_cuda


class Broken(Dataset):
    """As exercise 3.3 is before it is done, or wrong."""

    def __init__(self, dataset: Dataset, rank: int, world_size: int) -> None:
        self.kept = dataset, rank, world_size

    def __len__(self) -> int:
        raise NotImplementedError

    def __getitem__(self, i: int) -> object:
        raise NotImplementedError


class Asking(Broken):
    """Has defaults, and would ask the process group."""

    def __init__(self, dataset: Dataset, rank: int | None = None, world_size: int | None = None) -> None:
        self.kept = dataset, 0, 1

    def __len__(self) -> int:
        return 1

    def __getitem__(self, i: int) -> tuple[torch.Tensor, int]:
        return torch.zeros(1), 7


def test_a_shard_is_right_whatever_its_class_does():
    images = NumberedImages(torch.arange(3), first=VALID_FIRST)
    with right_shards(SimpleNamespace(ValidationShard=Broken)):
        loader = DataLoader(Broken(images, rank=1, world_size=2), 2)  # type: ignore[arg-type]
        assert [number_samples(batch) for batch in loader] == [[VALID_FIRST + 1, -1]]
        assert describe_shard(loader) == ["valid_set", "1", "2"]
        odd = SimpleNamespace(dataset=Broken(1, images, torch))  # type: ignore[arg-type]
        assert describe_shard(odd) == ["1", "valid_set", "a module"]
    with pytest.raises(NotImplementedError):
        len(Broken(images, 1, 2))


def test_a_shard_that_was_not_told_its_rank_is_left_to_itself():
    images = NumberedImages(torch.arange(3), first=VALID_FIRST)
    with right_shards(SimpleNamespace(ValidationShard=Asking)):
        shard = Asking(images)
        assert (len(shard), shard[0][1]) == (1, 7)
        assert describe_shard(SimpleNamespace(dataset=shard)) == []
