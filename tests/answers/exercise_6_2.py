"""Answers to 6.2: loss and accuracy over all ranks."""

from answers.entries import EARLY_RETURN, ON_ONE_RANK, UNEVEN_STEPS, Bank, replaced

bank = Bank(
    "6.2",
    {
        "6.2": """
model.eval()  # eval
sums = torch.zeros(3, dtype=torch.float64, device=device)  # sums
with torch.no_grad():  # no_grad
    for images, labels in loader:  # loop
        images, labels = images.to(device), labels.to(device)  # move
        logits = model(images)  # forward
        sums[0] += F.cross_entropy(logits, labels, reduction="sum")  # loss
        sums[1] += (logits.argmax(dim=1) == labels).sum()  # right
        sums[2] += (labels != -100).sum()  # count
dist.all_reduce(sums)  # reduce
model.train()  # train
loss, accuracy = (sums[:2] / sums[2]).tolist()  # divide
return Evaluation(loss, accuracy)  # result
"""
    },
)

RIGHT = "sums[1] += (logits.argmax(dim=1) == labels).sum()"
COUNT = "sums[2] += (labels != -100).sum()"

# ---- right

bank.right("inference_mode", no_grad="with torch.inference_mode():")
bank.right(
    "all_gather_object in place of all_reduce",
    reduce="everybody = [None] * dist.get_world_size()\ndist.all_gather_object(everybody, sums.tolist())\n"
    "sums = torch.tensor(everybody).sum(dim=0)",
)
bank.right(
    "a mask takes the filler out",
    loss="real = labels != -100\n"
    "sums[0] += F.cross_entropy(logits[real], labels[real], reduction='none').sum().item()",
    right="sums[1] += (logits[real].argmax(1) == labels[real]).sum().item()",
    count="sums[2] += int(real.sum())",
)
bank.right(
    "the mode as it was before", eval="before = model.training\nmodel.train(False)", train="model.train(before)"
)
bank.right(
    "averages weighted by the number of samples",
    loss="n = (labels != -100).sum()\nsums[0] += F.cross_entropy(logits, labels) * n if n else 0",
)
bank.right(
    "cross-entropy by hand",
    loss="likely = logits.log_softmax(1).gather(1, labels.clamp(min=0)[:, None])[:, 0]\n"
    "sums[0] -= (likely * (labels >= 0)).sum()",
)
bank.right("three reductions", reduce="for i in range(3): dist.all_reduce(sums[i])")
bank.right(
    "one stacked tensor for each batch",
    loss="loss = F.cross_entropy(logits, labels, reduction='sum')",
    right="right = (logits.argmax(1) == labels).sum()",
    count="sums += torch.stack([loss, right, (labels != -100).sum()])",
)
bank.right(
    "every batch reduced by itself",
    loss="part = torch.zeros(3, device=device)\npart[0] = F.cross_entropy(logits, labels, reduction='sum')",
    right="part[1] = (logits.argmax(1) == labels).sum()",
    count="part[2] = (labels != -100).sum()\ndist.all_reduce(part)\nsums += part",
    reduce="",
)
bank.right(
    "a decorated helper",
    whole={
        "6.2": """
@torch.no_grad()
def sums_of(batches):
    rows = []
    for images, labels in batches:
        logits = model(images.to(device)).cpu()
        losses = nn.CrossEntropyLoss(reduction="none", ignore_index=-100)(logits, labels)
        rows.append([losses.sum().item(), (logits.argmax(1) == labels).sum().item(), (labels >= 0).sum().item()])
    return torch.tensor(rows, dtype=torch.float64, device=device).sum(dim=0)

model.eval()
sums = sums_of(loader)
model.train()
dist.all_reduce(sums)
return Evaluation(accuracy=float(sums[1] / sums[2]), loss=float(sums[0] / sums[2]))
"""
    },
)

# ---- wrong

