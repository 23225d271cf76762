"""Observe halves for the tests of stepping."""

import pickle
from typing import Any

import tiny_run
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from lab.base.errors import UserError
from lab.ranks.rank import Rank
from lab.runs import options
from lab.training.run import Run
from lab.training.stepping import compiling
from lab.training.stepping.stepper import Stepper

CPU = torch.device("cpu")


def communication(rank: Rank) -> list[list[str]]:
    """For every micro-batch of an epoch: the collectives from before its forward pass to after its step()."""
    train, wrap = rank.student("train"), {"ddp": rank.student("ddp_utils"), "fsdp": rank.student("fsdp_utils")}
    data = rank.student("data")
    args = options.parse([*tiny_run.BATCH, *rank.receive()["argv"]])
    seen = []
    with Run(args, CPU) as run:
        args = run.args
        images = tiny_run.Images(24)
        loader, _ = data.get_dataloaders(images, images, args.loader_batch_size)
        model = getattr(wrap[args.strategy], f"get_{args.strategy}_model")(tiny_run.TinyNet(), CPU)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        run.begin(model, optimizer, loader)
        for images, labels in run.batches(loader):
            before = len(recorded())
            train.train_step(model, optimizer, images, labels, run)
            seen.append(recorded()[before:])
    return seen


def traced(rank: Rank) -> dict[str, Any]:
    """tiny_run.train() with --compile tracing as always, then PyTorch's own kernels; and the number of graphs."""
    compiling.BACKEND = "aot_eager"
    before = graphs()
    return {**tiny_run.train(rank), "graphs": graphs() - before}


def graphs() -> int:
    """How many different graphs torch.compile has made in this process."""
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def recorded() -> list[str]:
    """The names of this rank's collectives so far, from PyTorch's flight recorder."""
    entries = pickle.loads(torch._C._distributed_c10d._dump_fr_trace())["entries"]
    return [entry["profiling_name"] for entry in entries]


def overflow(rank: Rank) -> dict[str, Any]:
    """Two steps with a loss scaler, the first with a gradient that overflows on rank 1 only."""
    strategy = rank.receive()["strategy"]
    code = rank.student(f"{strategy}_utils")
    torch.manual_seed(0)
    model = getattr(code, f"get_{strategy}_model")(tiny_run.TinyNet(dropout=0.0), CPU)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    stepper = Stepper(model, optimizer, clip_norm=1.0, scaler=scaler)
    images, labels = torch.randn(4, 3, 8, 8), torch.zeros(4, dtype=torch.int64)
    states = []
    for step in range(2):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images), labels)
        stepper.backward(loss * (torch.inf if step == 0 and rank.rank == 1 else 1.0))
        optimizer.step()
        states.append([scaler.get_scale(), whole(model)])
    return {"states": states, "steps": stepper.steps}


def whole(model: nn.Module) -> list[Tensor]:
    return [getattr(p, "full_tensor", lambda p=p: p)().detach().clone() for p in model.parameters()]


def misuse(rank: Rank) -> list[str]:
    """What a training loop is told that does not fit its options."""
    sentences = []

    def run(loader: DataLoader, *argv: str) -> None:
        args = options.parse(["--strategy", "ddp", *argv])
        try:
            model = nn.Linear(2, 2)
            Run(args, CPU, records=False).begin(model, torch.optim.SGD(model.parameters()), loader)
        except UserError as error:
            sentences.append(str(error))

    images = torch.utils.data.TensorDataset(torch.zeros(16, 2))
    run(DataLoader(images, batch_size=4), "--global-batch-size", "16", "--accumulate", "4")
    run(DataLoader(images, batch_size=2), "--global-batch-size", "64", "--accumulate", "16")
    return sentences


def random_streams(rank: Rank) -> dict[str, Any]:
    """Random numbers: Python's and NumPy's before begin(), and after it torch's too."""
    import random

    import numpy

    model, loader = nn.Linear(2, 2), DataLoader(torch.utils.data.TensorDataset(torch.zeros(8, 2)))
    run = Run(options.parse(["--seed", "3", *rank.receive()["argv"]]), CPU, records=False)
    before = [random.random(), float(numpy.random.rand())]
    run.begin(model, torch.optim.SGD(model.parameters()), loader)
    after = [random.random(), float(numpy.random.rand()), torch.rand(1).item()]
    return {"before": before, "after": after, "deterministic": torch.are_deterministic_algorithms_enabled()}


def sharded_sgd(rank: Rank) -> list[list[Tensor]]:
    """Weights and momenta after five steps under FSDP: first with PyTorch's own SGD, then as --capture takes them.

    The layers are too small for three ranks to have equal shards; of the last bias one of them has none.
    """
    settings = rank.receive()
    wrap = rank.student("fsdp_utils").get_fsdp_model
    results = []
    for capturable in (False, True):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 2))
        net.blocks = [net[0]]
        model = wrap(net, CPU)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, weight_decay=1e-3, **settings)
        stepper = Stepper(model, optimizer, rate_factor=lambda step: 1 / (1 + step), clip_norm=1.0)
        if capturable:
            stepper.make_capturable()
        generator = torch.Generator().manual_seed(rank.rank)
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.randn(4, 5, generator=generator)).square().mean().backward()
            optimizer.step()
        momenta = [state["momentum_buffer"] for state in optimizer.state.values() if "momentum_buffer" in state]
        results.append([tensor.full_tensor() for tensor in (*model.parameters(), *momenta)])
    return results
