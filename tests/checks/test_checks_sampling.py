"""The check of exercise 3.2 accepts different right answers and names what is wrong with the others."""

from pathlib import Path

import pytest
from answers.bank import SOLUTIONS, verdict, with_answer

LOADERS = """
rank, world_size = dist.get_rank(), dist.get_world_size()
if global_batch_size % world_size != 0:
    raise ValueError("does not divide")
if global_batch_size > len(train_set):
    raise ValueError("larger than the set")
batch_size = global_batch_size // world_size
sampler = DistributedSampler(train_set, shuffle=True, seed=seed, drop_last=True)
train_loader = DataLoader(
    train_set, batch_size=batch_size, sampler=sampler, drop_last=True, num_workers=num_workers, **loader_options
)
valid_loader = DataLoader(
    ValidationShard(valid_set, rank, world_size), batch_size=batch_size, num_workers=num_workers, **loader_options
)
return train_loader, valid_loader
"""

OWN_SAMPLER = """
import torch
class Sampler:
    def __init__(self, size, rank, world_size, seed):
        self.size, self.rank, self.world_size, self.seed, self.epoch = size, rank, world_size, seed, 0
    def set_epoch(self, epoch):
        self.epoch = epoch
    def __len__(self):
        return self.size // self.world_size
    def __iter__(self):
        generator = torch.Generator().manual_seed(self.seed * 1000 + self.epoch)
        order = torch.randperm(self.size, generator=generator).tolist()
        return iter(order[self.rank * len(self):(self.rank + 1) * len(self)])
"""

BATCH_SAMPLER = """
import torch
class Batches:
    epoch = 0
    def set_epoch(self, epoch):
        self.epoch = epoch
    def __len__(self):
        return len(train_set) // global_batch_size
    def __iter__(self):
        order = torch.randperm(len(train_set), generator=torch.Generator().manual_seed(seed + 7919 * self.epoch))
        for step in range(len(self)):
            yield order[step * global_batch_size:(step + 1) * global_batch_size][rank::world_size].tolist()
"""

SAMPLER = "DistributedSampler(train_set, shuffle=True, seed=seed, drop_last=True)"
TRAIN = """DataLoader(
    train_set, batch_size=batch_size, sampler=sampler, drop_last=True, num_workers=num_workers, **loader_options
)"""

RIGHT = {
    "the same": LOADERS,
    "explicit": LOADERS.replace(
        SAMPLER, "DistributedSampler(train_set, world_size, rank, True, seed, True)"
    ).replace("return train_loader, valid_loader", "return [train_loader, valid_loader]"),
    "own sampler": OWN_SAMPLER + LOADERS.replace(SAMPLER, "Sampler(len(train_set), rank, world_size, seed)"),
    "more arguments": LOADERS.replace(
        "**loader_options", "multiprocessing_context=None, in_order=True, **loader_options"
    ),
    "quotient and remainder": LOADERS.replace(
        "global_batch_size % world_size != 0", "divmod(global_batch_size, world_size)[1]"
    ),
}

NO_SAMPLER = ", sampler=sampler"

