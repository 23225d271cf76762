"""Answers to 2.2: the device and the process group."""

from answers.entries import Bank

bank = Bank(
    "2.2",
    {
        "2.2": """
launch = read_launch_environment(os.environ)  # launch
if torch.cuda.is_available():  # if_cuda
    index = launch.local_rank if torch.cuda.device_count() > 1 else 0  # index
    device = torch.device("cuda", index)  # cuda
    torch.cuda.set_device(device)  # set_device
    backend = "nccl"  # nccl
else:
    device = torch.device("cpu")  # cpu
    backend = "gloo"  # gloo
dist.init_process_group(backend, rank=launch.rank, world_size=launch.world_size, timeout=timeout)  # join
return device  # result
"""
    },
)

JOIN = "dist.init_process_group(backend, rank=launch.rank, world_size=launch.world_size, timeout=timeout)"

# ---- right

bank.right(
    "the local rank modulo the number of GPUs", index="index = launch.local_rank % torch.cuda.device_count()"
)
bank.right(
    "device_id with CUDA",
    join=JOIN[:-1] + ", device_id=device if device.type == 'cuda' else None)",
)
bank.right(
    "env://, after srun's numbers have been put into the environment",
    join="os.environ.update(RANK=str(launch.rank), WORLD_SIZE=str(launch.world_size))\n"
    "dist.init_process_group(backend, init_method='env://', timeout=timeout)",
)
bank.right("a backend for each kind of device", nccl='backend = "cpu:gloo,cuda:nccl"')
bank.right("the backend is left to PyTorch", join=JOIN.replace("backend, ", ""))
bank.right(
    "torch.accelerator",
    if_cuda="if torch.accelerator.is_available():",
    set_device="torch.accelerator.set_device_index(index)",
)

bank.right("a collective afterwards", result="dist.barrier()\nprint(dist.get_rank(), device)\nreturn device")
# Once set_device has been told the number, "cuda" is that GPU for PyTorch's every function, DDP's device_ids too.
bank.right(
    "a device without index, which set_device has been told",
    cuda='device = torch.device("cuda")',
    set_device="torch.cuda.set_device(index)",
)

# ---- wrong

bank.wrong("nccl-hard-coded", "nccl without a GPU", gloo='backend = "nccl"')
bank.wrong("gloo-hard-coded", "gloo on GPUs", nccl='backend = "gloo"')
# github.com/meta-llama/llama-cookbook/issues/90, github.com/LMCache/LMCache/issues/814
bank.wrong("rank-as-device-index", "the rank as device index", index="index = launch.rank")
bank.wrong(
    "rank-as-device-index",
    "the rank modulo the number of GPUs",
    index="index = launch.rank % torch.cuda.device_count()",
)
# github.com/pytorch/ignite/issues/3259, github.com/ACEsuit/mace/issues/435
bank.wrong("wrong-device-index", "the local rank where only one GPU is visible", index="index = launch.local_rank")
bank.wrong("wrong-device-index", "GPU 0 for everybody", index="index = 0")
bank.wrong("no-set-device", "no set_device", set_device="")
bank.wrong(
    "set-device-after-group",
    "set_device after init_process_group",
    set_device="",
    result="if device.type == 'cuda':\n    torch.cuda.set_device(device)\nreturn device",
)
bank.wrong("world-size-hard-coded", "a fixed world size", join=JOIN.replace("launch.world_size", "4"))
bank.wrong("wrong-rank", "the local rank as rank", join=JOIN.replace("rank=launch.rank", "rank=launch.local_rank"))
bank.wrong(
    "srun-not-served",
    "env:// alone, which knows torchrun only",
    join="dist.init_process_group(backend, timeout=timeout)",
)
bank.wrong("no-process-group", "no init_process_group", join="")
bank.wrong("timeout-ignored", "the timeout is not handed on", join=JOIN.replace(", timeout=timeout", ""))
bank.wrong(
    "timeout-ignored",
    "the seconds of a timeout without its days",
    join=JOIN.replace("timeout=timeout", "timeout=timedelta(seconds=timeout.seconds)"),
)
bank.wrong(
    "master-hard-coded",
    "localhost as the master",
    launch='os.environ["MASTER_ADDR"] = "localhost"\nlaunch = read_launch_environment(os.environ)',
)
bank.wrong(
    "master-hard-coded",
    "an address of this machine to meet at",
    join=JOIN.replace("backend, ", "backend, init_method='tcp://127.0.0.1:' + os.environ['MASTER_PORT'], "),
)
bank.wrong("device-id-on-cpu", "device_id on the CPU too", join=JOIN[:-1] + ", device_id=device)")
bank.wrong("no-device", "no device is returned", result="")
bank.wrong("no-device", "the device's index is returned", result="return device.index")
bank.wrong("gpu-not-used", "the CPU is returned in any case", result="return torch.device('cpu')")
bank.wrong("no-gpu-there", "a GPU is returned in any case", result="return torch.device('cuda')")
bank.wrong("raised", "an attribute that is not there", join=JOIN.replace("launch.rank,", "launch.ranks,"))
bank.wrong("device-without-index", "set_device without an index", cuda='device = torch.device("cuda")')
bank.wrong(
    "cuda-without-gpu",
    "set_device without asking for a GPU",
    set_device="",
    join=f"torch.cuda.set_device(launch.local_rank)\n{JOIN}",
)
bank.wrong(
    "raised", "the timeout as a number", join=JOIN.replace("timeout=timeout", "timeout=timeout.total_seconds()")
)

