"""Answers to 9.4: parameters that are whole only while they are used."""

from answers.entries import Bank

bank = Bank(
    "9.4",
    {
        "9.4a": """
flat = torch.cat([p.detach().reshape(-1) for _, _, p in places])  # flat
missing = -flat.numel() % ranks  # missing
flat = torch.cat([flat, flat.new_zeros(missing)])  # pad
dist.broadcast(flat, 0)  # broadcast
each = flat.numel() // ranks  # each
self.shard = nn.Parameter(flat[rank * each : (rank + 1) * each].clone())  # shard
""",
        "9.4b": """
whole.untyped_storage().resize_(size)  # resize
own = self.shard.detach().to(self.dtype)  # own
all_gather(whole, own)  # gather
""",
        "9.4c": """
if self.whole is not None: self.whole.untyped_storage().resize_(0)  # free
""",
        "9.4d": """
full = gradient.float() / dist.get_world_size()  # mean
own = torch.zeros_like(self.shard)  # into
work = reduce_scatter(own, full, async_op=True)  # scatter
self.pending = (work, own, full)  # keep
""",
        "9.4e": """
self.units = []
for part in [*module.blocks, module]:  # parts
    places = []
    for owner in part.modules():
        places += [(owner, name, p) for name, p in owner._parameters.items() if p is not None]
    unit = Unit(places, dtype)  # unit
    self.units.append(unit)
    part.register_forward_pre_hook(unit.before_forward)  # before
    if part is not module:  # blocks only
        part.register_forward_hook(unit.free)  # after
        part.register_forward_hook(gather_again(unit))  # again
""",
    },
)

BLOCKS_THEN_REST = """
def places(part):
    return [(m, name, p) for m in part.modules() for name, p in m._parameters.items() if p is not None]

def own(part):
    return [(part, name, p) for name, p in part._parameters.items() if p is not None]

self.units = []
for block in module.blocks:
    unit = Unit(places(block), dtype)
    block.register_forward_pre_hook(unit.before_forward)
    block.register_forward_hook(unit.free)
    block.register_forward_hook(gather_again(unit))
    self.units.append(unit)
rest = Unit(places(module), dtype)
module.register_forward_pre_hook(rest.before_forward)
self.units.append(rest)
"""

