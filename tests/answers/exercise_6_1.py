"""Answers to 6.1: the training step and the epoch."""

from answers.entries import BACKWARD_SKIPPED, ON_ONE_RANK, OTHER_SIZES, Bank, replaced

bank = Bank(
    "6.1",
    {
        "6.1a": """
optimizer.zero_grad()  # zero
with run.autocast():  # autocast
    loss = F.cross_entropy(model(images), labels)  # loss
run.backward(loss)  # backward
optimizer.step()  # step
return loss.detach()  # result
""",
        "6.1b": """
model.train()  # mode
loader.sampler.set_epoch(epoch)  # set_epoch
sums = torch.zeros(2, dtype=torch.float64, device=run.device)  # sums
for images, labels in run.batches(loader):  # loop
    loss = train_step(model, optimizer, images, labels, run)  # train_step
    sums[0] += loss * len(labels)  # total
    sums[1] += len(labels)  # count
dist.all_reduce(sums)  # reduce
return (sums[0] / sums[1]).item()  # mean
""",
    },
)

# ---- right: 6.1a

bank.right("cleared by the model", zero="model.zero_grad()")
bank.right("training mode in the step too", zero="model.train()\noptimizer.zero_grad()")
bank.right("zero_grad at the end of the step", zero="", step="optimizer.step()\noptimizer.zero_grad()")
bank.right("zero_grad after the forward pass", zero="", backward="optimizer.zero_grad()\nrun.backward(loss)")
bank.right("zeros in place of None", zero="optimizer.zero_grad(set_to_none=False)")
bank.right("nll_loss of log_softmax", loss="loss = F.nll_loss(F.log_softmax(model(images), dim=1), labels)")
bank.right("a criterion", loss="loss = nn.CrossEntropyLoss()(model(images), labels)")
bank.right("a sum, divided", loss="loss = F.cross_entropy(model(images), labels, reduction='sum') / len(labels)")
bank.right(
    "the loss outside of autocast",
    loss="logits = model(images)",
    backward="loss = F.cross_entropy(logits.float(), labels)\nrun.backward(loss)",
)

# ---- right: 6.1b

bank.right("run.batches() before the loop", loop="batches = run.batches(loader)\nfor images, labels in batches:")
bank.right(
    "all_gather_object",
    reduce="everybody = [None] * run.world_size\ndist.all_gather_object(everybody, sums.tolist())",
    mean="return sum(s for s, _ in everybody) / sum(n for _, n in everybody)",
)
bank.right(
    "an average weighted by each rank's share",
    reduce="samples = sums[1].clone()\ndist.all_reduce(samples)\nmean = sums[0] / sums[1] * sums[1] / samples",
    mean="dist.all_reduce(mean)\nreturn mean.item()",
)
bank.right(
    "set_epoch where there is one",
    set_epoch="if hasattr(loader.sampler, 'set_epoch'): loader.sampler.set_epoch(epoch)",
)
bank.right("the sampler inside the batch sampler", set_epoch="loader.batch_sampler.sampler.set_epoch(epoch)")
bank.right(
    "two reductions of plain numbers",
    total="sums[0] += loss.item() * images.size(0)",
    reduce="total = torch.tensor(sums[0].item(), device=run.device)\n"
    "count = torch.tensor(int(sums[1]), device=run.device)\n"
    "dist.all_reduce(total, op=dist.ReduceOp.SUM)\ndist.all_reduce(count)",
    mean="return float(total / count)",
)

# Another order, but each epoch has its own, and the same when a run is continued there.
bank.right("set_epoch(epoch - 1)", set_epoch="loader.sampler.set_epoch(epoch - 1)")
bank.right("set_epoch(epoch + 1)", set_epoch="loader.sampler.set_epoch(epoch + 1)")
# To stop is right: torchrun ends the others.
bank.right("a loss of nan ends the program", backward="assert not loss.isnan()\nrun.backward(loss)")
bank.right(
    "a step is left out when any rank's loss is nan",
    step="flag = (~loss.isfinite()).float()\ndist.all_reduce(flag)\nif not flag:\n    optimizer.step()",
)
bank.right("a clone of the loss", result="return loss.detach().clone()")

# ---- wrong: 6.1a

