"""Answers to 8.2: an epoch that waits for the device once."""

from answers.entries import ON_ONE_RANK, Bank

bank = Bank(
    "8.2",
    {
        "8.2": """
total = torch.zeros(2, device=device, dtype=torch.float64)  # sums
for images, labels in batches:  # loop
    loss = train_step(images, labels)  # step
    total += torch.stack([loss * len(labels), torch.full_like(loss, len(labels))])  # add
dist.all_reduce(total)  # reduce
return (total[0] / total[1]).item()  # mean
""",
    },
)

bank.right(
    "a list of losses, stacked at the end",
    sums="losses, sizes = [], []",
    add="losses.append(loss)\nsizes.append(len(labels))",
    reduce="sizes = torch.tensor(sizes, device=device)\n"
    "total = torch.stack([(torch.stack(losses) * sizes).sum().double(), sizes.sum().double()])\n"
    "dist.all_reduce(total)",
)
bank.right(
    "two reductions",
    sums="total, count = torch.zeros((), device=device), 0",
    add="total = total + loss * labels.shape[0]\ncount += labels.shape[0]",
    reduce="count = torch.tensor(count, device=device)\ndist.all_reduce(total)\ndist.all_reduce(count)",
    mean="return float(total / count)",
)
bank.right("both sums read at once", mean="sums, samples = total.tolist()\nreturn sums / samples")
bank.right("addcmul in place", add="total[0].add_(loss, alpha=len(labels))\ntotal[1].add_(labels.numel())")

