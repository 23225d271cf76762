"""Answers to 2.3: leaving the process group, and who is the main process."""

from answers.entries import Bank

bank = Bank(
    "2.3",
    {
        "2.3a": """
if dist.is_initialized():  # ask
    dist.destroy_process_group()  # leave
""",
        "2.3b": "return dist.get_rank() == 0  # main",
    },
)

# ---- right

bank.right(
    "destroys, and lets the error of a missing group pass",
    whole={"2.3a": "try:\n    dist.destroy_process_group()\nexcept (ValueError, AssertionError):\n    pass"},
)
# Harmless, since run() comes to cleanup() only when all went well; a rank that has failed never gets there.
bank.right(
    "all meet at a barrier before they leave",
    whole={"2.3a": "if not dist.is_initialized():\n    return\ndist.barrier()\ndist.destroy_process_group()"},
)
bank.right("not rank", main="return not dist.get_rank()")
bank.right("the launcher's rank", main="return read_launch_environment(os.environ).rank == 0")

# ---- wrong

# github.com/sehoffmann/dmlcloud/issues/61
bank.wrong("group-not-destroyed", "cleanup does nothing", leave="pass")
bank.wrong(
    "not-on-every-rank", "only the main process leaves", ask="if dist.is_initialized() and dist.get_rank() == 0:"
)
bank.wrong(
    "group-not-destroyed",
    "a single rank does not leave",
    ask="if dist.is_initialized() and dist.get_world_size() > 1:",
)
bank.wrong("cleanup-without-group", "it is not asked whether there is a group", ask="if True:")
bank.wrong(
    "cleanup-without-group",
    "a barrier before it is asked whether there is a group",
    ask="dist.barrier()\nif dist.is_initialized():",
)
# github.com/NVIDIA/apex/issues/886, github.com/NVIDIA/DeepLearningExamples/issues/1092
bank.wrong(
    "several-main-processes",
    "local rank 0, which is on every node",
    main="return int(os.environ.get('LOCAL_RANK', os.environ.get('SLURM_LOCALID', 0))) == 0",
)
bank.wrong("several-main-processes", "everybody is the main process", main="return True")
bank.wrong(
    "several-main-processes",
    "GPU 0, which is on every node",
    main="if torch.cuda.is_available():\n    return torch.cuda.current_device() == 0\nreturn dist.get_rank() == 0",
)
bank.wrong("wrong-main-process", "rank 1", main="return dist.get_rank() == 1")
bank.wrong(
    "wrong-main-process", "RANK, which is text, compared with a number", main="return os.environ.get('RANK') == 0"
)
bank.wrong("not-a-bool", "the rank itself", main="return dist.get_rank()")
bank.wrong("not-a-bool", "nothing is returned", main="dist.get_rank() == 0")
bank.wrong("rank-from-torchrun-only", "RANK, which srun does not set", main="return os.environ['RANK'] == '0'")

# ---- seen in other settings, on other ranks, in other hands

bank.right(
    "is_available too",
    ask="if dist.is_available() and dist.is_initialized():",
)
bank.wrong(
    "error-swallowed",
    "destroy in try with wrong name",
    whole={"2.3a": "try:\n    dist.destroy_process_groups()\nexcept Exception:\n    pass"},
)
bank.wrong(
    "wrong-main-process",
    "the last rank",
    main="return dist.get_rank() == dist.get_world_size() - 1",
)
bank.wrong(
    "several-main-processes",
    "rank 0 by get_node_local_rank",
    main="return dist.get_node_local_rank(0) == 0",
)
bank.wrong(
    "cleanup-without-group",
    "barrier in cleanup before check",
    whole={"2.3a": "dist.barrier()\ndist.destroy_process_group()"},
)

# ---- by somebody who had only a student's package at hand

STRAIGHT = {
    "2.3a": """
if dist.is_initialized():
    dist.destroy_process_group()
""",
    "2.3b": """
dist.get_rank() == 0
""",
}