bank.wrong("gradients-pile-up", "zero_grad is missing", zero="")
bank.wrong("step-before-backward", "step before backward", backward="optimizer.step()", step="run.backward(loss)")
bank.wrong("no-backward", "no backward pass", backward="")
bank.wrong("no-step", "no optimizer step", step="")
bank.wrong("two-steps", "two optimizer steps", step="optimizer.step()\noptimizer.step()")
bank.wrong(
    "cleared-before-step", "zero_grad between backward and step", step="optimizer.zero_grad()\noptimizer.step()"
)
bank.wrong(
    "loss-summed", "the loss is summed", loss="loss = F.cross_entropy(model(images), labels, reduction='sum')"
)
# github.com/sanderwood/bgpt/issues/5, github.com/verl-project/verl-SpeCo/pull/29
bank.wrong(
    "loss-divided-by-world-size",
    "the loss is divided by the world size",
    backward="run.backward(loss / run.world_size)",
)
# github.com/neuralmagic/sparseml/pull/135
bank.wrong(
    "loss-times-world-size",
    "the loss is multiplied by the world size",
    backward="run.backward(loss * run.world_size)",
)
# github.com/NVIDIA/apex/issues/664
bank.wrong(
    "loss-reduced-in-step",
    "the loss is averaged over the ranks before backward",
    backward="with torch.no_grad():\n    dist.all_reduce(loss)\nrun.backward(loss)",
    result="return loss.detach() / run.world_size",
)
bank.wrong(
    "softmax-before-loss",
    "softmax before cross_entropy",
    loss="loss = F.cross_entropy(model(images).softmax(1), labels)",
)
bank.wrong("log-softmax-missing", "nll_loss of logits", loss="loss = F.nll_loss(model(images), labels)")
bank.wrong("ascent", "the sign is wrong", backward="run.backward(-loss)")
bank.wrong(
    "wrong-gradients", "label smoothing", loss="loss = F.cross_entropy(model(images), labels, label_smoothing=0.1)"
)
# github.com/intel/e2eAIOK/pull/198, github.com/rosinality/swapping-autoencoder-pytorch/issues/22
bank.wrong(
    "wrapper-bypassed", "the wrapper is left out", loss="loss = F.cross_entropy(model.module(images), labels)"
)
bank.wrong("loss-as-number", ".item() in every step", result="return loss.item()")
bank.wrong(
    "loss-as-number", ".item() in every step, made a tensor again", result="return torch.tensor(loss.item())"
)
bank.wrong("loss-not-detached", "the loss keeps its graph", result="return loss")
bank.wrong("nothing-returned", "the step returns nothing", result="")
bank.wrong(
    "loss-not-a-number",
    "each sample's loss is returned",
    result="return F.cross_entropy(model(images), labels, reduction='none').detach()",
)
bank.wrong(
    "wrong-loss",
    "the loss after the step is returned",
    result="return F.cross_entropy(model(images), labels).detach()",
)
bank.wrong("no-autocast", "no autocast", autocast="if True:")
bank.wrong(
    "loss-outside-autocast",
    "the loss is computed outside of autocast, in bf16",
    loss="logits = model(images)",
    backward="loss = F.cross_entropy(logits, labels)\nrun.backward(loss)",
)
bank.wrong(
    "always-low-precision",
    "bf16 whatever is asked for",
    autocast="with torch.autocast('cpu', dtype=torch.bfloat16):",
)
bank.wrong(
    BACKWARD_SKIPPED,
    "a rank whose loss is nan skips the step",
    backward="if not loss.isfinite():\n    return loss.detach()\nrun.backward(loss)",
)
bank.wrong(BACKWARD_SKIPPED, "one rank skips backward", backward="if dist.get_rank() == 0: run.backward(loss)")

# ---- wrong: 6.1b

bank.wrong("no-set-epoch", "no set_epoch", set_epoch="")
bank.wrong("set-epoch-constant", "set_epoch(0)", set_epoch="loader.sampler.set_epoch(0)")
bank.wrong(
    "set-epoch-wrong-number",
    "a counter in place of the epoch",
    set_epoch="loader.sampler.set_epoch(getattr(loader.sampler, 'epoch', 0) + 1)",
)
bank.wrong(
    "set-epoch-too-late",
    "set_epoch inside the loop",
    set_epoch="",
    total="loader.sampler.set_epoch(epoch)\nsums[0] += loss * len(labels)",
)
bank.wrong("not-in-training-mode", "no train mode", mode="")
bank.wrong("run-batches-not-used", "the loader itself", loop="for images, labels in loader:")
bank.wrong(
    "run-batches-not-used",
    "the loader itself, moved to the device by hand",
    loop="for batch in loader:\n    images, labels = (part.to(run.device) for part in batch)",
)
bank.wrong("batches-left-out", "the first batch only", count="sums[1] += len(labels)\nbreak")
bank.wrong("batches-repeated", "every batch twice", loop="for images, labels in [*loader, *loader]:")
bank.wrong(
    "no-train-step", "the step is not called", train_step="loss = F.cross_entropy(model(images), labels).detach()"
)
# github.com/karpathy/llm.c/pull/551, github.com/KellerJordan/modded-nanogpt/issues/2
bank.wrong("no-all-reduce", "the mean of this rank only", reduce="")
bank.wrong("average-of-averages", "a mean of the batches' means", total="sums[0] += loss", count="sums[1] += 1")
bank.wrong(
    "average-of-averages",
    "a mean of the ranks' means",
    reduce="mean = sums[0] / sums[1]\ndist.all_reduce(mean)",
    mean="return mean.item() / run.world_size",
)
bank.wrong(
    "summed-not-averaged",
    "the ranks' means are added up",
    reduce="mean = sums[0] / sums[1]\ndist.all_reduce(mean)",
    mean="return mean.item()",
)
bank.wrong("last-batch-only", "the last batch's loss", total="sums[0] = loss", count="sums[1] = 1")
bank.wrong("loss-summed-over-epoch", "the sum over all samples", mean="return sums[0].item()")
bank.wrong(
    "divided-by-world-size",
    "divided by the world size too",
    mean="return (sums[0] / sums[1] / run.world_size).item()",
)
bank.wrong("divided-by-batches", "divided by the number of batches", mean="return (sums[0] / len(loader)).item()")
bank.wrong("means-added", "the batches' means over the number of samples", total="sums[0] += loss")
bank.wrong("count-not-reduced", "the count of this rank only", reduce="dist.all_reduce(sums[0])")
# github.com/pyg-team/pytorch_geometric/pull/6913
bank.wrong("loss-not-reduced", "the losses of this rank only", reduce="dist.all_reduce(sums[1])")
bank.wrong(
    "reduced-in-loop",
    "the running sums are reduced after every batch",
    count="sums[1] += len(labels)\ndist.all_reduce(sums)",
    reduce="",
)
bank.wrong(
    "ranks-disagree",
    "reduced to rank 0 only",
    reduce="mine = sums.clone()\ndist.reduce(mine, dst=0)\nsums = mine if dist.get_rank() == 0 else sums",
)
bank.wrong("tensor-returned", "a tensor is returned", mean="return sums[0] / sums[1]")
bank.wrong(ON_ONE_RANK, "the all_reduce on rank 0 only", reduce="if dist.get_rank() == 0: dist.all_reduce(sums)")
bank.wrong(
    OTHER_SIZES,
    "sums of different sizes",
    reduce="dist.all_reduce(sums if dist.get_rank() == 0 else sums[:1])",
)
bank.wrong("wrong-mean", "the mean and something more", mean="return (sums[0] / sums[1]).item() + 1")
bank.wrong("not-a-number", "both sums are returned", mean="return sums.tolist()")
bank.wrong(
    "not-on-its-device", "sums that are always on the CPU", sums="sums = torch.zeros(2, dtype=torch.float64)"
)
bank.wrong(
    "averaged-again",
    "gradients averaged by hand after DDP has done so",
    step="for p in model.parameters():\n    dist.all_reduce(p.grad)\n    p.grad /= run.world_size\n"
    "optimizer.step()",
)
bank.wrong("not-in-training-mode", "evaluation mode in the step", zero="model.eval()\noptimizer.zero_grad()")
bank.wrong(
    "wrong-factor",
    "gradients are clipped",
    backward="run.backward(loss)\nnn.utils.clip_grad_norm_(model.parameters(), 0.01)",
)
STEP = "loss = train_step(model, optimizer, images, labels, run)"
bank.wrong("wrong-arguments", "the loader in place of the run", train_step=STEP.replace("run", "loader"))
bank.wrong("wrong-arguments", "labels before images", train_step=STEP.replace("images, labels", "labels, images"))

