"""Answers to 4.2: fully_shard."""

from answers.entries import ON_ONE_RANK, Bank, replaced

bank = Bank(
    "4.2",
    {
        "4.2": """
model.to(device)  # move
for tensor in [*model.parameters(), *model.buffers()]:  # tensors
    dist.broadcast(tensor.detach(), src=0)  # broadcast
mesh = init_device_mesh(device.type, (dist.get_world_size(),))  # mesh
policy = root = MixedPrecisionPolicy()  # fp32
if precision in HALF:  # if_bf16
    low = {"param_dtype": HALF[precision], "reduce_dtype": torch.float32}  # low
    policy = MixedPrecisionPolicy(**low)  # policy
    root = MixedPrecisionPolicy(**low, output_dtype=torch.float32)  # root
    shard_batchnorms(model, mesh)  # batchnorms
for block in model.blocks:  # blocks
    fully_shard(block, mesh=mesh, mp_policy=policy)  # block
return fully_shard(model, mesh=mesh, mp_policy=root)  # result
"""
    },
)

RESULT = "return fully_shard(model, mesh=mesh, mp_policy=root)"

# ---- right

bank.right(
    "the default mesh",
    block="fully_shard(block, mp_policy=policy)",
    result="return fully_shard(model, mp_policy=root)",
)
bank.right(
    "weights sent as objects",
    tensors="state = [model.state_dict()]\nif True:",
    broadcast="dist.broadcast_object_list(state, src=0)\nmodel.load_state_dict(state[0])",
)
bank.right(
    "broadcast under no_grad",
    tensors="with torch.no_grad():",
    broadcast="for value in model.state_dict().values():\n    dist.broadcast(value, 0)",
)
bank.right(
    "the blocks in reverse, the last one kept whole after its forward pass",
    blocks="for block in reversed(model.blocks):",
    block="keep = block is model.blocks[-1]\n"
    "fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=not keep)",
)
bank.right(
    "finer units inside the blocks",
    blocks="for module in model.blocks.modules():\n    if isinstance(module, nn.Linear):\n"
    "        fully_shard(module, mesh=mesh, mp_policy=policy)\nfor block in model.blocks:",
)
bank.right(
    "logits in fp32 by a hook",
    root="root = policy",
    result=f"{RESULT.replace('return', 'model =')}\nif precision in HALF:\n"
    "    model.register_forward_hook(lambda module, inputs, logits: logits.float())\nreturn model",
)
bank.right(
    "BatchNorm by its own hand",
    batchnorms="for module in model.modules():\n    if 'BatchNorm' in type(module).__name__:\n"
    "        fully_shard(module, mesh=mesh, mp_policy=MixedPrecisionPolicy(cast_forward_inputs=False))",
)

bank.right(
    "torch's own helper",
    tensors="from torch.distributed.utils import _sync_module_states\nif True:",
    broadcast="_sync_module_states(model, dist.group.WORLD, 2**20, src=0, params_and_buffers_to_ignore=set())",
)

# ---- wrong