bank.right(
    "available too",
    whole={
        "2.3a": """
if dist.is_available() and dist.is_initialized():
    dist.destroy_process_group()
""",
        "2.3b": """
return dist.get_rank() == 0
""",
    },
)
bank.right(
    "alone is main",
    whole={
        "2.3a": """
if not dist.is_initialized():
    return
dist.destroy_process_group()
""",
        "2.3b": """
if dist.is_initialized():
    return dist.get_rank() == 0
return True
""",
    },
)
bank.right(
    "through the group object",
    whole={
        "2.3a": """
group = dist.group.WORLD
if group is not None:
    dist.destroy_process_group(group)
""",
        "2.3b": """
return not dist.get_rank()
""",
    },
)
bank.right(
    "by the group rank",
    whole={
        "2.3a": """
dist.destroy_process_group() if dist.is_initialized() else None
""",
        "2.3b": """
rank: int = torch.distributed.get_rank(group=None)
is_main = rank == 0
return is_main
""",
    },
)
bank.wrong(
    "cleanup-without-group",
    "cleanup unguarded",
    whole={
        "2.3a": """
dist.destroy_process_group()
""",
        "2.3b": """
return dist.get_rank() == 0
""",
    },
    slow=True,
)
bank.wrong(
    "several-main-processes",
    "main of each node",
    whole={
        "2.3a": """
if dist.is_initialized():
    dist.destroy_process_group()
""",
        "2.3b": """
return int(os.environ["LOCAL_RANK"]) == 0
""",
    },
    slow=True,
)
bank.wrong(
    "not-a-bool",
    "rank itself",
    whole={
        "2.3a": """
if dist.is_initialized():
    dist.destroy_process_group()
""",
        "2.3b": """
return dist.get_rank()
""",
    },
    slow=True,
)
bank.wrong(
    "not-on-every-rank",
    "only main leaves",
    whole={
        "2.3a": """
if dist.is_initialized() and dist.get_rank() == 0:
    dist.destroy_process_group()
""",
        "2.3b": """
return dist.get_rank() == 0
""",
    },
    slow=True,
)
bank.wrong(
    "group-not-destroyed",
    "forgot the call",
    whole={
        "2.3a": """
if dist.is_initialized():
    dist.destroy_process_group
""",
        "2.3b": """
return dist.get_rank() == 0
""",
    },
    slow=True,
)
bank.wrong(
    "cleanup-without-group",
    "function is true",
    whole={
        "2.3a": """
if dist.is_initialized:
    dist.destroy_process_group()
""",
        "2.3b": """
return dist.get_rank() == 0
""",
    },
)
bank.wrong(
    "wrong-main-process",
    "last is main",
    whole={
        "2.3a": """
if dist.is_initialized():
    dist.destroy_process_group()
""",
        "2.3b": """
return dist.get_rank() == dist.get_world_size() - 1
""",
    },
    slow=True,
)
bank.wrong(
    "group-not-destroyed",
    "destroys a new group",
    whole={
        "2.3a": """
if dist.is_initialized():
    group = dist.new_group()
    dist.destroy_process_group(group)
""",
        "2.3b": """
return dist.get_rank() == 0
""",
    },
    slow=True,
)
bank.wrong(
    "wrong-main-process",
    "string against number",
    whole={
        "2.3a": """
if dist.is_initialized():
    dist.destroy_process_group()
""",
        "2.3b": """
return os.environ["RANK"] == 0
""",
    },
    slow=True,
)
bank.wrong("not-a-bool", "no return", whole=STRAIGHT, slow=True)
bank.wrong(
    "group-not-destroyed",
    "barrier only",
    whole={
        "2.3a": """
if dist.is_initialized():
    dist.barrier()
""",
        "2.3b": """
return dist.get_rank() == 0
""",
    },
    slow=True,
)
bank.wrong(
    "wrong-main-process",
    "one is main",
    whole={
        "2.3a": """
if dist.is_initialized():
    dist.destroy_process_group()
""",
        "2.3b": """
return dist.get_rank() == 1
""",
    },
    slow=True,
)
bank.wrong(
    "group-not-destroyed",
    "inverted guard",
    whole={
        "2.3a": """
if not dist.is_initialized():
    dist.destroy_process_group()
""",
        "2.3b": """
return dist.get_rank() == 0
""",
    },
)
bank.wrong(
    "wrong-main-process",
    "world size one",
    whole={
        "2.3a": """
if dist.is_initialized():
    dist.destroy_process_group()
""",
        "2.3b": """
return dist.get_world_size() == 1
""",
    },
    slow=True,
)

