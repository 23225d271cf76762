"""Answers to 9.5: a transformer's block of which each rank has a part."""

from answers.entries import Bank

bank = Bank(
    "9.5",
    {
        "9.5a": """
size = tensor.shape[dim] // pieces  # piece
width = size // ranks  # width
parts = [tensor.detach().narrow(dim, i * size + rank * width, width) for i in range(pieces)]  # parts
return torch.cat(parts, dim=dim)  # join
""",
        "9.5b": """
return summed(gradient)  # to back
""",
        "9.5c": """
return gradient.clone()  # sum back
""",
        "9.5d": """
self.weight = nn.Parameter(own_part(whole.weight, dim=0, pieces=pieces))  # column weight
self.bias = nn.Parameter(own_part(whole.bias, dim=0, pieces=pieces))  # column bias
""",
        "9.5e": """
x = ToRanks.apply(x)  # enter
return x @ self.weight.T + self.bias  # column
""",
        "9.5f": """
self.weight = nn.Parameter(own_part(whole.weight, dim=1))  # row weight
self.bias = nn.Parameter(whole.bias.detach().clone())  # row bias
""",
        "9.5g": """
term = x @ self.weight.T  # term
return SumOverRanks.apply(term) + self.bias  # row
""",
        "9.5h": """
a, m = block.attention, block.mlp
a.query_key_value = ColumnParallelLinear(a.query_key_value, 3)  # keys
a.out = RowParallelLinear(a.out)  # out
m[0] = ColumnParallelLinear(m[0])  # first
m[2] = RowParallelLinear(m[2])  # second
""",
    },
)

bank.right(
    "summed in place",
    term="term = x @ self.weight.T",
    **{"to back": "gradient = gradient.contiguous()\ndist.all_reduce(gradient)\nreturn gradient"},
)
bank.right(
    "pieces and parts by split",
    whole={
        "9.5a": """
pieces = [one.split(one.shape[dim] // ranks, dim)[rank] for one in torch.chunk(tensor, pieces, dim)]
return torch.concat(pieces, dim).detach().clone()
"""
    },
)
bank.right(
    "through a function that begins and waits",
    **{"to back": "total = gradient.clone()\ndist.all_reduce(total, async_op=True).wait()\nreturn total"},
)
bank.right(
    "the other rank's half, in both layers",
    width="width = size // ranks\nrank = ranks - 1 - rank",
)

