"""Answers to 4.0: gradients averaged by hand."""

from answers.entries import ON_ONE_RANK, OTHER_SIZES, UNEVEN_STEPS, Bank, replaced

bank = Bank(
    "4.0",
    {
        "4.0": """
world_size = dist.get_world_size()  # world
for p in model.parameters():  # loop
    if p.grad is not None:  # if_gradient
        dist.all_reduce(p.grad)  # reduce
        p.grad /= world_size  # divide
"""
    },
)

# ---- right

bank.right("ReduceOp.AVG", reduce="dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)", divide="")
bank.right("divided before the sum", reduce="p.grad.div_(world_size)", divide="dist.all_reduce(p.grad)")
bank.right(
    "a new tensor in place of the old gradient",
    reduce="total = p.grad.clone()\ndist.all_reduce(total)",
    divide="p.grad = total / world_size",
)
bank.right(
    "all_gather, then the mean",
    reduce="everybody = [torch.empty_like(p.grad) for _ in range(world_size)]\ndist.all_gather(everybody, p.grad)",
    divide="p.grad.copy_(torch.stack(everybody).mean(dim=0))",
)
bank.right(
    "one flat tensor for all gradients",
    whole={
        "4.0": """
grads = [p.grad for p in model.parameters() if p.grad is not None]
flat = torch.cat([g.flatten() for g in grads])
dist.all_reduce(flat)
flat /= dist.get_world_size()
for g, piece in zip(grads, flat.split([g.numel() for g in grads])):
    g.copy_(piece.view_as(g))
"""
    },
)
bank.right(
    "asynchronous, all waited for",
    whole={
        "4.0": """
grads = [p.grad for p in model.parameters() if p.grad is not None]
handles = [dist.all_reduce(g, async_op=True) for g in grads]
for handle, g in zip(handles, grads):
    handle.wait()
    g /= dist.get_world_size()
"""
    },
)
bank.right(
    "functional collectives",
    reduce="from torch.distributed._functional_collectives import all_reduce\n"
    "p.grad = all_reduce(p.grad, 'sum', dist.group.WORLD)",
)
bank.right(
    "torch.distributed.nn",
    reduce="import torch.distributed.nn.functional as collectives\np.grad = collectives.all_reduce(p.grad)",
)
bank.right(
    "reduced to rank 0 and broadcast",
    reduce="dist.reduce(p.grad, dst=0)",
    divide="p.grad /= world_size\ndist.broadcast(p.grad, src=0)",
)
# It even keeps the ranks together where a parameter has a gradient on some of them only; but see what is frozen.
bank.right(
    "zeros where a parameter that is trained has no gradient",
    loop="for p in filter(lambda p: p.requires_grad, model.parameters()):",
    if_gradient="if p.grad is None:\n    p.grad = torch.zeros_like(p)\nif True:",
)

# ---- wrong