# ---- right for one group, one launcher, where nothing fails

MAIN = "return not dist.is_initialized() or dist.get_rank() == 0"
bank.wrong(
    "result-remembered",
    "what is_main_process said before setup is remembered",
    main="global _main\nif '_main' not in globals():\n"
    "    _main = not dist.is_initialized() or dist.get_rank() == 0\nreturn _main",
)
bank.right("before setup everybody is the main process", main=MAIN, slow=True)
bank.wrong(
    "several-main-processes",
    "srun's rank before torchrun's",
    main="return int(os.environ.get('SLURM_PROCID', os.environ.get('RANK', 0))) == 0",
)
bank.wrong(
    "error-swallowed",
    "every error while leaving is swallowed",
    whole={"2.3a": "try:\n    dist.destroy_process_group()\nexcept Exception:\n    pass"},
)
bank.wrong(
    "group-not-destroyed",
    "a flag of the module: a second group is never left",
    whole={
        "2.3a": "global _left\nif '_left' in globals():\n    return\n"
        "if dist.is_initialized():\n    dist.destroy_process_group()\n    _left = True"
    },
)
bank.wrong(
    "not-on-every-rank",
    "a barrier for rank 0 only",
    whole={
        "2.3a": "if dist.is_initialized():\n    if dist.get_rank() == 0:\n        dist.barrier()\n"
        "    dist.destroy_process_group()"
    },
)
bank.wrong("cleanup-without-group", "RANK in place of the group", ask="if 'RANK' in os.environ:", slow=True)
bank.wrong(
    "result-remembered",
    "the answer in the first group for all groups",
    main="global _main\nif '_main' not in globals():\n    _main = dist.get_rank() == 0\nreturn _main",
)
bank.wrong(
    "waits-for-the-others",
    "a barrier before the answer",
    main="if dist.is_initialized():\n    dist.barrier()\nreturn dist.get_rank() == 0",
)
bank.wrong(
    "waits-for-the-others",
    "all ranks' numbers are gathered",
    main="ranks = [None] * dist.get_world_size()\ndist.all_gather_object(ranks, dist.get_rank())\n"
    "return dist.get_rank() == min(ranks)",
    slow=True,
)
bank.wrong(
    "group-not-destroyed",
    "nccl's group only",
    ask="if dist.is_initialized() and dist.get_backend() == 'nccl':",
    slow=True,
)
bank.wrong(
    "several-main-processes",
    "everybody, where there is no GPU",
    main="return dist.get_rank() == 0 if torch.cuda.is_available() else True",
)
bank.wrong(
    "group-not-destroyed",
    "the group is hidden, and not left",
    leave="dist.distributed_c10d.GroupMember.WORLD = None",
)
bank.wrong(
    "cleanup-without-group",
    "asks whether there is torch.distributed",
    ask="if dist.is_available():",
    main="rank = dist.get_rank()\nreturn True if rank == 0 else False",
)

bank.wrong(
    "group-not-destroyed",
    "a name of the group is deleted",
    leave="group = dist.group.WORLD\ndel group",
    slow=True,
)

# ---- put off

LATER = "def leave():\n    if dist.is_initialized():\n        dist.destroy_process_group()\n"
bank.wrong(
    "group-not-destroyed",
    "when the program ends",
    whole={"2.3a": f"import atexit\n{LATER}\natexit.register(leave)"},
    slow=True,
)
bank.wrong(
    "group-not-destroyed",
    "when the program ends, as a decorator",
    whole={"2.3a": "import atexit\n@atexit.register\n" + LATER},
    slow=True,
)
bank.wrong(
    "group-not-destroyed",
    "with the last reference to something",
    leave="import weakref\nweakref.finalize(dist.group.WORLD, dist.destroy_process_group)",
    slow=True,
)
bank.wrong("group-not-destroyed", "a function that nobody calls", whole={"2.3a": LATER}, slow=True)
bank.right("a function within, called at once", whole={"2.3a": f"{LATER}\nleave()"}, slow=True)
bank.right(
    "a stack's callback",
    whole={
        "2.3a": "import contextlib\nwith contextlib.ExitStack() as stack:\n"
        "    if dist.is_initialized():\n        stack.callback(dist.destroy_process_group)"
    },
    slow=True,
)