bank.wrong("not-sharded", "nothing is sharded", blocks="", block="", result="return model")
bank.wrong(
    "fsdp1-not-fsdp2",
    "the first FSDP",
    blocks="",
    block="",
    result="return FullyShardedDataParallel(model, device_id=device)",
)
bank.wrong("nothing-returned", "nothing is returned", result=RESULT.replace("return ", ""))
bank.wrong("not-a-model", "model and device are returned", result=RESULT + ", device")
bank.wrong("sharded-a-copy", "a copy is sharded", move="import copy\nmodel = copy.deepcopy(model).to(device)")
bank.wrong("only-root-sharded", "only the root is sharded", blocks="", block="")
bank.wrong("root-not-sharded", "only the blocks are sharded", result="return model")
bank.wrong(
    "root-before-blocks",
    "the root first",
    blocks="fully_shard(model, mesh=mesh, mp_policy=root)\nfor block in model.blocks:",
    result="return model",
)
bank.wrong("block-left-out", "only the first block is sharded", blocks="for block in model.blocks[:1]:")
bank.wrong(
    "wrong-shards",
    "a mesh of one rank for each",
    mesh="alone = [[rank] for rank in range(dist.get_world_size())]\n"
    "mesh = DeviceMesh(device.type, alone, mesh_dim_names=('a', 'b'))['b']",
)
bank.wrong(
    "replicated",
    "a mesh that replicates in place of sharding",
    mesh="mesh = init_device_mesh(device.type, (dist.get_world_size(), 1), mesh_dim_names=('replicate', 'shard'))",
)
bank.wrong("ranks-start-apart", "rank 0's weights are not sent", tensors="", broadcast="")
bank.wrong(
    "result-not-read",
    "copies of the weights are sent",
    broadcast="dist.broadcast(tensor.detach().clone(), src=0)",
)
bank.wrong(
    "weights-changed",
    "the last rank's weights are sent",
    broadcast="dist.broadcast(tensor.detach(), src=dist.get_world_size() - 1)",
)
bank.wrong(
    "gradients-not-reduced",
    "synchronisation is switched off",
    result=RESULT.replace("return ", "") + "\nmodel.set_requires_gradient_sync(False)\nreturn model",
)
bank.wrong(
    "parameters-not-fp32",
    "the parameters themselves in bf16",
    if_bf16="if precision in HALF:\n    model.bfloat16()",
)
bank.wrong("fp32-not-fp32", "bf16 whatever is asked for", if_bf16="precision = 'bf16'\nif True:")
bank.wrong("precision-ignored", "precision has no effect", if_bf16="if False:")
bank.wrong("precision-not-everywhere", "a policy for the root only", block="fully_shard(block, mesh=mesh)")
bank.wrong(
    "precision-not-everywhere", "a policy for the blocks only", result="return fully_shard(model, mesh=mesh)"
)
bank.wrong(
    "blocks-hand-out-fp32",
    "the blocks hand out fp32",
    policy="policy = MixedPrecisionPolicy(**low, output_dtype=torch.float32)",
)
bank.wrong("gradients-summed-in-bf16", "gradients summed in bf16", low='low = {"param_dtype": torch.bfloat16}')
bank.wrong(
    "not-bf16", "fp16 in place of bf16", low='low = {"param_dtype": torch.float16, "reduce_dtype": torch.float32}'
)
bank.wrong("logits-not-fp32", "logits in bf16", root="root = policy")
bank.wrong(
    "logits-not-fp32",
    "logits in fp16",
    root="root = MixedPrecisionPolicy(**low, output_dtype=torch.float32 if precision == 'bf16' else None)",
)
bank.wrong("batchnorm-in-bf16", "BatchNorm in bf16", batchnorms="")
bank.wrong("fp16-ignored", "fp16 is left out", if_bf16="if precision == 'bf16':")
bank.wrong(
    "fp16-ignored",
    "bf16 in place of fp16",
    low='low = {"param_dtype": torch.bfloat16, "reduce_dtype": torch.float32}',
)
bank.wrong(
    "fp16-failed",
    "BatchNorm in fp16",
    batchnorms="if precision == 'bf16':\n    shard_batchnorms(model, mesh)",
)
bank.wrong("raised", "an attribute that is not there", blocks="for block in model.layers:")
bank.wrong(
    "rest-not-sent",
    "only what is trained is sent",
    tensors="for tensor in [p for p in model.parameters() if p.requires_grad]:",
)
bank.wrong("rest-not-sent", "no buffers are sent", tensors="for tensor in model.parameters():")
bank.wrong("unfrozen", "frozen parameters are trained again", move="model.to(device).requires_grad_(True)")
bank.wrong(
    "batchnorm-after-block",
    "shard_batchnorms after the blocks",
    batchnorms="",
    result="if precision in HALF:\n    shard_batchnorms(model, mesh)\n" + RESULT,
)
bank.wrong(
    "outer-before-inner",
    "the layers of a block after the block",
    block="fully_shard(block, mesh=mesh, mp_policy=policy)\nfor module in block.modules():\n"
    "    if isinstance(module, nn.Linear):\n        fully_shard(module, mesh=mesh, mp_policy=policy)",
)
bank.wrong(
    ON_ONE_RANK,
    "one rank sends",
    broadcast="if dist.get_rank() == 1: dist.broadcast(tensor.detach(), src=0)",
)
bank.wrong(
    "layers-not-blocks",
    "each layer of the blocks and no block",
    blocks="for block in model.blocks.modules():",
    block="if isinstance(block, nn.Linear):\n    fully_shard(block, mesh=mesh, mp_policy=policy)",
)
bank.wrong("container-sharded", "the list of blocks in place of each", blocks="for block in model.children():")
bank.wrong(
    "sources-differ",
    "every rank sends its own weights",
    broadcast="dist.broadcast(tensor.detach(), src=dist.get_rank())",
)
bank.wrong(
    "sent-after-sharding",
    "rank 0's shards are sent, after sharding",
    tensors="",
    broadcast="",
    result=RESULT.replace("return ", "")
    + "\nfor p in model.parameters():\n    dist.broadcast(p.to_local().detach(), src=0)\nreturn model",
)

