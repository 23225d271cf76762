"""Answers to 4.1: DistributedDataParallel."""

from answers.entries import Bank

bank = Bank(
    "4.1",
    {
        "4.1": """
model.to(device)  # move
device_ids = [device] if device.type == "cuda" else None  # ids
return DistributedDataParallel(model, device_ids=device_ids, bucket_cap_mb=bucket_cap_mb)  # wrap
"""
    },
)

WRAP = "return DistributedDataParallel(model, device_ids=device_ids, bucket_cap_mb=bucket_cap_mb)"

# ---- right

bank.right("no device_ids", ids="", wrap="return DistributedDataParallel(model, bucket_cap_mb=bucket_cap_mb)")
bank.right(
    "moved where it is wrapped",
    move="",
    ids="device_ids = None if device.type == 'cpu' else [device.index]",
    wrap=WRAP.replace("(model,", "(model.to(device), output_device=None,"),
)
bank.right(
    "moved to a GPU only",
    whole={
        "4.1": """
if device.type == "cuda":
    model.cuda(device)
    return DistributedDataParallel(model, device_ids=[device], bucket_cap_mb=bucket_cap_mb)
return DistributedDataParallel(model, bucket_cap_mb=bucket_cap_mb)
"""
    },
)
bank.right(
    "more arguments",
    move="model = model.to(device=device, non_blocking=True)",
    wrap=WRAP[:-1] + ", gradient_as_bucket_view=True, find_unused_parameters=True)",
)

bank.right("a group of all ranks", wrap=WRAP[:-1] + ", process_group=dist.new_group())")

# ---- wrong

bank.wrong("not-wrapped", "the model is not wrapped", wrap="return model")
bank.wrong(
    "not-wrapped", "wrapped, but the bare model is returned", wrap=WRAP.replace("return ", "") + "\nreturn model"
)
bank.wrong("data-parallel", "DataParallel", wrap="return nn.DataParallel(model)")
bank.wrong("nothing-returned", "nothing is returned", wrap=WRAP.replace("return ", ""))
# github.com/pytorch/pytorch/issues/104336
bank.wrong(
    "wrapped-before-on-device",
    "wrapped before it is on its device",
    move="",
    ids="device_ids = None",
    wrap=WRAP + ".to(device)",
)
bank.wrong("not-on-device", "not moved to the device", move="", ids="device_ids = None")
bank.wrong(
    "wrong-device",
    "moved to the GPU with the rank's number",
    move="model.to(f'cuda:{dist.get_rank()}' if device.type == 'cuda' else 'cpu')",
)
bank.wrong(
    "wrong-device-ids",
    "the rank as device id",
    ids="device_ids = [dist.get_rank()] if device.type == 'cuda' else None",
)
bank.wrong("device-ids-on-cpu", "device_ids on the CPU too", ids="device_ids = [device]")
bank.wrong(
    "bucket-cap-ignored",
    "the bucket size is not handed on",
    wrap=WRAP.replace(", bucket_cap_mb=bucket_cap_mb", ""),
)
bank.wrong("bucket-cap-wrong", "the bucket size in bytes", wrap=WRAP[:-1] + " * 2**20)")
bank.wrong("wrapped-a-copy", "a copy is wrapped", move="import copy\nmodel = copy.deepcopy(model).to(device)")
bank.wrong(
    "averaged-twice",
    "hooks that divide once more",
    move="model.to(device)\nfor p in model.parameters(): p.register_hook(lambda g: g / dist.get_world_size())",
)
bank.wrong(
    "gradients-not-synchronised",
    "synchronisation is switched off",
    wrap=WRAP.replace("return", "ddp =") + "\nddp.require_backward_grad_sync = False\nreturn ddp",
)
bank.wrong("ranks-start-apart", "rank 0's weights are not sent", wrap=WRAP[:-1] + ", init_sync=False)")
bank.wrong(
    "weights-changed",
    "the weights are drawn again",
    move="model.to(device)\nfor p in model.parameters(): nn.init.zeros_(p)",
)
bank.wrong("raised", "a name that is not there", move="model.to(gpu)")
bank.wrong(
    "not-all-ranks",
    "a group of two ranks",
    wrap=WRAP[:-1] + ", process_group=dist.new_group([0, 1]))",
)
bank.wrong(
    "not-all-ranks",
    "a group for each rank",
    move="groups = [dist.new_group([rank]) for rank in range(dist.get_world_size())]\nmodel.to(device)",
    wrap=WRAP[:-1] + ", process_group=groups[dist.get_rank()])",
)
bank.wrong(
    "layers-exchanged",
    "BatchNorm turned into SyncBatchNorm",
    move="model = nn.SyncBatchNorm.convert_sync_batchnorm(model).to(device)",
)
bank.wrong("unfrozen", "frozen parameters are trained again", move="model.to(device).requires_grad_(True)")
bank.wrong(
    "not-wrapped", "one rank gets the bare model", wrap="if dist.get_world_size() == 1:\n    return model\n" + WRAP
)
bank.wrong("parameters-not-fp32", "the parameters in bf16", move="model.to(device, torch.bfloat16)")
bank.wrong(
    "wrong-gradients",
    "gradients sent in fp16",
    wrap="from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook\n"
    + WRAP.replace("return", "ddp =")
    + "\nddp.register_comm_hook(None, fp16_compress_hook)\nreturn ddp",
)