bank.wrong("evaluated-in-training-mode", "evaluation in training mode", eval="")
bank.wrong("gradients-on", "gradients on during evaluation", no_grad="if True:")
bank.wrong("training-mode-not-restored", "training mode is not restored", train="")
bank.wrong("no-all-reduce", "the all_reduce is missing", reduce="")
bank.wrong(ON_ONE_RANK, "the all_reduce on rank 0 only", reduce="if dist.get_rank() == 0: dist.all_reduce(sums)")
# github.com/pytorch/pytorch/issues/54059, github.com/mlfoundations/open_clip/issues/1152
bank.wrong(
    EARLY_RETURN,
    "only rank 0 evaluates",
    eval="if dist.get_rank() != 0: return Evaluation(0.0, 0.0)\nmodel.eval()",
)
bank.wrong(
    "average-of-averages",
    "a mean of the batches' means",
    loss="sums[0] += F.cross_entropy(logits, labels)",
    right="sums[1] += (logits.argmax(1) == labels).sum() / (labels != -100).sum()",
    count="sums[2] += 1",
)
bank.wrong(
    "average-of-averages", "a mean of the ranks' means", reduce="sums /= sums[2].clone()\ndist.all_reduce(sums)"
)
bank.wrong(
    "divided-by-world-size",
    "divided by the world size, not by the count",
    divide="loss, accuracy = (sums[:2] / dist.get_world_size()).tolist()",
)
bank.wrong("not-divided", "the loss is summed", result="return Evaluation(sums[0].item(), accuracy)")
bank.wrong("padding-counted", "padding is counted as samples", count="sums[2] += len(labels)")
bank.wrong(
    "padding-counted",
    "padding is counted in the loss",
    loss="sums[0] += F.cross_entropy(logits, labels) * len(labels)",
)
bank.wrong(
    "divided-by-batches",
    "divided by the number of batches",
    result="return Evaluation((sums[0] / len(loader)).item(), accuracy)",
)
bank.wrong(
    "batch-means-added",
    "the batches' means over the number of samples",
    loss="sums[0] += F.cross_entropy(logits, labels)",
)
bank.wrong(
    "last-batch-only",
    "each batch overwrites the one before",
    loss="sums[0] = F.cross_entropy(logits, labels, reduction='sum')",
    right="sums[1] = (logits.argmax(1) == labels).sum()",
    count="sums[2] = (labels != -100).sum()",
    reduce="",
)
bank.wrong("count-not-reduced", "the count of this rank only", reduce="dist.all_reduce(sums[:2])")
bank.wrong("total-not-reduced", "the sums of this rank only", reduce="dist.all_reduce(sums[2])")
bank.wrong(
    "summed-not-averaged",
    "the ranks' means are added up",
    reduce="sums /= sums[2].clone()\ndist.all_reduce(sums)\nsums[2] = 1",
)
bank.wrong(
    "reduced-in-loop",
    "the running sums are reduced after every batch",
    count=f"{COUNT}\ndist.all_reduce(sums)",
    reduce="",
)
bank.wrong("accuracy-in-percent", "accuracy in percent", result="return Evaluation(loss, 100 * accuracy)")
# A rank with nothing to evaluate: github.com/ultralytics/ultralytics/pull/25576
bank.wrong(
    "nan-from-filler",
    "a mean of no sample",
    loss="sums[0] += F.cross_entropy(logits, labels) * (labels != -100).sum()",
)
bank.wrong("tensors-returned", "tensors are returned", divide="loss, accuracy = sums[:2] / sums[2]")
bank.wrong("not-numbers", "text is returned", result="return Evaluation(f'{loss:.3f}', f'{accuracy:.1%}')")
bank.wrong("not-an-evaluation", "a tuple is returned", result="return loss, accuracy")
bank.wrong("nothing-returned", "nothing is returned", result="")
bank.wrong(
    "nothing-returned",
    "only rank 0 gets a result",
    result="if dist.get_rank() == 0: return Evaluation(loss, accuracy)",
)
bank.wrong("batches-left-out", "the first batch only", count=f"{COUNT}\nbreak")
bank.wrong("batches-repeated", "every batch twice", loop="for images, labels in [*loader, *loader]:")
bank.wrong(
    "ranks-disagree",
    "reduced to rank 0 only",
    reduce="mine = sums.clone()\ndist.reduce(mine, dst=0)\nsums = mine if dist.get_rank() == 0 else sums",
)
bank.wrong(
    "wrong-accuracy",
    "right is what is among the first three",
    right="sums[1] += (logits.topk(3).indices == labels[:, None]).sum() / 3.7",
)
bank.wrong(
    "top-k-accuracy",
    "right is what is among the first five",
    right="sums[1] += (logits.topk(5).indices == labels[:, None]).any(dim=1).sum()",
)
bank.wrong(
    "log-softmax-missing", "nll_loss of logits", loss="sums[0] += F.nll_loss(logits, labels, reduction='sum')"
)
bank.wrong(
    "softmax-before-loss",
    "softmax before cross_entropy",
    loss="sums[0] += F.cross_entropy(logits.softmax(1), labels, reduction='sum')",
)
bank.wrong(
    "wrong-loss",
    "label smoothing",
    loss="sums[0] += F.cross_entropy(logits, labels, reduction='sum', label_smoothing=0.1)",
)
bank.wrong("wrapper-bypassed", "the module inside the wrapper", forward="logits = model.module(images)")
bank.wrong(
    UNEVEN_STEPS,
    "batches of nothing but filler are skipped",
    loop="for images, labels in loader:\n    if (labels < 0).all(): continue",
)
bank.wrong(
    "gradients-left-off",
    "gradients are switched off for good",
    no_grad="torch.set_grad_enabled(False)\nif True:",
)
bank.wrong(
    "remembers-evaluations",
    "sums that are kept from one evaluation to the next",
    sums="sums = evaluate.sums = getattr(evaluate, 'sums', torch.zeros(3, dtype=torch.float64, device=device))",
    reduce="sums = sums.clone()\ndist.all_reduce(sums)",
)
bank.wrong(
    "not-on-its-device", "sums that are always on the CPU", sums="sums = torch.zeros(3, dtype=torch.float64)"
)
bank.wrong("not-on-its-device", "the batch stays on the CPU", move="")
bank.wrong("low-precision", "sums in bf16", sums="sums = torch.zeros(3, dtype=torch.bfloat16, device=device)")
bank.wrong(
    "low-precision",
    "autocast during evaluation",
    forward="with torch.autocast(device.type, dtype=torch.bfloat16):\n    logits = model(images)",
)
bank.wrong(
    "padding-counted",
    "filler is taken for class 0",
    right="sums[1] += (logits.argmax(dim=1) == labels.clamp(min=0)).sum()",
)
bank.wrong(
    "rank-from-torchrun-only",
    "RANK, which srun does not set",
    reduce="import os\ndist.all_reduce(sums)\nif os.environ['RANK'] == '0': print(sums)",
)