# ---- seen in other settings, on other ranks, in other hands

bank.wrong(
    "mesh-on-another-device",
    "mesh by availability",
    mesh="mesh = init_device_mesh('cuda' if torch.cuda.is_available() else 'cpu', (dist.get_world_size(),))",
)
bank.right(
    "cuda by hand",
    move="if device.type == 'cuda': model.cuda(device)",
)
bank.wrong(
    "mesh-on-another-device",
    "the mesh on the CPU",
    mesh="mesh = init_device_mesh('cpu', (dist.get_world_size(),))",
)
bank.wrong(
    "not-on-device",
    "not moved",
    move="",
)
bank.wrong(
    "not-on-device",
    "moved after the broadcast",
    move="",
    mesh="model.to(device)\nmesh = init_device_mesh(device.type, (dist.get_world_size(),))",
)
bank.wrong(
    "result-not-read",
    "a clone is sent",
    broadcast="dist.broadcast(tensor.detach().clone(), src=0)",
)
bank.wrong(
    "error-swallowed",
    "fully_shard hidden",
    block="try:\n    fully_shard(block, mesh)\nexcept TypeError:\n    pass",
)

# ---- by somebody who had only a student's package at hand

STRAIGHT = {
    "4.2": """
model = model.to(device)
with torch.no_grad():
    for tensor in [*model.parameters(), *model.buffers()]:
        dist.broadcast(tensor, src=0)
mesh = init_device_mesh(device.type, (dist.get_world_size(),))
policy = MixedPrecisionPolicy()
root_policy = policy
if precision in HALF:
    policy = MixedPrecisionPolicy(param_dtype=HALF[precision], reduce_dtype=torch.float32)
    root_policy = replace(policy, output_dtype=torch.float32)
    shard_batchnorms(model, mesh)
for block in model.blocks:
    fully_shard(block, mesh=mesh, mp_policy=policy)
fully_shard(model, mesh=mesh, mp_policy=root_policy)
return model
""",
}

