"""Answers to 9.3: an optimizer whose states are shared out over the ranks."""

from answers.entries import OTHER_SIZES, Bank

bank = Bank(
    "9.3",
    {
        "9.3a": """
shares, sums = [[] for _ in range(ranks)], [0] * ranks  # empty
for p in sorted(parameters, key=lambda p: -p.numel()):  # order
    to = min(range(ranks), key=sums.__getitem__)  # lightest
    shares[to].append(p)  # give
    sums[to] += p.numel()  # count
return shares
""",
        "9.3b": """
mine = {id(p) for p in self.shares[dist.get_rank()]}  # mine
for group in self.optimizer.param_groups:  # groups
    group["params"] = [p for p in group["params"] if id(p) in mine]  # filter
for p in [p for p in self.optimizer.state if id(p) not in mine]:  # states
    del self.optimizer.state[p]
""",
        "9.3c": """
self.optimizer.step()  # step
self.hand_out()  # hand out
""",
        "9.3d": """
for rank in range(dist.get_world_size()):  # owners
    share = self.shares[rank]  # share
    if not share: continue  # skip
    flat = torch.cat([p.reshape(-1) for p in share])  # flat
    dist.broadcast(flat, rank)  # send
    for p, new in zip(share, flat.split([p.numel() for p in share])):  # back
        p.copy_(new.reshape(p.shape))  # copy
""",
    },
)

bank.right(
    "new dicts in the optimizer's list of groups",
    groups="for i, group in enumerate(self.optimizer.param_groups):",
    filter='self.optimizer.param_groups[i] = {**group, "params": [p for p in group["params"] if id(p) in mine]}',
)
bank.right(
    "begun for all shares, and then waited for",
    whole={
        "9.3d": """
flats = [torch.cat([p.flatten() for p in share]) if share else None for share in self.shares]
works = [dist.broadcast(f, i, async_op=True) for i, f in enumerate(flats) if f is not None]
for work in works:
    work.wait()
for share, flat in zip(self.shares, flats):
    at = 0
    for p in share:
        p.copy_(flat[at : at + p.numel()].view_as(p))
        at += p.numel()
"""
    },
)
bank.right(
    "all shares gathered at once, with padding",
    whole={
        "9.3d": """
sizes = [sum(p.numel() for p in share) for share in self.shares]
own = torch.zeros(max(sizes), dtype=self.parameters[0].dtype)
share = self.shares[dist.get_rank()]
if share:
    own[: sizes[dist.get_rank()]] = torch.cat([p.flatten() for p in share])
every = [torch.empty_like(own) for _ in sizes]
dist.all_gather(every, own)
for share, flat, size in zip(self.shares, every, sizes):
    for p, part in zip(share, flat[:size].split([p.numel() for p in share])):
        p.copy_(part.view_as(p))
"""
    },
)
bank.right(
    "sorted, and then dealt out to and fro",
    whole={
        "9.3a": """
shares = [[] for _ in range(ranks)]
order = [*range(ranks), *reversed(range(ranks))]
for i, p in enumerate(sorted(parameters, key=lambda p: p.numel(), reverse=True)):
    shares[order[i % len(order)]].append(p)
return shares
"""
    },
)

