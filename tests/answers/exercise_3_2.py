"""Answers to 3.2: every rank its own samples."""

from answers.entries import Bank, replaced

bank = Bank(
    "3.2",
    {
        "3.2": """
rank, world_size = dist.get_rank(), dist.get_world_size()  # world
if global_batch_size % world_size != 0:  # if_uneven
    raise ValueError(f"{global_batch_size} does not divide by {world_size}")  # uneven
if global_batch_size > len(train_set):  # if_large
    raise ValueError(f"{global_batch_size} is more than {len(train_set)}")  # large
batch_size = global_batch_size // world_size  # divide
sampler = DistributedSampler(train_set, shuffle=True, seed=seed, drop_last=True)  # sampler
workers = {"num_workers": num_workers, **loader_options}  # workers
train_loader = DataLoader(train_set, batch_size=batch_size, sampler=sampler, drop_last=True, **workers)  # train
shard = ValidationShard(valid_set, rank, world_size)
valid_loader = DataLoader(shard, batch_size=batch_size, **workers)  # valid
return train_loader, valid_loader  # result
"""
    },
)

SAMPLER = "sampler = DistributedSampler(train_set, shuffle=True, seed=seed, drop_last=True)"
TRAIN = "train_loader = DataLoader(train_set, batch_size=batch_size, sampler=sampler, drop_last=True, **workers)"
VALID = "valid_loader = DataLoader(shard, batch_size=batch_size, **workers)"
WORKERS = 'workers = {"num_workers": num_workers, **loader_options}'

OWN_SAMPLER = """
import torch
class Sampler:
    def __init__(self):
        self.epoch = 0
    def set_epoch(self, epoch):
        self.epoch = epoch
    def __len__(self):
        return len(train_set) // world_size
    def __iter__(self):
        generator = torch.Generator().manual_seed(seed * 1000 + self.epoch)
        order = torch.randperm(len(train_set), generator=generator).tolist()
        return iter(order[rank * len(self):(rank + 1) * len(self)])
sampler = Sampler()
"""

# ---- right

bank.right(
    "every argument given",
    sampler="sampler = DistributedSampler(train_set, world_size, rank, True, seed, True)",
    result="return [train_loader, valid_loader]",
)
bank.right("a sampler of its own, with ranks in one piece each", sampler=OWN_SAMPLER)
bank.right(
    "a helper function for both loaders",
    train="""
def loader(dataset, **arguments):
    return DataLoader(dataset, batch_size, num_workers=num_workers, **loader_options, **arguments)
train_loader = loader(train_set, sampler=sampler, drop_last=True)
""",
    valid="valid_loader = loader(shard, shuffle=False)",
)
bank.right(
    "divmod in place of % and //",
    if_uneven="batch_size, rest = divmod(global_batch_size, world_size)\nif rest:",
    divide="",
)

bank.right(
    "the options put together loader by loader",
    train="""
shared = dict(loader_options, num_workers=num_workers, batch_size=batch_size)
train_loader = DataLoader(dataset=train_set, sampler=sampler, drop_last=True, **shared)
""",
    valid="valid_loader = DataLoader(shard, **shared)",
)

# ---- wrong