bank.right(
    "always norms",
    whole={
        "4.2": """
mesh = init_device_mesh(device.type, (dist.get_world_size(),))
model.to(device)
for value in model.state_dict().values():
    dist.broadcast(value, src=0)
dtype = HALF.get(precision)
half = {} if dtype is None else {"param_dtype": dtype, "reduce_dtype": torch.float32}
shard_batchnorms(model, mesh)
for block in model.blocks:
    fully_shard(block, mesh=mesh, mp_policy=MixedPrecisionPolicy(**half))
return fully_shard(
    model,
    mesh=mesh,
    mp_policy=MixedPrecisionPolicy(output_dtype=torch.float32 if half else None, **half),
)
"""
    },
)
bank.right(
    "helpers and detach",
    whole={
        "4.2": """
import functools
import itertools

def _same_everywhere(model: nn.Module) -> None:
    handles = [
        dist.broadcast(t.detach(), 0, async_op=True)
        for t in itertools.chain(model.parameters(), model.buffers())
    ]
    for handle in handles:
        handle.wait()

model = model.to(device=device)
_same_everywhere(model)
mesh = init_device_mesh(device.type, mesh_shape=(dist.get_world_size(),))
if precision == "fp32":
    shard = functools.partial(fully_shard, mesh=mesh)
    root = shard
else:
    dtype = HALF[precision]
    shard_batchnorms(model, mesh)
    shard = functools.partial(
        fully_shard, mesh=mesh, mp_policy=MixedPrecisionPolicy(dtype, torch.float32)
    )
    root = functools.partial(
        fully_shard, mesh=mesh, mp_policy=MixedPrecisionPolicy(dtype, torch.float32, torch.float32)
    )
for i in range(len(model.blocks)):
    shard(model.blocks[i])
root(model)
return model
"""
    },
)
bank.right(
    "sum of masked",
    whole={
        "4.2": """
model = model.to(device)
main = dist.get_rank() == 0
for t in list(model.parameters()) + list(model.buffers()):
    data = t.data
    if not main:
        data.zero_()
    dist.all_reduce(data)
mesh = DeviceMesh(device.type, list(range(dist.get_world_size())))
mixed = precision != "fp32"
policies = [MixedPrecisionPolicy(), MixedPrecisionPolicy()]
if mixed:
    shard_batchnorms(model, mesh)
    policies = [
        MixedPrecisionPolicy(param_dtype=HALF[precision], reduce_dtype=torch.float32, output_dtype=out)
        for out in (None, torch.float32)
    ]
fully_shard(list(model.blocks)[0], mesh=mesh, mp_policy=policies[0])
for block in list(model.blocks)[1:]:
    fully_shard(block, mesh=mesh, mp_policy=policies[0])
fully_shard(model, mesh=mesh, mp_policy=policies[1])
return model
"""
    },
)
bank.right(
    "match statement",
    whole={
        "4.2": """
model.to(device)
for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
    dist.broadcast(tensor.data, src=0)
match precision:
    case "fp32":
        inner = outer = MixedPrecisionPolicy()
    case "bf16" | "fp16":
        inner = MixedPrecisionPolicy(param_dtype=HALF[precision], reduce_dtype=torch.float32)
        outer = MixedPrecisionPolicy(
            param_dtype=HALF[precision], reduce_dtype=torch.float32, output_dtype=torch.float32
        )
    case _:
        raise ValueError(precision)
mesh = init_device_mesh(device.type, (dist.get_world_size(),), mesh_dim_names=("shard",))
if precision in HALF:
    shard_batchnorms(model, mesh)
[fully_shard(b, mesh=mesh, mp_policy=inner) for b in model.blocks]
fully_shard(model, mesh=mesh, mp_policy=outer)
return model
"""
    },
)
bank.wrong(
    "ranks-start-apart",
    "no broadcast",
    whole=replaced(
        STRAIGHT,
        (
            "with torch.no_grad():\n"
            "    for tensor in [*model.parameters(), *model.buffers()]:\n"
            "        dist.broadcast(tensor, src=0)\n",
            "",
        ),
    ),
    slow=True,
)
bank.wrong(
    "rest-not-sent",
    "buffers forgotten",
    whole=replaced(STRAIGHT, ("[*model.parameters(), *model.buffers()]", "model.parameters()")),
    slow=True,
)
bank.wrong(
    "root-before-blocks",
    "root first",
    whole=replaced(
        STRAIGHT,
        ("fully_shard(model, mesh=mesh, mp_policy=root_policy)\n", ""),
        ("for block in", "fully_shard(model, mesh=mesh, mp_policy=root_policy)\nfor block in"),
    ),
    slow=True,
)
bank.wrong(
    "root-not-sharded",
    "root forgotten",
    whole=replaced(STRAIGHT, ("fully_shard(model, mesh=mesh, mp_policy=root_policy)\n", "")),
    slow=True,
)
bank.wrong(
    "only-root-sharded",
    "blocks forgotten",
    whole=replaced(
        STRAIGHT, ("for block in model.blocks:\n    fully_shard(block, mesh=mesh, mp_policy=policy)\n", "")
    ),
    slow=True,
)
bank.wrong(
    "gradients-summed-in-bf16",
    "sums in half",
    whole=replaced(STRAIGHT, (", reduce_dtype=torch.float32)", ")")),
    slow=True,
)
bank.wrong(
    "logits-not-fp32",
    "half logits",
    whole=replaced(STRAIGHT, ("replace(policy, output_dtype=torch.float32)", "policy")),
    slow=True,
)
bank.wrong(
    "parameters-not-fp32",
    "casts the weights",
    whole=replaced(
        STRAIGHT,
        (
            "    shard_batchnorms(model, mesh)",
            "    model = model.to(HALF[precision])\n    shard_batchnorms(model, mesh)",
        ),
    ),
)
bank.wrong("fp16-ignored", "fp16 is bf16", whole=replaced(STRAIGHT, ("HALF[precision]", "torch.bfloat16")))
bank.wrong(
    "fp16-ignored",
    "bf16 only",
    whole=replaced(STRAIGHT, ("if precision in HALF", 'if precision == "bf16"')),
    slow=True,
)
bank.wrong(
    "batchnorm-in-bf16",
    "norms left out",
    whole=replaced(STRAIGHT, ("    shard_batchnorms(model, mesh)\n", "")),
    slow=True,
)
bank.wrong(
    "batchnorm-after-block",
    "norms after blocks",
    whole=replaced(
        STRAIGHT,
        ("    shard_batchnorms(model, mesh)\n", ""),
        (
            "fully_shard(model, mesh",
            "if precision in HALF:\n    shard_batchnorms(model, mesh)\nfully_shard(model, mesh",
        ),
    ),
    slow=True,
)
bank.wrong(
    "sources-differ", "each its own source", whole=replaced(STRAIGHT, ("src=0", "src=dist.get_rank()")), slow=True
)
bank.wrong(
    "result-not-read",
    "broadcasts copies",
    whole=replaced(STRAIGHT, ("dist.broadcast(tensor, src=0)", "dist.broadcast(tensor.clone(), src=0)")),
    slow=True,
)
bank.wrong(
    "container-sharded",
    "children not blocks",
    whole=replaced(STRAIGHT, ("for block in model.blocks:", "for block in model.children():")),
    slow=True,
)
bank.wrong("mesh-of-other-size", "mesh of two", whole=replaced(STRAIGHT, ("(dist.get_world_size(),)", "(2,)")))
bank.wrong(
    "precision-not-everywhere",
    "policy on root only",
    whole=replaced(STRAIGHT, ("fully_shard(block, mesh=mesh, mp_policy=policy)", "fully_shard(block, mesh=mesh)")),
    slow=True,
)
bank.wrong(
    "sent-after-sharding",
    "broadcast after sharding",
    whole=replaced(
        STRAIGHT,
        (
            "with torch.no_grad():\n"
            "    for tensor in [*model.parameters(), *model.buffers()]:\n"
            "        dist.broadcast(tensor, src=0)\n",
            "",
        ),
        (
            "return model",
            "for tensor in model.parameters():\n"
            "    dist.broadcast(tensor.to_local().detach(), src=0)\n"
            "return model",
        ),
    ),
    slow=True,
)
bank.wrong(
    "not-on-device", "not moved, again", whole=replaced(STRAIGHT, ("model = model.to(device)\n", "")), slow=True
)
bank.wrong(
    "collective-on-one-rank",
    "only main broadcasts",
    whole=replaced(
        STRAIGHT,
        (
            "        dist.broadcast(tensor, src=0)",
            "        if dist.get_rank() == 0:\n            dist.broadcast(tensor, src=0)",
        ),
    ),
    slow=True,
)
bank.wrong(
    "fsdp1-not-fsdp2",
    "first fsdp",
    whole={
        "4.2": """
return get_fsdp1_model(model, device, precision=precision)
"""
    },
    slow=True,
)
bank.wrong(
    "block-left-out",
    "last block kept",
    whole=replaced(STRAIGHT, ("in model.blocks:", "in model.blocks[:-1]:")),
    slow=True,
)

