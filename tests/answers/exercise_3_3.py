"""Answers to 3.3: validation counts every sample once, with as many batches on every rank."""

from answers.bank import solution
from answers.entries import Bank

bank = Bank(
    "3.3",
    {
        "3.3a": "return -(-len(self.dataset) // self.world_size)  # length",
        "3.3b": """
index = i * self.world_size + self.rank  # index
if index < len(self.dataset):  # if_sample
    return self.dataset[index]  # sample
image, _ = self.dataset[0]  # image
return image, IGNORED  # filler
""",
    },
)


def loader(dataset: str) -> dict[str, str]:
    """get_dataloaders with something else in place of the ValidationShard."""
    shard = "ValidationShard(valid_set, rank, world_size)"
    assert shard in solution("3.2")
    return {"3.2": solution("3.2").replace(shard, dataset)}


SHARD = "ValidationShard(valid_set, rank, world_size)"

# ---- right

bank.right("math.ceil", length="import math\nreturn math.ceil(len(self.dataset) / self.world_size)")
bank.right("ranks in one piece each", index="index = self.rank * len(self) + i")
bank.right("black images as filler", image="image = self.dataset[0][0].new_zeros(self.dataset[0][0].shape)")
bank.right(
    "an IndexError shows where the samples end",
    if_sample="try:",
    image="except IndexError:\n    pass\nimage = self.dataset[len(self.dataset) - 1][0]",
)
bank.right(
    "a list of samples in place of the class",
    whole=loader(
        "[valid_set[i] if i < len(valid_set) else (valid_set[0][0], -100) "
        "for i in range(rank, -(-len(valid_set) // world_size) * world_size, world_size)]"
    ),
)

# ---- wrong

bank.wrong("samples-dropped", "the length is rounded down", length="return len(self.dataset) // self.world_size")
# github.com/PrimeIntellect-ai/prime-rl/issues/2515, github.com/pytorch/torchtitan/issues/1618
bank.wrong(
    "unequal-validation-batches",
    "no filler: as many samples as this rank has",
    length="return len(range(self.rank, len(self.dataset), self.world_size))",
)
bank.wrong(
    "sample-counted-twice",
    "the samples begin again where they run out",
    index="index = (i * self.world_size + self.rank) % len(self.dataset)",
)
bank.wrong("sample-counted-twice", "filler that keeps its label", filler="return self.dataset[0]")
bank.wrong("filler-has-a-label", "filler of class 0", filler="return image, 0")
bank.wrong("filler-has-a-label", "filler with the label -1", filler="return image, -1")
bank.wrong("too-much-filler", "every rank is as long as the whole set", length="return len(self.dataset)")
bank.wrong("samples-dropped", "the index is off by one", index="index = i * self.world_size + self.rank + 1")
bank.wrong("past-the-end", "reads past the end", if_sample="if True:")
# github.com/pytorch/pytorch/issues/25162
bank.wrong(
    "sample-counted-twice",
    "a DistributedSampler, which pads",
    whole=loader("valid_set, sampler=DistributedSampler(valid_set, shuffle=False)"),
)
bank.wrong(
    "samples-dropped",
    "a DistributedSampler that drops",
    whole=loader("valid_set, sampler=DistributedSampler(valid_set, drop_last=True)"),
)
# github.com/pytorch/examples/issues/1063
bank.wrong("samples-dropped", "a validation loader with drop_last", whole=loader(f"{SHARD}, drop_last=True"))
bank.wrong("every-rank-validates-everything", "every rank validates everything", whole=loader("valid_set"))
bank.wrong("data-set-overwritten", "a real image turned black in place", filler="return image.zero_(), IGNORED")
bank.wrong(
    "filler-of-another-shape",
    "filler of a fixed size",
    filler="import torch\nreturn torch.zeros(3, 32, 32), IGNORED",
)
bank.wrong(
    "filler-of-another-shape", "a label in a list", filler="import torch\nreturn image, torch.tensor([IGNORED])"
)
bank.wrong("filler-of-another-shape", "filler without an image", filler="return None, IGNORED")
bank.wrong("label-not-an-integer", "filler with a label of type float", filler="return image, float(IGNORED)")
bank.wrong(
    "samples-dropped",
    "drop_last in what both loaders get",
    whole={
        "3.2": solution("3.2")
        .replace('"num_workers": num_workers', '"num_workers": num_workers, "drop_last": True')
        .replace("drop_last=True, **both", "**both")
    },
)
bank.wrong(
    "shard-arguments-swapped",
    "rank and world size change places",
    whole=loader("ValidationShard(valid_set, world_size, rank)"),
)

# ---- seen in other settings, on other ranks, in other hands

bank.wrong(
    "sample-counted-twice",
    "the index without the rank",
    index="index = i * self.world_size + self.rank * 0",
)
bank.wrong(
    "filler-has-a-label",
    "filler with label 100",
    filler="return image, 100",
)
bank.wrong(
    "filler-has-a-label",
    "filler -100 as the class of the dataset",
    filler="return image, len(self.dataset)",
)
bank.wrong(
    "past-the-end",
    "negative",
    index="index = i * self.world_size - self.rank",
)