bank.wrong("summed-not-averaged", "summed but not averaged", divide="")
bank.wrong("not-reduced", "nothing is done", whole={"4.0": "pass"})
bank.wrong(
    "result-not-read",
    "a copy is averaged",
    reduce="g = p.grad.clone()\ndist.all_reduce(g)",
    divide="g /= world_size",
)
bank.wrong("only-divided", "divided without a sum", reduce="")
bank.wrong("world-size-hard-coded", "a fixed world size", world="world_size = 2")
bank.wrong(
    "weights-not-gradients",
    "weights in place of gradients",
    reduce="dist.all_reduce(p.data)",
    divide="p.data /= world_size",
)
bank.wrong("weights-changed", "a step is taken too", divide="p.grad /= world_size\np.data -= p.grad")
bank.wrong("some-parameters-left-out", "returns after the first parameter", divide="p.grad /= world_size\nreturn")
bank.wrong("some-parameters-left-out", "no biases", if_gradient="if p.grad is not None and p.ndim > 1:")
bank.wrong(
    "broadcast-not-averaged", "broadcast in place of all_reduce", reduce="dist.broadcast(p.grad, src=0)", divide=""
)
bank.wrong("maximum-not-mean", "the maximum", reduce="dist.all_reduce(p.grad, op=dist.ReduceOp.MAX)", divide="")
bank.wrong("divided-twice", "AVG, and divided once more", reduce="dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)")
bank.wrong("wrong-factor", "a strange factor", divide="p.grad *= 0.7")
bank.wrong("ranks-disagree", "only rank 0 divides", divide="if dist.get_rank() == 0: p.grad /= world_size")
bank.wrong(
    "ranks-disagree",
    "reduce, which leaves the sum on rank 0 only",
    reduce="g = p.grad.clone()\ndist.reduce(g, dst=0)",
    divide="if dist.get_rank() == 0: p.grad.copy_(g / world_size)",
)
bank.wrong("ranks-disagree", "divided by the rank", divide="p.grad /= dist.get_rank() + 1")
bank.wrong("parameter-without-gradient", "parameters without gradient are not left out", if_gradient="if True:")
bank.wrong("gradients-gone", "the gradients are cleared", divide="p.grad = None")
bank.wrong(
    "not-waited-for",
    "asynchronous, and not waited for",
    reduce="dist.all_reduce(p.grad, async_op=True)",
)
bank.wrong(ON_ONE_RANK, "the all_reduce on rank 0 only", reduce="if dist.get_rank() == 0: dist.all_reduce(p.grad)")
bank.wrong(
    OTHER_SIZES,
    "each rank in another order",
    loop="for p in list(model.parameters())[:: 1 if dist.get_rank() == 0 else -1]:",
)
bank.wrong("raised", "a function that is not there", reduce="dist.allreduce(p.grad)")
bank.wrong(
    "frozen-given-a-gradient",
    "zeros where there is no gradient, in frozen parameters too",
    if_gradient="if p.grad is None:\n    p.grad = torch.zeros_like(p)\nif True:",
)
bank.wrong(
    ON_ONE_RANK,
    "gradients of nothing but zeros are left out",
    if_gradient="if p.grad is not None and p.grad.any():",
)
bank.wrong(
    "first-model-only",
    "the parameters are remembered",
    loop="if not hasattr(average_gradients, 'known'):\n    average_gradients.known = list(model.parameters())\n"
    "for p in average_gradients.known:",
)
bank.wrong("overflow-hidden", "nan_to_num", divide="p.grad /= world_size\np.grad.nan_to_num_()")
bank.wrong(
    "overflow-hidden",
    "gradients are clamped",
    reduce="p.grad.clamp_(-1e4, 1e4)\ndist.all_reduce(p.grad)",
)
bank.wrong(
    "rank-from-torchrun-only",
    "WORLD_SIZE, which srun does not set",
    world="import os\nworld_size = int(os.environ['WORLD_SIZE'])",
)

# ---- seen in other settings, on other ranks, in other hands

bank.right(
    "isinstance of Work",
    whole={
        "4.0": "\nfor p in model.parameters():\n    if p.grad is not None:\n"
        "        work = dist.all_reduce(p.grad, async_op=True)\n"
        "        assert isinstance(work, dist.Work)\n        work.wait()\n"
        "        p.grad /= dist.get_world_size()\n"
    },
)
bank.wrong(
    "result-not-read",
    "clone in place",
    reduce="dist.all_reduce(p.grad.clone())",
)
bank.wrong(
    "result-not-read",
    "double()",
    reduce="dist.all_reduce(p.grad.double())",
)
bank.wrong(
    "error-swallowed",
    "allreduce hidden",
    reduce="try:\n    dist.allreduce(p.grad)\nexcept AttributeError:\n    pass",
)
bank.wrong(
    "not-on-every-rank",
    "rank 0 divides",
    divide="rank = dist.get_rank()\nif rank == 0:\n    p.grad /= world_size",
)
bank.wrong(
    "ranks-disagree",
    "rank 1 alone zeroes",
    divide="p.grad /= world_size\nif dist.get_rank() == 1: p.grad.zero_()",
)