# ---- sent when it is sharded already


def sharded_then(lines: str) -> dict[str, str]:
    """Named lines of an answer in which nothing is sent before the root is sharded, and then this is done."""
    return {
        "tensors": "",
        "broadcast": "",
        "result": f"{RESULT.replace('return ', 'model = ')}\n{lines}\nreturn model",
    }


bank.wrong(
    "sent-after-sharding",
    "the sharded weights themselves are sent",
    **sharded_then("for p in model.parameters():\n    dist.broadcast(p.data, src=0)"),
)
bank.wrong(
    "sent-after-sharding",
    "rank 0's sharded state is loaded",
    **sharded_then(
        "state = [model.state_dict()]\ndist.broadcast_object_list(state, src=0)\nmodel.load_state_dict(state[0])"
    ),
)
bank.wrong(
    "sent-after-sharding",
    "all shards as one flat tensor",
    **sharded_then(
        "flat = torch.cat([p.to_local().detach().flatten() for p in model.parameters()])\n"
        "dist.broadcast(flat, src=0)"
    ),
)
bank.wrong(
    "sent-after-sharding",
    "sent between the blocks and the root",
    tensors="",
    broadcast="",
    result=f"for p in model.parameters():\n    dist.broadcast(p.detach(), src=0)\n{RESULT}",
)
bank.wrong(
    "precision-ignored",
    "on one rank nothing is sharded",
    move="if dist.get_world_size() == 1:\n    return model.to(device)\nmodel.to(device)",
)