# github.com/openvla/openvla/issues/125
bank.wrong(
    "no-distributed-sampler",
    "no DistributedSampler",
    train=TRAIN.replace("sampler=sampler", "shuffle=True"),
)
bank.wrong(
    "no-distributed-sampler",
    "RandomSampler",
    sampler="from torch.utils.data import RandomSampler\nsampler = RandomSampler(train_set)",
)
bank.wrong(
    "sampler-and-shuffle",
    "a sampler, and shuffle besides",
    train=TRAIN.replace("drop_last", "shuffle=True, drop_last"),
)
# github.com/Lightning-AI/pytorch-lightning/issues/9784
bank.wrong(
    "global-batch-as-local", "the global batch used as the local one", divide="batch_size = global_batch_size"
)
bank.wrong(
    "world-size-hard-coded", "the batch is divided by a fixed 2", divide="batch_size = global_batch_size // 2"
)
bank.wrong("wrong-batch-size", "one sample too many", divide="batch_size = global_batch_size // world_size + 1")
bank.wrong("not-shuffled", "not shuffled", sampler=SAMPLER.replace("shuffle=True", "shuffle=False"))
bank.wrong("partial-batch", "the loader keeps the last partial batch", train=TRAIN.replace("drop_last=True, ", ""))
# github.com/pytorch/pytorch/issues/22584
bank.wrong("padding-drawn-twice", "the sampler pads", sampler=SAMPLER.replace(", drop_last=True", ""))
bank.wrong("seed-ignored", "the seed is not handed on", sampler=SAMPLER.replace("seed=seed, ", ""))
bank.wrong(
    "ranks-shuffle-differently",
    "another seed on every rank",
    sampler=SAMPLER.replace("seed=seed", "seed=seed + rank"),
)
bank.wrong(
    "same-part-on-every-rank",
    "rank 0's part for everybody",
    sampler=SAMPLER.replace("shuffle", "num_replicas=world_size, rank=0, shuffle"),
)
bank.wrong(
    "same-order-every-epoch",
    "set_epoch has no effect",
    train="sampler.set_epoch = lambda epoch: None\n" + TRAIN,
)
# github.com/Lightning-AI/pytorch-lightning/issues/13316
bank.wrong("no-set-epoch", "a sampler without set_epoch", sampler=OWN_SAMPLER.replace("set_epoch", "start"))
bank.wrong(
    "order-not-reproducible",
    "every pass goes on drawing where the last one stopped",
    sampler=OWN_SAMPLER.replace("self.epoch = 0", "self.epoch, self.passes = 0, 0")
    .replace("generator =", "self.passes += 1\n        generator =")
    .replace("+ self.epoch)", "+ self.epoch + 100 * self.passes)"),
)
bank.wrong("indivisible-batch-accepted", "a batch that does not divide is rounded", uneven="pass")
bank.wrong("oversized-batch-accepted", "a batch larger than the data set is accepted", large="pass")
bank.wrong(
    "oversized-batch-accepted",
    "made as small as the data set",
    world="rank, world_size = dist.get_rank(), dist.get_world_size()\n"
    "global_batch_size = min(global_batch_size, len(train_set))",
)
bank.wrong(
    "valid-batch-refused",
    "a batch as large as the data set is refused",
    if_large="if global_batch_size >= len(train_set):",
)
bank.wrong(
    "not-a-value-error",
    "an assertion in place of the ValueError",
    if_uneven="assert global_batch_size % world_size == 0",
    uneven="",
)
bank.wrong("num-workers-ignored", "no workers", train=TRAIN.replace(", **workers", ""))
bank.wrong("num-workers-ignored", "no workers for validation", valid=VALID.replace(", **workers", ""))
bank.wrong("loaders-swapped", "validation first", result="return valid_loader, train_loader")
bank.wrong("not-two-loaders", "the training loader only", result="return train_loader")
bank.wrong(
    "unusable-batch",
    "batches of images without labels",
    train=TRAIN.replace("drop_last", "collate_fn=lambda batch: batch[0][0], drop_last"),
)
bank.wrong(
    "num-workers-ignored", "two workers at most", workers=WORKERS.replace(": num_workers", ": min(num_workers, 2)")
)
bank.wrong(
    "workers-nobody-asked-for",
    "two workers at least",
    workers=WORKERS.replace(": num_workers", ": max(num_workers, 2)"),
)
bank.wrong(
    "workers-nobody-asked-for",
    "0 workers taken for no choice, for validation",
    valid=VALID.replace("**workers", "num_workers=num_workers or 2, **loader_options"),
)
bank.wrong(
    "loader-options-dropped", "loader_options is swallowed", workers='workers = {"num_workers": num_workers}'
)
bank.wrong(
    "loader-options-dropped",
    "loader_options for training only",
    valid=VALID.replace("**workers", "num_workers=num_workers"),
)
bank.wrong(
    "loader-options-dropped",
    "loader_options for validation only",
    train=TRAIN.replace("**workers", "num_workers=num_workers"),
)
bank.wrong(
    "loader-options-dropped",
    "an option is overruled",
    workers=WORKERS.replace("**loader_options", "**loader_options, 'persistent_workers': False"),
)
bank.wrong(
    "seed-zero-replaced", "seed 0 taken for no seed", sampler=SAMPLER.replace("seed=seed", "seed=seed or 42")
)
bank.wrong(
    "seed-zero-replaced",
    "seed 0 taken for no seed, in a sampler of its own",
    sampler=OWN_SAMPLER.replace("(seed * 1000", "((seed or 42) * 1000"),
)
bank.wrong("wrong-validation-batch", "validation one by one", valid=VALID.replace("batch_size=batch_size, ", ""))
bank.wrong(
    "wrong-validation-batch",
    "the global batch for validation",
    valid=VALID.replace("batch_size=batch_size", "batch_size=global_batch_size"),
)
bank.wrong(
    "validation-shuffled", "validation is shuffled", valid=VALID.replace("**workers", "shuffle=True, **workers")
)
bank.wrong(
    "rank-from-torchrun-only",
    "rank and world size from torchrun's variables",
    world="import os\nrank, world_size = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])",
)
bank.wrong(
    "rank-from-torchrun-only",
    "a world of one where torchrun's variable is missing",
    world="import os\nrank, world_size = dist.get_rank(), int(os.getenv('WORLD_SIZE', 1))",
)
bank.wrong(
    "rank-from-torchrun-only",
    "rank 0 where torchrun's variable is missing",
    world="import os\nrank, world_size = int(os.environ.get('RANK', 0)), dist.get_world_size()",
    sampler=SAMPLER.replace("train_set, ", "train_set, world_size, rank, "),
)

