"""Answers to 9.7: a model sharded inside of nodes, which are replicas of each other."""

from answers.entries import Bank

bank = Bank(
    "9.7",
    {
        "9.7a": """
rank, ranks, per = dist.get_rank(), dist.get_world_size(), ranks_per_node
rows = [list(range(i, i + per)) for i in range(0, ranks, per)]  # rows
columns = [list(range(i, ranks, per)) for i in range(per)]  # columns
shard = replicate = None
for row in rows:
    group = dist.new_group(row)  # make rows
    if rank in row: shard = group
for column in columns:
    group = dist.new_group(column)  # make columns
    if rank in column: replicate = group
return shard, replicate  # groups
""",
        "9.7b": """
n = dist.get_world_size(self.shard_group)  # n
at = dist.get_rank(self.shard_group)  # position
flat = self.joined([p.data for p in self.parameters])
dist.broadcast(flat, 0)  # start
self.shard = nn.Parameter(flat.chunk(n)[at].clone())  # shard
""",
        "9.7c": """
n = dist.get_world_size(self.shard_group)
whole = torch.empty(n * self.shard.numel())  # whole
all_gather(whole, self.shard.data, group=self.shard_group)  # gather
at = 0
for p, shape, size in zip(self.parameters, self.shapes, self.sizes):
    p.data = whole[at : at + size].view(shape)  # place
    at += size
""",
        "9.7d": """
every = [torch.zeros(p.shape) if p.grad is None else p.grad for p in self.parameters]  # all
flat = self.joined(every)  # flat
own = torch.empty_like(self.shard.data)
reduce_scatter(own, flat, group=self.shard_group)  # scatter
dist.all_reduce(own, group=self.replicate_group)  # reduce
own /= dist.get_world_size()  # mean
self.shard.grad = own  # set
""",
        "9.7e": """
for p in self.parameters:
    p.data = torch.empty(0)  # empty
    p.grad = None  # clear
""",
    },
)

bank.right(
    "a DeviceMesh",
    whole={
        "9.7a": """
from torch.distributed.device_mesh import init_device_mesh
nodes = dist.get_world_size() // ranks_per_node
mesh = init_device_mesh("cpu", (nodes, ranks_per_node), mesh_dim_names=("replicate", "shard"))
return mesh.get_group("shard"), mesh.get_group("replicate")
"""
    },
)
bank.right(
    "subgroups by enumeration",
    whole={
        "9.7a": """
mesh = torch.arange(dist.get_world_size()).view(-1, ranks_per_node)
shard, _ = dist.new_subgroups_by_enumeration(mesh.tolist())
replicate, _ = dist.new_subgroups_by_enumeration(mesh.T.tolist())
return shard, replicate
"""
    },
)
bank.right(
    "made by their members alone, as the option allows",
    whole={
        "9.7a": """
node, position = divmod(dist.get_rank(), ranks_per_node)
row = [node * ranks_per_node + i for i in range(ranks_per_node)]
column = list(range(position, dist.get_world_size(), ranks_per_node))
return tuple(dist.new_group(one, use_local_synchronization=True) for one in (row, column))
"""
    },
)
bank.right(
    "divided by each group's ranks, before each sum",
    flat="flat = self.joined(every) / dist.get_world_size(self.shard_group)",
    reduce="own /= dist.get_world_size(self.replicate_group)\ndist.all_reduce(own, group=self.replicate_group)",
    mean="",
)
bank.right(
    "a collective for each half, from lists",
    gather="dist.all_gather(list(whole.chunk(n)), self.shard.data, group=self.shard_group)",
    scatter="parts = list(flat.chunk(dist.get_world_size(self.shard_group)))\n"
    "dist.reduce_scatter(own, parts, group=self.shard_group)",
)
bank.right(
    "begun, and then waited for",
    reduce="dist.all_reduce(own, group=self.replicate_group, async_op=True).wait()",
)