# ---- arguments of fully_shard and of its policies, in other settings

bank.wrong(
    "blocks-stay-gathered",
    "the blocks are kept whole after the forward pass",
    block="fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=False)",
)
bank.wrong(
    "blocks-stay-gathered",
    "the blocks are kept whole in 16 bits",
    block="fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=precision == 'fp32')",
    slow=True,
)
bank.wrong(
    "blocks-in-one-group",
    "all blocks in one call",
    blocks="if True:",
    block="fully_shard(list(model.blocks), mesh=mesh, mp_policy=policy)",
)
bank.wrong(
    "gradients-summed-in-fp16",
    "gradients summed in fp16",
    low='low = {"param_dtype": HALF[precision]}\nif precision == "bf16":\n    low["reduce_dtype"] = torch.float32',
)
bank.wrong(
    "blocks-hand-out-fp32",
    "the root's policy for the blocks",
    block="fully_shard(block, mesh=mesh, mp_policy=root)",
    slow=True,
)
bank.wrong(
    "logits-not-fp32",
    "the blocks' policy for the root",
    result="return fully_shard(model, mesh=mesh, mp_policy=policy)",
    slow=True,
)
bank.wrong(
    "weights-averaged",
    "the mean of the ranks' weights",
    broadcast="data = tensor.detach()\ndist.all_reduce(data)\ndata /= dist.get_world_size()",
)
bank.wrong(
    "weights-changed",
    "drawn again from one seed",
    tensors="torch.manual_seed(0)\nfor module in model.modules():",
    broadcast="if hasattr(module, 'reset_parameters'):\n    module.reset_parameters()",
    slow=True,
)
bank.wrong(
    "mesh-of-two-dimensions",
    "a mesh of two dimensions without names",
    mesh="mesh = init_device_mesh(device.type, (dist.get_world_size(), 1))",
)
bank.wrong(
    "parameters-offloaded",
    "the shards on the CPU",
    blocks="from torch.distributed.fsdp import CPUOffloadPolicy\nfor block in model.blocks:",
    block="fully_shard(block, mesh=mesh, mp_policy=policy, offload_policy=CPUOffloadPolicy())",
)
bank.wrong(
    "sharded-twice",
    "every layer of a block, BatchNorms too",
    block="for layer in block:\n    if list(layer.parameters()):\n"
    "        fully_shard(layer, mesh=mesh, mp_policy=policy)\nfully_shard(block, mesh=mesh, mp_policy=policy)",
)