bank.wrong("input-gradient-not-summed", "the gradient of the input is handed on", **{"to back": "return gradient"})
bank.wrong("input-gradient-not-summed", "no ToRanks in front of the columns", enter="pass")
bank.wrong(
    "summed-in-both-directions", "the gradient of the sum is summed", **{"sum back": "return summed(gradient)"}
)
bank.wrong(
    "wrong-conjugate",
    "the other one's backward in each",
    **{"to back": "return gradient", "sum back": "return summed(gradient)"},
)
bank.wrong(
    "wrong-conjugate",
    "the gradient of the sum is divided",
    **{"sum back": "return gradient / dist.get_world_size()"},
)
bank.wrong(
    "conjugates-swapped",
    "SumOverRanks in front, ToRanks behind",
    enter="x = SumOverRanks.apply(x)",
    row="return ToRanks.apply(term) + self.bias",
)
bank.wrong("not-summed", "no sum behind the rows", row="return term + self.bias")
bank.wrong("bias-on-every-rank", "the bias goes into the sum", row="return SumOverRanks.apply(term + self.bias)")
bank.wrong("bias-forgotten", "no bias behind the sum", row="return SumOverRanks.apply(term)")
bank.wrong(
    "averaged", "the mean of the terms", row="return SumOverRanks.apply(term) / dist.get_world_size() + self.bias"
)
bank.wrong(
    "replicas-differ", "a part of the bias on every rank", row="return SumOverRanks.apply(term + self.bias / 2)"
)
bank.wrong(
    "pieces-not-cut-apart",
    "queries, keys and values cut as one",
    keys="a.query_key_value = ColumnParallelLinear(a.query_key_value)",
)
bank.wrong("weights-whole", "the MLP stays whole", first="pass", second="pass")
bank.wrong(
    "weights-whole",
    "keeps the whole layer, too",
    **{"column weight": "self.whole = whole\nself.weight = nn.Parameter(own_part(whole.weight, 0, pieces))"},
)
bank.wrong(
    "part-is-a-view", "a view of the whole", join="return parts[0] if pieces == 1 else torch.cat(parts, dim)"
)
bank.wrong(
    "cut-along-other-dimension",
    "rows cut as columns",
    **{"row weight": "self.weight = nn.Parameter(own_part(whole.weight, 0))"},
)
bank.wrong(
    "bias-not-cut",
    "the bias of the columns stays whole",
    **{"column bias": "self.bias = nn.Parameter(whole.bias.detach().clone())"},
)
bank.wrong(
    "wrong-output",
    "other rows than columns",
    **{"row weight": "self.weight = nn.Parameter(own_part(whole.weight.flip(1), 1))"},
)
bank.wrong(
    "other-collective",
    "the columns are gathered",
    column="""y = x @ self.weight.T + self.bias
every = [torch.empty_like(y) for _ in range(dist.get_world_size())]
dist.all_gather(every, y.detach())
return y""",
)
bank.wrong(
    "too-many-all-reduces",
    "the input is summed and divided",
    enter="x = ToRanks.apply(SumOverRanks.apply(x) / dist.get_world_size())",
)
bank.wrong(
    "input-gradient-not-summed",
    "summed without autograd",
    row="dist.all_reduce(term.data)\nreturn term + self.bias",
    enter="pass",
)
bank.wrong(
    "bias-of-other-outputs",
    "the bias of the columns cut as one piece",
    **{"column bias": "self.bias = nn.Parameter(own_part(whole.bias, dim=0))"},
)
bank.wrong(
    "pieces-not-cut-apart",
    "neighbouring parts in place of one of each piece",
    whole={
        "9.5a": """
parts = tensor.detach().chunk(ranks * pieces, dim)
return torch.cat(parts[rank * pieces : (rank + 1) * pieces], dim)
"""
    },
)
bank.wrong(
    "input-gradient-averaged",
    "the mean of the input's gradients",
    **{"to back": "return summed(gradient) / dist.get_world_size()"},
)
bank.right(
    "the last dimension first",
    whole={
        "9.5a": """
turned = tensor.detach().movedim(dim, 0)
cut = turned.reshape(pieces, ranks, -1, *turned.shape[1:])[:, rank]
return cut.flatten(0, 1).movedim(0, dim).clone()
"""
    },
)
bank.wrong(
    "joined-along-other-dimension", "joined along the first dimension always", join="return torch.cat(parts)"
)
bank.wrong(
    "pieces-along-one-dimension",
    "pieces along the first dimension only",
    whole={
        "9.5a": """
pieces = pieces if dim == 0 else 1
return torch.cat([one.chunk(ranks, dim)[rank] for one in tensor.detach().chunk(pieces, dim)], dim)
"""
    },
)
bank.wrong(
    "no-parameter",
    "tensors that want a gradient, and are no parameters",
    **{
        "column weight": "self.weight = own_part(whole.weight, 0, pieces).requires_grad_()",
        "column bias": "self.bias = own_part(whole.bias, 0, pieces).requires_grad_()",
    },
)
bank.wrong(
    "not-put-back",
    "the new layers are local names",
    first="first, _, second = m\nfirst, second = ColumnParallelLinear(first), RowParallelLinear(second)",
    second="pass",
)
bank.wrong(
    "not-put-back", "a new attribute in place of the layer", slow=True, out="a.output = RowParallelLinear(a.out)"
)
bank.wrong(
    "weights-whole",
    "keeps the whole weight and cuts it in each forward pass",
    slow=True,
    **{"row weight": "self.weight = nn.Parameter(whole.weight.detach().clone())"},
    term="term = x @ own_part(self.weight, 1).T",
)
bank.wrong(
    "weights-whole",
    "no part where there is one piece",
    slow=True,
    join="return torch.cat(parts, dim) if pieces > 1 else tensor.detach().clone()",
)
bank.wrong(
    "too-many-bytes",
    "ToRanks behind the columns",
    enter="pass",
    column="return ToRanks.apply(x @ self.weight.T + self.bias)",
)
bank.wrong(
    "too-many-bytes",
    "the columns are summed, too",
    slow=True,
    column="return SumOverRanks.apply(x @ self.weight.T + self.bias)",
)
bank.wrong(
    "too-many-bytes", "ToRanks in front of the rows", slow=True, term="term = ToRanks.apply(x) @ self.weight.T"
)
bank.wrong("part-not-trained", "computes with a detached weight", term="term = x @ self.weight.detach().T")
bank.wrong(
    "part-not-trained",
    "a parameter that wants no gradient",
    slow=True,
    **{"row weight": "self.weight = nn.Parameter(own_part(whole.weight, dim=1), requires_grad=False)"},
)
bank.wrong(
    "other-number-of-pieces",
    "three pieces of every column parallel layer",
    **{
        "column weight": "self.weight = nn.Parameter(own_part(whole.weight, dim=0, pieces=3))",
        "column bias": "self.bias = nn.Parameter(own_part(whole.bias, dim=0, pieces=3))",
    },
)
bank.wrong(
    "other-number-of-pieces",
    "three pieces of the mlp's first layer",
    slow=True,
    first="m[0] = ColumnParallelLinear(m[0], pieces=3)",
)