# ---- seen in other settings, on other ranks, in other hands

bank.right(
    "isinstance Dataset",
    if_uneven="assert isinstance(train_set, Dataset) and isinstance(valid_set, Dataset) and "
    "len(valid_set) > 0\nif global_batch_size % world_size != 0:",
)
bank.wrong(
    "no-set-epoch",
    "no sampler in a world of one",
    sampler="sampler = DistributedSampler(train_set, shuffle=True, seed=seed, drop_last=True) if "
    "world_size > 1 else None",
    train=TRAIN.replace("sampler=sampler", "sampler=sampler, shuffle=sampler is None"),
)
bank.wrong(
    "same-order-every-epoch",
    "own sampler: seed times epoch",
    sampler=OWN_SAMPLER.replace("seed * 1000 + self.epoch", "seed * self.epoch"),
)
bank.wrong(
    "same-order-every-epoch",
    "own sampler: epoch modulo 2",
    sampler=OWN_SAMPLER.replace("self.epoch)", "self.epoch % 2)"),
)
bank.wrong(
    "ranks-shuffle-differently",
    "own sampler: epoch + rank",
    sampler=OWN_SAMPLER.replace("self.epoch)", "self.epoch + rank)"),
)
bank.wrong(
    "sampler-out-of-range",
    "own sampler counts from 1",
    sampler=OWN_SAMPLER.replace(
        "return iter(order[", "order = [i + 1 for i in order]\n        return iter(order["
    ),
)
bank.wrong(
    "ranks-shuffle-differently",
    "random.shuffle",
    sampler=OWN_SAMPLER.replace(
        "order = torch.randperm(len(train_set), generator=generator).tolist()",
        "import random\n        order = list(range(len(train_set)))\n        random.shuffle(order)",
    ),
)
bank.wrong(
    "not-on-every-rank",
    "rank 0 gets a sampler",
    sampler=SAMPLER + "\nif rank != 0:\n    from torch.utils.data import SequentialSampler\n"
    "    sampler = SequentialSampler(train_set)",
)
bank.wrong(
    "error-not-raised",
    "ValueError is made and not raised",
    uneven="ValueError('does not divide')",
)
bank.wrong(
    "error-not-raised",
    "printed in place of raised",
    uneven="print('does not divide')",
)
bank.wrong(
    "error-not-raised",
    "an assert of a tuple",
    if_uneven="assert (global_batch_size % world_size == 0, 'does not divide')",
    uneven="",
)
bank.wrong(
    "error-not-raised",
    "warned",
    uneven="import warnings\nwarnings.warn('does not divide')",
)
bank.wrong(
    "ranks-shuffle-differently",
    "own sampler: seed + rank",
    sampler=OWN_SAMPLER.replace("seed * 1000", "seed * 1000 + rank"),
)
bank.wrong(
    "seed-ignored",
    "own sampler: no seed",
    sampler=OWN_SAMPLER.replace("seed * 1000 + ", ""),
)