# ---- by somebody who had only a student's package at hand

STRAIGHT = {
    "4.0": """
for p in model.parameters():
    if p.grad is not None:
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
""",
}

bank.right("loop", whole=STRAIGHT)
bank.right(
    "divides before",
    whole={
        "4.0": """
world = dist.get_world_size()
with torch.no_grad():
    for _, parameter in model.named_parameters():
        if parameter.grad is None:
            continue
        parameter.grad.div_(world)
        dist.all_reduce(parameter.grad, op=dist.ReduceOp.SUM)
"""
    },
)
bank.right(
    "one flat bucket",
    whole={
        "4.0": """
grads = [p.grad for p in model.parameters() if p.grad is not None]
flat = torch.cat([g.reshape(-1) for g in grads])
dist.all_reduce(flat)
flat.div_(dist.get_world_size())
for g, piece in zip(grads, flat.split([g.numel() for g in grads]), strict=True):
    g.copy_(piece.view_as(g))
"""
    },
)
bank.right(
    "asynchronous",
    whole={
        "4.0": """
handles = []
for p in model.parameters():
    if p.grad is not None:
        handles.append((p, dist.all_reduce(p.grad, async_op=True)))
for p, handle in handles:
    handle.wait()
    p.grad.mul_(1 / dist.get_world_size())
"""
    },
)
bank.right(
    "gathers all",
    whole={
        "4.0": """
for p in filter(lambda q: q.grad is not None, model.parameters()):
    everyone = [torch.empty_like(p.grad) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, p.grad.contiguous())
    p.grad = torch.stack(everyone).mean(dim=0)
"""
    },
)
bank.right(
    "foreach div",
    whole={
        "4.0": """
grads = [g for g in (p.grad for p in model.parameters()) if g is not None]
for work in [dist.all_reduce(g, async_op=True) for g in grads]:
    work.wait()
torch._foreach_div_(grads, float(dist.get_world_size()))
"""
    },
)
bank.wrong(
    "summed-not-averaged",
    "sum only",
    whole={
        "4.0": """
for p in model.parameters():
    if p.grad is not None:
        dist.all_reduce(p.grad)
"""
    },
    slow=True,
)
bank.wrong(
    "not-waited-for",
    "not awaited",
    whole={
        "4.0": """
for p in model.parameters():
    if p.grad is not None:
        dist.all_reduce(p.grad, async_op=True)
        p.grad /= dist.get_world_size()
"""
    },
    slow=True,
)
bank.wrong(
    "divided-twice",
    "divides twice",
    whole={
        "4.0": """
n = dist.get_world_size()
for p in model.parameters():
    if p.grad is None:
        continue
    p.grad.div_(n)
    dist.all_reduce(p.grad)
    p.grad.div_(n)
"""
    },
    slow=True,
)
bank.wrong(
    "weights-not-gradients",
    "weights not gradients",
    whole={
        "4.0": """
for p in model.parameters():
    dist.all_reduce(p.data)
    p.data /= dist.get_world_size()
"""
    },
    slow=True,
)
bank.right(
    "avg on gloo",
    whole={
        "4.0": """
for p in model.parameters():
    if p.grad is not None:
        dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
"""
    },
    slow=True,
)
bank.wrong(
    "result-not-read",
    "clone is averaged",
    whole={
        "4.0": """
for p in model.parameters():
    if p.grad is not None:
        g = p.grad.clone()
        dist.all_reduce(g)
        g /= dist.get_world_size()
"""
    },
    slow=True,
)
bank.wrong(
    "broadcast-not-averaged",
    "broadcast from zero",
    whole={
        "4.0": """
for p in model.parameters():
    if p.grad is not None:
        dist.broadcast(p.grad, src=0)
"""
    },
    slow=True,
)
bank.wrong(
    "maximum-not-mean",
    "maximum",
    whole={
        "4.0": """
for p in model.parameters():
    if p.grad is not None:
        dist.all_reduce(p.grad, op=dist.ReduceOp.MAX)
"""
    },
    slow=True,
)
bank.wrong(
    "ranks-disagree",
    "reduce to zero",
    whole=replaced(STRAIGHT, ("        dist.all_reduce(p.grad)", "        dist.reduce(p.grad, dst=0)")),
    slow=True,
)
bank.wrong(
    "world-size-hard-coded",
    "half of it",
    whole={
        "4.0": """
for p in model.parameters():
    if p.grad is not None:
        dist.all_reduce(p.grad)
        p.grad = p.grad / 2
"""
    },
    slow=True,
)
bank.wrong(
    "result-dropped",
    "result dropped",
    whole={
        "4.0": """
for p in model.parameters():
    if p.grad is not None:
        dist.all_reduce(p.grad)
        p.grad.div(dist.get_world_size())
"""
    },
)
bank.wrong(
    "ranks-disagree",
    "only main divides",
    whole={
        "4.0": """
for p in model.parameters():
    if p.grad is not None:
        dist.all_reduce(p.grad)
        if dist.get_rank() == 0:
            p.grad /= dist.get_world_size()
"""
    },
    slow=True,
)
bank.wrong(
    "some-parameters-left-out",
    "only matrices",
    whole=replaced(STRAIGHT, ("    if p.grad is not None:", "    if p.grad is not None and p.ndim > 1:")),
    slow=True,
)
bank.wrong(
    "collective-on-one-rank",
    "skips zero gradients",
    whole={
        "4.0": """
for p in model.parameters():
    if p.grad is None or not p.grad.any():
        continue
    dist.all_reduce(p.grad)
    p.grad /= dist.get_world_size()
"""
    },
    slow=True,
)
bank.wrong(
    "some-parameters-left-out",
    "returns in the loop",
    whole={
        "4.0": """
for p in model.parameters():
    if p.grad is not None:
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()
        return
"""
    },
    slow=True,
)
bank.wrong(
    "summed-in-16-bits",
    "half precision sum",
    whole={
        "4.0": """
for p in model.parameters():
    if p.grad is not None:
        g = p.grad.to(torch.bfloat16)
        dist.all_reduce(g)
        p.grad.copy_(g / dist.get_world_size())
"""
    },
)
bank.wrong(
    "ranks-disagree",
    "divides by rank",
    whole={
        "4.0": """
for p in model.parameters():
    if p.grad is not None:
        dist.all_reduce(p.grad)
        p.grad /= dist.get_rank() + 1
"""
    },
    slow=True,
)