# ---- seen in other settings, on other ranks, in other hands

bank.wrong(
    "device-ids-on-cpu",
    "current device if available",
    ids="device_ids = [torch.cuda.current_device()] if torch.cuda.is_available() else None",
)
bank.right(
    "asserts isinstance",
    move="assert isinstance(device, torch.device) and isinstance(model, nn.Module)\nmodel.to(device)",
)
bank.wrong(
    "wrong-device-ids",
    "GPU 0 if available",
    ids="device_ids = [0] if torch.cuda.is_available() else None",
)
bank.wrong(
    "wrong-device",
    "to cuda:rank if available",
    move="if torch.cuda.is_available():\n    model.to(f'cuda:{dist.get_rank()}')\nelse:\n    model.to(device)",
)
bank.wrong(
    "wrong-device-ids",
    "LOCAL_RANK as device id",
    ids="import os\ndevice_ids = [int(os.environ['LOCAL_RANK'])] if device.type == 'cuda' else None",
)

# ---- by somebody who had only a student's package at hand

bank.right(
    "plain",
    whole={
        "4.1": """
model = model.to(device)
return DistributedDataParallel(
    model,
    device_ids=[device.index] if device.type == "cuda" else None,
    bucket_cap_mb=bucket_cap_mb,
    gradient_as_bucket_view=True,
)
"""
    },
)
bank.right(
    "options dict",
    whole={
        "4.1": """
options = {"bucket_cap_mb": bucket_cap_mb, "gradient_as_bucket_view": True}
if device.type == "cuda":
    options["device_ids"] = [device]
return DistributedDataParallel(model.to(device), **options)
"""
    },
)
bank.right(
    "partial wrap",
    whole={
        "4.1": """
import functools

wrap = functools.partial(
    DistributedDataParallel, gradient_as_bucket_view=True, bucket_cap_mb=bucket_cap_mb
)
return (
    wrap(model.to(device), device_ids=[device.index], output_device=device.index)
    if device.type == "cuda"
    else wrap(model.to(device))
)
"""
    },
)
bank.right(
    "without device ids",
    whole={
        "4.1": """
model.to(device)
ddp = torch.nn.parallel.DistributedDataParallel(
    module=model,
    bucket_cap_mb=bucket_cap_mb,
    gradient_as_bucket_view=True,
    device_ids=None if device.type != "cuda" else [device],
)
return ddp
"""
    },
)
bank.wrong(
    "device-ids-on-cpu",
    "always device ids",
    whole={
        "4.1": """
model = model.to(device)
return DistributedDataParallel(
    model, device_ids=[device], bucket_cap_mb=bucket_cap_mb, gradient_as_bucket_view=True
)
"""
    },
    slow=True,
)
bank.wrong(
    "bucket-cap-ignored",
    "bucket forgotten",
    whole={
        "4.1": """
model = model.to(device)
ids = [device.index] if device.type == "cuda" else None
return DistributedDataParallel(model, device_ids=ids, gradient_as_bucket_view=True)
"""
    },
    slow=True,
)
bank.right(
    "no bucket view",
    whole={
        "4.1": """
model = model.to(device)
ids = [device.index] if device.type == "cuda" else None
return DistributedDataParallel(model, device_ids=ids, bucket_cap_mb=bucket_cap_mb)
"""
    },
    slow=True,
)
bank.wrong(
    "not-on-device",
    "stays where it was",
    whole={
        "4.1": """
ids = [device.index] if device.type == "cuda" else None
return DistributedDataParallel(
    model, device_ids=ids, bucket_cap_mb=bucket_cap_mb, gradient_as_bucket_view=True
)
"""
    },
    slow=True,
)
bank.wrong(
    "wrapped-before-on-device",
    "moved after wrapping",
    whole={
        "4.1": """
ids = [device.index] if device.type == "cuda" else None
ddp = DistributedDataParallel(
    model, device_ids=ids, bucket_cap_mb=bucket_cap_mb, gradient_as_bucket_view=True
)
return ddp.to(device)
"""
    },
    slow=True,
)
bank.wrong(
    "not-wrapped",
    "returns the bare model",
    whole={
        "4.1": """
model = model.to(device)
ids = [device.index] if device.type == "cuda" else None
DistributedDataParallel(model, device_ids=ids, bucket_cap_mb=bucket_cap_mb, gradient_as_bucket_view=True)
return model
"""
    },
)
bank.wrong(
    "wrong-device-ids",
    "rank as gpu",
    whole={
        "4.1": """
model = model.to(device)
ids = [dist.get_rank()] if device.type == "cuda" else None
return DistributedDataParallel(
    model, device_ids=ids, bucket_cap_mb=bucket_cap_mb, gradient_as_bucket_view=True
)
"""
    },
)
bank.wrong(
    "bucket-cap-wrong",
    "bytes not mib",
    whole={
        "4.1": """
model = model.to(device)
ids = [device.index] if device.type == "cuda" else None
return DistributedDataParallel(
    model, device_ids=ids, bucket_cap_mb=bucket_cap_mb * 1024 * 1024, gradient_as_bucket_view=True
)
"""
    },
)
bank.wrong(
    "ranks-start-apart",
    "no sync at start",
    whole={
        "4.1": """
model = model.to(device)
ids = [device.index] if device.type == "cuda" else None
return DistributedDataParallel(
    model, device_ids=ids, bucket_cap_mb=bucket_cap_mb, gradient_as_bucket_view=True, init_sync=False
)
"""
    },
)
bank.wrong(
    "not-all-ranks",
    "group of one",
    whole={
        "4.1": """
model = model.to(device)
ids = [device.index] if device.type == "cuda" else None
groups = [dist.new_group([r]) for r in range(dist.get_world_size())]
return DistributedDataParallel(
    model,
    device_ids=ids,
    bucket_cap_mb=bucket_cap_mb,
    gradient_as_bucket_view=True,
    process_group=groups[dist.get_rank()],
)
"""
    },
    slow=True,
)
bank.wrong(
    "bucket-cap-wrong",
    "whole mib",
    whole={
        "4.1": """
model = model.to(device)
ids = [device.index] if device.type == "cuda" else None
return DistributedDataParallel(
    model, device_ids=ids, bucket_cap_mb=max(1, int(bucket_cap_mb)), gradient_as_bucket_view=True
)
"""
    },
)
bank.wrong(
    "data-parallel",
    "old data parallel",
    whole={
        "4.1": """
model = model.to(device)
return torch.nn.DataParallel(model)
"""
    },
    slow=True,
)
bank.wrong(
    "device-ids-on-cpu",
    "asks the machine",
    whole={
        "4.1": """
model = model.to(device)
ids = [torch.cuda.current_device()] if torch.cuda.is_available() else None
return DistributedDataParallel(
    model, device_ids=ids, bucket_cap_mb=bucket_cap_mb, gradient_as_bucket_view=True
)
"""
    },
    slow=True,
)
bank.wrong(
    "parameters-frozen",
    "frozen classifier",
    whole={
        "4.1": """
model = model.to(device)
list(model.parameters())[-1].requires_grad_(False)
ids = [device.index] if device.type == "cuda" else None
return DistributedDataParallel(
    model, device_ids=ids, bucket_cap_mb=bucket_cap_mb, gradient_as_bucket_view=True
)
"""
    },
)
bank.right(
    "view on gpu only",
    whole={
        "4.1": """
model = model.to(device)
cuda = device.type == "cuda"
return DistributedDataParallel(
    model,
    device_ids=[device.index] if cuda else None,
    bucket_cap_mb=bucket_cap_mb,
    gradient_as_bucket_view=cuda,
)
"""
    },
    slow=True,
)
bank.wrong(
    "nothing-returned",
    "no return",
    whole={
        "4.1": """
model = model.to(device)
ids = [device.index] if device.type == "cuda" else None
model = DistributedDataParallel(
    model, device_ids=ids, bucket_cap_mb=bucket_cap_mb, gradient_as_bucket_view=True
)
"""
    },
    slow=True,
)

