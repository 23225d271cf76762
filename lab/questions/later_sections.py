"""Questions of sections 4 to 7: what is sent and kept, the order of things, and what a measurement says."""

from random import Random

from lab.questions.question import Asked, Number, Order, choice, question, shuffled


@question(4, "ring-steps")
def ring_steps(draw: Random) -> Asked:
    ranks = draw.randrange(5, 13)
    return Number(
        f"A ring all-reduce on {ranks} ranks: in how many steps, in each of which every rank sends one part to "
        "its neighbour?",
        2 * (ranks - 1),
        f"{ranks - 1} steps until every part has been added up somewhere, and {ranks - 1} until all have it.",
        {
            ranks - 1: "Then each rank has one part of the sum. The parts still have to go around to all.",
            2 * ranks: "The last step of each round would bring a part to where it is already.",
            ranks: "One round adds up, in one step less than there are ranks. What must happen afterwards?",
        },
        "How many steps until each part is added up, and how many until all have all parts?",
    )


@question(4, "ddp-sends")
def ddp_sends(draw: Random) -> Asked:
    million, ranks = draw.choice([20, 40, 60, 80, 100]), draw.choice([4, 5, 8])
    unit = 4 * million * (ranks - 1) / ranks
    return Number(
        f"DDP with {million} million parameters in fp32 (4 bytes each) on {ranks} ranks, on a ring: how much does "
        "each rank send in a step?",
        2 * unit,
        f"The gradients are {4 * million} MB. An all-reduce is a reduce-scatter and an all-gather, and each sends "
        f"({ranks} - 1)/{ranks} of them.",
        {
            unit: "That is one unit, the reduce-scatter. The sums must come back to all ranks, too.",
            4.0 * million: "So large are the gradients. What does a ring send of them, and how often?",
            8.0
            * million: f"Nearly: in each of the two rounds a rank sends ({ranks} - 1)/{ranks} of the gradients.",
            3 * unit: "That is what FSDP sends.",
            2 * unit / 4: "That many million numbers; each takes 4 bytes.",
        },
        "The bytes of all gradients, times (W - 1)/W, times the number of units.",
        unit="MB",
    )


@question(4, "fsdp-sends")
def fsdp_sends(draw: Random) -> Asked:
    million, ranks = draw.choice([20, 40, 60, 80, 100]), draw.choice([4, 5, 8])
    unit = 4 * million * (ranks - 1) / ranks
    return Number(
        f"FSDP with {million} million parameters in fp32 (4 bytes each) on {ranks} ranks: how much does each rank "
        "send in a step? Count the letters G and R in the figure.",
        3 * unit,
        "Every block is gathered for the forward pass and again for the backward pass, and its gradients are "
        f"reduce-scattered: three units of 4 x {million} MB x ({ranks} - 1)/{ranks}.",
        {
            2
            * unit: "Two units are what DDP sends. FSDP has freed the parameters after the forward pass, so they "
            "are gathered a second time.",
            unit: "That is one all-gather of the whole model. There are more.",
            4 * unit: "The gradients stay in shards: after the reduce-scatter nothing is gathered any more.",
            12.0 * million: f"Nearly: each of the three sends ({ranks} - 1)/{ranks} of the model.",
        },
        "One unit is the model's bytes times (W - 1)/W. How many units are there?",
        unit="MB",
    )


@question(4, "shards-memory")
def shards_memory(draw: Random) -> Asked:
    million, ranks = draw.choice([200, 400, 800, 1000]), draw.choice([4, 8, 16])
    whole = 16 * million / 1000
    return Number(
        f"{million} million parameters in fp32, trained with Adam, which keeps two numbers for each parameter. "
        f"How much do parameters, gradients and optimizer state take on each of {ranks} ranks under FSDP, between "
        "two steps?",
        whole / ranks,
        f"4 x 4 bytes for each parameter are {whole:g} GB in all, and each rank keeps one part of {ranks}.",
        {
            whole: "So much a rank has under DDP, where everything is replicated.",
            4
            * million
            / 1000
            / ranks: "That is the parameters alone. Gradients, and Adam's two numbers, are sharded as well.",
            (4 + 12 / ranks)
            * million
            / 1000: "The parameters are sharded, too: a whole block is there only while it is computed.",
            8 * million / 1000 / ranks: "Adam's two numbers for each parameter are missing.",
            12 * million / 1000 / ranks: "Four things: parameters, gradients, and two numbers of Adam's.",
        },
        "How many numbers are kept for each parameter? Each takes 4 bytes; then the rank's part.",
        unit="GB",
    )