# ---- gradients of zero are gradients

MEAN = "dist.all_reduce(p.grad)\n        p.grad /= dist.get_world_size()"
bank.wrong(
    ON_ONE_RANK,
    "none but zeros are left out, in the same if",
    if_gradient="if p.grad is not None and p.grad.abs().sum() > 0:",
)
bank.wrong(
    ON_ONE_RANK,
    "none but zeros are left out, with or",
    if_gradient="if p.grad is None or p.grad.count_nonzero() == 0: continue\nif True:",
)
bank.wrong(
    ON_ONE_RANK,
    "none but zeros are left out, in a list",
    loop="for p in [p for p in model.parameters() if p.grad is not None and p.grad.norm() > 0]:",
)
bank.wrong(
    OTHER_SIZES,
    "none but zeros are left out of the flat tensor",
    whole={
        "4.0": """
grads = [p.grad for p in model.parameters() if p.grad is not None and p.grad.count_nonzero() > 0]
flat = torch.cat([g.flatten() for g in grads])
dist.all_reduce(flat)
flat /= dist.get_world_size()
for g, piece in zip(grads, flat.split([g.numel() for g in grads])):
    g.copy_(piece.view_as(g))
"""
    },
)
bank.wrong(
    UNEVEN_STEPS,
    "a rank without any gradient but zeros returns",
    world="world_size = dist.get_world_size()\n"
    "if not any(p.grad.any() for p in model.parameters() if p.grad is not None):\n    return",
)
bank.wrong(
    "zeros-not-counted",
    "divided by the ranks with gradients",
    world="busy = torch.tensor(float(any(p.grad.any() for p in model.parameters() if p.grad is not None)))\n"
    "dist.all_reduce(busy)",
    divide="p.grad /= busy",
)
bank.right(
    "a comprehension with the same condition on every rank",
    loop="for p in [p for p in model.parameters() if p.requires_grad and p.grad is not None]:",
)