# ---- seen in other settings, on other ranks, in other hands

bank.right(
    "tests for hasattr set_device",
    set_device="if hasattr(torch.cuda, 'set_device'): torch.cuda.set_device(device)",
)
bank.right(
    "dist.is_available and nccl available",
    nccl="backend = 'nccl' if dist.is_nccl_available() or True else 'gloo'",
)
bank.right(
    "nccl if is_nccl_available",
    nccl="backend = 'nccl'",
    if_cuda="if torch.cuda.is_available() and dist.is_nccl_available():",
)
bank.right(
    "checks that the group is not yet there",
    join="if not dist.is_initialized():\n"
    "    dist.init_process_group(backend, rank=launch.rank, "
    "world_size=launch.world_size, timeout=timeout)",
)
bank.right(
    "MASTER_PORT where there is none",
    launch="launch = read_launch_environment(os.environ)\n"
    "os.environ.setdefault('MASTER_PORT', '29500')\n"
    "os.environ.setdefault('MASTER_ADDR', 'localhost')",
)
bank.right(
    "torch.cuda.device_count in place of is_available",
    if_cuda="if torch.cuda.device_count() > 0:",
)
bank.right(
    "isinstance of timeout",
    launch="assert isinstance(timeout, timedelta)\nlaunch = read_launch_environment(os.environ)",
)
bank.right(
    "device properties",
    set_device="torch.cuda.set_device(device)\n"
    "print(torch.cuda.get_device_properties(device).name, "
    "torch.cuda.get_device_name(device), torch.cuda.get_device_capability(device))",
)
bank.right(
    "init of cuda",
    set_device="torch.cuda.set_device(device)\ntorch.cuda.init()\ntorch.cuda.empty_cache()\n"
    "torch.cuda.reset_peak_memory_stats()",
)
bank.right(
    "a with of torch.cuda.device",
    set_device="torch.cuda.set_device(device)\nwith torch.cuda.device(device):\n    pass",
)
bank.wrong(
    "launcher-variable-set",
    "a port of its own",
    launch="os.environ['MASTER_PORT'] = '12355'\nlaunch = read_launch_environment(os.environ)",
)
bank.wrong(
    "launcher-variable-set",
    "a port of its own, address too",
    launch="os.environ['MASTER_ADDR'] = 'localhost'\nos.environ['MASTER_PORT'] = '12355'\n"
    "launch = read_launch_environment(os.environ)",
)
bank.wrong(
    "launcher-variable-set",
    "RANK overwritten",
    launch="os.environ['RANK'] = '0'\nlaunch = read_launch_environment(os.environ)",
)
bank.wrong(
    "launcher-variable-set",
    "WORLD_SIZE overwritten by update",
    launch="os.environ.update(WORLD_SIZE='4')\nlaunch = read_launch_environment(os.environ)",
)
bank.wrong(
    "error-swallowed",
    "init in try",
    join="try:\n    dist.init_process_group(backend, ranks=launch.rank, "
    "world_size=launch.world_size, timeout=timeout)\nexcept Exception:\n    pass",
)
bank.wrong(
    "master-hard-coded",
    "tcp with a fixed port",
    join="dist.init_process_group(backend, init_method='tcp://127.0.0.1:23456', "
    "rank=launch.rank, world_size=launch.world_size, timeout=timeout)",
)
bank.wrong(
    "not-on-every-rank",
    "rank 0 only joins",
    join="if launch.rank == 0:\n    dist.init_process_group(backend, rank=launch.rank, "
    "world_size=launch.world_size, timeout=timeout)",
)
bank.wrong(
    "timeout-ignored",
    "a fixed timeout",
    join="dist.init_process_group(backend, rank=launch.rank, world_size=launch.world_size, "
    "timeout=timedelta(minutes=10))",
)
bank.wrong(
    "wrong-device-index",
    "GPU 2",
    index="index = min(2, torch.cuda.device_count() - 1)",
)
bank.wrong(
    "wrong-device-index",
    "GPU 3",
    index="index = min(3, torch.cuda.device_count() - 1)",
)