# ---- in a machine with GPUs, on nodes with GPUs of their own, and where fully_shard fails

bank.right(
    "a mesh of where the moved model is",
    whole=replaced(
        STRAIGHT, ("init_device_mesh(device.type", "init_device_mesh(next(model.parameters()).device.type")
    ),
)
bank.wrong(
    "local-number-as-global",
    "a mesh of the node's GPUs",
    whole=replaced(
        STRAIGHT, ("(dist.get_world_size(),)", "(torch.cuda.device_count() or dist.get_world_size(),)")
    ),
)
bank.wrong(
    "local-number-as-global",
    "a mesh of the node's GPUs, on GPUs",
    whole=replaced(
        STRAIGHT,
        (
            "(dist.get_world_size(),)",
            "(torch.cuda.device_count() if device.type == 'cuda' else dist.get_world_size(),)",
        ),
    ),
    slow=True,
)
bank.wrong(
    "error-swallowed",
    "the whole model where fully_shard fails",
    whole=replaced(
        STRAIGHT,
        (
            "for block in model.blocks:\n    fully_shard(block, mesh=mesh, mp_policy=policy)\n"
            "fully_shard(model, mesh=mesh, mp_policy=root_policy)",
            "try:\n    for block in model.blocks:\n        fully_shard(block, mesh=mesh, mp_policy=policy)\n"
            "    fully_shard(model, mesh=mesh, mp_policy=root_policy)\nexcept Exception:\n    pass",
        ),
    ),
)
bank.wrong(
    "inputs-not-cast",
    "images stay in fp32",
    whole=replaced(
        STRAIGHT, ("reduce_dtype=torch.float32", "reduce_dtype=torch.float32, cast_forward_inputs=False")
    ),
)
bank.wrong(
    "error-swallowed",
    "weights that could not be sent are left out",
    whole=replaced(
        STRAIGHT,
        (
            "        dist.broadcast(tensor, src=0)",
            "        try:\n            dist.broadcast(tensor, src=0)\n"
            "        except RuntimeError:\n            pass",
        ),
    ),
    slow=True,
)
bank.wrong(
    "error-swallowed",
    "a block that could not be sharded is left out",
    whole=replaced(
        STRAIGHT,
        (
            "    fully_shard(block, mesh=mesh, mp_policy=policy)",
            "    try:\n        fully_shard(block, mesh=mesh, mp_policy=policy)\n"
            "    except Exception:\n        pass",
        ),
    ),
    slow=True,
)
bank.wrong(
    "block-left-out",
    "blocks that are of one class",
    blocks="for block in model.modules():",
    block="if isinstance(block, nn.Sequential):\n    fully_shard(block, mesh=mesh, mp_policy=policy)",
)
bank.wrong(
    "precision-not-everywhere",
    "a policy in the options of the blocks alone",
    policy="options = {'mesh': mesh, 'mp_policy': MixedPrecisionPolicy(**low)}",
    fp32="options = {'mesh': mesh}",
    root="",
    block="fully_shard(block, **options)",
    result="return fully_shard(model, mesh=mesh)",
)

bank.wrong(
    "ranks-start-apart",
    "a seed in place of rank 0's weights",
    tensors="torch.manual_seed(0)",
    broadcast="",
    slow=True,
)