bank.wrong("groups-swapped", "the two groups are swapped", groups="return replicate, shard")
bank.wrong(
    "numbered-by-column",
    "ranks numbered from node to node",
    rows="rows = [list(range(i, ranks, ranks // per)) for i in range(ranks // per)]",
    columns="columns = [list(range(i * ranks // per, (i + 1) * ranks // per)) for i in range(per)]",
)
bank.wrong(
    "new-group-not-on-all",
    "new_group only on its own ranks",
    **{
        "make rows": "group = dist.new_group(row) if rank in row else None",
        "make columns": "group = dist.new_group(column) if rank in column else None",
    },
)
bank.wrong(
    "not-on-every-rank",
    "the replicate groups are made by the first node only",
    **{"make columns": "group = dist.new_group(column) if rank < per else dist.group.WORLD"},
)
bank.wrong("fixed-mesh", "two ranks a node, whatever is asked for", rows="per = 2\nrows = [[0, 1], [2, 3]]")
bank.wrong("wrong-groups", "all ranks in the replicate group", groups="return shard, dist.group.WORLD")
bank.wrong(
    "sharded-over-all-ranks",
    "a share for each of all ranks",
    n="n = dist.get_world_size()",
    position="at = dist.get_rank()",
    shard="flat = torch.nn.functional.pad(flat, (0, -len(flat) % n))\n"
    "self.shard = nn.Parameter(flat.chunk(n)[at].clone())",
)
bank.wrong("wrong-shard-size", "every rank keeps all", shard="self.shard = nn.Parameter(flat.clone())")
bank.wrong("shard-is-a-view", "a part that keeps the whole", shard="self.shard = nn.Parameter(flat.chunk(n)[at])")
bank.wrong("wrong-part", "the node's number for the position", position="at = dist.get_rank(self.replicate_group)")
bank.wrong("ranks-start-differently", "each rank starts with its own", start="pass")
bank.wrong(
    "gathered-over-the-wrong-group",
    "gathered over the replicas",
    gather="all_gather(whole, self.shard.data, group=self.replicate_group)",
)
bank.wrong(
    "gathered-over-all-ranks",
    "gathered over all ranks, twice what is needed",
    whole={
        "9.7c": """
whole = torch.empty(4 * self.shard.numel())
all_gather(whole, self.shard.data)
for p, part, shape in zip(self.parameters, whole[: sum(self.sizes)].split(self.sizes), self.shapes):
    p.data = part.view(shape)
"""
    },
)
bank.wrong("gathered-over-other-size", "gathered without a group", gather="all_gather(whole, self.shard.data)")
bank.wrong(
    "not-gathered",
    "the own shard in place of the others'",
    gather="whole = self.shard.data.repeat(n)",
)
bank.wrong(
    "wrong-parameters", "every parameter begins with the first number", place="p.data = whole[:size].view(shape)"
)
bank.wrong("scattered-over-other-size", "scattered without a group", scatter="reduce_scatter(own, flat)")
bank.wrong(
    "scattered-over-all-ranks",
    "scattered over all ranks, with copies",
    scatter="reduce_scatter(own, flat.repeat(2))",
)
bank.wrong(
    "scattered-over-the-wrong-group",
    "scattered over the replicas",
    scatter="reduce_scatter(own, flat, group=self.replicate_group)",
    reduce="dist.all_reduce(own, group=self.shard_group)",
)
bank.wrong("all-reduce-over-all-ranks", "the all-reduce without a group", reduce="dist.all_reduce(own)")
bank.wrong(
    "all-reduce-inside-the-node",
    "the all-reduce inside of the node",
    reduce="dist.all_reduce(own, group=self.shard_group)",
)
bank.wrong("no-all-reduce", "the nodes stay by themselves", reduce="pass")
bank.wrong(
    "whole-between-nodes",
    "the all-reduce of all gradients, then the reduce-scatter",
    scatter="dist.all_reduce(flat, group=self.replicate_group)",
    reduce="reduce_scatter(own, flat, group=self.shard_group)",
)
bank.wrong(
    "too-many-bytes-inside",
    "an all-reduce inside of the node, and then its own part",
    scatter="dist.all_reduce(flat, group=self.shard_group)\n"
    "own.copy_(flat.chunk(dist.get_world_size(self.shard_group))[dist.get_rank(self.shard_group)])",
)
bank.wrong("not-averaged", "the sum over all ranks", mean="")
bank.wrong(
    "divided-by-one-group",
    "the mean over the shard group only",
    mean="own /= dist.get_world_size(self.shard_group)",
)
bank.wrong("wrong-scale", "divided twice", mean="own /= dist.get_world_size() ** 2")
bank.wrong(
    "other-nodes-left-out",
    "the all-reduce of a copy",
    reduce="dist.all_reduce(own.clone(), group=self.replicate_group)",
)
bank.wrong("no-gradient", "the gradient goes nowhere", set="pass")
bank.wrong("unused-parameter", "every parameter has a gradient", all="every = [p.grad for p in self.parameters]")
bank.wrong("whole-weights-kept", "the whole parameters stay", empty="pass")
bank.wrong("whole-gradients-kept", "the whole gradients stay", clear="pass")
bank.wrong(
    "whole-kept-elsewhere",
    "whole parameters in an attribute",
    whole={
        "9.7c": """
n = dist.get_world_size(self.shard_group)
self.whole = torch.empty(n * self.shard.numel())
all_gather(self.whole, self.shard.data, group=self.shard_group)
for p, part, shape in zip(self.parameters, self.whole[: sum(self.sizes)].split(self.sizes), self.shapes):
    p.data = part.view(shape)
"""
    },
)
bank.wrong(
    "stale-parameters",
    "what the first step has gathered is used for ever",
    gather="""if not hasattr(self, "first"):
    all_gather(whole, self.shard.data, group=self.shard_group)
    self.first = whole.tolist()
whole = torch.tensor(self.first)""",
)
bank.wrong(
    "gradients-add-up",
    "adds to the gradient of the step before",
    set="self.shard.grad = own if self.shard.grad is None else self.shard.grad + own",
)
bank.wrong(
    "unused-parameter",
    "parameters without a gradient are left out",
    all="every = [p.grad for p in self.parameters if p.grad is not None]",
)
bank.wrong(
    "padding-in-last-part",
    "the padding is split, too",
    whole={
        "9.7c": """
whole = self.shard.new_empty(len(self.shard) * dist.get_world_size(self.shard_group))
all_gather(whole, self.shard.detach(), group=self.shard_group)
for p, part, shape in zip(self.parameters, whole.split(self.sizes), self.shapes):
    p.data = part.view(shape)
"""
    },
)
bank.wrong(
    "fixed-mesh",
    "as many positions as there are nodes",
    columns="columns = [list(range(i, ranks, ranks // per)) for i in range(ranks // per)]",
)
bank.right("positions one by one, from the nodes", columns="columns = [[r[i] for r in rows] for i in range(per)]")
bank.wrong(
    "ranks-that-are-not-there",
    "as far apart as there are nodes",
    columns="n = ranks // per\ncolumns = [[i + k * n for k in range(n)] for i in range(per)]",
)
bank.wrong(
    "fixed-mesh",
    "nodes of two or four only",
    rows="rows = [list(range(i, i + max(per, 2))) for i in range(0, ranks, max(per, 2))]",
)
bank.right(
    "waits for the future of the all-reduce",
    reduce="dist.all_reduce(own, group=self.replicate_group, async_op=True).get_future().wait()",
)
bank.wrong(
    "not-waited",
    "the all-reduce has only begun",
    reduce="own /= dist.get_world_size()\ndist.all_reduce(own, group=self.replicate_group, async_op=True)",
    mean="pass",
)
bank.wrong(
    "not-waited",
    "the all-gather has only begun",
    slow=True,
    gather="all_gather(whole, self.shard.data, group=self.shard_group, async_op=True)",
)
bank.wrong(
    "groups-in-other-order",
    "each rank begins with its own groups",
    rows="rows = [list(range(i, i + per)) for i in range(0, ranks, per)]\n"
    "rows.sort(key=lambda row: rank not in row)",
)
bank.wrong(
    "groups-in-other-order",
    "each rank begins with its own position",
    slow=True,
    columns="columns = [list(range((i + rank) % per, ranks, per)) for i in range(per)]",
)
bank.wrong(
    "whole-weights-kept",
    "an empty tensor for the loop's own name",
    slow=True,
    empty="p = torch.empty(0)",
    clear="pass",
)
bank.wrong(
    "whole-gradients-kept",
    "zeros for gradients",
    slow=True,
    clear="if p.grad is not None:\n    p.grad.zero_()",
)
bank.wrong("parameters-not-filled", "parts for the loop's own name", place="p = whole[at : at + size].view(shape)")
bank.wrong(
    "stale-parameters",
    "gathered once, and then kept",
    slow=True,
    whole={
        "9.7c": """
if not hasattr(self, "whole"):
    self.whole = self.shard.new_empty(len(self.shard) * dist.get_world_size(self.shard_group))
    all_gather(self.whole, self.shard.detach(), group=self.shard_group)
for p, part, shape in zip(self.parameters, self.whole[: sum(self.sizes)].split(self.sizes), self.shapes):
    p.data = part.view(shape)
"""
    },
)
bank.wrong(
    "group-of-others",
    "the last group of each kind, whoever is in it",
    whole={
        "9.7a": """
for first in range(0, dist.get_world_size(), ranks_per_node):
    shard = dist.new_group(list(range(first, first + ranks_per_node)))
for position in range(ranks_per_node):
    replicate = dist.new_group(list(range(position, dist.get_world_size(), ranks_per_node)))
return shard, replicate
"""
    },
)
bank.wrong(
    "group-of-others",
    "the first node's group on all ranks",
    whole={
        "9.7a": """
ranks, position = dist.get_world_size(), dist.get_rank() % ranks_per_node
nodes = [dist.new_group(range(i, i + ranks_per_node)) for i in range(0, ranks, ranks_per_node)]
positions = [dist.new_group(range(i, ranks, ranks_per_node)) for i in range(ranks_per_node)]
return nodes[0], positions[position]
"""
    },
)
bank.wrong(
    "rank-as-position",
    "the part of its number among all ranks",
    shard="each = len(flat) // n\nself.shard = nn.Parameter(flat[at * each : (at + 1) * each].clone())",
    position="at = dist.get_rank()",
)
bank.wrong(
    "not-on-every-rank",
    "filled on some ranks only",
    place="if dist.get_rank() % 2: p.data = whole[at : at + size].view(shape)",
)