# ---- what comes of it in other epochs, other seeds, other calls, and with a GPU

bank.wrong(
    "set-epoch-out-of-reach",
    "a batch sampler",
    sampler="""
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
""",
    train="train_loader = DataLoader(train_set, batch_sampler=Batches(), **workers)",
)
bank.wrong(
    "set-epoch-out-of-reach",
    "PyTorch's BatchSampler around the distributed one",
    train="from torch.utils.data import BatchSampler\n"
    "batches = BatchSampler(sampler, batch_size, drop_last=True)\n"
    "train_loader = DataLoader(train_set, batch_sampler=batches, **workers)",
)
bank.wrong(
    "samples-never-drawn",
    "what does not fill a batch is cut off before the shuffling",
    sampler="from torch.utils.data import Subset\n"
    "train_set = Subset(train_set, range(len(train_set) // global_batch_size * global_batch_size))\n" + SAMPLER,
)
bank.wrong(
    "samples-never-drawn",
    "what the ranks cannot share evenly is cut off before the shuffling",
    sampler=OWN_SAMPLER.replace("randperm(len(train_set)", "randperm(len(self) * world_size"),
    slow=True,
)
bank.wrong(
    "not-shuffled",
    "a single rank does not shuffle",
    sampler=SAMPLER.replace("shuffle=True", "shuffle=world_size > 1"),
)
bank.wrong(
    "same-order-every-epoch",
    "a single rank shuffles once",
    sampler=OWN_SAMPLER.replace("self.epoch)", "self.epoch * (world_size > 1))"),
    slow=True,
)
bank.wrong(
    "loader-options-dropped",
    "pinned wherever there is a GPU",
    workers="import torch\nif torch.cuda.is_available():\n    loader_options['pin_memory'] = True\n" + WORKERS,
)
bank.wrong(
    "loader-options-dropped",
    "never pinned",
    workers="loader_options['pin_memory'] = False\n" + WORKERS,
    slow=True,
)
bank.wrong(
    "loader-options-dropped",
    "options that are known only",
    workers="known = ('pin_memory', 'persistent_workers')\n"
    "loader_options = {name: value for name, value in loader_options.items() if name in known}\n" + WORKERS,
)
bank.wrong("seed-ignored", "sixteen bits of the seed", sampler=SAMPLER.replace("seed=seed", "seed=seed & 0xFFFF"))
bank.wrong(
    "seed-ignored",
    "the last digits of the seed",
    sampler=OWN_SAMPLER.replace("seed * 1000", "seed % 1000 * 1000"),
    slow=True,
)
bank.wrong(
    "result-remembered",
    "the loaders of an earlier call",
    result='made = get_dataloaders.__dict__.setdefault("made", {})\n'
    "return made.setdefault((global_batch_size, seed), (train_loader, valid_loader))",
)
bank.wrong(
    "result-remembered",
    "the sampler of an earlier call",
    sampler=f"if not hasattr(DistributedSampler, 'made'):\n    {SAMPLER}\n    DistributedSampler.made = sampler\n"
    "sampler = DistributedSampler.made",
    slow=True,
)
bank.wrong(
    "refused-on-some-ranks",
    "only rank 0 raises",
    if_uneven="if rank == 0 and global_batch_size % world_size:",
)
bank.wrong(
    "no-set-epoch",
    "a part that is drawn once",
    train="from torch.utils.data import Subset\n"
    + TRAIN.replace("train_set", "Subset(train_set, list(sampler))").replace("sampler=sampler", "shuffle=True"),
)
bank.wrong(
    "order-not-reproducible",
    "a sampler that counts the epochs itself",
    sampler="""
class Counting(DistributedSampler):
    def __iter__(self):
        self.epoch += 1
        return super().__iter__()

    def set_epoch(self, epoch):
        pass

sampler = Counting(train_set, shuffle=True, seed=seed, drop_last=True)
""",
    slow=True,
)
bank.wrong(
    "same-order-every-epoch",
    "two epochs share an order",
    sampler="""
class Halved(DistributedSampler):
    def set_epoch(self, epoch):
        super().set_epoch(epoch // 2)

sampler = Halved(train_set, shuffle=True, seed=seed, drop_last=True)
""",
)
bank.wrong(
    "barrier-in-branch",
    "a barrier on rank 0 only",
    result="if rank == 0:\n    dist.barrier()\nreturn train_loader, valid_loader",
    slow=True,
)
bank.wrong(
    "local-rank-as-rank",
    "the local rank for the sampler",
    world="rank, world_size = dist.get_node_local_rank(), dist.get_world_size()",
    sampler=SAMPLER.replace("train_set, ", "train_set, world_size, rank, "),
    slow=True,
)