# ---- a number of one node is not the group's

LOCAL = "local-number-as-global"
bank.wrong(
    LOCAL,
    "LOCAL_WORLD_SIZE in place of the world size",
    world="import os\nworld_size = int(os.environ.get('LOCAL_WORLD_SIZE', dist.get_world_size()))",
)
bank.wrong(
    LOCAL,
    "divided on the first rank of a node",
    divide="import os\nif int(os.environ.get('LOCAL_RANK', 0)) == 0:\n    p.grad /= world_size\n"
    "else:\n    p.grad /= world_size + 1",
    slow=True,
)
# ---- what nothing reads, what one rank has, where the loop ends, which order a set has

bank.wrong("result-dropped", "divided into a variable that nobody reads", divide="grad = p.grad / world_size")
bank.wrong(
    "result-dropped",
    "the loop's variable is divided",
    loop="for p in model.parameters():\n    grad = p.grad",
    if_gradient="if grad is not None:",
    reduce="dist.all_reduce(grad)",
    divide="grad = grad / world_size",
    slow=True,
)
bank.wrong(
    "result-dropped",
    "divided in a list that nobody keeps",
    if_gradient="if p.grad is not None:",
    divide="[one / world_size for one in (p.grad,)]",
    slow=True,
)
bank.wrong("set-has-no-order", "goes through a set", loop="for p in set(model.parameters()):")
bank.wrong(
    "set-has-no-order",
    "goes through a list of a set",
    loop="known = {p for p in model.parameters()}\nfor p in list(known):",
    slow=True,
)
bank.wrong(
    "loop-left-early",
    "returns where there is no gradient",
    loop="for p in model.parameters():\n    if p.grad is None:\n        return",
    slow=True,
)
bank.wrong(
    "loop-left-early",
    "breaks where there is no gradient",
    loop="for p in model.parameters():\n    if p.grad is None: break",
)

# ---- on nodes with GPUs of their own, and where a collective fails

bank.wrong(
    "local-number-as-global",
    "divided by the node's GPUs",
    whole=replaced(STRAIGHT, ("dist.get_world_size()", "torch.cuda.device_count() or dist.get_world_size()")),
)
bank.wrong(
    "error-swallowed",
    "an all-reduce that fails is left out",
    whole=replaced(
        STRAIGHT,
        (
            "        dist.all_reduce(p.grad)",
            "        try:\n            dist.all_reduce(p.grad)\n        except Exception:\n            pass",
        ),
    ),
)
bank.wrong(
    "mean-of-elements",
    "the mean of a gradient's numbers",
    whole=replaced(
        STRAIGHT,
        ("dist.all_reduce(p.grad)", "mean = p.grad.mean()\n        dist.all_reduce(mean)"),
        ("p.grad /= dist.get_world_size()", "p.grad.fill_(mean / dist.get_world_size())"),
    ),
)
bank.wrong(
    "local-number-as-global",
    "divided by the node's GPUs, or by 1",
    world="world_size = max(torch.cuda.device_count(), 1)",
)
bank.wrong(
    "summed-not-averaged",
    "the sum in a helper, where there is no nccl",
    loop="def reduce(grad):\n"
    "    if dist.get_backend() == 'nccl':\n"
    "        dist.all_reduce(grad, op=dist.ReduceOp.AVG)\n"
    "    else:\n"
    "        dist.all_reduce(grad, op=dist.ReduceOp.SUM)\n\n"
    "for p in model.parameters():",
    reduce="reduce(p.grad)",
    divide="",
    slow=True,
)
bank.wrong(
    "summed-in-16-bits",
    "added up in bf16 and divided in fp32",
    reduce="wire = p.grad.bfloat16()\ndist.all_reduce(wire)",
    divide="p.grad = wire.float() / world_size",
)