@question(4, "first-bucket")
def first_bucket(draw: Random) -> Asked:
    return choice(
        draw,
        "When does DDP send its first bucket of gradients?",
        [
            (
                "while the backward pass still computes the earlier layers",
                "The backward pass begins at the last layer. As soon as the gradients of a bucket are there, it "
                "is on its way, and the rest of the computation hides it.",
            ),
            (
                "when the backward pass is over",
                "So it is by hand, in exercise 4.0. Then nothing hides the communication.",
            ),
            (
                "in optimizer.step()",
                "The optimizer knows nothing of other ranks. It finds averaged gradients.",
            ),
            (
                "in the forward pass, with the outputs",
                "There are no gradients yet. Under DDP each rank's forward pass concerns nobody else.",
            ),
        ],
    )


MAIN = {
    "setup()": "join the process group and choose the device",
    "load_once()": "download or read the data set",
    "get_dataloaders()": "make the loaders",
    "build_model()": "build the network",
    "wrap_model()": "wrap it with DDP or FSDP",
    "build_optimizer()": "make the optimizer",
    "train()": "train",
    "cleanup()": "leave the process group",
}


@question(5, "order-of-main")
def order_of_main(draw: Random) -> Asked:
    rules = [
        ("setup()", "load_once()", "the ranks wait for each other in a barrier, which needs a process group."),
        ("load_once()", "get_dataloaders()", "the loaders are made of the data set."),
        ("setup()", "build_model()", "the network goes to the device that setup() has chosen."),
        ("build_model()", "wrap_model()", "there must be something to wrap."),
        (
            "wrap_model()",
            "build_optimizer()",
            "FSDP puts shards in place of the parameters: an optimizer from before would hold the old ones.",
        ),
        ("build_optimizer()", "train()", "a step needs it."),
        ("get_dataloaders()", "train()", "there must be something to train on."),
        ("train()", "cleanup()", "every step communicates."),
    ]
    return Order(
        "Sort the steps of main.py.",
        shuffled(draw, list(MAIN)),
        rules,
        "Each step has what it needs. The data and the model do not need each other: there is more than one "
        "order.",
    )


@question(5, "share-of-a-job")
def share_of_a_job(draw: Random) -> Asked:
    nodes, tasks = draw.choice([2, 3, 4]), draw.choice([4, 8])
    share = draw.choice([20, 40, 64])
    batch = share * nodes * tasks
    return Number(
        f"sbatch --nodes={nodes} --ntasks-per-node={tasks} run.sh, with a global batch of {batch}. How many "
        "samples does a rank load for one step?",
        share,
        f"{nodes} x {tasks} ranks share the global batch.",
        {
            batch // tasks: f"There are {tasks} ranks on each node, and {nodes} nodes.",
            batch // nodes: "That is the share of a node. It has several ranks.",
            batch: "So many all ranks load together.",
            nodes * tasks: "That is the world size.",
        },
        "What is the world size?",
    )


@question(6, "accuracy-of-all")
def accuracy_of_all(draw: Random) -> Asked:
    many, few = draw.choice([40, 60, 80]), draw.choice([10, 20])
    right_many, right_few = many * draw.choice([8, 9]) // 10, few * draw.choice([2, 3, 4]) // 10
    exact = 100 * (right_many + right_few) / (many + few)
    means = 50 * (right_many / many + right_few / few)
    return Number(
        f"Rank 0 has {right_many} of its {many} validation samples right, rank 1 {right_few} of its {few}. What "
        "is the accuracy, in per cent?",
        exact,
        f"({right_many} + {right_few}) of ({many} + {few}): add up first, divide last.",
        {
            means: "That is the mean of the two ranks' accuracies, in which the few samples of rank 1 weigh as "
            "much as the many of rank 0.",
            100 * right_many / many: "That is what rank 0 would print without an all-reduce.",
            100 * right_few / few: "That is rank 1's alone.",
            exact / 100: "That is the fraction; in per cent it is a hundred times as much.",
        },
        "How many are right in all, of how many?",
        unit="%",
    )


