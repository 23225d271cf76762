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