bank.wrong(
    "unbalanced", "dealt out one by one", order="for i, p in enumerate(parameters):", lightest="to = i % ranks"
)
bank.wrong(
    "unbalanced",
    "the same number of parameters for each",
    order="for i, p in enumerate(parameters):",
    lightest="to = i // -(-len(parameters) // ranks)",
)
bank.wrong("unbalanced", "counts parameters, not numbers", count="sums[to] += 1", order="for p in parameters:")
bank.wrong("unbalanced", "all to the first rank", count="pass")
bank.wrong("states-not-shared", "every rank steps all", filter="pass")
bank.wrong("early-states-kept", "the states that Adagrad has from the beginning", states="for p in []:")
bank.wrong(
    "states-kept-twice",
    "only the first group is divided",
    groups="for group in self.optimizer.param_groups[:1]:",
)
bank.wrong(
    "groups-merged",
    "all in the first group",
    groups="for first, *others in [self.optimizer.param_groups]:",
    filter="""first["params"] = [p for p in self.parameters if id(p) in mine]
for group in others: group["params"] = []""",
)
bank.wrong(
    "old-rate",
    "groups of its own",
    groups="self.optimizer.param_groups = [dict(group) for group in optimizer.param_groups]\n"
    "import copy\nself.optimizer = copy.copy(optimizer)\n"
    "self.optimizer.param_groups, optimizer.param_groups = optimizer.param_groups, [dict(g) for g in "
    "optimizer.param_groups]\nfor group in self.optimizer.param_groups:",
)
bank.wrong("not-handed-out", "nothing is handed out", **{"hand out": "pass"})
bank.wrong(
    "not-handed-out", "handed out before the step", step="self.hand_out()", **{"hand out": "self.optimizer.step()"}
)
bank.wrong("not-copied-back", "never copied back", copy="pass")
bank.wrong("not-copied-back", "bound to the loop's variable", copy="p = new.reshape(p.shape)")
bank.wrong(
    "dealt-out-by-count",
    "dealt out like cards, from the largest on",
    order="for i, p in enumerate(sorted(parameters, key=lambda p: -p.numel())):",
    lightest="to = i % ranks",
)
bank.wrong(
    "all-reduced",
    "a sum with zeros for what others own",
    whole={
        "9.3d": """
own = {id(p) for p in self.shares[dist.get_rank()]}
flat = torch.cat([(p if id(p) in own else torch.zeros_like(p)).flatten() for p in self.parameters])
dist.all_reduce(flat)
for p, part in zip(self.parameters, flat.split([p.numel() for p in self.parameters])):
    p.copy_(part.view_as(p))
"""
    },
)
bank.wrong(
    "stepped-twice",
    "every group gets the whole share",
    filter='group["params"] = list(self.shares[dist.get_rank()])',
)
bank.wrong("not-stepped", "only handed out", step="pass")
bank.wrong("owners-overwritten", "rank 0 hands out all shares", send="dist.broadcast(flat, 0)")
bank.wrong(
    "some-not-handed-out", "the last share is left out", owners="for rank in range(dist.get_world_size() - 1):"
)
bank.wrong(
    "averaged",
    "an all-reduce in place of broadcasts",
    send="dist.all_reduce(flat)\nflat /= dist.get_world_size()",
)
bank.wrong(
    OTHER_SIZES,
    "each rank sends its own share only",
    owners="for rank in [dist.get_rank()]:",
)
bank.wrong("empty-share", "shares without parameters", skip="")
bank.wrong(
    "needs-no-grad",
    "copied into the parameters while gradients are on",
    copy="with torch.enable_grad(): p.copy_(new.reshape(p.shape))",
)
bank.wrong(
    "compared-by-numbers",
    "parameters compared by their numbers",
    mine="mine = self.shares[dist.get_rank()]",
    filter='group["params"] = [p for p in group["params"] if p in mine]',
)
bank.wrong(
    "owned-by-nobody",
    "the largest is given to nobody",
    order="for p in sorted(parameters, key=lambda p: -p.numel())[1:]:",
)
bank.wrong("owned-twice", "two ranks for each", give="for r in {to, (to + 1) % ranks}: shares[r].append(p)")
bank.wrong(
    "too-many-bytes",
    "every owner sends the whole model",
    flat="sizes = [p.numel() for p in self.parameters]\n"
    "flat = torch.cat([p.reshape(-1) for p in self.parameters])",
    back="parts = dict(zip(map(id, self.parameters), flat.split(sizes)))\nfor p in share:",
    copy="p.copy_(parts[id(p)].reshape(p.shape))",
)
bank.wrong(
    "message-for-each",
    "a broadcast for each parameter",
    flat="",
    send="for p in share: dist.broadcast(p.data, rank)",
    back="for p in []:",
    copy="pass",
)
bank.wrong(
    "group-dropped",
    "groups without parameters are dropped",
    states='groups = self.optimizer.param_groups\ngroups[:] = [group for group in groups if group["params"]]\n'
    "for p in [p for p in self.optimizer.state if id(p) not in mine]:",
)