bank.right("the blocks in a loop, and then the rest", whole={"9.4e": BLOCKS_THEN_REST})
bank.right(
    "divided in two steps",
    mean="full = gradient.float()",
    scatter="full /= dist.get_world_size()\nwork = reduce_scatter(own, full, async_op=True)",
)
bank.right(
    "the shard out of a chunk",
    shard="part = flat.chunk(ranks)[rank]\nself.shard = nn.Parameter(torch.empty_like(part))\n"
    "self.shard.data.copy_(part)",
)
bank.right(
    "freed and gathered again by one hook",
    after="again = gather_again(unit)\n"
    "part.register_forward_hook(lambda m, i, o, unit=unit, again=again: (unit.free(), again(m, i, o))[1])",
    again="pass",
)
bank.wrong("not-broadcast", "every rank cuts its own weights", broadcast="")
bank.wrong(
    "not-sharded",
    "the whole is kept",
    shard="self.shard = nn.Parameter(flat.clone())",
    gather="whole.view(dist.get_world_size(), -1)[:] = own",
    scatter="own.copy_(full[: len(own)])\ndist.all_reduce(own)\nwork = dist.barrier(async_op=True)",
)
bank.wrong("summed-not-averaged", "summed, not divided", mean="full = gradient.float()")
bank.wrong("divided-twice", "divided by the square", mean="full = gradient.float() / dist.get_world_size() ** 2")
bank.wrong(
    "all-reduced",
    "an all-reduce in place of a reduce-scatter",
    scatter="work = dist.all_reduce(full, async_op=True)\nwork.wait()\n"
    "own.copy_(full.chunk(dist.get_world_size())[dist.get_rank()])",
)
bank.wrong("not-freed-after-forward", "blocks stay whole", after="pass")
bank.wrong("not-freed-after-forward", "free() keeps the memory", free="pass")
bank.wrong("not-gathered-again", "not gathered again before the backward pass", again="pass")
bank.wrong("too-few-units", "one unit for the whole model", parts="for part in [module]:")
bank.wrong(
    "not-in-bf16",
    "gathered in fp32",
    shard="self.shard = nn.Parameter(flat.chunk(ranks)[rank].clone())\nself.dtype = torch.float32",
)
bank.wrong(
    "no-fp32-masters",
    "shards in bf16",
    shard="self.shard = nn.Parameter(flat.chunk(ranks)[rank].clone().to(dtype))",
    into="own = torch.zeros_like(full.chunk(dist.get_world_size())[0])",
    keep="self.pending = (work, own.to(self.shard.dtype), full)",
)
bank.wrong(
    "wrong-weights",
    "the other rank's part of the gradient",
    scatter="work = reduce_scatter(own, full.flip(0), async_op=True)",
)
bank.wrong("units-in-other-order", "the last block first", parts="for part in [*reversed(module.blocks), module]:")
bank.wrong(
    "unequal-shards",
    "no padding, and parts of other lengths",
    shard="self.shard = nn.Parameter(flat.chunk(ranks)[rank].clone())",
    pad="pass",
)
bank.wrong(
    "unequal-shards",
    "as many zeros as there are numbers too many",
    missing="missing = flat.numel() % ranks",
    shard="self.shard = nn.Parameter(flat.chunk(ranks)[rank].clone())",
)
bank.wrong(
    "shard-is-a-view", "a part that keeps the whole", shard="self.shard = nn.Parameter(flat.chunk(ranks)[rank])"
)
bank.wrong(
    "waits-in-backward",
    "waits as soon as it has begun",
    scatter="work = reduce_scatter(own, full, async_op=True)\nwork.wait()",
)
bank.wrong("gradient-not-kept", "only the result is kept", keep="self.pending = (work, own, own)")
bank.wrong(
    "units-in-other-order",
    "what is left comes first",
    whole={"9.4e": BLOCKS_THEN_REST.replace("append(rest)", "insert(0, rest)")},
)
bank.wrong(
    "hooks-share-a-unit",
    "the last unit for all hooks",
    whole={
        "9.4e": BLOCKS_THEN_REST.replace(
            "hook(unit.before_forward)", "hook(lambda *_: unit.before_forward())"
        ).replace("hook(unit.free)", "hook(lambda *_: unit.free())")
    },
)
bank.wrong(
    "names-with-dots",
    "named_parameters of the block",
    unit="unit = Unit([(part, name, p) for name, p in part.named_parameters()], dtype)",
)
bank.wrong(
    "reduced-in-bf16",
    "reduced in the type of the gradient",
    mean="full = gradient / dist.get_world_size()",
    into="own = full.new_empty(len(self.shard))",
)
bank.wrong("not-freed-after-forward", "free() forgets the whole", free="self.whole = None")
bank.wrong(
    "not-gathered-again",
    "what is left is freed as well",
    **{"blocks only": "part.register_forward_hook(unit.free)\nif part is not module:"},
    after="pass",
)
bank.wrong(
    "none-taken",
    "takes parameters that are None",
    unit="unit = Unit([(o, name, p) for o in part.modules() for name, p in o._parameters.items()], dtype)",
)
bank.wrong(
    "shards-out-of-order",
    "every N-th number is a rank's",
    shard="self.shard = nn.Parameter(flat.view(-1, ranks)[:, rank].clone())",
)
bank.wrong(
    "shard-broadcast",
    "the shard is broadcast, not the whole",
    broadcast="",
    shard="self.shard = nn.Parameter(flat[rank * each : (rank + 1) * each].clone())\n"
    "dist.broadcast(self.shard.data, 0)",
)
bank.wrong(
    "freed-by-a-new-tensor", "a new tensor in place of the whole", free="self.whole.data = self.whole.new_empty(0)"
)
bank.wrong("filled-without-memory", "filled before it has its memory again", resize="pass")
bank.wrong("not-in-bf16", "the shard is gathered as it is", own="own = self.shard.detach()")
bank.right(
    "the block's own parameters, then those of what is in it",
    whole={
        "9.4e": BLOCKS_THEN_REST.replace(
            "for m in part.modules() for",
            "for m in dict.fromkeys([part, *(p for _, p in part.named_modules())]) for",
        )
    },
)
bank.right(
    "divided in the type of the gradient, and reduced in fp32",
    mean="full = (gradient / dist.get_world_size()).float()",
)
bank.wrong(
    "block-in-the-rest",
    "what is in the block's children only",
    whole={"9.4e": BLOCKS_THEN_REST.replace("Unit(places(block)", "Unit(sum(map(own, block.children()), [])")},
)
bank.wrong(
    "block-in-the-rest",
    "all but the block's own",
    whole={"9.4e": BLOCKS_THEN_REST.replace("Unit(places(block)", "Unit(sum(map(places, block.children()), [])")},
)
bank.wrong(
    "reduced-in-bf16",
    "made fp32 once it is reduced",
    mean="full = gradient / dist.get_world_size()",
    into="own = full.new_empty(len(self.shard))",
    keep="""
class Later:
    def wait(self):
        work.wait()
        final.copy_(own)
final = torch.empty_like(self.shard.detach())
self.pending = (Later(), final, full)
""",
)

