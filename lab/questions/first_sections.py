"""Questions of sections 1 to 3: shapes, ranks, collectives, samples."""

from random import Random

from lab.questions.question import Asked, Number, choice, question


@question(1, "last-batch")
def last_batch(draw: Random) -> Asked:
    ranks, size = draw.choice([2, 4]), draw.choice([8, 16, 32])
    last = draw.randrange(1, size - 1)
    samples = ranks * (size * draw.randrange(3, 9) + last)
    alone = samples % (ranks * size) or ranks * size
    return Number(
        f"{samples} validation images are shared out evenly among {ranks} ranks, and each rank reads its part in "
        f"batches of {size}. How many images are in the last batch of a rank?",
        last,
        f"Each rank has {samples // ranks} images: {samples // ranks // size} whole batches, and {last} are left.",
        {
            size: f"The last batch is whole only if {size} divides a rank's {samples // ranks} images.",
            alone: "That is the rest of the whole set in whole global batches. Each rank has its own rest.",
        },
        "First a rank's part of the images, then how many of them are left after whole batches.",
    )


@question(2, "global-rank")
def global_rank(draw: Random) -> Asked:
    gpus, nodes = draw.choice([6, 8]), draw.randrange(3, 6)
    node, local = draw.randrange(1, nodes), draw.randrange(1, gpus)
    return Number(
        f"A job has {nodes} nodes, numbered from 0, with {gpus} GPUs each, and one rank for each GPU. "
        f"Which rank is local rank {local} on node {node}?",
        node * gpus + local,
        f"{node} {'node comes' if node == 1 else 'nodes come'} before it, with {gpus} ranks each: "
        f"{node} x {gpus} + {local}.",
        {
            local: f"That is its local rank. Every node has a local rank {local}; a rank exists once in the job.",
            node * nodes + local: "Count the ranks of the nodes before it: each has as many as it has GPUs.",
            node * gpus + local + 1: "Ranks are counted from 0.",
            node: "That is the number of the node.",
        },
        "How many ranks are on the nodes before, and how many before it on its own node?",
    )


@question(2, "sum-everywhere")
def sum_everywhere(draw: Random) -> Asked:
    ranks, step, who = draw.choice([3, 4, 5]), draw.randrange(2, 7), draw.randrange(0, 3)
    total = step * ranks * (ranks + 1) // 2
    return Number(
        f"On {ranks} ranks x is {step} * (rank + 1), then dist.all_reduce(x). What is x on rank {who}?",
        total,
        f"{' + '.join(str(step * (rank + 1)) for rank in range(ranks))}, the same on every rank.",
        {
            step * (who + 1): "That is what it was before. all_reduce changes the tensor in place.",
            total / ranks: "all_reduce adds up. For a mean you still have to divide.",
            total - step * (who + 1): "The rank's own part counts, too.",
            step * ranks * (ranks - 1) // 2: "rank + 1: the ranks count from 0, the numbers here from one step.",
        },
        "Add up what all ranks have.",
    )


@question(2, "own-part")
def own_part(draw: Random) -> Asked:
    first = draw.sample(range(1, 9), 3)
    second = draw.sample(range(20, 90, 10), 3)
    third = draw.sample(range(200, 900, 100), 3)
    who = draw.randrange(3)
    part = first[who] + second[who] + third[who]
    return Number(
        f"Three ranks have x = {first} (rank 0), {second} (rank 1) and {third} (rank 2), and call reduce_scatter. "
        f"What does rank {who} get?",
        part,
        f"The sum is {[sum(column) for column in zip(first, second, third, strict=True)]}; rank {who} gets its "
        f"part {who}.",
        {
            (first, second, third)[who][who]: "That is a part of its own x. The tensors are added up first.",
            sum(
                (first, second, third)[who]
            ): "That is the sum over one rank's x. Sum over the ranks, place by place.",
            sum(first + second + third): "That is the sum of everything. Each rank gets only its part of the sum.",
        },
        "Add up the three tensors place by place. Rank r gets place r.",
    )


@question(2, "who-waits")
def who_waits(draw: Random) -> Asked:
    ranks = draw.choice([3, 4])
    alone = draw.randrange(ranks)
    return choice(
        draw,
        f"{ranks} ranks run this. What happens?",
        [
            (
                f"rank {alone} waits in line 2 for ever, the others at the end",
                f"Only rank {alone} calls the all_reduce, so nobody ever meets it there. The others come to the "
                "barrier, and wait there for it.",
            ),
            (
                f"rank {alone} gets its own loss back and all go on",
                "A collective ends only when all ranks have called it; it does not count who has come.",
            ),
            (
                f"the others wait in line 2, rank {alone} goes on",
                f"The others skip line 2: their rank is not {alone}.",
            ),
            (
                "PyTorch raises an error at once",
                "No rank knows that the others have gone another way. There is an error after the timeout, which "
                "is half an hour with gloo and ten minutes with NCCL unless you say otherwise.",
            ),
        ],
        code=f"1  if rank == {alone}:\n2      dist.all_reduce(loss)\n3  dist.barrier()",
    )