bank.wrong(
    "waits-in-the-loop",
    ".item() in the loop",
    add="total[0] += loss.item() * len(labels)\ntotal[1] += len(labels)",
)
bank.wrong("waits-in-the-loop", "the loss is printed", step="loss = train_step(images, labels)\nprint(loss)")
bank.wrong("waits-in-the-loop", "float()", add="total[0] += float(loss) * len(labels)\ntotal[1] += len(labels)")
bank.wrong(
    "waits-in-the-loop",
    "losses brought to the CPU",
    add="total[0] += loss.cpu() * len(labels)\ntotal[1] += len(labels)",
)
bank.wrong(
    "waits-in-the-loop", "an if on the loss", step="loss = train_step(images, labels)\nif loss > 100: break"
)
bank.wrong(
    "reduced-in-the-loop",
    "reduced after every batch",
    add="batch = torch.stack([loss * len(labels), torch.full_like(loss, len(labels))])\n"
    "dist.all_reduce(batch)\ntotal += batch",
    reduce="",
)
bank.wrong("no-all-reduce", "the mean of this rank", reduce="")
bank.wrong(
    "average-of-averages", "a mean of the batches", add="total += torch.stack([loss, torch.ones_like(loss)])"
)
bank.wrong(
    "average-of-the-ranks",
    "a mean of the ranks' means",
    reduce="total /= total[1].clone()\ndist.all_reduce(total)",
)
bank.wrong("summed-not-averaged", "the sum over all samples", mean="return total[0].item()")
bank.wrong("loss-not-reduced", "the losses of this rank only", reduce="dist.all_reduce(total[1])")
bank.wrong("divided-by-own-samples", "the samples of this rank only", reduce="dist.all_reduce(total[0])")
bank.wrong(
    "means-added",
    "the batches' means over the samples",
    add="total += torch.stack([loss, torch.full_like(loss, len(labels))])",
)
bank.wrong(
    "last-batch-only",
    "the last batch only",
    add="total = torch.stack([loss, torch.ones_like(loss)]).double()",
    reduce="",
)
bank.wrong("not-one-step-each", "one batch only", step="loss = train_step(images, labels)\nbreak")
bank.wrong("not-a-number", "a tensor is returned", mean="return total[0] / total[1]")
bank.wrong("nothing-returned", "nothing is returned", mean="")
bank.wrong("not-on-its-device", "sums on the CPU", sums="total = torch.zeros(2, dtype=torch.float64)")
bank.wrong(ON_ONE_RANK, "rank 0 alone reduces", reduce="if dist.get_rank() == 0: dist.all_reduce(total)")
bank.wrong("wrong-mean", "something more", mean="return (total[0] / total[1]).item() + 1")
bank.wrong(
    "epochs-added-up",
    "sums that are kept from epoch to epoch",
    sums="total = epoch_loss.__dict__.setdefault('total', torch.zeros(2, device=device, dtype=torch.float64))",
    reduce="total = total.clone()\ndist.all_reduce(total)",
)
bank.wrong(
    "result-remembered",
    "the first epoch's mean, remembered",
    mean="return epoch_loss.__dict__.setdefault('mean', (total[0] / total[1]).item())",
)
bank.right("ReduceOp.AVG of both sums", reduce="dist.all_reduce(total, op=dist.ReduceOp.AVG)")
bank.right(
    "all_gather and a sum",
    reduce="parts = [torch.zeros_like(total) for _ in range(dist.get_world_size())]\n"
    "dist.all_gather(parts, total)\ntotal = torch.stack(parts).sum(dim=0)",
)
bank.right("a check on the device", step="loss = train_step(images, labels)\ntorch._assert_async(loss == loss)")
bank.right(
    "a tensor of a list, when all steps are taken",
    reduce="total = torch.tensor([*total], device=device)\ndist.all_reduce(total)",
)
LIST = "[loss * len(labels), len(labels)]"
bank.wrong(
    "waits-in-the-loop", "a tensor of a list", slow=True, add=f"total += torch.tensor({LIST}, device=device)"
)
bank.wrong("waits-in-the-loop", "new_tensor of a list", slow=True, add=f"total += total.new_tensor({LIST})")
bank.wrong(
    "waits-in-the-loop",
    "a loss in place of a number",
    slow=True,
    add="total += torch.full((2,), loss, device=device) * len(labels)",
)
bank.wrong(
    "waits-in-the-loop",
    "synchronize() after each step",
    slow=True,
    step="loss = train_step(images, labels)\nsynchronize(device)",
)
bank.wrong(
    "reduced-in-the-loop",
    "a barrier after each step",
    slow=True,
    step="loss = train_step(images, labels)\ndist.barrier()",
)
bank.wrong(
    "batches-used-up",
    "samples counted in a second loop",
    add="total[0] += loss * len(labels)",
    reduce="total[1] = sum(len(labels) for _, labels in batches)\ndist.all_reduce(total)",
)
bank.wrong(
    "divided-by-ranks", "divided by the ranks", mean="return (total[0] / total[1]).item() / dist.get_world_size()"
)
bank.wrong(
    "batch-left-out",
    "the first batch as a warm-up",
    loop="for number, (images, labels) in enumerate(batches):",
    step="loss = train_step(images, labels)\nif number == 0: continue",
)
bank.wrong(
    "whole-numbers",
    "sums of integers",
    sums="total = torch.tensor([0, 0], device=device)",
    add="total[0] = total[0] + loss * len(labels)\ntotal[1] += len(labels)",
)
bank.wrong("right-on-some-ranks", "reduced to rank 0", reduce="dist.reduce(total, dst=0)")
bank.wrong("mean-of-one-rank", "rank 0's sums for all", reduce="dist.broadcast(total, src=0)")
bank.wrong("reduced-twice", "the losses reduced twice", reduce="dist.all_reduce(total[0])\ndist.all_reduce(total)")
bank.wrong(
    "half-precision",
    "sums in float16",
    sums="total = torch.zeros(2, device=device, dtype=torch.float16)",
)
bank.wrong(
    "wrong-mean",
    "a moving average",
    slow=True,
    add="total[0] = 0.9 * total[0] + 0.1 * loss\ntotal[1] = 1",
)
bank.wrong(
    "mean-of-one-rank", "the largest sums", slow=True, reduce="dist.all_reduce(total, op=dist.ReduceOp.MAX)"
)
bank.wrong(
    "divided-by-own-samples",
    "as many samples on every rank",
    slow=True,
    reduce="dist.all_reduce(total[0])",
    mean="return (total[0] / (total[1] * dist.get_world_size())).item()",
)
bank.right(
    "reduced while the CPU goes on, and waited for",
    reduce="works = [dist.all_reduce(part, async_op=True) for part in total.unbind()]\n"
    "[work.wait() for work in works]",
)
bank.right(
    "two views reduced one after the other, waited for at the end",
    slow=True,
    reduce="works = [dist.all_reduce(total[:1], async_op=True), dist.all_reduce(total[1:], async_op=True)]\n"
    "for work in works: work.wait()",
)
bank.wrong("not-waited-for", "nobody waits", reduce="dist.all_reduce(total, async_op=True)")
bank.wrong(
    "not-waited-for",
    "read before the wait",
    slow=True,
    reduce="work = dist.all_reduce(total, async_op=True)",
    mean="mean = total[0] / total[1]\nwork.wait()\nreturn mean.item()",
)
bank.wrong(
    "batches-used-up",
    "samples counted before the loop",
    slow=True,
    sums="samples = sum(len(labels) for _, labels in batches)\n"
    "total = torch.zeros(2, device=device, dtype=torch.float64)",
    add="total[0] += loss * len(labels)",
    reduce="total[1] = samples\ndist.all_reduce(total)",
)
bank.wrong(
    "not-one-step-each",
    "leaves where a batch is smaller",
    slow=True,
    sums="total, whole = torch.zeros(2, device=device), 0",
    step="whole = whole or len(labels)\nif len(labels) != whole:\n    break\nloss = train_step(images, labels)",
)
bank.wrong(
    "no-gradients-in-the-step",
    "no_grad() around the whole loop",
    slow=True,
    loop="for images, labels in batches:\n  with torch.no_grad():",
    step="    loss = train_step(images, labels)",
    add="    total += torch.stack([loss * len(labels), torch.full_like(loss, len(labels))])",
)
bank.wrong(
    "no-gradients-in-the-step",
    "gradients switched off for the epoch",
    slow=True,
    sums="torch.set_grad_enabled(False)\ntotal = torch.zeros(2, device=device, dtype=torch.float64)",
    mean="torch.set_grad_enabled(True)\nreturn (total[0] / total[1]).item()",
)
bank.right(
    "no_grad() around the sums alone",
    slow=True,
    add="with torch.no_grad():\n"
    "    total += torch.stack([loss * len(labels), torch.full_like(loss, len(labels))])",
)
bank.wrong(
    "waits-in-the-loop",
    "each loss is brought to where the sums are",
    slow=True,
    sums="total = torch.zeros(2, dtype=torch.float64)",
    add="total[0] += loss.to(total.device) * len(labels)\ntotal[1] += len(labels)",
    reduce="total = total.to(device)\ndist.all_reduce(total)",
)
bank.wrong(
    "wrong-mean",
    "all losses times the samples of the last batch",
    slow=True,
    sums="losses, samples = [], 0",
    add="losses.append(loss)\nsamples += len(labels)",
    reduce="summed = torch.stack(losses).sum() * len(labels)\n"
    "total = torch.stack([summed.double(), torch.tensor(samples, dtype=torch.float64, device=device)])\n"
    "dist.all_reduce(total)",
)