# ---- seen in other settings, on other ranks, in other hands

bank.right(
    "set_epoch twice the epoch",
    set_epoch="loader.sampler.set_epoch(2 * epoch)",
)
bank.right(
    "isinstance DistributedSampler",
    set_epoch=(
        "from torch.utils.data.distributed import DistributedSampler\n"
        "if isinstance(loader.sampler, DistributedSampler):\n    " + "loader.sampler.set_epoch(epoch)"
    ),
)
bank.right(
    "the type's name",
    set_epoch=(
        "if type(loader.sampler).__name__ == 'DistributedSampler':\n    " + "loader.sampler.set_epoch(epoch)"
    ),
)
bank.right(
    "type is",
    set_epoch=(
        "from torch.utils.data import DistributedSampler\n"
        "if type(loader.sampler) is DistributedSampler:\n    " + "loader.sampler.set_epoch(epoch)"
    ),
)
bank.right(
    "asserts the sampler's ranks",
    set_epoch=(
        "assert loader.sampler.num_replicas == dist.get_world_size() and loader.sampler.rank "
        "== dist.get_rank()\n" + "loader.sampler.set_epoch(epoch)"
    ),
)
bank.right(
    "asserts shuffle and drop_last",
    set_epoch=("assert loader.sampler.shuffle and loader.sampler.drop_last\n" + "loader.sampler.set_epoch(epoch)"),
)
bank.right(
    "asserts that run is a Run",
    set_epoch=(
        "assert isinstance(run, Run) and type(run).__name__ == 'Run'\n" + "loader.sampler.set_epoch(epoch)"
    ),
)
bank.right(
    "only set when world size > 1",
    set_epoch=("if run.world_size > 1: " + "loader.sampler.set_epoch(epoch)"),
)
bank.right(
    "asserts types of all",
    set_epoch=(
        "assert isinstance(optimizer, Optimizer) and isinstance(model, nn.Module) and "
        "isinstance(loader, DataLoader)\n" + "loader.sampler.set_epoch(epoch)"
    ),
)
bank.right(
    "sums moved to device before",
    sums="sums = torch.zeros(2, dtype=torch.float64)",
    reduce="sums = sums.to(run.device)\ndist.all_reduce(sums)",
)
bank.wrong(
    "set-epoch-by-rank",
    "set_epoch(epoch + rank)",
    set_epoch="loader.sampler.set_epoch(epoch + dist.get_rank())",
)
bank.wrong(
    "set-epoch-by-rank",
    "set_epoch(epoch * (rank + 1))",
    set_epoch="loader.sampler.set_epoch(epoch * (dist.get_rank() + 1))",
)
bank.wrong(
    "set-epoch-by-rank",
    "set_epoch(epoch * world_size + rank)",
    set_epoch="loader.sampler.set_epoch(epoch * dist.get_world_size() + dist.get_rank())",
)
bank.wrong(
    "set-epoch-constant",
    "set_epoch(epoch % 2)",
    set_epoch="loader.sampler.set_epoch(epoch % 2)",
)
bank.wrong(
    "set-epoch-constant",
    "set_epoch(epoch // 2)",
    set_epoch="loader.sampler.set_epoch(epoch // 2)",
)
bank.wrong(
    "set-epoch-constant",
    "set_epoch(epoch % 10)",
    set_epoch="loader.sampler.set_epoch(epoch % 10)",
)
bank.wrong(
    "set-epoch-constant",
    "set_epoch(min(epoch, 3))",
    set_epoch="loader.sampler.set_epoch(min(epoch, 3))",
)
bank.wrong(
    "set-epoch-constant",
    "set_epoch(max(epoch, 5))",
    set_epoch="loader.sampler.set_epoch(max(epoch, 5))",
)
bank.wrong(
    "no-set-epoch",
    "set_epoch on rank 0 only",
    set_epoch=("if dist.get_rank() == 0: " + "loader.sampler.set_epoch(epoch)"),
)
bank.wrong(
    "set-epoch-wrong-number",
    "set_epoch with a random number",
    set_epoch=("import random\n" + "loader.sampler.set_epoch(random.randrange(10**6))"),
)
bank.wrong(
    "run-backward-not-used",
    "loss.backward() for run.backward(loss)",
    backward="loss.backward()",
)
bank.wrong(
    "run-backward-not-used",
    "torch.autograd.backward",
    backward="torch.autograd.backward(loss)",
)
bank.wrong(
    "no-backward",
    "backward by grad",
    backward="for p, g in zip(model.parameters(), torch.autograd.grad(loss, "
    "list(model.parameters()))): p.grad = g",
)
bank.wrong(
    "run-autocast-not-used",
    "autocast by hand, bf16 if asked",
    autocast="with torch.autocast(images.device.type, dtype=torch.bfloat16, "
    "enabled=run.args.precision == 'bf16'):",
)
bank.wrong(
    "accumulation-broken",
    "grads None by hand",
    zero="for p in model.parameters(): p.grad = None",
)
bank.wrong(
    "wrong-mean",
    "divided by the data set's length",
    count="",
    reduce="dist.all_reduce(sums)",
    mean="return (sums[0] / len(loader.dataset)).item()",
)
bank.wrong(
    "wrong-mean",
    "count from len(sampler)*world",
    count="",
    reduce="dist.all_reduce(sums)",
    mean="return (sums[0] / (len(loader.sampler) * run.world_size)).item()",
)
bank.wrong(
    "not-on-its-device",
    "sums on cuda if available",
    sums="sums = torch.zeros(2, dtype=torch.float64)\nif run.device.type == 'cuda': sums = sums.to('cpu')",
)
bank.wrong(
    "not-on-its-device",
    "reduced through .to(device)",
    sums="sums = torch.zeros(2, dtype=torch.float64)",
    reduce="dist.all_reduce(sums.to(run.device))",
)
bank.wrong(
    "error-swallowed",
    "set_epoch with wrong arguments, hidden",
    set_epoch="try:\n    loader.sampler.set_epoch(epoch, 1)\nexcept Exception:\n    pass",
)
bank.wrong(
    "error-swallowed",
    "set_epoch misspelt, hidden",
    set_epoch="try:\n    loader.sampler.setepoch(epoch)\nexcept AttributeError:\n    pass",
)
bank.wrong(
    "error-swallowed",
    "step hidden",
    step="try:\n    optimizer.step(loss)\nexcept Exception as e:\n    print('step failed', e)",
)
bank.wrong(
    "error-swallowed",
    "backward hidden",
    backward="try:\n    run.backward()\nexcept:\n    pass",
)
bank.wrong(
    "error-swallowed",
    "all_reduce hidden",
    reduce="try:\n    dist.all_reduce(sums[0], sums[1])\nexcept Exception:\n    pass",
)
bank.wrong(
    "wrong-arguments",
    "train_step hidden",
    train_step="try:\n    loss = train_step(model, images, labels, optimizer, run)\n"
    "except Exception:\n    continue",
)
bank.wrong(
    "error-swallowed",
    "suppress",
    set_epoch="from contextlib import suppress\nwith suppress(Exception):\n    loader.sampler.set_epoch()",
)
bank.wrong(
    "not-on-every-rank",
    "rank 0 steps",
    step="if dist.get_rank() == 0: optimizer.step()",
)
bank.wrong(
    "not-on-every-rank",
    "rank 1 clears",
    zero="if dist.get_rank() == 1:\n    optimizer.zero_grad()",
)
bank.wrong(
    "not-in-training-mode",
    "rank 0 trains",
    mode="if run.rank == 0: model.train()",
)
bank.wrong(
    "not-on-every-rank",
    "rank 0 sets the epoch",
    set_epoch="rank = dist.get_rank()\nif rank == 0:\n    loader.sampler.set_epoch(epoch)",
)
bank.wrong(
    "not-on-every-rank",
    "rank 0 counts",
    count="if dist.get_rank() == 0: sums[1] += len(labels)",
)
bank.wrong(
    "not-on-every-rank",
    "rank 0 returns the mean",
    mean="if dist.get_rank() != 0: return 0.0\nreturn (sums[0] / sums[1]).item()",
)
bank.wrong(
    "not-on-every-rank",
    "rank 0 gets a float",
    mean="if dist.get_rank() != 0: return None\nreturn (sums[0] / sums[1]).item()",
)
bank.wrong(
    "not-on-every-rank",
    "rank 0 detaches",
    result="return loss.detach() if dist.get_rank() == 0 else loss",
)
bank.wrong(
    "not-on-every-rank",
    "rank 0 uses autocast",
    autocast="import contextlib\nwith run.autocast() if dist.get_rank() == 0 else contextlib.nullcontext():",
)
bank.wrong(
    "result-not-read",
    "torch.tensor(total)",
    total="sums[0] += loss * len(labels)",
    reduce="total = sums[0].item()\ndist.all_reduce(torch.tensor(total))\ndist.all_reduce(sums[1])",
)
bank.wrong(
    "result-not-read",
    "a clone",
    reduce="dist.all_reduce(sums.clone())",
)
bank.wrong(
    "result-not-read",
    "a variable nobody reads",
    reduce="everybody = sums.clone()\ndist.all_reduce(everybody)",
)
bank.wrong(
    "result-not-read",
    "stacked",
    reduce="dist.all_reduce(torch.stack([sums[0], sums[1]]))",
)
bank.wrong("no-autocast", "two errors: no autocast, and no step", autocast="if True:", step="")
bank.wrong("no-set-epoch", "two errors: no set_epoch, and no all_reduce", set_epoch="", reduce="")

