"""Given: trains a small vision transformer with what you have written in exercises 9.5, 9.6 and 9.7.

    torchrun --standalone --nproc-per-node 2 from_scratch/main.py tensor --compare
    torchrun --standalone --nproc-per-node 2 from_scratch/main.py pipeline --schedule gpipe
    torchrun --standalone --nproc-per-node 4 from_scratch/main.py hsdp

The main.py of section 5 gives each rank images of its own, and one step fits all its strategies. Here the ranks
share a layer or hand on what comes out of one: all have the same batch, and each way has a step of its own.
With --compare one process trains the same, and the losses must be the same.
"""

import argparse
import copy
import time
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader

from lab.training import EpochRecord, build_network, from_scratch, one_sentence_errors

from hsdp import MyHSDP, make_groups
from pipeline import Stage, gpipe, one_forward_one_backward
from tensor_parallel import parallelize


class OneProcess:
    """No parallelism: what the others are compared with.

    step()     forward and backward: the mean loss, and gradients for the optimizer of `parameters`
    predict()  the logits, on all ranks
    """

    def __init__(self, model: nn.Module, args: argparse.Namespace) -> None:
        self.model = model
        self.parameters = list(model.parameters())

    def step(self, images: Tensor, labels: Tensor) -> Tensor:
        loss = F.cross_entropy(self.model(images), labels)
        loss.backward()
        return loss.detach()

    def predict(self, images: Tensor) -> Tensor:
        return self.model(images)


class TensorParallel(OneProcess):
    """Exercise 9.5: each rank has a part of every block. The step is that of one process."""

    def __init__(self, model: nn.Module, args: argparse.Namespace) -> None:
        for block in model.blocks:
            parallelize(block)
        super().__init__(model, args)


class Part(nn.Module):
    """The part of a vision transformer that one rank of a pipeline has: images or tokens -> tokens or logits."""

    def __init__(self, model: nn.Module, rank: int, ranks: int) -> None:
        super().__init__()
        self.is_first, self.is_last = rank == 0, rank == ranks - 1
        depth = len(model.blocks)
        self.blocks = model.blocks[rank * depth // ranks : (rank + 1) * depth // ranks]
        if self.is_first:
            self.patches, self.position = model.patches, model.position
        if self.is_last:
            self.norm, self.head = model.norm, model.head

    def forward(self, x: Tensor) -> Tensor:
        if self.is_first:
            x = self.patches(x).flatten(2).transpose(1, 2) + self.position
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(dim=1)) if self.is_last else x.contiguous()  # to be sent