bank.right(
    "the gradient is kept as a view",
    keep="self.pending = (work, own, full.view(dist.get_world_size(), -1))",
)
bank.wrong("gradient-not-kept", "the gradient is kept as it came", keep="self.pending = (work, own, gradient)")
bank.wrong("gradient-not-kept", "a copy is kept", slow=True, keep="self.pending = (work, own, full.clone())")
bank.wrong(
    "done-at-times",
    "freed where nothing is trained",
    free="if torch.is_grad_enabled(): return\nif self.whole is not None: self.whole.untyped_storage().resize_(0)",
)
bank.wrong(
    "another-tensor-filled",
    "gathers into a tensor of its own",
    resize="whole = self.allocate()",
)
bank.wrong(
    "in-no-unit",
    "the direct children's parameters only",
    whole={
        "9.4e": BLOCKS_THEN_REST.replace("for m in part.modules()", "for m in part.children()"),
    },
)
bank.wrong(
    "unit-of-nothing",
    "what is left goes first",
    whole={
        "9.4e": BLOCKS_THEN_REST.replace(
            "self.units = []", "rest = Unit(places(module), dtype)\nself.units = []"
        ).replace(
            "    self.units.append(unit)\nrest = Unit(places(module), dtype)\n", "    self.units.append(unit)\n"
        )
    },
)
bank.wrong(
    "unit-of-nothing", "the whole model goes first", slow=True, parts="for part in [module, *module.blocks]:"
)
bank.wrong(
    "summed-not-averaged",
    "the mean is never taken",
    slow=True,
    mean="full = gradient.float()",
)
bank.wrong(
    "shards-too-short",
    "as many zeros as there are numbers too many, and parts of one length",
    missing="missing = flat.numel() % ranks",
)
bank.wrong(
    "shards-too-short",
    "cut off in place of padded",
    pad="flat = flat[: flat.numel() // ranks * ranks]",
)
bank.wrong(
    "in-no-unit",
    "what is left without the model's own parameters",
    whole={
        "9.4e": BLOCKS_THEN_REST.replace(
            "rest = Unit(places(module)",
            "others = [one for one in module.children() if one is not module.blocks]\n"
            "rest = Unit(sum(map(places, others), [])",
        )
    },
)
bank.wrong(
    "no-fp32-masters",
    "shards in the type of the blocks, which nothing else knows of",
    shard="self.shard = nn.Parameter(flat.chunk(ranks)[rank].to(dtype, copy=True))",
)
bank.wrong(
    "result-of-other-type",
    "reduced into a tensor in the type of the blocks",
    into="own = torch.empty(self.shard.shape, dtype=self.dtype)",
)
bank.wrong(
    "reduced-in-bf16",
    "the gradient in its own type, into a tensor like the shard",
    mean="full = gradient / dist.get_world_size()",
)
bank.right(
    "padded up to the next multiple",
    missing="missing = (flat.numel() + ranks - 1) // ranks * ranks - flat.numel()",
)
bank.wrong(
    "not-waited",
    "nobody waits for the gather",
    gather="all_gather(whole, own, async_op=True)",
)
bank.wrong(
    "not-waited",
    "nobody waits for rank 0's parameters",
    slow=True,
    broadcast="dist.broadcast(flat, 0, async_op=True)",
)
bank.right(
    "waits for the gather itself",
    gather="under_way = all_gather(whole, own, async_op=True)\nunder_way.wait()",
)
bank.right(
    "asks until the gather is there",
    gather="under_way = all_gather(whole, own, async_op=True)\nwhile not under_way.is_completed(): pass",
)
bank.wrong(
    "changed-under-way",
    "the result is divided before it is there",
    mean="full = gradient.float()",
    keep="own /= dist.get_world_size()\nself.pending = (work, own, full)",
)
bank.wrong(
    "changed-under-way",
    "the gradient is divided while it is sent",
    slow=True,
    mean="full = gradient.float().clone()",
    keep="full.div_(dist.get_world_size())\nself.pending = (work, own, full)",
)
bank.wrong(
    "divided-by-another-number",
    "divided by two, however many ranks there are",
    mean="full = gradient.float() / 2",
)
bank.wrong(
    "divided-by-another-number",
    "divided by two in a line of its own",
    slow=True,
    mean="full = gradient.float()\nfull = full * 0.5",
)
bank.wrong(
    "zeros-in-front",
    "the zeros are in front",
    pad="flat = torch.cat([flat.new_zeros(missing), flat])",
)
bank.wrong(
    "zeros-in-front",
    "padded in front",
    slow=True,
    pad="flat = nn.functional.pad(flat, (missing, 0))",
)
bank.wrong(
    "whole-forgotten",
    "free() forgets what is to be filled again",
    slow=True,
    free="if self.whole is not None:\n    self.whole.untyped_storage().resize_(0)\n    self.whole = None",
)
bank.wrong(
    "gathers-too-often",
    "what is left is freed and gathered again, in lines of its own",
    slow=True,
    whole={
        "9.4e": BLOCKS_THEN_REST
        + "module.register_forward_hook(gather_again(rest))\nmodule.register_forward_hook(rest.free)\n"
    },
)
bank.wrong(
    "hooks-share-a-unit",
    "every block frees the last unit",
    slow=True,
    free="self.whole.untyped_storage().resize_(0)",
    whole={
        "9.4e": BLOCKS_THEN_REST.replace(
            "block.register_forward_hook(unit.free)", "block.register_forward_hook(lambda *_: unit.free())"
        )
    },
)
bank.wrong(
    "not-waited",
    "waits for the first of two that are under way",
    slow=True,
    broadcast="first = dist.broadcast(flat[:1], 0, async_op=True)\n"
    "dist.broadcast(flat[1:], 0, async_op=True)\nfirst.wait()",
)
bank.right(
    "two halves under way, and the first one asked twice",
    slow=True,
    broadcast="works = [dist.broadcast(half, 0, async_op=True) for half in flat.chunk(2)]\n"
    "while not works[0].is_completed(): pass\nfor work in works: work.wait()",
)
bank.wrong(
    "whole-not-filled",
    "a list is gathered, and joined under the name of what was to be filled",
    slow=True,
    gather="every = [torch.empty_like(own) for _ in range(dist.get_world_size())]\n"
    "dist.all_gather(every, own)\nwhole = torch.cat(every)",
)
bank.right(
    "a list is gathered, and joined in what was to be filled",
    slow=True,
    gather="every = [torch.empty_like(own) for _ in range(dist.get_world_size())]\n"
    "dist.all_gather(every, own)\nwhole = torch.cat(every, out=whole)",
)
bank.wrong(
    "unequal-shards",
    "padded to an even length",
    slow=True,
    missing="",
    pad="if len(flat) % 2:\n    flat = torch.cat([flat, flat.new_zeros(1)])",
    shard="self.shard = nn.Parameter(flat.chunk(ranks)[rank].clone())",
)