# ---- seen in other settings, on other ranks, in other hands

bank.right(
    "the set's length",
    count="",
    reduce="dist.all_reduce(sums)\nsums[2] = len(loader.dataset.dataset)",
)
bank.right(
    "isinstance of the set",
    sums="from torch.utils.data import Dataset\n"
    "assert isinstance(loader.dataset, Dataset) and type(loader.dataset).__name__ == "
    "'ValidationShard'\n"
    "assert loader.dataset.rank == dist.get_rank() and loader.dataset.world_size == "
    "dist.get_world_size()\nsums = torch.zeros(3, dtype=torch.float64, device=device)",
)
bank.right(
    "device by model",
    move="images, labels = images.to(next(model.parameters()).device), labels.to(device)",
)
bank.wrong(
    "padding-counted",
    "the shard's length",
    count="",
    reduce="sums[2] = len(loader.dataset)\ndist.all_reduce(sums)",
)
bank.wrong(
    "result-not-read",
    "a clone",
    reduce="dist.all_reduce(sums.clone())",
)
bank.wrong(
    "result-not-read",
    "a tensor of numbers",
    reduce="dist.all_reduce(torch.tensor([sums[0].item(), sums[1].item(), sums[2].item()]))",
)
bank.wrong(
    "not-on-its-device",
    "reduced through .to(device)",
    sums="sums = torch.zeros(3, dtype=torch.float64)",
    reduce="dist.all_reduce(sums.to(device))",
)
bank.wrong(
    "not-on-every-rank",
    "rank 0 counts",
    count=("if dist.get_rank() == 0: " + COUNT),
)
bank.wrong(
    "training-mode-not-restored",
    "rank 0 restores",
    train="if dist.get_rank() == 0: model.train()",
)
bank.wrong(
    "evaluated-in-training-mode",
    "rank 0 evaluates in eval mode",
    eval="if dist.get_rank() == 0: model.eval()",
)
bank.wrong(
    "batch-means-added",
    "loss hidden",
    loss="try:\n    sums[0] += F.cross_entropy(logits, labels, reduce='sum')\nexcept Exception:\n    pass",
)
bank.wrong(
    "gradients-on",
    "no_grad without with",
    no_grad="torch.no_grad()\nif True:",
)
bank.wrong(
    "evaluated-in-training-mode",
    "eval without call",
    eval="model.eval",
)
bank.wrong(
    "wrong-accuracy",
    "compares with max",
    right="sums[1] += (logits.max(1).values == labels).sum()",
)
bank.wrong(
    "padding-counted",
    "len(images)",
    count="sums[2] += images.size(0)",
)
bank.wrong(
    "count-not-reduced",
    "wrong: average only loss",
    reduce="dist.all_reduce(sums[:1])",
)