@question(2, "line-that-hangs")
def line_that_hangs(draw: Random) -> Asked:
    late = draw.choice(["rank > 0", "rank == 0"])
    return choice(
        draw,
        "Two ranks run this. Which is the first line in which a rank waits for ever?",
        [
            (
                "line 4",
                "One rank is in the broadcast of line 4, the other in the barrier of line 5: they never meet.",
            ),
            ("line 2", "Both ranks call line 2, so both come out of it."),
            ("line 5", "Before that one rank is stuck in line 4, for which the other never comes."),
            ("none: both come to the end", "Line 4 is a collective, and only one of the two calls it."),
        ],
        code="1  x = torch.ones(1) * rank\n2  dist.all_reduce(x)\n"
        f"3  if {late}:\n4      dist.broadcast(x, src=0)\n5  dist.barrier()",
    )


@question(3, "samples-a-rank")
def samples_a_rank(draw: Random) -> Asked:
    ranks = draw.choice([4, 6, 8])
    share, rest = draw.randrange(20, 90), draw.randrange(1, ranks)
    samples = ranks * share + rest
    return Number(
        f"A DistributedSampler with drop_last=True shares out {samples} samples among {ranks} ranks. How many "
        "does each draw in an epoch?",
        share,
        f"{samples} = {ranks} x {share} + {rest}: the last {rest} of this epoch's order are left out.",
        {
            share + 1: "So many it would be with drop_last=False: then some samples are drawn twice.",
            samples: "That is the whole set: as without a sampler.",
            samples / ranks: "Every rank draws whole samples, and all ranks equally many.",
        },
        "All ranks draw equally many, and none is drawn twice.",
    )


@question(3, "steps-an-epoch")
def steps_an_epoch(draw: Random) -> Asked:
    ranks, share = draw.choice([2, 4, 8]), draw.choice([16, 32, 64])
    steps = draw.randrange(11, 60)
    batch = ranks * share
    samples = steps * batch + draw.randrange(1, batch)
    return Number(
        f"{samples} training samples, {ranks} ranks, a global batch of {batch}; the last partial batch is "
        "dropped. How many optimizer steps does each rank make in an epoch?",
        steps,
        f"All ranks make the same steps together, and each uses {batch} samples: {samples} / {batch}, rounded "
        "down.",
        {
            samples // share: f"A step uses the {share} samples of each of the {ranks} ranks.",
            steps + 1: "The last partial batch is dropped.",
            steps // ranks: f"The global batch of {batch} is that of all ranks already: do not divide again.",
            samples / batch: "There are only whole steps.",
        },
        "How many samples do all ranks together use in one step?",
    )


@question(3, "how-much-filler")
def how_much_filler(draw: Random) -> Asked:
    ranks = draw.choice([4, 6, 8])
    rest = draw.choice([rest for rest in range(1, ranks) if 2 * rest != ranks])
    samples = ranks * draw.randrange(5, 40) + rest
    return Number(
        f"{samples} validation samples on {ranks} ranks, each counted once, and equally many places on each rank. "
        "How many places are filler?",
        ranks - rest,
        f"Each rank has {-(-samples // ranks)} places, {ranks * -(-samples // ranks)} in all.",
        {
            rest: f"{rest} samples are left over after {samples // ranks} for each rank: so many ranks have one "
            "more. The others are filled up.",
            0: f"{ranks} does not divide {samples}.",
        },
        "How many places does each rank have, and how many are there in all?",
    )


@question(3, "no-set-epoch")
def no_set_epoch(draw: Random) -> Asked:
    return choice(
        draw,
        "Somebody forgot sampler.set_epoch(epoch). What do the ranks draw in the second epoch?",
        [
            (
                "the same samples in the same order as in the first",
                "The order follows from the seed and the epoch, and the sampler still thinks that it is epoch 0. "
                "It trains, but every epoch has the same batches.",
            ),
            (
                "samples of their own, but two ranks may draw the same one",
                "All ranks shuffle alike, by the same seed: their parts do not overlap, with or without "
                "set_epoch.",
            ),
            (
                "the samples in the order of the data set",
                "It does shuffle, by its seed; only always in the same way.",
            ),
            (
                "nothing: the sampler is used up",
                "A sampler begins anew with every loop over the loader.",
            ),
        ],
    )