@question(6, "order-of-a-step")
def order_of_a_step(draw: Random) -> Asked:
    clear, forward, loss = "clear the gradients", "compute the logits", "compute the mean loss"
    backward, average, step = "backward pass", "average over the ranks", "change the weights"
    return Order(
        "Sort what happens in a training step, with gradients averaged by hand.",
        shuffled(draw, [clear, forward, loss, backward, average, step]),
        [
            (forward, loss, "the loss is made of the logits."),
            (loss, backward, "the backward pass begins at the loss."),
            (clear, backward, "it adds to what is in .grad; cleared afterwards, there is nothing left."),
            (backward, average, "before it there are no gradients of this step."),
            (average, step, "each rank would take a step of its own, and the weights would drift apart."),
        ],
        "Clearing can come at any time before the backward pass. DDP averages while that goes on.",
    )


@question(7, "strong-efficiency")
def strong_efficiency(draw: Random) -> Asked:
    devices, one = draw.choice([2, 4, 8]), float(draw.choice([24, 40, 48, 80]))
    seconds = round(one / devices * draw.choice([1.25, 1.5, 1.75]), 2)
    speed_up = one / seconds
    return Number(
        f"Strong scaling: an epoch takes {one:g} s on one device and {seconds:g} s on {devices}. What is the "
        "efficiency, in per cent?",
        100 * speed_up / devices,
        f"The speed-up is {one:g} / {seconds:g} = {speed_up:.3g}, on {devices} devices.",
        {
            100 * speed_up: "That is the speed-up in per cent. How much of it does each device contribute?",
            speed_up: "That is the speed-up. Divide it by the number of devices.",
            100 * seconds / one: "That is how much of the time is left.",
            speed_up / devices: "That is the fraction; in per cent it is a hundred times as much.",
        },
        "Efficiency is the speed-up divided by the number of devices.",
        unit="%",
    )


@question(7, "weak-efficiency")
def weak_efficiency(draw: Random) -> Asked:
    devices, one = draw.choice([4, 8, 16]), float(draw.choice([60, 80, 120]))
    step = round(one / draw.choice([0.6, 0.75, 0.8]), 1)
    return Number(
        f"Weak scaling: a step takes {one:g} ms on one device, and {step:g} ms on {devices} devices with the same "
        "batch on each. What is the efficiency, in per cent?",
        100 * one / step,
        f"{devices} times the work is done in {step / one:.3g} times the time: ideal would be the same time.",
        {
            100
            * one
            / step
            / devices: "The work has grown with the devices already: do not divide by them again.",
            100 * devices * one / step: "That is the speed-up in per cent, "
            f"{devices} times the work in a longer step. Divide it by the number of devices.",
            devices * one / step: "That is the speed-up. Divide it by the number of devices, and give per cent.",
            100 * step / one: "The other way round: a longer step is a lower efficiency.",
        },
        "How long would an ideal step take, and how long does it take?",
        unit="%",
    )


@question(7, "step-on-more")
def step_on_more(draw: Random) -> Asked:
    compute, devices = draw.choice([160, 240, 320]), draw.choice([4, 8])
    sent = draw.choice([12, 20, 28])
    return Number(
        f"Strong scaling: a step computes for {compute} ms on one device. On {devices} devices the all-reduce "
        f"takes {sent} ms, of which nothing is hidden. How long is a step there?",
        compute / devices + sent,
        f"{compute} / {devices} = {compute / devices:g} ms to compute, and {sent} ms to wait. Of these "
        f"{100 * sent / (compute / devices + sent):.0f}% no further device makes shorter.",
        {
            (compute + sent)
            / devices: "Only the computation is shared out. The all-reduce takes as long as it takes.",
            compute / devices: "That is without the all-reduce.",
            compute + sent: "With strong scaling each device computes for its own part of the batch only.",
            compute / devices + sent / devices: "The all-reduce is not shared out.",
        },
        "What becomes shorter with more devices, and what does not?",
        unit="ms",
    )