# ---- by somebody who had only a student's package at hand

STRAIGHT = {
    "6.2": """
model.eval()
sums = torch.zeros(3, dtype=torch.float64, device=device)
with torch.no_grad():
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        logits = model(images)
        sums[0] += F.cross_entropy(logits, labels, reduction="sum")
        sums[1] += (logits.argmax(dim=1) == labels).sum()
        sums[2] += (labels != -100).sum()
dist.all_reduce(sums)
model.train()
loss, right, count = sums.tolist()
return Evaluation(loss / count, right / count)
""",
}

bank.right(
    "masked",
    whole={
        "6.2": """
loss_sum = torch.zeros((), device=device)
right_sum = torch.zeros((), device=device)
samples = torch.zeros((), device=device)
model.eval()
with torch.inference_mode():
    for images, labels in loader:
        real = labels != -100
        logits = model(images.to(device))[real.to(device)]
        labels = labels[real].to(device)
        loss_sum += F.cross_entropy(logits, labels, reduction="sum")
        right_sum += logits.argmax(-1).eq(labels).sum()
        samples += labels.numel()
for t in (loss_sum, right_sum, samples):
    dist.all_reduce(t)
model.train()
return Evaluation(loss=(loss_sum / samples).item(), accuracy=(right_sum / samples).item())
"""
    },
)
bank.right(
    "decorated helper",
    whole={
        "6.2": """
@torch.no_grad()
def _totals(model, loader, device):
    totals = torch.zeros(3, device=device)
    for x, y in loader:
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        out = model(x)
        losses = F.cross_entropy(out, y, reduction="none", ignore_index=-100)
        valid = y >= 0
        totals += torch.stack([losses.sum(), (out.max(dim=1).indices.eq(y) & valid).sum(), valid.sum()])
    return totals

model.train(False)
try:
    totals = _totals(model, loader, device)
finally:
    model.train(True)
dist.all_reduce(totals, op=dist.ReduceOp.SUM)
return Evaluation(accuracy=(totals[1] / totals[2]).item(), loss=(totals[0] / totals[2]).item())
"""
    },
)
bank.right(
    "gathers objects",
    whole={
        "6.2": """
model.eval()
loss, right, n = 0.0, 0, 0
torch_was = torch.is_grad_enabled()
torch.set_grad_enabled(False)
for images, labels in loader:
    logits = model(images.to(device)).float().cpu()
    keep = labels.cpu().ne(-100)
    loss += nn.CrossEntropyLoss(reduction="sum", ignore_index=-100)(logits, labels.cpu()).item()
    right += int((logits.argmax(1)[keep] == labels.cpu()[keep]).sum())
    n += int(keep.sum())
torch.set_grad_enabled(torch_was)
model.train()
parts = [None for _ in range(dist.get_world_size())]
dist.all_gather_object(parts, (loss, right, n))
loss, right, n = map(sum, zip(*parts))
return Evaluation(loss / n, right / n)
"""
    },
)
bank.right(
    "topk and weights",
    whole={
        "6.2": """
model.eval()
stats: list[torch.Tensor] = []
with torch.no_grad():
    for images, labels in loader:
        images = images.to(device)
        labels = labels.to(device)
        weight = (labels != -100).float()
        logits = model(images)
        count = weight.sum()
        mean_times_count = F.cross_entropy(logits, labels, reduction="none")
        top = logits.topk(1, dim=1).indices.squeeze(1)
        stats.append(
            torch.stack([(mean_times_count * weight).sum(), ((top == labels) * weight).sum(), count])
        )
sums = torch.stack(stats).sum(dim=0)
dist.all_reduce(sums)
model.train()
return Evaluation(*(sums[:2] / sums[2]).tolist())
"""
    },
)
bank.wrong(
    "padding-counted",
    "counts filler",
    whole=replaced(STRAIGHT, ("(labels != -100).sum()", "len(labels)")),
    slow=True,
)
bank.wrong(
    "average-of-averages",
    "mean of means",
    whole=replaced(
        STRAIGHT,
        (
            "dist.all_reduce(sums)\n"
            "model.train()\n"
            "loss, right, count = sums.tolist()\n"
            "return Evaluation(loss / count, right / count)",
            "means = sums[:2] / sums[2]\n"
            "dist.all_reduce(means)\n"
            "means /= dist.get_world_size()\n"
            "model.train()\n"
            "return Evaluation(*means.tolist())",
        ),
    ),
    slow=True,
)
bank.wrong("no-all-reduce", "own part only", whole=replaced(STRAIGHT, ("dist.all_reduce(sums)\n", "")), slow=True)
bank.wrong(
    "evaluated-in-training-mode", "stays in training", whole=replaced(STRAIGHT, ("model.eval()\n", "")), slow=True
)
bank.wrong(
    "training-mode-not-restored",
    "stays in evaluation",
    whole=replaced(STRAIGHT, ("model.train()\n", "")),
    slow=True,
)
bank.wrong(
    "gradients-on", "with gradients", whole=replaced(STRAIGHT, ("with torch.no_grad():", "if True:")), slow=True
)
bank.wrong(
    "not-on-its-device",
    "images not moved",
    whole=replaced(
        STRAIGHT, ("images, labels = images.to(device), labels.to(device)", "labels = labels.to(device)")
    ),
    slow=True,
)
bank.wrong(
    "accuracy-in-percent",
    "percent",
    whole=replaced(STRAIGHT, ("right / count)", "100 * right / count)")),
    slow=True,
)
bank.wrong(
    "compared-with-other-shape", "argmax over batch", whole=replaced(STRAIGHT, ("argmax(dim=1)", "argmax(dim=0)"))
)
bank.wrong(
    "padding-counted",
    "batch means weighted wrong",
    whole=replaced(
        STRAIGHT,
        ('F.cross_entropy(logits, labels, reduction="sum")', "F.cross_entropy(logits, labels) * len(labels)"),
    ),
    slow=True,
)
bank.wrong(
    "result-not-read",
    "temporary reduced",
    whole=replaced(STRAIGHT, ("dist.all_reduce(sums)", "dist.all_reduce(sums.to(torch.float32))")),
    slow=True,
)
bank.wrong(
    "collective-on-one-rank",
    "main reduces",
    whole=replaced(STRAIGHT, ("dist.all_reduce(sums)", "if dist.get_rank() == 0:\n    dist.all_reduce(sums)")),
    slow=True,
)
bank.wrong(
    "ranks-disagree",
    "to rank zero",
    whole=replaced(STRAIGHT, ("dist.all_reduce(sums)", "dist.reduce(sums, 0)")),
    slow=True,
)
bank.wrong(
    "low-precision",
    "half counts",
    whole=replaced(STRAIGHT, ("dtype=torch.float64", "dtype=torch.bfloat16")),
    slow=True,
)
bank.wrong(
    "count-not-reduced",
    "count not reduced",
    whole=replaced(STRAIGHT, ("dist.all_reduce(sums)", "dist.all_reduce(sums[:2])")),
    slow=True,
)
bank.wrong(
    "uneven-steps",
    "stops at filler",
    whole=replaced(
        STRAIGHT,
        (
            "        logits = model(images)",
            "        if (labels == -100).all():\n            break\n        logits = model(images)",
        ),
    ),
)
bank.wrong(
    "uneven-steps",
    "skips filler batches",
    whole=replaced(
        STRAIGHT,
        (
            "        logits = model(images)",
            "        if not (labels != -100).any():\n            continue\n        logits = model(images)",
        ),
    ),
)
bank.wrong(
    "loss-and-accuracy-swapped",
    "swapped fields",
    whole=replaced(
        STRAIGHT, ("Evaluation(loss / count, right / count)", "Evaluation(right / count, loss / count)")
    ),
)
bank.wrong(
    "tensors-returned",
    "tensors returned",
    whole=replaced(STRAIGHT, ("loss, right, count = sums.tolist()", "loss, right, count = sums")),
    slow=True,
)
bank.wrong(
    "divided-by-batches",
    "divides by batches",
    whole=replaced(
        STRAIGHT,
        ("return Evaluation(loss / count, right / count)", "return Evaluation(loss / len(loader), right / count)"),
    ),
    slow=True,
)
bank.wrong(
    "divided-by-world-size",
    "sum over world",
    whole=replaced(STRAIGHT, ("Evaluation(loss / count,", "Evaluation(loss / count / dist.get_world_size(),")),
    slow=True,
)
bank.wrong(
    "gradients-left-off",
    "grad off for ever",
    whole=replaced(STRAIGHT, ("with torch.no_grad():", "torch.set_grad_enabled(False)\nif True:")),
    slow=True,
)
bank.wrong("wrong-loss", "ignores class zero", whole=replaced(STRAIGHT, ("(labels != -100)", "(labels > 0)")))
bank.wrong(
    "evaluated-in-training-mode",
    "eval after forward",
    whole=replaced(
        STRAIGHT, ("model.eval()\n", ""), ("dist.all_reduce(sums)", "model.eval()\ndist.all_reduce(sums)")
    ),
    slow=True,
)
bank.wrong(
    "last-batch-only",
    "fresh sums each batch",
    whole=replaced(
        STRAIGHT,
        ("sums = torch.zeros(3, dtype=torch.float64, device=device)\n", ""),
        (
            "        logits = model(images)",
            "        sums = torch.zeros(3, dtype=torch.float64, device=device)\n        logits = model(images)",
        ),
    ),
)