WRONG = {
    "no sampler": ("no-distributed-sampler", LOADERS.replace(NO_SAMPLER, ", shuffle=True")),
    "nothing": ("no-distributed-sampler", LOADERS.replace(TRAIN, "DataLoader(train_set, batch_size=batch_size)")),
    "RandomSampler": (
        "no-distributed-sampler",
        "from torch.utils.data import RandomSampler\n" + LOADERS.replace(SAMPLER, "RandomSampler(train_set)"),
    ),
    "sampler and shuffle": (
        "sampler-and-shuffle",
        LOADERS.replace("drop_last=True, num", "shuffle=True, drop_last=True, num"),
    ),
    "global batch": (
        "global-batch-as-local",
        LOADERS.replace("train_set, batch_size=batch_size", "train_set, batch_size=global_batch_size"),
    ),
    "half the global batch": ("world-size-hard-coded", LOADERS.replace("// world_size", "// 2")),
    "one more": ("wrong-batch-size", LOADERS.replace("// world_size", "// world_size + 1")),
    "not shuffled": ("not-shuffled", LOADERS.replace("shuffle=True", "shuffle=False")),
    "loader keeps the rest": ("partial-batch", LOADERS.replace("sampler=sampler, drop_last=True", NO_SAMPLER[2:])),
    "drops nothing": ("partial-batch", LOADERS.replace(", drop_last=True", "")),
    "sampler pads": ("padding-drawn-twice", LOADERS.replace("seed=seed, drop_last=True", "seed=seed")),
    "seed ignored": ("seed-ignored", LOADERS.replace("seed=seed, ", "")),
    "seed by rank": ("ranks-shuffle-differently", LOADERS.replace("seed=seed", "seed=seed + rank")),
    "rank fixed": (
        "same-part-on-every-rank",
        LOADERS.replace("shuffle=True, seed", "num_replicas=world_size, rank=0, shuffle=True, seed"),
    ),
    "epoch fixed": (
        "same-order-every-epoch",
        LOADERS.replace("train_loader =", "sampler.set_epoch = lambda epoch: None\ntrain_loader ="),
    ),
    "no set_epoch": (
        "no-set-epoch",
        OWN_SAMPLER.replace("set_epoch", "start")
        + LOADERS.replace(SAMPLER, "Sampler(len(train_set), rank, world_size, seed)"),
    ),
    "batch sampler": (
        "set-epoch-out-of-reach",
        LOADERS.replace(
            TRAIN, "DataLoader(train_set, batch_sampler=Batches(), num_workers=num_workers, **loader_options)"
        ).replace("sampler = ", BATCH_SAMPLER.strip() + "\nsampler = "),
    ),
    "drawn by the clock": (
        "order-not-reproducible",
        OWN_SAMPLER.replace("self.seed * 1000 + self.epoch", "self.draw()")
        + "    draws = 0\n    def draw(self):\n        self.draws += 1\n        return self.draws + self.seed\n"
        + LOADERS.replace(SAMPLER, "Sampler(len(train_set), rank, world_size, seed)"),
    ),
    "indivisible accepted": (
        "indivisible-batch-accepted",
        LOADERS.replace('raise ValueError("does not divide")', "pass"),
    ),
    "oversized accepted": (
        "oversized-batch-accepted",
        LOADERS.replace('raise ValueError("larger than the set")', "pass"),
    ),
    "oversized only said": (
        "error-not-raised",
        LOADERS.replace('raise ValueError("larger', 'print("larger'),
    ),
    "exactly one batch refused": (
        "valid-batch-refused",
        LOADERS.replace("global_batch_size > len", "global_batch_size >= len"),
    ),
    "asserts": (
        "not-a-value-error",
        LOADERS.replace(
            'if global_batch_size % world_size != 0:\n    raise ValueError("does not divide")',
            "assert global_batch_size % world_size == 0",
        ),
    ),
    "workers ignored": ("num-workers-ignored", LOADERS.replace(", num_workers=num_workers", "")),
    "workers of validation ignored": (
        "num-workers-ignored",
        LOADERS.replace("batch_size=batch_size, num_workers=num_workers", "batch_size=batch_size"),
    ),
    "swapped": (
        "loaders-swapped",
        LOADERS.replace("return train_loader, valid_loader", "return valid_loader, train_loader"),
    ),
    "one only": ("not-two-loaders", LOADERS.replace("return train_loader, valid_loader", "return train_loader")),
    "no return": ("not-two-loaders", LOADERS.replace("return train_loader, valid_loader", "")),
    "images only": (
        "unusable-batch",
        LOADERS.replace(
            "drop_last=True, num_workers", "drop_last=True, collate_fn=lambda batch: batch[0][0], num_workers"
        ),
    ),
}


@pytest.mark.slow  # variants: tests/answers has one of each kind
@pytest.mark.parametrize("code", RIGHT.values(), ids=RIGHT)
def test_a_right_answer_passes(tmp_path: Path, code: str):
    assert verdict("3.2", with_answer(tmp_path, "3.2", code)) == "passed"


@pytest.mark.slow  # variants: tests/answers has one of each kind
@pytest.mark.parametrize(("name", "code"), WRONG.values(), ids=WRONG)
def test_a_wrong_answer_gets_its_diagnosis(tmp_path: Path, name: str, code: str):
    assert verdict("3.2", with_answer(tmp_path, "3.2", code)) == name


def test_3_2_does_not_need_3_3(tmp_path: Path):
    stub = 'raise NotImplementedError("Exercise 3.3a is not done yet: x")'
    assert verdict("3.2", with_answer(tmp_path, "3.3a", stub)) == "passed"


def test_the_solution_passes():
    assert verdict("3.2", SOLUTIONS) == "passed"
