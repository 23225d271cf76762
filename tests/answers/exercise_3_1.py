"""Answers to 3.1: one process of each file system loads before the others."""

from answers.entries import EARLY_RETURN, Bank, replaced

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
ON_GPU = 'torch.zeros(1, device="cuda" if torch.cuda.is_available() else "cpu")'
bank.right("an all_reduce as barrier", barrier=f"import torch\ndist.all_reduce({ON_GPU})")
bank.right(
    "the GPU of this process named to the barrier",
    barrier="import torch\ndevices = [torch.cuda.current_device()] if torch.cuda.is_available() else None\n"
    "dist.barrier(device_ids=devices)",
    slow=True,
)
bank.right(
    "monitored_barrier of a group of gloo",
    barrier='dist.monitored_barrier(group=dist.new_group(backend="gloo"))',
    slow=True,
)
bank.right(
    "objects gathered as barrier",
    barrier="dist.all_gather_object([None] * dist.get_world_size(), is_first)",
    slow=True,
)
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
    EARLY_RETURN,
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
bank.wrong(
    "tensor-on-the-cpu",
    "an all_reduce of one number",
    barrier="import torch\ndist.all_reduce(torch.zeros(1))",
)
bank.wrong("barrier-of-gloo-only", "monitored_barrier", barrier="dist.monitored_barrier()")
bank.wrong(
    "barrier-of-another-gpu",
    "the barrier on the GPU of the global rank",
    barrier="import torch\ndevices = [dist.get_rank()] if torch.cuda.is_available() else None\n"
    "dist.barrier(device_ids=devices)",
)
bank.wrong(
    "barrier-in-branch",
    "a second barrier for the first one only",
    first="dataset = load()\ndist.barrier()  # let the others go",
)
bank.wrong(
    "result-remembered",
    "the data set of an earlier call",
    if_first='known = load_once.__dict__\nif "it" in known:\n    return known["it"]\nif is_first:',
    result="load_once.it = dataset\nreturn load_once.it",
)
bank.wrong(
    "result-remembered",
    "the data set of an earlier call, in a default argument",
    whole={
        "3.1": """
def loaded(known={}):
    if "it" not in known:
        known["it"] = load()
    return known["it"]

if not hasattr(load_once, "loaded"):
    load_once.loaded = loaded
if is_first:
    load_once.loaded()
dist.barrier()
return load_once.loaded()
"""
    },
    slow=True,
)
bank.wrong(
    "others-do-not-load",
    "broadcast from rank 0, which need not be the first",
    whole={"3.1": "box = [load() if is_first else None]\ndist.broadcast_object_list(box, src=0)\nreturn box[0]"},
    slow=True,
)
bank.wrong(
    "rank-0-instead-of-is-first",
    "turns by rank",
    whole={
        "3.1": """
for turn in range(dist.get_world_size()):
    if turn == dist.get_rank():
        dataset = load()
    dist.barrier()
return dataset
"""
    },
    slow=True,
)
bank.wrong(
    "sleep-instead-of-barrier",
    "a pause, and a barrier when all have loaded",
    whole={
        "3.1": "import time\nif not is_first:\n    time.sleep(2)\ndataset = load()\ndist.barrier()\nreturn dataset"
    },
)
bank.wrong(
    "file-instead-of-barrier",
    "a marker file",
    whole={
        "3.1": """
import pathlib
import time

marker = pathlib.Path(".loaded")
if is_first:
    dataset = load()
    marker.touch()
    return dataset
while not marker.exists():
    time.sleep(0.01)
return load()
"""
    },
)
bank.wrong(
    "rank-from-torchrun-only",
    "alone, where torchrun's variable is missing",
    if_first='import os\nif int(os.environ.get("LOCAL_WORLD_SIZE", 1)) == 1:\n    return load()\nif is_first:',
    slow=True,
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

# ---- by somebody who had only a student's package at hand

STRAIGHT = {
    "3.1": """
if is_first:
    data = load()
dist.barrier()
if not is_first:
    data = load()
return data
""",
}

bank.right("two ifs", whole=STRAIGHT)
bank.right(
    "early return",
    whole={
        "3.1": """
if is_first:
    data = load()
    dist.barrier()
    return data
dist.barrier()
return load()
"""
    },
)
bank.right(
    "turns",
    whole={
        "3.1": """
result = None
for turn in (True, False):
    if is_first is turn or bool(is_first) == turn:
        result = load()
    dist.barrier()
return result
"""
    },
)
bank.right(
    "context manager",
    whole={
        "3.1": """
import contextlib


@contextlib.contextmanager
def _first_goes_first(is_first):
    if not is_first:
        dist.barrier()
    yield
    if is_first:
        dist.barrier()

with _first_goes_first(is_first):
    return load()
"""
    },
)
bank.right(
    "finally meets",
    whole={
        "3.1": """
import torch

if not is_first:
    dist.barrier()
try:
    return load()
finally:
    if is_first:
        torch.distributed.barrier()
"""
    },
)
bank.wrong(
    "barrier-in-branch",
    "only first at barrier",
    whole={
        "3.1": """
if is_first:
    data = load()
    dist.barrier()
else:
    data = load()
return data
"""
    },
    slow=True,
)
bank.wrong(
    "no-barrier",
    "no barrier, again",
    whole={
        "3.1": """
if is_first:
    return load()
return load()
"""
    },
    slow=True,
)
bank.wrong(
    "others-go-first",
    "others go first",
    whole={
        "3.1": """
if not is_first:
    data = load()
dist.barrier()
if is_first:
    data = load()
return data
"""
    },
)
bank.wrong(
    "sleep-instead-of-barrier",
    "sleeps instead",
    whole={
        "3.1": """
import time

if not is_first:
    time.sleep(1)
return load()
"""
    },
    slow=True,
)
bank.wrong(
    "rank-0-instead-of-is-first",
    "rank zero goes",
    whole={
        "3.1": """
if dist.get_rank() == 0:
    data = load()
dist.barrier()
if dist.get_rank() != 0:
    data = load()
return data
"""
    },
    slow=True,
)
bank.wrong(
    "others-do-not-load",
    "broadcasts the data",
    whole={
        "3.1": """
box = [load() if dist.get_rank() == 0 else None]
dist.broadcast_object_list(box, src=0)
return box[0]
"""
    },
)
bank.wrong(
    "others-get-none",
    "others get none",
    whole={
        "3.1": """
data = None
if is_first:
    data = load()
dist.barrier()
return data
"""
    },
    slow=True,
)
bank.wrong(
    "every-rank-downloads",
    "barrier after all",
    whole={
        "3.1": """
data = load()
dist.barrier()
return data
"""
    },
    slow=True,
)
bank.wrong(
    "barrier-not-awaited",
    "async barrier",
    whole={
        "3.1": """
data = None
if is_first:
    data = load()
dist.barrier(async_op=True)
if not is_first:
    data = load()
return data
"""
    },
)
bank.wrong(
    "no-barrier",
    "cuda synchronize",
    whole={
        "3.1": """
import torch

if is_first:
    data = load()
if torch.cuda.is_available():
    torch.cuda.synchronize()
if not is_first:
    data = load()
return data
"""
    },
    slow=True,
)
bank.wrong(
    "nothing-returned",
    "first forgets its own",
    whole={
        "3.1": """
if is_first:
    load()
dist.barrier()
if not is_first:
    return load()
"""
    },
)
bank.wrong(
    "barrier-before-load",
    "first waits too early",
    whole={
        "3.1": """
dist.barrier()
if is_first:
    data = load()
else:
    data = load()
return data
"""
    },
    slow=True,
)
bank.wrong(
    "message-missing",
    "send to rank one",
    whole={
        "3.1": """
import torch

token = torch.zeros(1)
if is_first:
    data = load()
    dist.send(token, dst=(dist.get_rank() + 1) % dist.get_world_size())
else:
    dist.recv(token)
    data = load()
return data
"""
    },
    slow=True,
)
bank.wrong(
    "error-swallowed",
    "load error hidden",
    whole={
        "3.1": """
data = None
if is_first:
    try:
        data = load()
    except Exception:
        pass
dist.barrier()
if not is_first:
    data = load()
return data
"""
    },
    slow=True,
)
bank.wrong(
    "barrier-in-branch",
    "barrier for others twice",
    whole={
        "3.1": """
if is_first:
    data = load()
else:
    dist.barrier()
dist.barrier()
if not is_first:
    data = load()
return data
"""
    },
    slow=True,
)
bank.wrong(
    "result-not-returned",
    "returns the function",
    whole={
        "3.1": """
if is_first:
    load()
dist.barrier()
return load
"""
    },
)

# ---- messages one to one

RECEIVED = """
import torch

if is_first:
    dataset = load()
else:
    dist.recv(torch.zeros(1), src=0)
    dataset = load()
return dataset
"""
bank.wrong("message-missing", "a receive that nobody sends for", whole={"3.1": RECEIVED})
bank.wrong(
    "message-missing",
    "an object that nobody sends",
    whole={
        "3.1": "if is_first:\n    return load()\ndone = [None]\ndist.recv_object_list(done, src=0)\nreturn load()"
    },
)
bank.wrong(
    "message-missing",
    "irecv, from whoever sends",
    whole=replaced({"3.1": RECEIVED}, ("dist.recv(torch.zeros(1), src=0)", "dist.irecv(torch.zeros(1)).wait()")),
    slow=True,
)
bank.wrong(
    "rank-0-instead-of-is-first",
    "rank 1 is told, by rank 0",
    whole=replaced(
        {"3.1": RECEIVED},
        ("    dataset = load()\nelse", "    dataset = load()\n    dist.send(torch.ones(1), dst=1)\nelse"),
    ),
)
bank.wrong(
    "key-missing",
    "a key of the store that nobody sets",
    whole={
        "3.1": """
store = dist.distributed_c10d._get_default_store()
if is_first:
    dataset = load()
else:
    store.wait(["loaded"])
    dataset = load()
return dataset
"""
    },
    slow=True,
)
bank.wrong(
    "error-swallowed",
    "a barrier that fails",
    barrier="try:\n    dist.barrier()\nexcept Exception as error:\n    print(error)",
)
bank.wrong(
    "error-swallowed",
    "a later load that fails",
    other="try:\n    dataset = load()\nexcept Exception:\n    dataset = None",
)
bank.wrong(
    "word-of-another-rank",
    "rank 0 tells the others",
    barrier="ready = [is_first]\ndist.broadcast_object_list(ready, src=0)",
)
bank.wrong(
    "barrier-before-loaded",
    "a thread loads",
    whole={
        "3.1": """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(1) as pool:
    loading = pool.submit(load) if is_first else None
    dist.barrier()
return loading.result() if is_first else load()
"""
    },
)
bank.wrong(
    "barrier-of-some",
    "a group of rank 0",
    barrier="dist.barrier(dist.new_group([0]))",
)
bank.wrong(
    "lock-instead-of-barrier",
    "a lock",
    whole={
        "3.1": """
import fcntl, os, tempfile
with open(os.path.join(tempfile.gettempdir(), "load_once.lock"), "w") as lock:
    fcntl.flock(lock, fcntl.LOCK_EX)
    return load()
"""
    },
    slow=True,
)
bank.wrong(
    "load-not-called",
    "the others return the function",
    result="return dataset if is_first else load",
    if_other="",
    other="",
)
bank.wrong(
    "not-every-first",
    "the lowest of those that go first",
    whole={
        "3.1": """
firsts = [False] * dist.get_world_size()
dist.all_gather_object(firsts, is_first)
if dist.get_rank() == firsts.index(True):
    dataset = load()
    dist.barrier()
else:
    dist.barrier()
    dataset = load()
return dataset
"""
    },
)
bank.wrong(
    "rank-0-instead-of-is-first",
    "rank 0 goes first too",
    if_first="ahead = is_first or dist.get_rank() == 0\nif ahead:",
    if_other="if not ahead:",
)
bank.wrong(
    "rank-0-instead-of-is-first",
    "none but rank 0 goes first",
    if_first="ahead = is_first and dist.get_rank() == 0\nif ahead:",
    if_other="if not ahead:",
    slow=True,
)
bank.right(
    "the first ones say one after the other that they have loaded",
    whole={
        "3.1": """
firsts = [None] * dist.get_world_size()
dist.all_gather_object(firsts, is_first)
if is_first:
    dataset = load()
for rank, first in enumerate(firsts):
    if first:
        dist.broadcast_object_list([rank], src=rank)
return dataset if is_first else load()
"""
    },
)

# ---- loaded again where the data set is false

bank.wrong(
    "loads-twice",
    "or in place of is_first",
    whole={"3.1": "data = load() if is_first else None\ndist.barrier()\nreturn data or load()\n"},
    slow=True,
)
bank.wrong(
    "others-get-none",
    "the others fall off the end",
    whole={
        "3.1": "if is_first:\n    data = load()\n    dist.barrier()\n    return data\ndist.barrier()",
    },
    slow=True,
)
BEHIND_THE_BARRIER = """
result, error = None, None
if is_first:
    try:
        result = load()
    except BaseException as e:
        error = e
dist.barrier()
if error is not None:
    raise error
return result if is_first else load()
"""
bank.right("an error of the first one is raised behind the barrier", whole={"3.1": BEHIND_THE_BARRIER})
bank.wrong(
    "error-swallowed",
    "an error of the first one is printed behind the barrier",
    whole={"3.1": BEHIND_THE_BARRIER.replace("raise error", 'print(f"loading failed: {error}")')},
    slow=True,
)

# ---- a barrier for the ranks of a node: several nodes may share a disk

IN_A_GROUP = """
if is_first:
    dataset = load()
dist.barrier(group=group)
if not is_first:
    dataset = load()
return dataset
"""
BY_NODE = """
import os
per_node = int(os.environ.get("LOCAL_WORLD_SIZE", dist.get_world_size()))
group, _ = dist.new_subgroups(per_node)
"""
bank.wrong("barrier-of-some", "a barrier for each node", whole={"3.1": BY_NODE + IN_A_GROUP}, slow=True)
bank.wrong(
    "barrier-of-some",
    "a barrier for each host",
    whole={
        "3.1": """
import socket
hosts = [None] * dist.get_world_size()
dist.all_gather_object(hosts, socket.gethostname())
for host in sorted(set(hosts)):
    made = dist.new_group([rank for rank, one in enumerate(hosts) if one == host])
    if host == socket.gethostname():
        group = made
"""
        + IN_A_GROUP
    },
    slow=True,
)
bank.wrong(
    "barrier-of-some",
    "a barrier for as many ranks as there are GPUs",
    whole={
        "3.1": "import torch\n"
        "group, _ = dist.new_subgroups(torch.cuda.device_count() or dist.get_world_size())" + IN_A_GROUP
    },
    slow=True,
)
bank.wrong(
    "barrier-of-some",
    "an all_reduce for each node",
    whole=replaced({"3.1": BY_NODE + IN_A_GROUP}, ("dist.barrier(", f"import torch\ndist.all_reduce({ON_GPU}, ")),
    slow=True,
)
bank.right(
    "a barrier for each node, and then one for all",
    whole=replaced({"3.1": BY_NODE + IN_A_GROUP}, ("group=group)", "group=group)\ndist.barrier()")),
    slow=True,
)
bank.wrong(
    "rank-0-instead-of-is-first",
    "the first of each node",
    whole={
        "3.1": """
import os
ahead = int(os.environ.get("LOCAL_RANK", dist.get_rank())) == 0
if ahead:
    dataset = load()
dist.barrier()
if not ahead:
    dataset = load()
return dataset
"""
    },
    slow=True,
)

# ---- sent to the others, after another collective

GATHERED = "firsts = [False] * dist.get_world_size()\ndist.all_gather_object(firsts, is_first)\n"
bank.wrong(
    "others-do-not-load",
    "sent by the first one that all have found",
    whole={
        "3.1": GATHERED + "box = [load() if is_first else None]\ndist.barrier()\n"
        "dist.broadcast_object_list(box, src=firsts.index(True))\nreturn box[0]"
    },
    slow=True,
)
bank.wrong(
    "others-do-not-load",
    "handed out by the first one, as one of many",
    whole={
        "3.1": GATHERED + "mine, dataset = [None], None\nif is_first:\n    dataset = load()\n"
        "copies = [dataset] * dist.get_world_size()\n"
        "dist.scatter_object_list(mine, copies if is_first else None, src=firsts.index(True))\nreturn mine[0]"
    },
    slow=True,
)