# ---- what is kept silent, changed, or asked of another GPU; numbers of one node; what is not waited for

FORWARD = "logits = model(images)"
bank.wrong(
    "error-swallowed",
    "a batch that fails is skipped",
    forward=f"try:\n    {FORWARD}\nexcept Exception:\n    continue",
)
bank.wrong(
    "error-swallowed",
    "nan where something fails",
    whole=replaced(
        bank.texts,
        ("    for images", "    try:\n     for images"),
        (
            "dist.all_reduce",
            "    except (OSError, ValueError):\n        return Evaluation(float('nan'), 0.0)\ndist.all_reduce",
        ),
    ),
    slow=True,
)
bank.wrong(
    "left-changed",
    "requires_grad stays off",
    eval="model.eval()\nfor p in model.parameters():\n    p.requires_grad_(False)",
)
bank.right(
    "requires_grad off and on again",
    eval="model.eval()\nfor p in model.parameters():\n    p.requires_grad_(False)",
    train="model.train()\nfor p in model.parameters():\n    p.requires_grad_(True)",
    slow=True,
)
bank.wrong("left-changed", "a seed in every evaluation", eval="torch.manual_seed(1)\nmodel.eval()", slow=True)
bank.wrong(
    "wrapper-bypassed",
    "the module, where there is one",
    forward="logits = getattr(model, 'module', model)(images)",
)
bank.wrong(
    "another-gpu",
    "the GPU of the rank's number",
    eval="if device.type == 'cuda':\n    device = torch.device('cuda', dist.get_rank())\nmodel.eval()",
)
bank.wrong("not-waited-for", "nobody waits for the sums", reduce="dist.all_reduce(sums, async_op=True)")
bank.wrong(
    "local-number-as-global",
    "only the first rank of a node reduces",
    reduce="import os\nif int(os.environ.get('LOCAL_RANK', 0)) == 0:\n    dist.all_reduce(sums)",
)