# ---- by somebody who had only a student's package at hand

STRAIGHT = {
    "6.1a": """
optimizer.zero_grad()
with run.autocast():
    loss = F.cross_entropy(model(images), labels)
run.backward(loss)
optimizer.step()
return loss.detach()
""",
    "6.1b": """
model.train()
loader.sampler.set_epoch(epoch)
total = torch.zeros(2, device=run.device)
for images, labels in run.batches(loader):
    loss = train_step(model, optimizer, images, labels, run)
    total[0] += loss * len(labels)
    total[1] += len(labels)
dist.all_reduce(total)
return (total[0] / total[1]).item()
""",
}

bank.right("plain", whole=STRAIGHT)
bank.wrong(
    "wrong-mean",
    "list of losses",
    whole={
        "6.1a": """
model.zero_grad(set_to_none=True)
with run.autocast():
    logits = model(images)
loss = nn.functional.cross_entropy(logits.float(), labels)
run.backward(loss)
optimizer.step()
return loss.detach()
""",
        "6.1b": """
model.train(True)
if isinstance(loader.sampler, torch.utils.data.distributed.DistributedSampler):
    loader.sampler.set_epoch(epoch)
sums = []
for images, labels in run.batches(loader):
    sums.append(train_step(model, optimizer, images, labels, run).double() * labels.shape[0])
count = torch.tensor(float(len(loader) * loader.batch_size), device=sums[0].device)
total = torch.stack(sums).sum()
dist.all_reduce(total)
dist.all_reduce(count)
return float(total / count)
""",
    },
)
bank.right(
    "has set epoch gathers objects",
    whole={
        "6.1a": """
optimizer.zero_grad(set_to_none=True)
context = run.autocast()
with context:
    loss = torch.nn.CrossEntropyLoss()(model(images), labels)
run.backward(loss)
optimizer.step()
return loss.clone().detach()
""",
        "6.1b": """
model.train()
if hasattr(loader.sampler, "set_epoch"):
    getattr(loader.sampler, "set_epoch")(epoch)
mine, seen = 0.0, 0
for batch in run.batches(loader):
    images, labels = batch
    mine += train_step(model, optimizer, images, labels, run).item() * labels.numel()
    seen += labels.numel()
everyone = [None] * dist.get_world_size()
dist.all_gather_object(everyone, (mine, seen))
return sum(m for m, _ in everyone) / sum(s for _, s in everyone)
""",
    },
)
bank.wrong(
    "accumulation-broken",
    "running class",
    whole={
        "6.1a": """
for group in optimizer.param_groups:
    for p in group["params"]:
        p.grad = None
with run.autocast():
    logits = model(images)
    loss = F.nll_loss(F.log_softmax(logits, dim=1), labels)
run.backward(loss)
optimizer.step()
return loss.data
""",
        "6.1b": """
class _Mean:
    def __init__(self):
        self.sum, self.n = 0.0, 0

    def add(self, value, n):
        self.sum = self.sum + value * n
        self.n += n

    def over_all_ranks(self, device):
        sums = torch.stack(
            [torch.as_tensor(self.sum, device=device), torch.tensor(float(self.n), device=device)]
        )
        dist.all_reduce(sums, op=dist.ReduceOp.SUM)
        total, n = sums.tolist()
        return total / n

sampler = loader.sampler
sampler.set_epoch(epoch)
model.train()
mean = _Mean()
for images, labels in run.batches(loader):
    mean.add(train_step(model, optimizer, images, labels, run), len(images))
return mean.over_all_ranks(run.device)
""",
    },
)
bank.wrong(
    "cleared-before-step",
    "clears after backward",
    whole=replaced(
        STRAIGHT,
        ("optimizer.zero_grad()\n", ""),
        ("run.backward(loss)\n", "run.backward(loss)\noptimizer.zero_grad()\n"),
    ),
    slow=True,
)
bank.wrong(
    "gradients-pile-up", "never cleared", whole=replaced(STRAIGHT, ("optimizer.zero_grad()\n", "")), slow=True
)
bank.wrong(
    "run-backward-not-used",
    "bare backward",
    whole=replaced(STRAIGHT, ("run.backward(loss)", "loss.backward()")),
    slow=True,
)
bank.wrong(
    "no-autocast",
    "no autocast, again",
    whole=replaced(STRAIGHT, ("with run.autocast():\n    loss =", "loss =")),
    slow=True,
)
bank.wrong(
    "loss-not-detached",
    "loss with graph",
    whole=replaced(STRAIGHT, ("return loss.detach()", "return loss")),
    slow=True,
)
bank.wrong(
    "loss-as-number",
    "item each step",
    whole=replaced(STRAIGHT, ("return loss.detach()", "return torch.tensor(loss.item(), device=loss.device)")),
    slow=True,
)
bank.wrong(
    "loss-summed",
    "summed loss",
    whole=replaced(STRAIGHT, ("labels)\nrun", 'labels, reduction="sum")\nrun')),
    slow=True,
)
bank.wrong(
    "not-on-every-rank",
    "main steps",
    whole=replaced(STRAIGHT, ("optimizer.step()", "if dist.get_rank() == 0:\n    optimizer.step()")),
    slow=True,
)
bank.wrong(
    "no-set-epoch",
    "epoch not told",
    whole=replaced(STRAIGHT, ("loader.sampler.set_epoch(epoch)\n", "")),
    slow=True,
)
bank.wrong(
    "set-epoch-by-rank",
    "epoch plus rank",
    whole=replaced(STRAIGHT, ("set_epoch(epoch)", "set_epoch(epoch + dist.get_rank())")),
    slow=True,
)
bank.wrong(
    "set-epoch-constant",
    "always epoch zero",
    whole=replaced(STRAIGHT, ("set_epoch(epoch)", "set_epoch(0)")),
    slow=True,
)
bank.wrong(
    "set-epoch-too-late",
    "epoch told too late",
    whole=replaced(
        STRAIGHT,
        ("loader.sampler.set_epoch(epoch)\n", ""),
        ("dist.all_reduce(total)", "loader.sampler.set_epoch(epoch)\ndist.all_reduce(total)"),
    ),
    slow=True,
)
bank.wrong(
    "error-swallowed",
    "hides the sampler error",
    whole=replaced(
        STRAIGHT,
        (
            "loader.sampler.set_epoch(epoch)\n",
            "try:\n    loader.set_epoch(epoch)\nexcept AttributeError:\n    pass\n",
        ),
    ),
    slow=True,
)
bank.wrong(
    "not-in-training-mode",
    "evaluation mode",
    whole=replaced(STRAIGHT, ("model.train()", "model.eval()")),
    slow=True,
)
bank.wrong("no-all-reduce", "mean of own", whole=replaced(STRAIGHT, ("dist.all_reduce(total)\n", "")), slow=True)
bank.wrong(
    "result-not-read",
    "temporary reduced",
    whole=replaced(STRAIGHT, ("dist.all_reduce(total)", "dist.all_reduce(total.clone())")),
    slow=True,
)
bank.wrong(
    "run-batches-not-used",
    "own loader",
    whole=replaced(STRAIGHT, ("in run.batches(loader)", "in loader")),
    slow=True,
)
bank.wrong(
    "wrapper-bypassed",
    "past the wrapper",
    whole=replaced(STRAIGHT, ("model(images)", 'getattr(model, "module", model)(images)')),
)
bank.wrong(
    "last-batch-only",
    "last loss",
    whole=replaced(STRAIGHT, ("total[0] +=", "total[0] ="), ("total[1] +=", "total[1] =")),
)
bank.wrong(
    "divided-by-world-size",
    "divides by world too",
    whole=replaced(
        STRAIGHT, ("(total[0] / total[1]).item()", "(total[0] / total[1]).item() / dist.get_world_size()")
    ),
    slow=True,
)
bank.wrong(
    "tensor-returned",
    "returns a tensor",
    whole=replaced(STRAIGHT, ("(total[0] / total[1]).item()", "total[0] / total[1]")),
    slow=True,
)
bank.wrong(
    "ranks-disagree",
    "reduce to main",
    whole=replaced(STRAIGHT, ("dist.all_reduce(total)", "dist.reduce(total, dst=0)")),
    slow=True,
)
bank.wrong(
    "softmax-before-loss",
    "softmax before loss",
    whole=replaced(
        STRAIGHT,
        ("F.cross_entropy(model(images), labels)", "F.cross_entropy(model(images).softmax(dim=1), labels)"),
    ),
    slow=True,
)
bank.wrong(
    "divided-by-batches",
    "batches counted not samples",
    whole=replaced(STRAIGHT, ("total[1] += len(labels)", "total[1] += 1")),
)
bank.wrong(
    "loss-divided-by-world-size",
    "halved loss",
    whole=replaced(
        STRAIGHT,
        (
            "    loss = F.cross_entropy(model(images), labels)\nrun.backward(loss)",
            "    loss = F.cross_entropy(model(images), labels)\nrun.backward(loss / 2)",
        ),
    ),
    slow=True,
)
bank.wrong(
    "batches-left-out",
    "skips first batch",
    whole=replaced(
        STRAIGHT,
        (
            "for images, labels in run.batches(loader):\n",
            "for i, (images, labels) in enumerate(run.batches(loader)):\n    if i == 0:\n        continue\n",
        ),
    ),
    slow=True,
)

