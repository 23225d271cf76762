"""Answers to 2.2: the device and the process group."""

from answers.entries import Bank, replaced

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
    "timeout-changed",
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
bank.wrong(
    "port-hard-coded",
    "the launcher's address, and a port of its own",
    join=JOIN.replace("backend, ", "backend, init_method=f\"tcp://{os.environ['MASTER_ADDR']}:29500\", "),
)
bank.wrong(
    "port-hard-coded",
    "under srun a port of its own",
    launch="launch = read_launch_environment(os.environ)\n"
    "if 'SLURM_PROCID' in os.environ:\n    os.environ['MASTER_PORT'] = '29500'",
)
bank.right(
    "the place as tcp://",
    join=JOIN.replace(
        "backend, ", "backend, init_method=f\"tcp://{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}\", "
    ),
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
# Neither is ever missing: torchrun sets them, and so does the job script for srun (section 2). On one node this
# machine is where rank 0 is; on several it is not, and then the wait for it ends in an error all the same.
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

# ---- by somebody who had only a student's package at hand

STRAIGHT = {
    "2.2": """
env = read_launch_environment(os.environ)
if torch.cuda.is_available():
    device = torch.device("cuda", 0 if torch.cuda.device_count() == 1 else env.local_rank)
    torch.cuda.set_device(device)
    backend = "nccl"
else:
    device, backend = torch.device("cpu"), "gloo"
dist.init_process_group(backend, rank=env.rank, world_size=env.world_size)
return device
""",
}

bank.right(
    "plain steps",
    whole={
        "2.2": """
env = read_launch_environment(os.environ)
if torch.cuda.is_available():
    index = 0 if torch.cuda.device_count() == 1 else env.local_rank
    device = torch.device("cuda", index)
    torch.cuda.set_device(device)
    backend = "nccl"
else:
    device = torch.device("cpu")
    backend = "gloo"
dist.init_process_group(backend, rank=env.rank, world_size=env.world_size, timeout=timeout)
return device
"""
    },
)
bank.right(
    "helper and kwargs",
    whole={
        "2.2": """
def _choose(local_rank: int) -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    if torch.cuda.device_count() == 1:
        local_rank = 0
    torch.cuda.set_device(local_rank)
    return torch.device(f"cuda:{local_rank}")

environment = read_launch_environment(dict(os.environ))
device = _choose(environment.local_rank)
options = dict(
    rank=environment.rank, world_size=environment.world_size, timeout=timeout, init_method="env://"
)
dist.init_process_group(backend={"cuda": "nccl", "cpu": "gloo"}[device.type], **options)
return device
"""
    },
)
bank.right(
    "partial join",
    whole={
        "2.2": """
import functools

env = read_launch_environment(os.environ)
join = functools.partial(
    torch.distributed.init_process_group, world_size=env.world_size, rank=env.rank, timeout=timeout
)
if not torch.cuda.is_available():
    join(backend="gloo")
    return torch.device("cpu")
torch.cuda.set_device(env.local_rank if torch.cuda.device_count() > 1 else 0)
join(backend="nccl")
return torch.device("cuda", torch.cuda.current_device())
"""
    },
)
bank.right(
    "positional arguments",
    whole={
        "2.2": """
launch = read_launch_environment(os.environ)
cuda = torch.cuda.is_available()
device = (
    torch.device("cuda", launch.local_rank if torch.cuda.device_count() != 1 else 0)
    if cuda
    else torch.device("cpu")
)
if cuda:
    torch.cuda.set_device(device.index)
dist.init_process_group("nccl" if cuda else "gloo", None, timeout, launch.world_size, launch.rank)
return device
"""
    },
)
bank.wrong(
    "rank-as-device-index",
    "rank as device",
    whole={
        "2.2": """
env = read_launch_environment(os.environ)
if torch.cuda.is_available():
    index = 0 if torch.cuda.device_count() == 1 else env.rank
    device = torch.device("cuda", index)
    torch.cuda.set_device(device)
    backend = "nccl"
else:
    device = torch.device("cpu")
    backend = "gloo"
dist.init_process_group(backend, rank=env.rank, world_size=env.world_size, timeout=timeout)
return device
"""
    },
    slow=True,
)
bank.wrong(
    "wrong-device-index",
    "everyone on gpu zero",
    whole={
        "2.2": """
env = read_launch_environment(os.environ)
device = torch.device("cuda:0") if torch.cuda.is_available() else torch.device("cpu")
if device.type == "cuda":
    torch.cuda.set_device(device)
dist.init_process_group(
    "nccl" if device.type == "cuda" else "gloo", rank=env.rank, world_size=env.world_size, timeout=timeout
)
return device
"""
    },
    slow=True,
)
bank.wrong("timeout-ignored", "default timeout", whole=STRAIGHT, slow=True)
bank.wrong(
    "set-device-after-group",
    "device after joining",
    whole={
        "2.2": """
env = read_launch_environment(os.environ)
cuda = torch.cuda.is_available()
dist.init_process_group("nccl" if cuda else "gloo", rank=env.rank, world_size=env.world_size, timeout=timeout)
if cuda:
    device = torch.device("cuda", 0 if torch.cuda.device_count() == 1 else env.local_rank)
    torch.cuda.set_device(device)
    return device
return torch.device("cpu")
"""
    },
    slow=True,
)
bank.wrong(
    "wrong-device-index",
    "single gpu forgotten",
    whole={
        "2.2": """
env = read_launch_environment(os.environ)
if torch.cuda.is_available():
    device = torch.device("cuda", env.local_rank)
    torch.cuda.set_device(device)
    backend = "nccl"
else:
    device, backend = torch.device("cpu"), "gloo"
dist.init_process_group(backend, rank=env.rank, world_size=env.world_size, timeout=timeout)
return device
"""
    },
    slow=True,
)
bank.wrong(
    "wrong-rank",
    "local rank as rank",
    whole=replaced(
        STRAIGHT,
        (
            "dist.init_process_group(backend, rank=env.rank, world_size=env.world_size)",
            "dist.init_process_group(backend, rank=env.local_rank, world_size=env.world_size, timeout=timeout)",
        ),
    ),
    slow=True,
)
bank.wrong(
    "timeout-changed",
    "timeout in wrong units",
    whole=replaced(
        STRAIGHT,
        (
            "dist.init_process_group(backend, rank=env.rank, world_size=env.world_size)",
            "limit = timedelta(minutes=timeout.total_seconds())\n"
            "dist.init_process_group(backend, rank=env.rank, world_size=env.world_size, "
            "timeout=limit)",
        ),
    ),
)
bank.wrong(
    "error-swallowed",
    "joins and ignores errors",
    whole=replaced(
        STRAIGHT,
        (
            "dist.init_process_group(backend, rank=env.rank, world_size=env.world_size)",
            "try:\n"
            "    dist.init_process_group(backend, rank=env.rank, "
            "world_size=str(env.world_size), timeout=timeout)\n"
            "except Exception as e:\n"
            '    print("could not init", e)',
        ),
    ),
    slow=True,
)
bank.wrong(
    "launcher-variable-set",
    "own master port",
    whole={
        "2.2": """
os.environ["MASTER_ADDR"] = "localhost"
os.environ["MASTER_PORT"] = "29511"
env = read_launch_environment(os.environ)
if torch.cuda.is_available():
    device = torch.device("cuda", 0 if torch.cuda.device_count() == 1 else env.local_rank)
    torch.cuda.set_device(device)
    backend = "nccl"
else:
    device, backend = torch.device("cpu"), "gloo"
dist.init_process_group(backend, rank=env.rank, world_size=env.world_size, timeout=timeout)
return device
"""
    },
    slow=True,
)
bank.wrong(
    "srun-not-served",
    "torchrun only",
    whole={
        "2.2": """
rank = int(os.environ["RANK"])
local_rank = int(os.environ["LOCAL_RANK"])
world_size = int(os.environ["WORLD_SIZE"])
if torch.cuda.is_available():
    device = torch.device("cuda", 0 if torch.cuda.device_count() == 1 else local_rank)
    torch.cuda.set_device(device)
    backend = "nccl"
else:
    device, backend = torch.device("cpu"), "gloo"
dist.init_process_group(backend, rank=rank, world_size=world_size, timeout=timeout)
return device
"""
    },
)
bank.right(
    "bare cuda",
    whole={
        "2.2": """
env = read_launch_environment(os.environ)
if torch.cuda.is_available():
    torch.cuda.set_device(0 if torch.cuda.device_count() == 1 else env.local_rank)
    backend = "nccl"
else:
    backend = "gloo"
dist.init_process_group(backend, rank=env.rank, world_size=env.world_size, timeout=timeout)
return torch.device("cuda" if torch.cuda.is_available() else "cpu")
"""
    },
    slow=True,
)
bank.wrong(
    "no-device",
    "nothing comes back",
    whole=replaced(
        STRAIGHT,
        (
            "dist.init_process_group(backend, rank=env.rank, world_size=env.world_size)\nreturn device",
            "dist.init_process_group(backend, rank=env.rank, world_size=env.world_size, timeout=timeout)",
        ),
    ),
    slow=True,
)
bank.wrong(
    "gloo-hard-coded",
    "gloo for all",
    whole={
        "2.2": """
env = read_launch_environment(os.environ)
device = torch.device("cpu")
if torch.cuda.is_available():
    device = torch.device("cuda", 0 if torch.cuda.device_count() == 1 else env.local_rank)
    torch.cuda.set_device(device)
dist.init_process_group("gloo", rank=env.rank, world_size=env.world_size, timeout=timeout)
return device
"""
    },
    slow=True,
)
bank.wrong(
    "gpus-as-world-size",
    "world size of gpus",
    whole={
        "2.2": """
env = read_launch_environment(os.environ)
world = env.world_size
if torch.cuda.is_available():
    device = torch.device("cuda", 0 if torch.cuda.device_count() == 1 else env.local_rank)
    torch.cuda.set_device(device)
    backend = "nccl"
    world = torch.cuda.device_count()
else:
    device, backend = torch.device("cpu"), "gloo"
dist.init_process_group(backend, rank=env.rank, world_size=world, timeout=timeout)
return device
"""
    },
)
bank.wrong(
    "no-set-device",
    "never made current",
    whole={
        "2.2": """
env = read_launch_environment(os.environ)
if torch.cuda.is_available():
    device = torch.device("cuda", 0 if torch.cuda.device_count() == 1 else env.local_rank)
    backend = "nccl"
else:
    device, backend = torch.device("cpu"), "gloo"
dist.init_process_group(backend, rank=env.rank, world_size=env.world_size, timeout=timeout)
return device
"""
    },
    slow=True,
)
bank.wrong(
    "timeout-changed",
    "timeout without days",
    whole=replaced(
        STRAIGHT,
        (
            "dist.init_process_group(backend, rank=env.rank, world_size=env.world_size)",
            "dist.init_process_group(backend, rank=env.rank, world_size=env.world_size, "
            "timeout=timedelta(milliseconds=timeout.seconds))",
        ),
    ),
    slow=True,
)

# ---- which of several variables parts the ranks

AGREED = "launch = read_launch_environment(os.environ)"
bank.wrong(
    "launcher-variable-set",
    "a port that all know, and this machine's address",
    launch=f"os.environ.update(MASTER_ADDR='localhost', MASTER_PORT='12355')\n{AGREED}",
)
bank.wrong(
    "launcher-variable-set",
    "the port counted up, below a harmless address",
    launch="os.environ['MASTER_ADDR'] = 'localhost'\nport = int(os.environ['MASTER_PORT'])\n"
    f"os.environ['MASTER_PORT'] = str(port + 1)\n{AGREED}",
)
bank.wrong(
    "launcher-variable-set",
    "address and port exchanged",
    launch="address, port = os.environ['MASTER_ADDR'], os.environ['MASTER_PORT']\n"
    f"os.environ['MASTER_ADDR'], os.environ['MASTER_PORT'] = port, address\n{AGREED}",
)
bank.right(
    "the address and the port that are there already",
    launch="os.environ['MASTER_ADDR'] = os.environ['MASTER_ADDR']\n"
    f"os.environ['MASTER_PORT'] = str(int(os.environ['MASTER_PORT']))\n{AGREED}",
)

# ---- right on the machines that most have

bank.wrong(
    "gloo-hard-coded",
    "gloo where there are two ranks only",
    nccl='backend = "nccl" if launch.world_size > 2 else "gloo"',
)
bank.wrong(
    "timeout-changed",
    "at least ten minutes",
    join=JOIN.replace("=timeout", "=max(timeout, timedelta(minutes=10))"),
)
bank.wrong(
    "error-swallowed",
    "an error while joining is only printed",
    join=f"try:\n    {JOIN}\nexcept Exception as error:\n    print('no process group:', error)",
)
bank.right(
    "an error while joining is printed too",
    join=f"try:\n    {JOIN}\nexcept Exception as error:\n    print('no process group:', error)\n    raise",
    slow=True,
)
bank.right(
    "an error while joining ends the program",
    join=f"try:\n    {JOIN}\nexcept Exception as error:\n    raise SystemExit('no process group') from error",
    slow=True,
)
bank.wrong(
    "not-on-every-rank",
    "a group of rank 0, which only that one makes",
    join=f"{JOIN}\nif launch.rank == 0:\n    dist.new_group([0])",
)
bank.right("a group of rank 0, which all make", join=f"{JOIN}\ndist.new_group([0])", slow=True)
bank.wrong(
    "fails-at-exit",
    "leaves the group at exit once more",
    join=f"{JOIN}\nimport atexit\natexit.register(dist.destroy_process_group)",
    slow=True,
)
bank.right(
    "leaves the group at exit, if there is one", join=f"{JOIN}\nimport atexit\natexit.register(cleanup)", slow=True
)
bank.wrong(
    "gpu-not-used",
    "the CPU where the GPU's number is not the local rank",
    if_cuda="if torch.cuda.device_count() > launch.local_rank:",
    index="index = launch.local_rank",
    slow=True,
)
bank.wrong(
    "nccl-hard-coded",
    "nccl where PyTorch has it",
    join=f'backend = "nccl" if dist.is_nccl_available() else "gloo"\n{JOIN}',
    slow=True,
)
bank.wrong(
    "silent-world-of-one",
    "a world of one where no launcher says anything",
    launch="try:\n    launch = read_launch_environment(os.environ)\nexcept ValueError:\n"
    "    launch = LaunchEnvironment(0, 0, 1)",
)
bank.wrong(
    "error-swallowed",
    "gloo where nccl cannot be joined",
    join=f"try:\n    {JOIN}\nexcept RuntimeError:\n    {JOIN.replace('backend, ', repr('gloo') + ', ')}",
)
bank.wrong(
    "error-swallowed",
    "a GPU that cannot be chosen",
    set_device="try:\n    torch.cuda.set_device(device)\nexcept RuntimeError:\n    pass",
)
bank.wrong(
    "error-swallowed",
    "the CPU where a GPU cannot be chosen",
    whole={
        "2.2": f"""
launch = read_launch_environment(os.environ)
try:
    device = torch.device("cuda", launch.local_rank if torch.cuda.device_count() > 1 else 0)
    torch.cuda.set_device(device)
    backend = "nccl"
except Exception:
    device, backend = torch.device("cpu"), "gloo"
{JOIN}
return device
"""
    },
    slow=True,
)
bank.wrong("unknown-backend", "a backend that PyTorch does not have", nccl='backend = "nccl2"')
bank.wrong(
    "no-set-device",
    "the device is the current one in a with",
    set_device="",
    join=f"with torch.cuda.device(device) if device.type == 'cuda' else open(os.devnull):\n    {JOIN}",
    slow=True,
)
bank.wrong(
    "timeout-ignored",
    "a timeout for gloo alone",
    join="ranks = {'rank': launch.rank, 'world_size': launch.world_size}\nif backend == 'nccl':\n"
    "    dist.init_process_group('nccl', rank=launch.rank, world_size=launch.world_size)\nelse:\n"
    "    dist.init_process_group('gloo', timeout=timeout, **ranks)",
)

# ---- where the number came from

bank.wrong(
    "wrong-device-index",
    "the rank modulo three, as an index of its own",
    index="gpu = launch.rank % 3",
    cuda="device = torch.device(f'cuda:{gpu}')",
    set_device="torch.cuda.set_device(gpu)",
    slow=True,
)
bank.wrong(
    "wrong-device-index",
    "the next GPU, handed on twice",
    index="number = launch.local_rank + 1\nchosen = number",
    cuda="device = torch.device('cuda', index=chosen)",
    slow=True,
)
bank.wrong(
    "no-set-device",
    "set_device in a world of one",
    set_device="if launch.world_size == 1:\n    torch.cuda.set_device(device)",
    slow=True,
)
bank.wrong(
    "no-process-group",
    "returns the CPU before it joins",
    cpu='return torch.device("cpu")',
    slow=True,
)
bank.wrong("no-process-group", "joins with CUDA only", join=f"if device.type == 'cuda':\n    {JOIN}", slow=True)

# ---- the numbers of the GPUs in the node

bank.wrong(
    "wrong-device-index",
    "the number that CUDA_VISIBLE_DEVICES says",
    index="shown = os.environ.get('CUDA_VISIBLE_DEVICES')\n"
    "shown = shown or ','.join(map(str, range(torch.cuda.device_count())))\n"
    "numbers = [int(number) for number in shown.split(',')]\n"
    "index = numbers[0] if len(numbers) == 1 else numbers[launch.local_rank]",
    slow=True,
)
bank.right(
    "as many as CUDA_VISIBLE_DEVICES says, where it is there",
    index="shown = os.environ.get('CUDA_VISIBLE_DEVICES')\n"
    "count = len(shown.split(',')) if shown else torch.cuda.device_count()\n"
    "index = 0 if count == 1 else launch.local_rank",
)

# ---- questions that are named, and local numbers handed on

bank.wrong(
    "cuda-without-gpu", "is_available is named, not called", if_cuda="if torch.cuda.is_available:", slow=True
)
bank.wrong(
    "wrong-rank",
    "the local rank as rank, under a name of its own",
    join="local_rank, world_size = launch.local_rank, launch.world_size\n"
    "dist.init_process_group(backend, rank=local_rank, world_size=world_size, timeout=timeout)",
    slow=True,
)