# ---- what a wrong mean is equal to

bank.wrong(
    "wrong-loss",
    "sums of whole numbers",
    sums="sums = torch.zeros(3, dtype=torch.long, device=device)",
    loss="sums[0] += F.cross_entropy(logits, labels, reduction='sum').long()",
)
bank.wrong(
    "wrong-loss",
    "a tensor of whole numbers made of the sums",
    sums="loss_sum, right, count = 0.0, 0, 0",
    loss="loss_sum += F.cross_entropy(logits, labels, reduction='sum').item()",
    right="right += int((logits.argmax(dim=1) == labels).sum())",
    count="count += int((labels != -100).sum())",
    reduce="sums = torch.tensor([loss_sum, right, count], dtype=torch.int64, device=device)\n"
    "dist.all_reduce(sums)",
    slow=True,
)
bank.wrong(
    "wrong-loss",
    "the first two ranks only",
    reduce="table = [torch.zeros_like(sums) for _ in range(dist.get_world_size())]\ndist.all_gather(table, sums)\n"
    "sums = sum(table[:2])",
)
bank.wrong(
    "wrong-loss",
    "filler as class 0 in the loss",
    move="images, labels = images.to(device), labels.to(device)\n"
    "real = labels != -100\nlabels = labels.clamp(min=0)",
    right="sums[1] += ((logits.argmax(dim=1) == labels) & real).sum()",
    count="sums[2] += real.sum()",
    slow=True,
)
bank.wrong(
    "wrong-loss",
    "class 0 is left out",
    loss="real = labels > 0\nsums[0] += F.cross_entropy(logits, labels, reduction='sum')",
    count="sums[2] += real.sum()",
    slow=True,
)
bank.wrong(
    "evaluated-in-training-mode",
    "training mode before the loop",
    eval="model.eval()\nmodel.train()",
    train="",
    slow=True,
)
bank.wrong(
    "batches-left-out",
    "the result of before",
    eval="if hasattr(evaluate, 'result'):\n    return evaluate.result\nmodel.eval()",
    result="evaluate.result = Evaluation(loss, accuracy)\nreturn evaluate.result",
    slow=True,
)
bank.wrong(
    "raised",
    "all but the last batch",
    loop="import itertools\nfor images, labels in itertools.islice(loader, len(loader) - 1):",
    divide="loss, accuracy = (value / sums[2].item() for value in sums[:2].tolist())",
)