# ---- what is kept silent, changed, written, or asked of another GPU

LOSS = "loss = F.cross_entropy(model(images), labels)"
bank.wrong(
    "error-swallowed",
    "a forward pass that fails is skipped",
    loss=f"try:\n    {LOSS}\nexcept RuntimeError:\n    return torch.zeros(())",
)
bank.wrong(
    "error-swallowed",
    "a backward pass that fails is skipped",
    backward="try:\n    run.backward(loss)\nexcept torch.OutOfMemoryError:\n    print('skipped')",
    slow=True,
)
bank.wrong(
    "error-swallowed",
    "an optimizer step that fails is skipped",
    step="import contextlib\nwith contextlib.suppress(Exception):\n    optimizer.step()",
    slow=True,
)
bank.wrong(
    "error-swallowed",
    "a step that fails is skipped",
    train_step=f"try:\n    {STEP}\nexcept Exception as error:\n    print('skipped', error)\n    continue",
)
bank.right(
    "a failing step is told, and raised again",
    train_step=f"try:\n    {STEP}\nexcept Exception:\n    print('a step failed')\n    raise",
    slow=True,
)
bank.wrong(
    "left-changed",
    "a schedule by hand",
    reduce="for group in optimizer.param_groups:\n    group['lr'] *= 0.9\ndist.all_reduce(sums)",
)
bank.wrong("left-changed", "a seed in every epoch", mode="torch.manual_seed(0)\nmodel.train()", slow=True)
bank.wrong(
    "left-changed",
    "float64 from now on",
    sums="torch.set_default_dtype(torch.float64)\nsums = torch.zeros(2, device=run.device)",
    slow=True,
)
bank.wrong(
    "left-changed",
    "a hook in every step",
    zero="model.register_forward_hook(lambda module, inputs, output: None)\noptimizer.zero_grad()",
    slow=True,
)
bank.wrong(
    "written-by-every-rank",
    "the losses in a file",
    reduce="with open('losses.txt', 'a') as file:\n    print(sums.tolist(), file=file)\ndist.all_reduce(sums)",
    slow=True,
)
bank.wrong(
    "another-gpu",
    "the batch on the GPU of the rank's number",
    zero="optimizer.zero_grad()\nif torch.cuda.is_available():\n"
    "    images, labels = images.to(f'cuda:{dist.get_rank()}'), labels.to(f'cuda:{dist.get_rank()}')",
)
bank.wrong(
    "another-gpu",
    "sums on the GPU of the rank's number",
    sums="device = torch.device('cuda', run.rank) if torch.cuda.is_available() else run.device\n"
    "sums = torch.zeros(2, dtype=torch.float64, device=device)",
    slow=True,
)
bank.wrong(
    "wrapper-bypassed",
    "no_sync in every step",
    autocast="import contextlib\nwrapped = hasattr(model, 'no_sync')\n"
    "with run.autocast(), model.no_sync() if wrapped else contextlib.nullcontext():",
)
bank.wrong(
    "wrapper-bypassed",
    "the module inside, with no_sync",
    loss="loss = F.cross_entropy(getattr(model, 'module', model)(images), labels)",
    slow=True,
)
bank.wrong("accumulation-broken", "divided by --accumulate too", loss=f"{LOSS} / run.args.accumulate")
bank.wrong(
    "wrong-arguments",
    "the module inside for the step",
    train_step=STEP.replace("model,", "getattr(model, 'module', model),"),
    slow=True,
)