# ---- arguments of DDP in other settings

bank.wrong("buffers-part", "broadcast_buffers=False", wrap=WRAP[:-1] + ", broadcast_buffers=False)")
bank.wrong(
    "buffers-part",
    "buffers are sent at the start only",
    wrap=WRAP.replace("return", "ddp =") + "\nddp.broadcast_buffers = False\nreturn ddp",
    slow=True,
)
bank.wrong(
    "buffers-part",
    "broadcast_buffers=False for a GPU",
    wrap=WRAP[:-1] + ", broadcast_buffers=device.type != 'cuda')",
    slow=True,
)
bank.wrong(
    "bucket-cap-ignored",
    "the bucket size is not handed on for a GPU",
    move="model.to(device)\nif device.type == 'cuda':\n    return DistributedDataParallel(model, [device])",
)
bank.wrong(
    "device-ids-on-cpu",
    "device_ids for the GPU, which nobody uses",
    wrap=WRAP.replace("device_ids=device_ids", "device_ids=[device]"),
    slow=True,
)

# ---- in a machine with GPUs, on nodes with GPUs of their own, and where DDP fails

bank.right(
    "a subclass that takes its GPU from the moved model",
    whole={
        "4.1": """
class Replicated(DistributedDataParallel):
    pass

moved = model.to(device)
home = next(moved.parameters()).device
ids = [home] if home.type == "cuda" else None
return Replicated(moved, device_ids=ids, bucket_cap_mb=bucket_cap_mb)
"""
    },
)
bank.right(
    "asserts that the model is there",
    move="model.to(device)\nassert all(parameter.device.type == device.type for parameter in model.parameters())",
    ids="device_ids = [next(model.parameters()).get_device()] if next(model.parameters()).is_cuda else None",
)
bank.wrong(
    "wrong-device",
    "on the GPU wherever there is one",
    move="model.to(torch.device('cuda') if torch.cuda.is_available() else device)",
    slow=True,
)
bank.wrong(
    "wrong-output-device", "results to GPU 0", wrap=WRAP[:-1] + ", output_device=0 if device_ids else None)"
)
bank.wrong(
    "error-swallowed",
    "the bare model where DDP fails",
    wrap="try:\n    " + WRAP + "\nexcept Exception:\n    return model",
)
bank.wrong(
    "local-number-as-global",
    "a group of the node's ranks",
    wrap="group, _ = dist.new_subgroups(torch.cuda.device_count() or dist.get_world_size())\n"
    + WRAP[:-1]
    + ", process_group=group)",
)
bank.wrong(
    "local-number-as-global",
    "a group of the node's ranks, on GPUs",
    wrap="size = torch.cuda.device_count() if device.type == 'cuda' else dist.get_world_size()\n"
    "group, _ = dist.new_subgroups(size)\n" + WRAP[:-1] + ", process_group=group)",
    slow=True,
)
bank.wrong(
    "wrapped-twice",
    "a wrapper of a wrapper",
    wrap=WRAP.replace("DistributedDataParallel(model,", "DistributedDataParallel(DistributedDataParallel(model),"),
)
bank.wrong(
    "hook-sums",
    "a hook that sums",
    wrap=WRAP.replace("return", "wrapped =")
    + """
def summed(state, bucket):
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    return work.get_future().then(lambda future: future.value()[0])

wrapped.register_comm_hook(None, summed)
return wrapped
""",
)
bank.wrong(
    "weights-changed",
    "the last rank's are sent first",
    move="model.to(device)\nfor tensor in model.state_dict().values():\n"
    "    dist.broadcast(tensor, src=dist.get_world_size() - 1)",
)