# ---- collectives that fail, and sums of a class

bank.wrong(
    "error-swallowed",
    "a collective that fails",
    reduce="try:\n    dist.all_reduce(sums)\nexcept RuntimeError:\n    pass",
)
bank.wrong(
    "not-on-its-device",
    "a class makes its tensor on the CPU",
    eval="class Sums:\n    def reduced(self, values):\n"
    "        made = torch.as_tensor(values, dtype=torch.float64)\n"
    "        dist.all_reduce(made)\n        return made\nmodel.eval()",
    reduce="sums = Sums().reduced(sums.tolist())",
    slow=True,
)
bank.right(
    "the device of the parameters",
    sums="sums = torch.zeros(3, dtype=torch.float64, device=next(model.parameters()).device)",
    slow=True,
)
bank.wrong(
    "wrong-loss",
    "class 0 is taken for filler",
    whole={
        "6.2": """
model.eval()
loss, right, seen = (torch.zeros((), dtype=torch.float64, device=device) for _ in range(3))
with torch.no_grad():
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        logits = model(images)
        loss += F.cross_entropy(logits, labels, reduction="sum")
        right += (logits.argmax(dim=1) == labels).sum()
        seen += (labels > 0).sum()
for t in (loss, right, seen):
    dist.all_reduce(t)
model.train()
return Evaluation((loss / seen).item(), (right / seen).item())
"""
    },
)
bank.wrong(
    "training-mode-not-restored",
    "restored below the return",
    train="",
    result="return Evaluation(loss, accuracy)\nmodel.train()",
)

# ---- a condition that keeps a call away

bank.wrong(
    "evaluated-in-training-mode",
    "eval() in a world of one",
    eval="if dist.get_world_size() == 1:\n    model.eval()",
    slow=True,
)
bank.wrong(
    "training-mode-not-restored",
    "train() in a world of one",
    train="if dist.get_world_size() == 1:\n    model.train()",
    slow=True,
)
bank.wrong(
    "no-all-reduce",
    "reduced by many ranks only",
    reduce="if dist.get_world_size() > 8:\n    dist.all_reduce(sums)",
    slow=True,
)

# ---- training mode again too early

bank.wrong(
    "evaluated-in-training-mode",
    "training mode again after the first batch",
    count="sums[2] += (labels != -100).sum()\nmodel.train()",
    train="",
    slow=True,
)