# ---- what a wrong mean is equal to, and the line behind what is missing

bank.wrong("wrong-mean", "over the data set's length", mean="return (sums[0] / len(loader.dataset)).item()")
bank.wrong(
    "wrong-mean",
    "over the sampler's length",
    mean="return (sums[0] / (len(loader.sampler) * dist.get_world_size())).item()",
    slow=True,
)
bank.wrong(
    "wrong-mean",
    "a moving average",
    sums="mean = None",
    total="mean = loss if mean is None else 0.9 * mean + 0.1 * loss",
    count="",
    reduce="dist.all_reduce(mean)",
    mean="return mean.item() / dist.get_world_size()",
    slow=True,
)
bank.wrong("wrong-mean", "broadcast in place of all_reduce", reduce="dist.broadcast(sums, src=0)", slow=True)
bank.wrong(
    "wrong-mean",
    "every tenth loss",
    loop="for i, (images, labels) in enumerate(run.batches(loader)):",
    total="if i % 10 == 0: sums[0] += loss * len(labels)",
    count="if i % 10 == 0: sums[1] += len(labels)",
)
bank.wrong(
    "wrong-mean",
    "sums that go on from epoch to epoch",
    sums="if not hasattr(train_one_epoch, 'sums'):\n"
    "    train_one_epoch.sums = torch.zeros(2, dtype=torch.float64)\n"
    "sums = train_one_epoch.sums.to(run.device)",
)
bank.wrong(
    "no-step",
    "a step every second time",
    step="train_step.calls = getattr(train_step, 'calls', 0) + 1\n"
    "if train_step.calls % 2 == 0:\n    optimizer.step()",
)
bank.wrong("not-in-training-mode", "train without parentheses", mode="model.train")
bank.wrong(
    "gradients-pile-up", "zero_grad once an epoch", zero="", mode="model.train()\noptimizer.zero_grad()", slow=True
)
bank.wrong(
    "wrong-gradients",
    "half of the batch",
    zero="optimizer.zero_grad()\nimages, labels = images[: len(images) // 2], labels[: len(labels) // 2]",
    slow=True,
)
bank.wrong(
    "wrong-gradients",
    "images cut to bfloat16",
    zero="optimizer.zero_grad()\nimages = images.to(torch.bfloat16).float()",
    slow=True,
)