class Pipeline:
    """Exercise 9.6: each rank has some of the blocks."""

    def __init__(self, model: nn.Module, args: argparse.Namespace) -> None:
        rank, self.ranks, self.micro_batches = dist.get_rank(), dist.get_world_size(), args.micro_batches
        self.part = Part(model, rank, self.ranks)
        self.parameters = list(self.part.parameters())
        self.tokens, self.classes = model.position.shape[1:], model.head.out_features
        self.stage = Stage(self.part, [args.global_batch_size // args.micro_batches, *self.tokens])
        actions = gpipe if args.schedule == "gpipe" else one_forward_one_backward
        self.schedule = actions(rank, self.ranks, args.micro_batches)

    def step(self, images: Tensor, labels: Tensor) -> Tensor:
        targets = labels.chunk(self.micro_batches)
        losses = self.stage.run(
            self.schedule,
            images.chunk(self.micro_batches),
            lambda output, micro: F.cross_entropy(output, targets[micro]),
        )
        loss = torch.stack(losses).sum() if losses else torch.zeros((), device=images.device)
        dist.broadcast(loss, src=self.ranks - 1)
        return loss

    def predict(self, images: Tensor) -> Tensor:
        """One rank after the other, and all hear what comes of it: slow, but it is short."""
        x = images
        for rank in range(self.ranks):
            if rank == dist.get_rank():
                x = self.part(x)
            else:
                x = x.new_empty(len(x), *(self.tokens if rank < self.ranks - 1 else [self.classes]))
            dist.broadcast(x, src=rank)
        return x


class HSDP:
    """Exercise 9.7: each rank has a shard of the weights, and of each batch images of its own."""

    def __init__(self, model: nn.Module, args: argparse.Namespace) -> None:
        self.model = model
        self.sharded = MyHSDP(model, *make_groups(args.ranks_per_node))
        self.parameters = [self.sharded.shard]

    def step(self, images: Tensor, labels: Tensor) -> Tensor:
        rank, ranks = dist.get_rank(), dist.get_world_size()
        self.sharded.gather()
        loss = F.cross_entropy(self.model(images.chunk(ranks)[rank]), labels.chunk(ranks)[rank])
        loss.backward()
        self.sharded.reduce()
        mean = loss.detach() / ranks
        dist.all_reduce(mean)
        return mean

    def predict(self, images: Tensor) -> Tensor:
        self.sharded.gather()
        logits = self.model(images)
        self.sharded.free()
        return logits


WAYS = {"tensor": TensorParallel, "pipeline": Pipeline, "hsdp": HSDP}


@torch.no_grad()
def evaluate(way: OneProcess | Pipeline | HSDP, loader: DataLoader, device: torch.device) -> tuple[float, float]:
    """Mean loss and accuracy of all validation images."""
    loss, correct, count = 0.0, 0, 0
    for images, labels in loader:
        logits, labels = way.predict(images.to(device)), labels.to(device)
        loss += F.cross_entropy(logits, labels, reduction="sum").item()
        correct += (logits.argmax(dim=1) == labels).sum().item()
        count += len(labels)
    return loss / count, correct / count


def train(
    way: OneProcess | Pipeline | HSDP,
    loaders: tuple[DataLoader, DataLoader],
    args: argparse.Namespace,
    device: torch.device,
    say: bool,
) -> list[list[float]]:
    """All epochs; returns the loss of each step, by epochs."""
    optimizer = torch.optim.AdamW(way.parameters, lr=args.learning_rate)
    every = []
    for epoch in range(1, args.epochs + 1):
        begun, losses = time.perf_counter(), []
        for images, labels in loaders[0]:
            optimizer.zero_grad()
            losses.append(way.step(images.to(device), labels.to(device)))
            optimizer.step()
        every.append(torch.stack(losses).tolist())  # waits for the device
        seconds = time.perf_counter() - begun
        valid_loss, accuracy = evaluate(way, loaders[1], device)
        record = EpochRecord(
            epoch=epoch,
            train_loss=sum(every[-1]) / len(losses),
            valid_loss=valid_loss,
            valid_accuracy=accuracy,
            train_accuracy=float("nan"),  # not counted
            seconds=seconds,
            images_per_second=len(losses) * args.global_batch_size / seconds,
            peak_memory=from_scratch.peak_memory(device),
        )
        if say:
            print(record.metric_line, flush=True)
    return every


def run(args: argparse.Namespace) -> None:
    device = from_scratch.join()
    args = from_scratch.resolve(args, dist.get_world_size())
    is_main = dist.get_rank() == 0
    datasets = from_scratch.read_images(args)
    torch.manual_seed(args.seed)
    model = build_network("vit", len(datasets.classes), width=args.width, depth=args.depth).to(device)
    alone = OneProcess(copy.deepcopy(model), args)
    way = WAYS[args.way](model, args)
    losses = train(way, from_scratch.loaders(datasets, args), args, device, say=is_main)
    if args.compare:
        one_process = train(alone, from_scratch.loaders(datasets, args), args, device, say=False)
        said = from_scratch.compare(args.way, losses, one_process)
        if is_main:
            print(said, flush=True)
    dist.destroy_process_group()


def main(argv: Sequence[str] | None = None) -> None:
    args = from_scratch.parse_args(argv)
    with one_sentence_errors(code=Path(__file__).parent):
        run(args)


if __name__ == "__main__":
    main()
