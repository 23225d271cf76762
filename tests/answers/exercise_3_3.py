"""Answers to 3.3: validation counts every sample once, with as many batches on every rank."""

from answers.entries import Bank, replaced

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


# ---- right

bank.right("math.ceil", length="import math\nreturn math.ceil(len(self.dataset) / self.world_size)")
bank.right("black images as filler", image="image = self.dataset[0][0].new_zeros(self.dataset[0][0].shape)")
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
bank.wrong("data-set-overwritten", "a real image turned black in place", filler="return image.zero_(), IGNORED")
bank.wrong(
    "filler-of-another-shape",
    "filler of a fixed size",
    filler="import torch\nreturn torch.zeros(3, 32, 32), IGNORED",
)
bank.wrong(
    "filler-of-another-shape", "a label in a list", filler="import torch\nreturn image, torch.tensor([IGNORED])"
)
bank.wrong("filler-without-image", "filler without an image", filler="return None, IGNORED")
bank.wrong("label-not-an-integer", "filler with a label of type float", filler="return image, float(IGNORED)")

bank.wrong(
    "not-a-sample",
    "the index beside image and label",
    sample="return *self.dataset[index], index",
    filler="return image, IGNORED, index",
)

# What the docstring says, what other data sets do, and who else asks.
bank.wrong("samples-of-another-rank", "ranks in one piece each", index="index = self.rank * len(self) + i")
bank.wrong(
    "samples-of-another-rank",
    "each rank's samples backwards",
    index="index = (len(self) - 1 - i) * self.world_size + self.rank",
    slow=True,
)
bank.wrong(
    "end-by-error",
    "an IndexError shows where the samples end",
    if_sample="try:",
    image="except IndexError:\n    pass\nimage = self.dataset[len(self.dataset) - 1][0]",
)
bank.wrong(
    "error-swallowed",
    "any error of the data set becomes filler",
    if_sample="try:",
    image="except Exception:\n    pass\nimage = self.dataset[0][0]",
)
bank.wrong(
    "error-swallowed",
    "any error of the data set becomes filler, inside of the set",
    if_sample="import contextlib\nwith contextlib.suppress(Exception):",
    sample="if index < len(self.dataset):\n        return self.dataset[index]",
    slow=True,
)
bank.wrong(
    "item-not-by-index",
    "samples from an iterator",
    index='if not hasattr(self, "left"):\n'
    "    self.left = iter(range(self.rank, len(self.dataset), self.world_size))\n"
    "index = next(self.left, len(self.dataset))",
)
bank.wrong(
    "item-not-by-index",
    "a counter in place of the index",
    index='self.passed = getattr(self, "passed", -1) + 1\nindex = self.passed * self.world_size + self.rank',
    slow=True,
)
bank.wrong(
    "filler-of-another-type",
    "filler of whole numbers",
    image="import torch\nimage = torch.zeros(self.dataset[0][0].shape, dtype=torch.uint8)",
)
bank.wrong("filler-of-another-type", "filler of float64", image="image = self.dataset[0][0].double()", slow=True)
bank.wrong("filler-of-another-shape", "filler with a batch dimension", filler="return image[None], IGNORED")
bank.wrong(
    "filler-of-another-shape",
    "filler that is square, with three colours",
    image="import torch\nside = self.dataset[0][0].shape[-1]\nimage = torch.zeros(3, side, side)",
    slow=True,
)
bank.wrong(
    "result-remembered",
    "filler kept by the class",
    image='if not hasattr(ValidationShard, "black"):\n'
    "    ValidationShard.black = self.dataset[0][0].new_zeros(self.dataset[0][0].shape)\n"
    "image = ValidationShard.black",
)
bank.wrong(
    "result-remembered",
    "filler kept by the module",
    image='black = globals().setdefault("black", self.dataset[0][0] * 0)\nimage = black',
    slow=True,
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

# ---- by somebody who had only a student's package at hand

STRAIGHT = {
    "3.3a": """
return (len(self.dataset) + self.world_size - 1) // self.world_size
""",
    "3.3b": """
index = self.rank * len(self) + i
if index < len(self.dataset):
    return self.dataset[index]
return self.dataset[0][0], IGNORED
""",
}

bank.right(
    "ceil and condition",
    whole={
        "3.3a": """
import math

return math.ceil(len(self.dataset) / self.world_size)
""",
        "3.3b": """
index = self.rank + i * self.world_size
if index < len(self.dataset):
    return self.dataset[index]
image, _ = self.dataset[0]
return image, IGNORED
""",
    },
)
bank.right(
    "own index list",
    whole={
        "3.3a": """
whole, rest = divmod(len(self.dataset), self.world_size)
return whole + (rest > 0)
""",
        "3.3b": """
import torch

mine = range(self.rank, len(self.dataset), self.world_size)
try:
    index = mine[i]
except IndexError:
    return torch.zeros_like(self.dataset[0][0]), IGNORED
return self.dataset[index]
""",
    },
)
bank.right(
    "longest of all ranks",
    whole={
        "3.3a": """
return max(len(range(r, len(self.dataset), self.world_size)) for r in range(self.world_size))
""",
        "3.3b": """
n = len(self.dataset)
index = self.rank + i * self.world_size
image, label = self.dataset[min(index, n - 1)]
return image, label if index < n else IGNORED
""",
    },
)
bank.wrong(
    "samples-dropped",
    "floor",
    whole={
        "3.3a": """
return len(self.dataset) // self.world_size
""",
        "3.3b": """
index = self.rank + i * self.world_size
if index < len(self.dataset):
    return self.dataset[index]
return self.dataset[0][0], IGNORED
""",
    },
    slow=True,
)
bank.wrong(
    "too-much-filler",
    "always one more",
    whole={
        "3.3a": """
return len(self.dataset) // self.world_size + 1
""",
        "3.3b": """
index = self.rank + i * self.world_size
if index < len(self.dataset):
    return self.dataset[index]
return self.dataset[0][0], IGNORED
""",
    },
    slow=True,
)
bank.wrong(
    "unequal-validation-batches",
    "own length",
    whole={
        "3.3a": """
return len(range(self.rank, len(self.dataset), self.world_size))
""",
        "3.3b": """
index = self.rank + i * self.world_size
if index < len(self.dataset):
    return self.dataset[index]
return self.dataset[0][0], IGNORED
""",
    },
    slow=True,
)
bank.wrong(
    "samples-dropped",
    "rounded",
    whole={
        "3.3a": """
return round(len(self.dataset) / self.world_size)
""",
        "3.3b": """
index = self.rank + i * self.world_size
if index < len(self.dataset):
    return self.dataset[index]
return self.dataset[0][0], IGNORED
""",
    },
    slow=True,
)
bank.wrong("samples-of-another-rank", "contiguous parts", whole=STRAIGHT, slow=True)
bank.wrong(
    "sample-counted-twice",
    "rank times i",
    whole=replaced(STRAIGHT, ("index = self.rank * len(self) + i", "index = self.world_size + i * self.rank")),
)
bank.wrong(
    "filler-has-a-label",
    "filler is class zero",
    whole={
        "3.3a": """
return (len(self.dataset) + self.world_size - 1) // self.world_size
""",
        "3.3b": """
import torch

index = self.rank + i * self.world_size
if index < len(self.dataset):
    return self.dataset[index]
return torch.zeros(3, 32, 32), 0
""",
    },
)
bank.wrong(
    "sample-counted-twice",
    "wraps around",
    whole={
        "3.3a": """
return (len(self.dataset) + self.world_size - 1) // self.world_size
""",
        "3.3b": """
index = (self.rank + i * self.world_size) % len(self.dataset)
return self.dataset[index]
""",
    },
    slow=True,
)
bank.wrong(
    "past-the-end",
    "off by one at the end",
    whole={
        "3.3a": """
return (len(self.dataset) + self.world_size - 1) // self.world_size
""",
        "3.3b": """
index = self.rank + i * self.world_size
if index <= len(self.dataset):
    return self.dataset[index]
return self.dataset[0][0], IGNORED
""",
    },
)
bank.wrong(
    "past-the-end",
    "raises where none",
    whole={
        "3.3a": """
return (len(self.dataset) + self.world_size - 1) // self.world_size
""",
        "3.3b": """
index = self.rank + i * self.world_size
if index >= len(self.dataset):
    raise IndexError(index)
return self.dataset[index]
""",
    },
    slow=True,
)
bank.wrong(
    "group-asked-not-the-shard",
    "asks the group",
    whole=replaced(
        STRAIGHT, ("index = self.rank * len(self) + i", "index = dist.get_rank() + i * dist.get_world_size()")
    ),
)
bank.wrong(
    "length-of-one-world-size",
    "two ranks only",
    whole={
        "3.3a": """
return (len(self.dataset) + 1) // 2
""",
        "3.3b": """
index = self.rank + i * self.world_size
if index < len(self.dataset):
    return self.dataset[index]
return self.dataset[0][0], IGNORED
""",
    },
)
bank.wrong(
    "samples-dropped",
    "starts at the next",
    whole=replaced(STRAIGHT, ("index = self.rank * len(self) + i", "index = self.rank + 1 + i * self.world_size")),
    slow=True,
)
bank.wrong(
    "samples-dropped",
    "ceil of a floor",
    whole={
        "3.3a": """
import math

return math.ceil(len(self.dataset) // self.world_size)
""",
        "3.3b": """
index = self.rank + i * self.world_size
if index < len(self.dataset):
    return self.dataset[index]
return self.dataset[0][0], IGNORED
""",
    },
    slow=True,
)
bank.wrong(
    "sample-counted-twice",
    "previous image as filler",
    whole={
        "3.3a": """
return (len(self.dataset) + self.world_size - 1) // self.world_size
""",
        "3.3b": """
index = self.rank + i * self.world_size
if index >= len(self.dataset):
    index = len(self.dataset) - 1
return self.dataset[index]
""",
    },
    slow=True,
)
bank.wrong(
    "filler-of-another-shape",
    "flat filler",
    whole={
        "3.3a": """
return (len(self.dataset) + self.world_size - 1) // self.world_size
""",
        "3.3b": """
import torch

index = self.rank + i * self.world_size
if index < len(self.dataset):
    return self.dataset[index]
return torch.zeros(3 * 32 * 32), IGNORED
""",
    },
    slow=True,
)
bank.wrong(
    "item-not-by-index",
    "remembers that the end was reached",
    whole={
        "3.3b": """
index = i * self.world_size + self.rank
if getattr(self, "_exhausted", False) or index >= len(self.dataset):
    self._exhausted = True
    return self.dataset[0][0], IGNORED
return self.dataset[index]
"""
    },
    slow=True,
)
bank.wrong(
    "filler-of-another-shape",
    "a Tensor of CIFAR's size",
    image="image = Tensor(3, 32, 32).zero_()",
    slow=True,
)