# ---- where the device is read, what waits for it, and when batches are taken

bank.right(
    "the device of the parameters",
    sums="sums = torch.zeros(2, dtype=torch.float64, device=next(model.parameters()).device)",
)
bank.right(
    "the device of what the optimizer holds",
    sums="device = optimizer.param_groups[0]['params'][0].device\n"
    "sums = torch.zeros(2, dtype=torch.float64, device=device)",
    slow=True,
)
bank.right(
    "the device where nccl reduces",
    sums="device = torch.device('cpu')\nif dist.get_backend() == 'nccl':\n"
    "    device = torch.accelerator.current_accelerator()\n"
    "sums = torch.zeros(2, dtype=torch.float64, device=device)",
)
bank.right(
    "the GPU, if the parameters are on one",
    sums="where = 'cuda' if next(model.parameters()).is_cuda else 'cpu'\n"
    "sums = torch.zeros(2, dtype=torch.float64, device=where)",
    slow=True,
)
bank.wrong(
    "wrapper-assumed",
    "the device of the module inside",
    sums="sums = torch.zeros(2, dtype=torch.float64, device=next(model.module.parameters()).device)",
)
bank.wrong("waits-for-the-gpu", "the loss on the CPU", result="return loss.detach().cpu()")
bank.wrong("waits-for-the-gpu", "the loss is printed", step="optimizer.step()\nprint(f'loss {loss.detach():.4f}')")
bank.wrong(
    "waits-for-the-gpu",
    "waits for each step",
    step="optimizer.step()\nif loss.is_cuda: torch.cuda.synchronize()",
    slow=True,
)
bank.wrong(
    "waits-for-the-gpu",
    "the loss is kept as a number",
    result="run.last = float(loss)\nreturn loss.detach()",
    slow=True,
)
BATCHES = "for images, labels in run.batches(loader):"
bank.wrong(
    "batches-taken-ahead",
    "a list of all batches",
    loop="batches = list(run.batches(loader))\n" + BATCHES.replace("run.batches(loader)", "batches"),
)
bank.wrong(
    "batches-taken-ahead",
    "one batch ahead",
    loop="from itertools import chain, pairwise\n"
    "for (images, labels), after in pairwise(chain(run.batches(loader), [None])):",
    slow=True,
)
bank.wrong(
    "batches-repeated",
    "counted in a second pass",
    count="",
    reduce="sums[1] = sum(len(labels) for _, labels in run.batches(loader))\ndist.all_reduce(sums)",
)
bank.wrong(
    "wrong-mean",
    "each rank's sampler in place of its samples",
    count="",
    reduce="sums[1] = len(loader.sampler)\ndist.all_reduce(sums)",
    slow=True,
)
bank.wrong(
    "average-of-averages",
    "every batch as large as the loader's",
    total="sums[0] += loss * loader.batch_size",
    count="sums[1] += loader.batch_size",
    slow=True,
)
bank.wrong(
    "error-swallowed",
    "a collective that fails",
    reduce="try:\n    dist.all_reduce(sums)\nexcept RuntimeError:\n    pass",
)
bank.wrong(
    "error-swallowed",
    "gradients that cannot be cleared",
    zero="try:\n    optimizer.zero_grad()\nexcept Exception:\n    pass",
    slow=True,
)
bank.right(
    "moved, if the run is on a GPU",
    sums="sums = torch.zeros(2, dtype=torch.float64)\nif run.device.type == 'cuda':\n    sums = sums.cuda()",
)