# ---- by somebody who had only a student's package at hand

STRAIGHT = {
    "3.2": """
world_size = dist.get_world_size()
if global_batch_size % world_size:
    raise ValueError(f"{global_batch_size} cannot be divided by {world_size}")
if global_batch_size > len(train_set):
    raise ValueError(f"{global_batch_size} is larger than the training set of {len(train_set)}")
batch_size = global_batch_size // world_size
sampler = DistributedSampler(train_set, seed=seed, drop_last=True)
train_loader = DataLoader(
    train_set, batch_size, sampler=sampler, drop_last=True, num_workers=num_workers, **loader_options
)
shard = ValidationShard(valid_set, dist.get_rank(), world_size)
valid_loader = DataLoader(shard, batch_size, num_workers=num_workers, **loader_options)
return train_loader, valid_loader
""",
}

bank.right(
    "partial loader",
    whole={
        "3.2": """
import functools

rank, world = dist.get_rank(), dist.get_world_size()
per_rank, rest = divmod(global_batch_size, world)
if rest or global_batch_size > len(train_set):
    raise ValueError(f"global batch {global_batch_size}, {world} ranks, {len(train_set)} samples")
loader = functools.partial(
    DataLoader, batch_size=per_rank, num_workers=num_workers, **loader_options
)
sampler = DistributedSampler(
    train_set, num_replicas=world, rank=rank, shuffle=True, seed=seed, drop_last=True
)
return loader(train_set, sampler=sampler, drop_last=True), loader(
    ValidationShard(valid_set, rank, world), shuffle=False
)
"""
    },
)
bank.right(
    "common dict",
    whole={
        "3.2": """
def _check(batch, samples, ranks):
    if batch % ranks != 0:
        raise ValueError("the batch does not divide")
    if samples < batch:
        raise ValueError("the batch is larger than the data")

_check(global_batch_size, len(train_set), dist.get_world_size())
common = {
    "batch_size": global_batch_size // dist.get_world_size(),
    "num_workers": num_workers,
} | loader_options
own = dict(common, sampler=DistributedSampler(train_set, seed=seed, drop_last=True), drop_last=True)
valid = ValidationShard(dataset=valid_set, rank=dist.get_rank(), world_size=dist.get_world_size())
loaders = DataLoader(train_set, **own), DataLoader(valid, **common)
return loaders
"""
    },
)
bank.right(
    "subclassed sampler",
    whole={
        "3.2": """
class _Sampler(DistributedSampler):
    def __init__(self, data, **options):
        super().__init__(data, dist.get_world_size(), dist.get_rank(), drop_last=True, **options)

world_size = dist.get_world_size()
batch = global_batch_size // world_size
if batch * world_size != global_batch_size:
    raise ValueError("not divisible")
if len(train_set) // global_batch_size < 1:
    raise ValueError("too large")
train_loader = DataLoader(
    dataset=train_set,
    batch_size=batch,
    shuffle=False,
    sampler=_Sampler(train_set, seed=seed),
    drop_last=True,
    num_workers=num_workers,
    **loader_options,
)
valid_loader = DataLoader(
    ValidationShard(valid_set, dist.get_rank(), world_size),
    batch_size=batch,
    num_workers=num_workers,
    drop_last=False,
    **loader_options,
)
return (train_loader, valid_loader)
"""
    },
)
bank.right(
    "nested function",
    whole={
        "3.2": """
world_size = dist.get_world_size()

def load(data: Dataset, **extra) -> DataLoader:
    return DataLoader(
        data, global_batch_size // world_size, num_workers=num_workers, **loader_options, **extra
    )

if global_batch_size % world_size != 0:
    raise ValueError("uneven")
if not global_batch_size <= len(train_set):
    raise ValueError("large")
train_sampler: DistributedSampler = DistributedSampler(train_set, drop_last=True, seed=seed)
train_loader = load(train_set, sampler=train_sampler, drop_last=True)
valid_loader = load(
    ValidationShard(valid_set, rank=dist.get_rank(), world_size=dist.get_world_size())
)
return train_loader, valid_loader
"""
    },
)
bank.wrong(
    "global-batch-as-local",
    "global batch on each",
    whole=replaced(STRAIGHT, ("global_batch_size // world_size", "global_batch_size")),
    slow=True,
)
bank.wrong("seed-ignored", "seed forgotten", whole=replaced(STRAIGHT, ("seed=seed, ", "")), slow=True)
bank.wrong(
    "ranks-shuffle-differently",
    "seed per rank",
    whole=replaced(STRAIGHT, ("seed=seed, ", "seed=seed + dist.get_rank(), ")),
    slow=True,
)
bank.wrong(
    "partial-batch",
    "loader keeps rest",
    whole=replaced(STRAIGHT, ("sampler=sampler, drop_last=True", "sampler=sampler")),
    slow=True,
)
bank.wrong(
    "padding-drawn-twice", "sampler pads", whole=replaced(STRAIGHT, (", drop_last=True)\n", ")\n")), slow=True
)
bank.wrong(
    "validation-drops-samples",
    "valid drops last",
    whole=replaced(STRAIGHT, ("DataLoader(shard, batch_size, ", "DataLoader(shard, batch_size, drop_last=True, ")),
)
bank.wrong(
    "validation-sampled-again",
    "valid sampled",
    whole=replaced(
        STRAIGHT,
        (
            "DataLoader(shard, batch_size, ",
            "DataLoader(shard, batch_size, sampler=DistributedSampler(shard, shuffle=False), ",
        ),
    ),
)
bank.wrong(
    "validation-shuffled",
    "valid shuffled",
    whole=replaced(STRAIGHT, ("DataLoader(shard, batch_size, ", "DataLoader(shard, batch_size, shuffle=True, ")),
    slow=True,
)
bank.wrong(
    "num-workers-ignored",
    "valid workers forgotten",
    whole=replaced(
        STRAIGHT, ("DataLoader(shard, batch_size, num_workers=num_workers, ", "DataLoader(shard, batch_size, ")
    ),
)
bank.wrong(
    "loader-options-dropped",
    "options to one only",
    whole=replaced(
        STRAIGHT,
        ("batch_size, num_workers=num_workers, **loader_options)", "batch_size, num_workers=num_workers)"),
    ),
    slow=True,
)
bank.wrong(
    "valid-batch-refused",
    "equal is too large",
    whole=replaced(STRAIGHT, ("global_batch_size > len", "global_batch_size >= len")),
    slow=True,
)
bank.wrong(
    "oversized-batch-accepted",
    "compares own batch",
    whole=replaced(STRAIGHT, ("if global_batch_size > len", "if global_batch_size // world_size > len")),
    slow=True,
)
bank.wrong(
    "indivisible-batch-accepted",
    "rounds silently",
    whole=replaced(
        STRAIGHT,
        (
            "if global_batch_size % world_size:\n"
            '    raise ValueError(f"{global_batch_size} cannot be divided by {world_size}")\n',
            "global_batch_size -= global_batch_size % world_size\n",
        ),
    ),
    slow=True,
)
bank.wrong(
    "not-shuffled",
    "sampler in order",
    whole=replaced(STRAIGHT, ("seed=seed, ", "shuffle=False, seed=seed, ")),
    slow=True,
)
bank.wrong(
    "shard-arguments-swapped",
    "rank and world swapped",
    whole=replaced(STRAIGHT, ("dist.get_rank(), world_size)", "world_size, dist.get_rank())")),
)
bank.wrong(
    "validation-not-sharded",
    "whole validation everywhere",
    whole=replaced(STRAIGHT, ("DataLoader(shard, ", "DataLoader(valid_set, ")),
)
bank.wrong(
    "sampler-of-validation-set",
    "sampler of the other set",
    whole=replaced(STRAIGHT, ("DistributedSampler(train_set", "DistributedSampler(valid_set")),
)
bank.wrong(
    "option-given-twice",
    "pins always",
    whole=replaced(STRAIGHT, ("sampler=sampler, ", "sampler=sampler, pin_memory=True, ")),
)
bank.wrong(
    "loaders-swapped",
    "swapped pair",
    whole=replaced(STRAIGHT, ("return train_loader, valid_loader", "return valid_loader, train_loader")),
    slow=True,
)
bank.wrong(
    "no-set-epoch",
    "strided subset",
    whole={
        "3.2": """
from torch.utils.data import Subset

world_size = dist.get_world_size()
if global_batch_size % world_size:
    raise ValueError(f"{global_batch_size} cannot be divided by {world_size}")
if global_batch_size > len(train_set):
    raise ValueError(f"{global_batch_size} is larger than the training set of {len(train_set)}")
batch_size = global_batch_size // world_size
train_set = Subset(train_set, range(dist.get_rank(), len(train_set), world_size))
train_loader = DataLoader(
    train_set, batch_size, shuffle=True, drop_last=True, num_workers=num_workers, **loader_options
)
shard = ValidationShard(valid_set, dist.get_rank(), world_size)
valid_loader = DataLoader(shard, batch_size, num_workers=num_workers, **loader_options)
return train_loader, valid_loader
"""
    },
    slow=True,
)
bank.wrong(
    "not-a-value-error",
    "asserts instead",
    whole=replaced(
        STRAIGHT,
        (
            "if global_batch_size % world_size:\n"
            '    raise ValueError(f"{global_batch_size} cannot be divided by {world_size}")',
            "assert global_batch_size % world_size == 0",
        ),
    ),
    slow=True,
)
bank.wrong(
    "set-epoch-out-of-reach",
    "sampler in batch sampler",
    whole={
        "3.2": """
from torch.utils.data import BatchSampler

world_size = dist.get_world_size()
if global_batch_size % world_size:
    raise ValueError(f"{global_batch_size} cannot be divided by {world_size}")
if global_batch_size > len(train_set):
    raise ValueError(f"{global_batch_size} is larger than the training set of {len(train_set)}")
batch_size = global_batch_size // world_size
sampler = DistributedSampler(train_set, seed=seed, drop_last=True)
train_loader = DataLoader(
    train_set,
    batch_sampler=BatchSampler(sampler, batch_size, True),
    num_workers=num_workers,
    **loader_options,
)
shard = ValidationShard(valid_set, dist.get_rank(), world_size)
valid_loader = DataLoader(shard, batch_size, num_workers=num_workers, **loader_options)
return train_loader, valid_loader
"""
    },
    slow=True,
)
bank.wrong(
    "no-distributed-sampler",
    "one replica",
    whole=replaced(STRAIGHT, ("seed=seed, ", "num_replicas=1, rank=0, seed=seed, ")),
)