bank.wrong(
    "ranks-that-are-not-there",
    "the first two nodes only, in a line of its own",
    slow=True,
    **{
        "make columns": "members = [column[0], column[0] + per]\ngroup = dist.new_group(members)",
    },
)
bank.right(
    "no all-reduce where there is one node only",
    slow=True,
    reduce="if dist.get_world_size(self.replicate_group) > 1:\n"
    "    dist.all_reduce(own, group=self.replicate_group)",
)
bank.wrong(
    "group-of-one-no-gradient",
    "leaves where there is one node only",
    slow=True,
    reduce="if dist.get_world_size(self.replicate_group) == 1:\n    return\n"
    "dist.all_reduce(own, group=self.replicate_group)",
)
bank.wrong(
    "group-of-one-wrong-gradient",
    "no mean where there is one node only",
    slow=True,
    reduce="if dist.get_world_size(self.replicate_group) > 1:\n"
    "    dist.all_reduce(own, group=self.replicate_group)\n"
    "    own /= dist.get_world_size()",
    mean="pass",
)
bank.wrong(
    "group-of-one-not-freed",
    "leaves with the gradient set where there is one node only",
    slow=True,
    reduce="self.shard.grad = own.div_(dist.get_world_size())\nif self.replicate_group.size() == 1: return\n"
    "dist.all_reduce(own, group=self.replicate_group)",
    mean="pass",
)
bank.wrong(
    "group-of-one-not-gathered",
    "gathers nothing where a node has one rank",
    slow=True,
    gather="if n == 1: return\nall_gather(whole, self.shard.data, group=self.shard_group)",
)
bank.wrong(
    "rank-in-other-groups",
    "columns in steps of the number of nodes, and of all groups those that the rank is in",
    slow=True,
    whole={
        "9.7a": """
rank, ranks, per = dist.get_rank(), dist.get_world_size(), ranks_per_node
nodes = [list(range(i, i + per)) for i in range(0, ranks, per)]
positions = [list(range(i, ranks, len(nodes))) for i in range(per)]
groups = [(members, dist.new_group(members)) for members in nodes + positions]
shard, replicate = [group for members, group in groups if rank in members]
return shard, replicate
"""
    },
)
bank.wrong(
    "fixed-mesh",
    "a table of two columns",
    slow=True,
    whole={
        "9.7a": """
table, position = torch.arange(dist.get_world_size()).view(-1, 2), dist.get_rank() % 2
rows = [dist.new_group(row) for row in table.tolist()]
columns = [dist.new_group(column) for column in table.T.tolist()]
return rows[dist.get_rank() // 2], columns[position]
"""
    },
)
bank.wrong(
    "begun-too-early",
    "the sum between nodes is begun with the one inside of them",
    slow=True,
    scatter="first = reduce_scatter(own, flat, group=self.shard_group, async_op=True)",
    reduce="dist.all_reduce(own, group=self.replicate_group, async_op=True).wait()\nfirst.wait()",
)