# ---- gradients changed between backward() and step(), and batches of another size

bank.wrong(
    "averaged-again",
    "gradients summed by hand after DDP has averaged them",
    backward="run.backward(loss)\nfor p in model.parameters():\n    dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)",
    slow=True,
)
bank.wrong(
    "averaged-again",
    "gradients summed by hand in a list",
    backward="run.backward(loss)\n"
    "grads = [p.grad for p in model.parameters() if p.grad is not None]\n"
    "for grad in grads:\n    dist.all_reduce(grad)",
    slow=True,
)
bank.wrong(
    "gradients-changed",
    "gradients divided by hand",
    backward="run.backward(loss)\nfor p in model.parameters():\n    p.grad /= dist.get_world_size()",
)
bank.wrong(
    "gradients-changed",
    "gradients multiplied by hand",
    backward="run.backward(loss)\nfor p in model.parameters():\n    p.grad.mul_(run.world_size)",
    slow=True,
)
bank.wrong(
    "wrong-mean",
    "each batch with the size of the last",
    sums="losses, samples = [], 0",
    total="losses.append(loss.clone())",
    count="samples += len(labels)",
    reduce="total = torch.stack(losses).double().sum() * len(labels)\n"
    "sums = torch.stack([total, torch.tensor(samples, dtype=torch.float64, device=run.device)])\n"
    "dist.all_reduce(sums)",
    slow=True,
)
bank.wrong(
    "gradients-changed",
    "gradients cut by hand",
    backward="run.backward(loss)\nfor p in model.parameters():\n    p.grad.clamp_(-0.001, 0.001)",
    slow=True,
)
bank.wrong(
    "no-set-epoch",
    "set_epoch in late epochs only",
    set_epoch="if epoch > 100:\n    loader.sampler.set_epoch(epoch)",
    slow=True,
)
bank.wrong(
    "not-in-training-mode", "train() in the first epoch", mode="if epoch == 1:\n    model.train()", slow=True
)
bank.wrong(
    "averaged-again",
    "a backward pass and a sum by hand",
    backward="loss.backward()\nfor p in model.parameters():\n    dist.all_reduce(p.grad)",
    slow=True,
)

# ---- sums that outlive the call, and counts that are not reduced

bank.wrong(
    "wrong-mean",
    "its own samples times the ranks",
    reduce="dist.all_reduce(sums[0])",
    mean="return (sums[0] / (sums[1] * dist.get_world_size())).item()",
    slow=True,
)

# ---- wrong: a line that loses, weights or leaves out

bank.wrong(
    "gradients-pile-up",
    "clears the gradients of the layers only",
    zero="for layer in getattr(model, 'module', model).children():\n"
    "    for parameter in layer.parameters():\n        parameter.grad = None",
    slow=True,
)
bank.wrong(
    "no-autocast",
    "the forward pass before the autocast",
    autocast="logits = model(images)\nwith run.autocast():",
    loss="loss = F.cross_entropy(logits, labels)",
    slow=True,
)
bank.wrong(
    "batches-left-out",
    "takes a batch and does not train on it",
    loop="batches = iter(run.batches(loader))\nimages, labels = next(batches)\nfor images, labels in batches:",
    slow=True,
)
bank.wrong(
    "batches-left-out",
    "leaves a batch behind an islice",
    loop="import itertools\nfor images, labels in itertools.islice(run.batches(loader), len(loader) - 1):",
    slow=True,
)
bank.wrong(
    "average-of-averages",
    "each batch has the weight 1",
    total="weight = 1\nsums[0] += loss * weight",
    count="sums[1] += weight",
    slow=True,
)

# ---- what the loss is computed of

bank.wrong(
    "wrong-gradients",
    "the logarithm of a softmax over the batch",
    loss="log_probabilities = F.log_softmax(model(images), dim=0)\nloss = F.nll_loss(log_probabilities, labels)",
    slow=True,
)
bank.wrong(
    "wrong-gradients",
    "the labels of other images",
    zero="optimizer.zero_grad()\nlabels = labels.roll(1)",
    slow=True,
)
bank.wrong(
    "wrong-mean",
    "a class that keeps a moving average",
    sums="class Smoothed:\n    def __init__(self, keep):\n        self.keep, self.value = keep, None\n\n"
    "    def update(self, loss):\n"
    "        self.value = loss if self.value is None else self.keep * self.value + (1 - self.keep) * loss\n\n"
    "smoothed = Smoothed(0.9)",
    total="smoothed.update(loss)",
    count="",
    reduce="dist.all_reduce(smoothed.value)",
    mean="return smoothed.value.item() / dist.get_world_size()",
    slow=True,
)
bank.wrong(
    "wrapper-bypassed",
    "a helper takes the wrapper off",
    autocast="def unwrap(wrapped):\n    return getattr(wrapped, 'module', wrapped)\n\nwith run.autocast():",
    loss="loss = F.cross_entropy(unwrap(model)(images), labels)",
    slow=True,
)