# ---- what the validation loader reads, whatever 3.3 is; and nodes with GPUs of their own

SHARD = "DataLoader(shard, "
OWN_SHARD = "ValidationShard(valid_set, dist.get_rank(), world_size)"

bank.right(
    "a list of samples in place of the class",
    valid="padded = -(-len(valid_set) // world_size) * world_size\n"
    "mine = [valid_set[i] if i < len(valid_set) else (valid_set[0][0], IGNORED) "
    "for i in range(rank, padded, world_size)]\n" + VALID.replace("shard", "mine"),
)
bank.right(
    "a subclass of the shard that knows its rank",
    whole=replaced(
        STRAIGHT,
        (
            f"shard = {OWN_SHARD}",
            "class Mine(ValidationShard):\n    def __init__(self, data):\n"
            "        super().__init__(data, dist.get_rank(), dist.get_world_size())\n\nshard = Mine(valid_set)",
        ),
    ),
)
bank.wrong(
    "validation-of-training-set",
    "a shard of the training set",
    whole=replaced(STRAIGHT, (OWN_SHARD, OWN_SHARD.replace("valid_set", "train_set"))),
)
bank.wrong(
    "shard-arguments-swapped",
    "the rank before the data set",
    whole=replaced(STRAIGHT, (OWN_SHARD, "ValidationShard(dist.get_rank(), valid_set, world_size)")),
)
bank.wrong(
    "shard-arguments-not-numbers",
    "get_rank is not called",
    whole=replaced(STRAIGHT, (OWN_SHARD, OWN_SHARD.replace("get_rank()", "get_rank"))),
)
bank.wrong(
    "validation-not-as-sharded",
    "a part of the shard's samples",
    whole=replaced(
        STRAIGHT,
        (SHARD, "DataLoader([shard[i] for i in range(len(shard) // batch_size * batch_size)] or shard, "),
    ),
)
bank.wrong(
    "validation-not-as-sharded",
    "every N-th sample, without filler",
    whole=replaced(
        STRAIGHT,
        (
            f"shard = {OWN_SHARD}",
            "shard = [valid_set[i] for i in range(dist.get_rank(), len(valid_set), world_size)]",
        ),
    ),
    slow=True,
)
bank.wrong(
    "validation-sampled-again",
    "a sampler that pads, of the whole set",
    whole=replaced(
        STRAIGHT,
        (SHARD + "batch_size, ", "DataLoader(valid_set, batch_size, sampler=DistributedSampler(valid_set), "),
    ),
    slow=True,
)
bank.wrong(
    "local-number-as-global",
    "divided by the node's GPUs",
    world="import torch\nrank, world_size = dist.get_rank(), torch.cuda.device_count() or dist.get_world_size()",
)
bank.wrong(
    "wrong-validation-batch",
    "twice as many for the validation",
    valid="valid_loader = DataLoader(\n    shard,\n    batch_size=2 * batch_size,\n    **workers,\n)",
)

