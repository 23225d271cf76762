"""Answers to 8.5: a learning rate that replays see."""

from answers.entries import Bank

bank = Bank(
    "8.5",
    {
        "8.5a": """
where = next(model.parameters()).device  # where
lr = torch.full((), rate, device=where)  # rate
return SGD(list(model.parameters()), lr, momentum=momentum, fused=True)  # sgd
""",
        "8.5b": """
for group in optimizer.param_groups:  # groups
    group["lr"].copy_(torch.tensor(rate))  # set
""",
    },
)

bank.right("a float32", rate="lr = torch.full((), rate, dtype=torch.float32, device=where)")
bank.right("written through .data", set='group["lr"].data.copy_(torch.tensor(rate))')
bank.right("zeroed, then added to", set='group["lr"].zero_().add_(rate)')
bank.right("the slice of all", set='group["lr"][...] = rate')

bank.wrong("rate-is-a-number", "a rate that is a number", rate="lr = rate")
bank.wrong("not-fused", "no fused kernel", sgd="return SGD(model.parameters(), lr, momentum=momentum)")
bank.wrong("not-fused", "foreach", sgd="return SGD(model.parameters(), lr, momentum=momentum, foreach=False)")
bank.wrong("number-in-its-place", "a number in the tensor's place", set='group["lr"] = rate')
bank.wrong("another-tensor", "another tensor", set='group["lr"] = torch.tensor(rate)')
bank.wrong("another-tensor", "another tensor, from a product", set='group["lr"] = group["lr"] * 0 + rate')
bank.wrong("rate-not-float32", "a double", rate="lr = torch.tensor(rate, dtype=torch.float64, device=where)")
bank.wrong("other-memory", "other memory for the same tensor", set='group["lr"].data = torch.tensor(rate)')
bank.wrong("zero-not-set", "0 taken for none", set='group["lr"].fill_(rate or group["lr"].item())')
bank.wrong("rate-not-set", "the rate as a factor", set='group["lr"].mul_(rate)')
bank.wrong("rate-not-set", "the defaults", groups='optimizer.defaults["lr"] = torch.tensor(rate)', set="")
bank.wrong("rate-not-set", "nothing is set", groups="pass", set="")
bank.wrong("first-group-only", "the first group only", groups="for group in optimizer.param_groups[:1]:")
bank.wrong("rate-on-cpu", "the rate on the CPU", rate="lr = torch.tensor(rate)")
bank.wrong("another-rate", "a rate of its own", rate="lr = torch.tensor(0.1, device=where)")
bank.wrong("another-momentum", "no momentum", sgd="return SGD(model.parameters(), lr, fused=True)")
bank.wrong(
    "another-momentum", "a momentum of its own", sgd="return SGD(model.parameters(), lr, momentum=0.9, fused=True)"
)
bank.wrong(
    "other-updates",
    "Nesterov momentum",
    sgd="return SGD(model.parameters(), lr, momentum=momentum, nesterov=True, fused=True)",
)
bank.wrong(
    "other-updates",
    "weight decay",
    sgd="return SGD(model.parameters(), lr, momentum=momentum, weight_decay=0.1, fused=True)",
)
bank.wrong(
    "parameters-left-out",
    "the blocks' parameters only",
    sgd="return SGD(model.blocks.parameters(), lr, momentum=momentum, fused=True)",
)
bank.wrong("no-sgd", "AdamW", sgd="return torch.optim.AdamW(model.parameters(), lr, fused=True)")
bank.wrong(
    "nothing-returned", "nothing is returned", sgd="SGD(model.parameters(), lr, momentum=momentum, fused=True)"
)
bank.right(
    "rank 0's rate sent to all",
    groups="told = torch.tensor(rate)\ndist.broadcast(told, src=0)\nfor group in optimizer.param_groups:",
    set='group["lr"].copy_(told)',
)
bank.wrong(
    "not-on-every-rank",
    "rank 0 only",
    groups="if dist.is_initialized() and dist.get_rank() != 0: return\nfor group in optimizer.param_groups:",
)
bank.wrong(
    "rate-shared",
    "one tensor for all optimizers",
    rate='lr = vars(capturable_sgd).setdefault("lr", torch.tensor(rate, device=where))',
)
bank.wrong(
    "rate-shared",
    "one tensor for all optimizers, filled anew",
    slow=True,
    rate='lr = vars(capturable_sgd).setdefault("lr", torch.tensor(rate, device=where)).fill_(rate)',
)
bank.wrong(
    "group-left-out",
    "a return where a group has the rate already",
    set='if group["lr"].item() == torch.tensor(rate).item(): return\ngroup["lr"].fill_(rate)',
)
bank.wrong(
    "group-left-out",
    "nothing is done where any group has the rate already",
    slow=True,
    groups="""
if any(group["lr"].item() == torch.tensor(rate).item() for group in optimizer.param_groups):
    return
for group in optimizer.param_groups:
""",
)
bank.wrong(
    "rate-with-gradient",
    "a rate that requires a gradient",
    rate="lr = nn.Parameter(torch.tensor(rate, device=where))",
)
bank.wrong(
    "rate-not-set",
    "a scheduler that multiplies",
    slow=True,
    groups="torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: rate)",
    set="",
)
bank.wrong("rate-not-set", "a fill that makes another tensor", slow=True, set='torch.fill(group["lr"], rate)')
bank.wrong(
    "rate-shared",
    "the rate in a tensor of the module's",
    slow=True,
    rate="lr = globals().setdefault('RATE', torch.zeros((), device=where)).to(where)\nlr.fill_(rate)",
)
bank.wrong(
    "parameters-left-out",
    "those of the linear layers only",
    slow=True,
    sgd="""
mine = [p for m in model.modules() if isinstance(m, nn.Linear | nn.Conv2d) for p in m.parameters()]
return SGD(mine, lr, momentum=momentum, fused=True)
""",
)
bank.wrong(
    "parameters-left-out",
    "those of the children only",
    slow=True,
    sgd="""
mine = []
for child in model.children():
    mine += child.parameters()
return SGD(mine, lr, momentum=momentum, fused=True)
""",
)
bank.wrong(
    "rate-not-set",
    "copies of the rates are filled",
    slow=True,
    groups='rates = [group["lr"].detach().clone() for group in optimizer.param_groups]\nfor lr in rates:',
    set="lr.fill_(rate)",
)
bank.wrong(
    "rate-not-set",
    "a copy of the groups",
    slow=True,
    groups="import copy\ngroups = copy.deepcopy(optimizer.param_groups)\nfor group in groups:",
)
bank.wrong(
    "group-left-out",
    "a return where a group's rate is the number",
    set='if group["lr"].item() == rate: return\ngroup["lr"].fill_(rate)',
    slow=True,
)
bank.wrong(
    "rate-not-float32",
    "in the type of the parameters",
    slow=True,
    rate="lr = next(model.parameters()).new_tensor(rate)",
)
bank.wrong(
    "first-group-only",
    "nothing where the rate is that of the call before",
    slow=True,
    whole={
        "8.5b": """
global LAST
if rate == globals().get("LAST"):
    return
LAST = rate
for group in optimizer.param_groups:
    group["lr"].fill_(rate)
"""
    },
)
bank.wrong(
    "other-updates",
    "weight decay, in a call of several lines",
    slow=True,
    sgd="return SGD(\n    model.parameters(),\n    lr,\n    momentum=momentum,\n"
    "    weight_decay=0.01,\n    fused=True,\n)",
)
bank.wrong(
    "first-group-only",
    "a return in the loop over the groups",
    slow=True,
    whole={
        "8.5b": """
for group in optimizer.param_groups:
    rate_of_group = group["lr"]
    if isinstance(rate_of_group, torch.Tensor):
        rate_of_group.fill_(rate)
        return
    raise TypeError("the rate is no tensor")
"""
    },
)
bank.wrong(
    "rate-on-cpu",
    "the GPU of the rank's number, where the model is on one that is_cuda knows",
    slow=True,
    where="if next(model.parameters()).is_cuda:\n"
    "    where = torch.device('cuda', dist.get_rank())\n"
    "else:\n"
    "    where = torch.device('cpu')",
    rate="lr = torch.tensor(rate, dtype=torch.float32, device=where)",
)
bank.wrong(
    "rate-not-set",
    "each rate times the quotient of the first",
    slow=True,
    whole={
        "8.5b": """
groups = optimizer.param_groups
factor = rate / groups[0]["lr"].detach().clone()
for group in groups:
    group["lr"].mul_(factor)
"""
    },
)
