"""Answers to 3.1: one process of each file system loads before the others."""

from answers.entries import Bank

bank = Bank(
    "3.1",
    {
        "3.1": """
if is_first:  # if_first
    dataset = load()  # first
dist.barrier()  # barrier
if not is_first:  # if_other
    dataset = load()  # other
return dataset  # result
"""
    },
)

# ---- right

bank.right(
    "a barrier in each branch",
    whole={
        "3.1": """
if is_first:
    dataset = load()
    dist.barrier()
else:
    dist.barrier()
    dataset = load()
return dataset
"""
    },
)
bank.right(
    "the tutorials' two ifs around one load",
    whole={
        "3.1": """
if not is_first:
    dist.barrier()
dataset = load()
if is_first:
    dist.barrier()
return dataset
"""
    },
)
bank.right(
    "a context manager",
    whole={
        "3.1": """
from contextlib import contextmanager

@contextmanager
def first_before_others():
    if not is_first:
        dist.barrier()
    yield
    if is_first:
        dist.barrier()

with first_before_others():
    return load()
"""
    },
)
bank.right("monitored_barrier", barrier="dist.monitored_barrier()")
bank.right("an all_reduce as barrier", barrier="import torch\ndist.all_reduce(torch.zeros(1))")
bank.right(
    "barriers before and after too",
    if_first="dist.barrier()\nif is_first:",
    result="dist.barrier()\nreturn dataset",
)

# The error is on its way when the others are let go: the job ends with it, in place of waiting for a timeout.
bank.right(
    "a barrier that is reached in spite of an error",
    whole={
        "3.1": """
if not is_first:
    dist.barrier()
    return load()
try:
    return load()
finally:
    dist.barrier()
"""
    },
)

# ---- wrong

bank.wrong("every-rank-downloads", "everybody loads at once", whole={"3.1": "return load()"})
bank.wrong(
    "every-rank-downloads",
    "everybody loads, and then there is a barrier",
    whole={"3.1": "dataset = load()\ndist.barrier()\nreturn dataset"},
)
bank.wrong("no-barrier", "no barrier", barrier="")
bank.wrong(
    "sleep-instead-of-barrier",
    "the others sleep for a while",
    whole={"3.1": "import time\nif not is_first:\n    time.sleep(0.1)\nreturn load()"},
)
# github.com/huggingface/transformers-bloom-inference/pull/40
bank.wrong(
    "barrier-in-branch",
    "a barrier for the first one only",
    whole={
        "3.1": """
if is_first:
    dataset = load()
    dist.barrier()
else:
    dataset = load()
return dataset
"""
    },
)
bank.wrong(
    "barrier-in-branch",
    "a second barrier, for the others only",  # the place is that barrier, not the first one
    whole={
        "3.1": """
if is_first:
    dataset = load()
dist.barrier()
if not is_first:
    dist.barrier(group=None)
    dataset = load()
return dataset
"""
    },
)
bank.wrong(
    "barrier-in-branch",
    "the first one returns before the barrier",
    first="return load()",
)
bank.wrong(
    "barrier-before-load", "the barrier comes before the loading", whole={"3.1": "dist.barrier()\nreturn load()"}
)
bank.wrong("others-go-first", "the others go first", if_first="if not is_first:", if_other="if is_first:")
bank.wrong("loads-twice", "the first one loads twice", if_other="if True:")
bank.wrong("others-get-none", "the others get None", if_first="dataset = None\nif is_first:", if_other="if False:")
bank.wrong(
    "others-do-not-load",
    "the first one sends its data set to the others",
    whole={
        "3.1": """
mine = load() if is_first else None
everybody = [None] * dist.get_world_size()
dist.all_gather_object(everybody, mine)
return mine if is_first else next(dataset for dataset in everybody if dataset is not None)
"""
    },
)
bank.wrong(
    "rank-0-instead-of-is-first",
    "rank 0 goes first",
    whole={
        "3.1": "first = dist.get_rank() == 0\nif first:\n    dataset = load()\ndist.barrier()\n"
        "if not first:\n    dataset = load()\nreturn dataset"
    },
)
bank.wrong("result-not-returned", "load is returned, and not what it gave", result="return load")
bank.wrong("nothing-returned", "nothing is returned", result="")
bank.wrong(
    "error-swallowed",
    "an error of load is swallowed",
    first="try:\n    dataset = load()\nexcept OSError:\n    dataset = None",
)
bank.wrong("raised", "only the first one has the variable", if_other="if False:")
bank.wrong(
    "loads-twice",
    "a data set that is asked whether it is true",
    if_first="dataset = None\nif is_first:",
    if_other="if not dataset:",
)
bank.wrong(
    "load-retried",
    "load is tried again",
    first="try:\n    dataset = load()\nexcept OSError:\n    dataset = load()",
)
bank.wrong(
    "load-retried",
    "an error of load is swallowed, and then everybody tries",
    first="dataset = None\ntry:\n    dataset = load()\nexcept OSError:\n    pass",
    if_other="if not is_first or dataset is None:",
)

# ---- seen in other settings, on other ranks, in other hands

bank.right(
    "isinstance Dataset",
    result="from torch.utils.data import Dataset\nassert isinstance(dataset, Dataset)\nreturn dataset",
)
bank.right(
    "an all_reduce of one number",
    barrier="import torch\ndist.all_reduce(torch.zeros(1))",
)
bank.wrong(
    "sleep-instead-of-barrier",
    "time.sleep",
    barrier="import time\nif not is_first: time.sleep(3)",
)
bank.wrong(
    "sleep-instead-of-barrier",
    "sleep taken by name",
    barrier="from time import sleep\nif not is_first: sleep(10)",
)
bank.wrong(
    "raised",
    "load gets is_first",
    other="dataset = load(is_first)",
)
bank.wrong(
    "error-swallowed",
    "first hides all",
    first="try:\n    dataset = load()\nexcept Exception:\n    dataset = None",
)