bank.wrong(
    "bias-shared-out",
    "each rank has its share of the bias",
    **{"row bias": "self.bias = nn.Parameter(whole.bias.detach() / dist.get_world_size())"},
    term="term = x @ self.weight.T + self.bias",
    row="return SumOverRanks.apply(term)",
)
bank.wrong(
    "bias-shared-out",
    "the first rank has the bias, the others have zeros",
    slow=True,
    **{
        "row bias": "first = dist.get_rank() == 0\n"
        "self.bias = nn.Parameter(whole.bias.detach().clone() if first else torch.zeros_like(whole.bias))"
    },
    term="term = x @ self.weight.T + self.bias",
    row="return SumOverRanks.apply(term)",
)
bank.wrong(
    "not-put-back",
    "set under names with dots",
    slow=True,
    whole={
        "9.5h": """
for name, pieces in (("attention.query_key_value", 3), ("mlp.0", 1)):
    setattr(block, name, ColumnParallelLinear(block.get_submodule(name), pieces))
for name in ("attention.out", "mlp.2"):
    setattr(block, name, RowParallelLinear(block.get_submodule(name)))
"""
    },
)
bank.right(
    "set in the module that owns the layer",
    slow=True,
    whole={
        "9.5h": """
for name, pieces in (("attention.query_key_value", 3), ("mlp.0", 1)):
    owner, _, own = name.partition(".")
    setattr(block.get_submodule(owner), own, ColumnParallelLinear(block.get_submodule(name), pieces))
for name in ("attention.out", "mlp.2"):
    block.set_submodule(name, RowParallelLinear(block.get_submodule(name)))
"""
    },
)
bank.wrong(
    "whole-not-trained",
    "the bias that stays whole is a buffer",
    slow=True,
    **{"row bias": 'self.register_buffer("bias", whole.bias.detach().clone())'},
)
bank.wrong(
    "whole-not-trained",
    "computes with a detached bias",
    slow=True,
    row="return SumOverRanks.apply(term) + self.bias.detach()",
)
bank.wrong(
    "not-waited",
    "the sum of the gradient has only begun",
    slow=True,
    **{"to back": "total = gradient.clone()\ndist.all_reduce(total, async_op=True)\nreturn total"},
)
bank.wrong(
    "summed-in-both-directions",
    "the gradient is summed in place, and handed on",
    slow=True,
    **{"sum back": "total = gradient.clone()\ndist.all_reduce(total)\nreturn total"},
)
bank.wrong(
    "cut-for-two-ranks",
    "each piece cut in two",
    slow=True,
    whole={
        "9.5a": "return torch.cat([one.chunk(2, dim)[rank] for one in tensor.detach().chunk(pieces, dim)], dim)"
    },
)
bank.wrong(
    "cut-for-two-ranks",
    "the halves' width in a variable",
    slow=True,
    width="width = size // 2",
)
bank.wrong(
    "cut-for-two-ranks",
    "the first part, or for all others the second",
    slow=True,
    width="width = size // ranks\nrank = 0 if rank == 0 else 1",
)
bank.wrong(
    "not-of-the-whole",
    "weights that are drawn anew",
    slow=True,
    **{
        "column weight": "self.weight = nn.Parameter(own_part(whole.weight, dim=0, pieces=pieces))\n"
        "nn.init.kaiming_uniform_(self.weight, a=5**0.5)"
    },
)
bank.wrong(
    "not-of-the-whole",
    "biases that begin at zero",
    slow=True,
    **{"column bias": "self.bias = nn.Parameter(torch.zeros(len(self.weight)))"},
)