bank.wrong(
    "seed-ignored",
    "the seed for a generator of the loader",
    divide="import torch\n"
    "batch_size = global_batch_size // world_size\n"
    "own = torch.Generator()\n"
    "own.manual_seed(seed)",
    sampler="sampler = DistributedSampler(\n    train_set, shuffle=True, drop_last=True\n)",
    train="train_loader = DataLoader(\n"
    "    train_set, batch_size=batch_size, sampler=sampler, drop_last=True, generator=own, **workers\n)",
    slow=True,
)
bank.wrong(
    "no-distributed-sampler",
    "two replicas",
    whole=replaced(STRAIGHT, ("seed=seed, ", "num_replicas=2, rank=dist.get_rank() % 2, seed=seed, ")),
    slow=True,
)

# ---- a number of workers of its own

SHARED_OUT = "shared = (num_workers + world_size - 1) // world_size\n"
bank.wrong(
    "num-workers-ignored",
    "the workers shared out among the ranks",
    workers=SHARED_OUT + "workers = dict(num_workers=shared, **loader_options)",
    slow=True,
)
bank.wrong(
    "num-workers-ignored",
    "the workers shared out among the ranks, in each call",
    workers=SHARED_OUT,
    train=TRAIN.replace("**workers", "num_workers=shared, **loader_options"),
    valid=VALID.replace("**workers", "num_workers=shared, **loader_options"),
    slow=True,
)
bank.wrong(
    "num-workers-ignored",
    "fewer workers for validation",
    workers="for_validation = num_workers // 2\nworkers = dict(num_workers=num_workers, **loader_options)",
    valid=VALID.replace("**workers", "num_workers=for_validation, **loader_options"),
    slow=True,
)