# ---- the machine is asked, in an `if`

bank.wrong(
    "device-ids-on-cpu",
    "device_ids where the machine has a GPU",
    ids="if torch.cuda.is_available():\n"
    "    return DistributedDataParallel(model, device_ids=[device], bucket_cap_mb=bucket_cap_mb)",
    wrap="return DistributedDataParallel(model, bucket_cap_mb=bucket_cap_mb)",
    slow=True,
)
bank.wrong(
    "device-ids-on-cpu",
    "the index of the CPU where the machine has a GPU",
    ids="device_ids = [device.index] if torch.cuda.is_available() else None",
    slow=True,
)
# ---- an error that is kept, and a wrapper

TRIED = """
try:
    return DistributedDataParallel(model, device_ids=[device], bucket_cap_mb=bucket_cap_mb)
except ERROR:
    return model
"""
bank.wrong(
    "error-swallowed",
    "device_ids on the CPU, and the error kept",
    wrap=TRIED.replace("ERROR", "Exception"),
    slow=True,
)
bank.wrong(
    "error-swallowed",
    "device_ids on the CPU, and just this error kept",
    wrap=TRIED.replace("ERROR", "ValueError"),
    slow=True,
)
bank.wrong(
    "result-remembered",
    "the first wrapper is kept",
    whole={
        "4.1": """
if getattr(get_ddp_model, "kept", None) is None:
    device_ids = [device] if device.type == "cuda" else None
    get_ddp_model.kept = DistributedDataParallel(
        model.to(device), device_ids=device_ids, bucket_cap_mb=bucket_cap_mb
    )
return get_ddp_model.kept
"""
    },
)
bank.wrong(
    "not-all-ranks",
    "a group of two ranks with a name",
    move="model.to(device)\ngroup = dist.new_group(ranks=[0, 1])",
    wrap=WRAP[:-1] + ", process_group=group)",
    slow=True,
)

# ---- sent by the code itself

SENT = """
model = model.to(device)
state = [tensor.detach() for tensor in (*model.parameters(), *model.buffers())]
for work in [dist.broadcast(tensor, src=0, async_op=True) for tensor in state]:
    work.wait()
return DistributedDataParallel(
    model,
    device_ids=[device] if device.type == "cuda" else None,
    bucket_cap_mb=bucket_cap_mb,
    init_sync=False,
)
"""
bank.right("rank 0's state is sent by hand, and not by DDP", whole={"4.1": SENT})
bank.wrong(
    "ranks-start-apart",
    "the parameters of one block are sent by hand, and nothing by DDP",
    whole={"4.1": SENT.replace("(*model.parameters(), *model.buffers())", "model.blocks.parameters()")},
    slow=True,
)
bank.wrong(
    "buffers-part",
    "the parameters are sent by hand, and nothing by DDP",
    whole={"4.1": SENT.replace("(*model.parameters(), *model.buffers())", "model.parameters()")},
    slow=True,
)
bank.wrong(
    "buffers-part",
    "DDP sends nothing at first on a GPU",
    wrap=f"off = {{'init_sync': False}} if device.type == 'cuda' else {{}}\n{WRAP[:-1]}, **off)",
    slow=True,
)