# ---- some of the weights only

bank.wrong(
    "weights-changed",
    "only the weights of the blocks are sent",
    tensors="for tensor in model.blocks.parameters():",
    slow=True,
)
bank.wrong(
    "replicated",
    "a mesh of two dimensions where none is asked for",
    mesh="names = ('replicate', 'shard')\nif shards is None:\n"
    "    mesh = init_device_mesh(device.type, (dist.get_world_size(), 1), mesh_dim_names=names)\nelse:\n"
    "    mesh = init_device_mesh(device.type, (dist.get_world_size() // shards, shards), mesh_dim_names=names)",
    slow=True,
)
bank.wrong(
    "replicated",
    "a mesh whose world is divided by one",
    mesh="shards = shards or 1\nnames = ('replicate', 'shard')\n"
    "mesh = init_device_mesh(device.type, (dist.get_world_size() // shards, shards), mesh_dim_names=names)",
    slow=True,
)
bank.wrong(
    "raised",
    "three blocks",
    blocks="for i in range(3):",
    block="fully_shard(model.blocks[i], mesh=mesh, mp_policy=policy)",
    slow=True,
)
bank.wrong(
    "raised",
    "three blocks of a list",
    blocks="blocks = list(model.blocks)\nfor i in range(3):",
    block="fully_shard(blocks[i], mesh=mesh, mp_policy=policy)",
    slow=True,
)
bank.wrong(
    "result-not-read",
    "a list of copies of the weights is sent",
    tensors="weights = [p.detach().clone() for p in model.parameters()]\nfor weight in weights:",
    broadcast="dist.broadcast(weight, src=0)",
    slow=True,
)
bank.wrong(
    "result-remembered",
    "the policy of the first call is kept",
    fp32="policy = root = getattr(get_fsdp_model, 'policy', None) or MixedPrecisionPolicy()",
    result="get_fsdp_model.policy = policy\n" + RESULT,
)
bank.right(
    "copies of the weights that are written back",
    tensors="weights = [p.detach().clone() for p in model.parameters()]\n"
    "for buffer in model.buffers():\n    dist.broadcast(buffer, src=0)\nfor weight in weights:",
    broadcast="dist.broadcast(weight, src=0)\nwith torch.no_grad():\n"
    "    for p, weight in zip(model.parameters(), weights):\n        p.copy_(weight)",
)
bank.wrong(
    "weights-changed",
    "only matrices are sent",
    broadcast="if tensor.ndim > 1:\n    dist.broadcast(tensor.detach(), src=0)",
    slow=True,
)

# ---- where the wrong value is made

bank.wrong(
    "not-bf16",
    "bf16 ends in 16, too",
    low="half = torch.float16 if precision.endswith('16') else torch.bfloat16\n"
    "low = {'reduce_dtype': torch.float32}",
    policy="policy = MixedPrecisionPolicy(param_dtype=half, **low)",
    root="root = MixedPrecisionPolicy(param_dtype=half, **low, output_dtype=torch.float32)",
    slow=True,
)
bank.wrong(
    "rest-not-sent",
    "what is frozen is left out in the loop",
    broadcast="if tensor.is_floating_point() and not tensor.requires_grad and tensor.dim():\n    continue\n"
    "dist.broadcast(tensor.detach(), src=0)",
    slow=True,
)
bank.wrong(
    "mesh-of-two-dimensions",
    "one shard where none are asked for",
    mesh="shards = shards or 1\nmesh = init_device_mesh(device.type, (dist.get_world_size() // shards, shards))",
    slow=True,
)
bank.wrong(
    "logits-not-fp32",
    "one dict of options for the blocks and the model",
    mesh="options = {'mesh': init_device_mesh(device.type, (dist.get_world_size(),))}",
    root="options['mp_policy'] = policy",
    batchnorms="shard_batchnorms(model, options['mesh'])",
    block="fully_shard(block, **options)",
    result="return fully_shard(model, **options)",
    slow=True,
)