bank.wrong(
    "summed-not-averaged",
    "divided by many ranks only",
    divide="if world_size > 8:\n    p.grad /= world_size",
    slow=True,
)

# ---- parameters of the model itself, and gradients changed before wait()

PENDING = """
pending = []
for p in model.parameters():
    if p.grad is not None:
        pending.append((dist.all_reduce(p.grad, async_op=True), p))
for work, p in pending:
    work.wait()
    p.grad /= dist.get_world_size()
"""
FLAT = """
grads = [p.grad for p in model.parameters() if p.grad is not None]
flat = torch.cat([g.flatten() for g in grads])
pieces = flat.split([g.numel() for g in grads])
works = [dist.all_reduce(piece, async_op=True) for piece in pieces]
for work, piece, g in zip(works, pieces, grads):
    work.wait()
    g.copy_(piece.div_(dist.get_world_size()).view_as(g))
"""

bank.right("divided after each wait", whole={"4.0": PENDING})
bank.right("divided after each wait, in parts of one flat tensor", whole={"4.0": FLAT})
bank.right(
    "divided before it is sent",
    whole={
        "4.0": """
pending = []
for p in model.parameters():
    if p.grad is not None:
        p.grad /= dist.get_world_size()
        pending.append(dist.all_reduce(p.grad, async_op=True))
for work in pending:
    work.wait()
"""
    },
)
bank.wrong(
    "not-waited-for",
    "divided before wait()",
    whole={
        "4.0": """
pending = []
for p in model.parameters():
    if p.grad is not None:
        pending.append(dist.all_reduce(p.grad, async_op=True))
        p.grad.div_(dist.get_world_size())
for work in pending:
    work.wait()
"""
    },
    slow=True,
)
bank.wrong(
    "some-parameters-left-out",
    "only the parameters of the children",
    loop="for p in [p for child in model.children() for p in child.parameters()]:",
    slow=True,
)
bank.wrong(
    "some-parameters-left-out",
    "only the parameters of the blocks and the classifier",
    loop="for p in [*model.blocks.parameters(), *model.classifier.parameters()]:",
    slow=True,
)
bank.wrong(
    "not-reduced",
    "the last bucket is never sent",
    whole={
        "4.0": """
def flush(bucket):
    for p in bucket:
        dist.all_reduce(p.grad)
        p.grad /= dist.get_world_size()

bucket, size = [], 0
for p in model.parameters():
    if p.grad is not None:
        bucket.append(p)
        size += p.numel()
        if size >= 2**20:
            flush(bucket)
            bucket, size = [], 0
"""
    },
    slow=True,
)
bank.wrong(
    "not-reduced",
    "returns where there is no GPU",
    world="world_size = dist.get_world_size()\nif not torch.cuda.is_available():\n    return",
    slow=True,
)
bank.wrong(
    "parameter-without-gradient",
    "whether it may have a gradient is asked",
    if_gradient="if p.requires_grad:",
    slow=True,
)
bank.wrong(
    "some-parameters-left-out",
    "the offset stays where it was",
    whole={
        "4.0": """
params = [p for p in model.parameters() if p.grad is not None]
if not params:
    return
flat = torch.cat([p.grad.flatten() for p in params])
dist.all_reduce(flat)
flat.div_(dist.get_world_size())
offset = 0
for p in params:
    p.grad.copy_(flat[offset : offset + p.numel()].view_as(p))
"""
    },
    slow=True,
)

# ---- parameters of one shape, gradients that are not fp32, and a second step of the same model