bank.wrong(
    "dealt-out-by-count",
    "to the share with the fewest parameters",
    slow=True,
    lightest="to = min(range(ranks), key=lambda r: len(shares[r]))",
)
bank.wrong("owned-twice", "one list for all", slow=True, empty="shares, sums = [[]] * ranks, [0] * ranks")
bank.wrong(
    "shares-differ",
    "every other rank takes equal ones in the other order",
    order="both = (-1) ** dist.get_rank()\n"
    "for _, p in sorted(enumerate(parameters), key=lambda one: (-one[1].numel(), both * one[0])):",
)
bank.wrong("set-has-no-order", "a set that is not sorted", slow=True, order="for p in set(parameters):")
bank.wrong(
    "early-states-kept",
    "nothing taken out of the states",
    slow=True,
    states="for p in []:",
)
bank.wrong(
    "skipped-in-loop",
    "deleted while the loop goes through them",
    filter='for i, p in enumerate(group["params"]):\n    if id(p) not in mine: del group["params"][i]',
)
bank.wrong(
    "done-at-times",
    "steps where the first group has something",
    step='if self.optimizer.param_groups[0]["params"]: self.optimizer.step()',
)
bank.wrong(
    "done-at-times",
    "only the owner sends",
    slow=True,
    skip="if not share or rank != dist.get_rank(): continue",
)
bank.wrong(
    "buffer-of-other-type",
    "what comes is received in float32",
    slow=True,
    flat="own = rank == dist.get_rank()\n"
    "flat = torch.cat([p.reshape(-1) for p in share]) if own else torch.empty(sum(p.numel() for p in share))",
)
bank.wrong(
    "skipped-in-loop",
    "popped while the loop goes through them",
    slow=True,
    filter='for i, p in enumerate(group["params"]):\n    if id(p) not in mine:\n        group["params"].pop(i)',
)
bank.wrong(
    "groups-merged",
    "one group with the options of the first",
    slow=True,
    groups="first = self.optimizer.param_groups[0]\n"
    'options = {name: value for name, value in first.items() if name != "params"}\n'
    'self.optimizer.param_groups = [{"params": self.shares[dist.get_rank()], **options}]\n'
    "for group in []:",
)
bank.wrong(
    "done-at-times",
    "a rank without a share leaves",
    slow=True,
    step="if not self.shares[dist.get_rank()]:\n    return\nself.optimizer.step()",
)
bank.right(
    "a new dict of states, with those of the own share",
    slow=True,
    states="import collections\n"
    "own = {p: state for p, state in self.optimizer.state.items() if id(p) in mine}\n"
    "self.optimizer.state = collections.defaultdict(dict, own)\nfor p in []:",
)
bank.wrong(
    "early-states-lost",
    "all states are cleared, the own share's too",
    slow=True,
    states="self.optimizer.state.clear()\nfor p in []:",
)
bank.wrong(
    "copied-into-a-copy",
    "copied into what flatten() has made",
    slow=True,
    copy="p.flatten().copy_(new)",
)
bank.right(
    "copied into a view in one dimension",
    slow=True,
    copy="p.view(-1).copy_(new)",
)
bank.wrong(
    "wrong-offset",
    "goes on by the rows of a parameter",
    slow=True,
    back="at = 0\nfor p in share:",
    copy="p.copy_(flat[at : at + p.numel()].reshape(p.shape))\nat += len(p)",
)
bank.wrong(
    "wrong-offset",
    "every part from the first number on",
    slow=True,
    back="for p in share:",
    copy="p.copy_(flat[: p.numel()].reshape(p.shape))",
)
bank.wrong(
    "gradients-left",
    "only the own share is kept as the parameters",
    slow=True,
    states="everyone, self.parameters = self.parameters, self.shares[dist.get_rank()]\n"
    "for p in [p for p in self.optimizer.state if id(p) not in mine]:",
)
bank.wrong(
    "buffer-of-other-type",
    "who receives makes a buffer by its length alone",
    slow=True,
    flat="if rank == dist.get_rank():\n    flat = torch.cat([p.reshape(-1) for p in share])\n"
    "else:\n    flat = torch.zeros(sum(p.numel() for p in share))",
)
bank.wrong(
    "copied-before-wait",
    "the broadcasts are waited for behind the loop that has copied",
    slow=True,
    whole={
        "9.3d": """
works = []
for rank, share in enumerate(self.shares):
    if not share: continue
    flat = torch.cat([p.reshape(-1) for p in share])
    works.append(dist.broadcast(flat, rank, async_op=True))
    for p, new in zip(share, flat.split([p.numel() for p in share])):
        p.copy_(new.reshape(p.shape))
for work in works:
    work.wait()
"""
    },
)
bank.wrong(
    "dealt-out-by-count",
    "dealt out by a class",
    slow=True,
    whole={
        "9.3a": """
class Shares(list):
    def deal(self, parameters):
        for i, p in enumerate(sorted(parameters, key=lambda p: -p.numel())):
            self[i % ranks].append(p)
        return self

return Shares([] for _ in range(ranks)).deal(parameters)
"""
    },
)