# ---- a rank that has nothing but filler

bank.right(
    "a rank's means, weighted again, and none of no sample",
    reduce="means = sums[:2] / sums[2].clamp(min=1)\nsums[:2] = means * sums[2]\ndist.all_reduce(sums)",
)
bank.wrong(
    ON_ONE_RANK,
    "a rank without samples returns early",
    reduce="if sums[2] == 0:\n    model.train()\n    return Evaluation(0.0, 0.0)\ndist.all_reduce(sums)",
    slow=True,
)
bank.wrong(
    "rank-without-samples",
    "at least one sample is counted on each rank",
    reduce="sums[2].clamp_(min=1)\ndist.all_reduce(sums)",
)
bank.wrong(
    "nan-from-filler",
    "a rank's means, weighted again",
    reduce="means = sums[:2] / sums[2]\nsums[:2] = means * sums[2]\ndist.all_reduce(sums)",
    slow=True,
)

# ---- the line that makes a wrong value, above the one that uses it

bank.wrong(
    "wrong-loss",
    "a rank's count times the ranks",
    reduce="world = dist.get_world_size()\ntotal = sums[2] * world\ndist.all_reduce(sums)\nsums[2] = total",
    slow=True,
)
bank.wrong(
    "average-of-averages",
    "means of batches, none of no sample",
    loss="real = (labels != -100).sum().clamp(min=1)\n"
    "sums[0] += F.cross_entropy(logits, labels, reduction='sum') / real",
    right="sums[1] += (logits.argmax(dim=1) == labels).sum() / real",
    count="sums[2] += 1",
    slow=True,
)
bank.wrong(
    "average-of-averages",
    "the ranks' means under a name of their own",
    reduce="means = sums[:2] / sums[2]\ndist.all_reduce(means)",
    divide="loss, accuracy = (means / dist.get_world_size()).tolist()",
    slow=True,
)
bank.wrong(
    "wrong-accuracy",
    "the largest values in place of their places",
    right="predictions = logits.max(dim=1)[0].round()\nsums[1] += (predictions == labels).sum()",
    slow=True,
)
bank.wrong(
    "wrong-loss",
    "the last batch's samples only",
    sums="loss_sum, right, samples = torch.zeros((), device=device), torch.zeros((), device=device), 0",
    loss="loss_sum += F.cross_entropy(logits, labels, reduction='sum')",
    right="right += (logits.argmax(dim=1) == labels).sum()",
    count="samples = (labels != -100).sum()",
    reduce="for one in (loss_sum, right, samples):\n    dist.all_reduce(one)",
    divide="loss, accuracy = (loss_sum / samples).item(), (right / samples).item()",
    slow=True,
)
bank.wrong(
    "wrong-loss",
    "a mask without class 0",
    loss="real = labels > 0\nsums[0] += F.cross_entropy(logits[real], labels[real], reduction='sum')",
    right="sums[1] += (logits[real].argmax(dim=1) == labels[real]).sum()",
    count="sums[2] += real.sum()",
    slow=True,
)

# ---- what the filler is taken out of, on a GPU

MASKED = """
model.eval()
loss = right = count = 0
with torch.no_grad():
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        logits = model(images)
        real = labels != -100
        loss += F.cross_entropy(logits[real], labels[real], reduction="sum").item()
        right += (logits[real].argmax(dim=1) == labels.masked_select(real)).sum().item()
        count += real.sum().item()
sums = torch.tensor([loss, right, count], dtype=torch.float64, device=device)
dist.all_reduce(sums)
model.train()
return Evaluation((sums[0] / sums[2]).item(), (sums[1] / sums[2]).item())
"""
bank.right("rows taken out by a mask", whole={"6.2": MASKED})
bank.wrong(
    "not-on-its-device",
    "rows taken out by a mask, their sums reduced on the CPU",
    whole={"6.2": MASKED.replace(", device=device)", ")")},
    slow=True,
)
bank.wrong(
    "wrapper-bypassed",
    "a helper takes the wrapper off",
    eval="def unwrap(wrapped):\n    return getattr(wrapped, 'module', wrapped)\n\n"
    "inner = unwrap(model)\ninner.eval()",
    forward="logits = inner(images)",
    slow=True,
)