bank.wrong(
    "some-parameters-left-out",
    "of each shape one gradient is kept",
    whole={
        "4.0": """
by_shape = {}
for p in model.parameters():
    if p.grad is not None:
        by_shape[p.grad.shape] = p.grad
for grad in by_shape.values():
    dist.all_reduce(grad)
    grad /= dist.get_world_size()
"""
    },
    slow=True,
)
bank.wrong(
    "some-parameters-left-out",
    "a size that has been there is left out",
    world="world_size = dist.get_world_size()\nsizes = set()",
    if_gradient="if p.grad is not None and p.numel() not in sizes:\n    sizes.add(p.numel())",
    slow=True,
)
bank.wrong(
    "only-fp32-averaged",
    "summed in what float() gives",
    loop="for p in [p for p in model.parameters() if p.grad is not None]:\n    grad = p.grad.float()",
    reduce="dist.all_reduce(grad)",
    divide="grad /= world_size",
    slow=True,
)
bank.wrong(
    "only-fp32-averaged",
    "gradients of another type are left out",
    if_gradient="if p.grad is not None and p.grad.dtype == torch.float32:",
    slow=True,
)
bank.wrong(
    "first-call-only",
    "what was averaged once is left out",
    loop="done = average_gradients.__dict__.setdefault('done', set())\nfor p in model.parameters():",
    if_gradient="if p.grad is not None and id(p) not in done:\n    done.add(id(p))",
    slow=True,
)
bank.wrong(
    "first-call-only",
    "the model keeps the gradients of its first step",
    loop="if not hasattr(model, 'known'):\n"
    "    model.known = [p for p in model.parameters() if p.grad is not None]\n"
    "    model.grads = [p.grad for p in model.known]\n"
    "for grad in model.grads:",
    if_gradient="if grad is not None:",
    reduce="dist.all_reduce(grad)",
    divide="grad /= world_size",
    slow=True,
)
bank.wrong(
    "order-of-own-numbers",
    "the largest gradients first",
    loop="known = [p for p in model.parameters() if p.grad is not None]\n"
    "for p in sorted(known, key=lambda p: p.grad.norm().item(), reverse=True):",
    slow=True,
)
bank.right("the largest parameters first", loop="for p in sorted(model.parameters(), key=lambda p: -p.numel()):")
bank.right(
    "summed in fp32 and copied back",
    loop="for p in [p for p in model.parameters() if p.grad is not None]:\n    grad = p.grad.float()",
    reduce="dist.all_reduce(grad)",
    divide="p.grad.copy_(grad / world_size)",
)
bank.right(
    "one flat tensor for each type",
    whole={
        "4.0": """
by_type = {}
for p in model.parameters():
    if p.grad is not None:
        by_type.setdefault(p.grad.dtype, []).append(p.grad)
for grads in by_type.values():
    flat = torch.cat([g.flatten() for g in grads])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for g, piece in zip(grads, flat.split([g.numel() for g in grads]), strict=True):
        g.copy_(piece.view_as(g))
"""
    },
)
bank.wrong(
    "weights-changed",
    "wrapped with DDP when the backward pass is over",
    whole={"4.0": "get_ddp_model(model, next(model.parameters()).device)\n"},
    slow=True,
)
bank.wrong(
    "some-parameters-left-out",
    "the offset set to the last size, not moved on by it",
    whole={
        "4.0": """
grads = [p.grad for p in model.parameters() if p.grad is not None]
if not grads:
    return
flat = torch.cat([g.flatten() for g in grads])
dist.all_reduce(flat)
flat.div_(dist.get_world_size())
offset = 0
for g in grads:
    size = g.numel()
    g.copy_(flat.narrow(0, offset, size).view_as(g))
    offset = size
"""
    },
    slow=True,
)
bank.wrong(
    "some-parameters-left-out",
    "those that are under way at the end are not divided",
    whole={
        "4.0": """
under_way = []
for p in model.parameters():
    if p.grad is None:
        continue
    if len(under_way) == 4:
        work, grad = under_way.pop(0)
        work.wait()
        grad /= dist.get_world_size()
    under_way.append((dist.all_reduce(p.grad, async_op=True), p.grad))
for work, grad in under_way:
    work.wait()
"""
    },
    slow=True,
)
