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
    "average-of-averages", "a mean of the ranks' means", reduce="total /= total[1].clone()\ndist.all_reduce(total)"
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
