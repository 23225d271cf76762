"""What ranks observe of the evaluation."""

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, TensorDataset

from lab.checks.common.left_behind import COLLECTIVES, no_memory, swallowed, swallowed_where, watched
from lab.checks.common.meta_device import META, runs_elsewhere
from lab.checks.common.pending import Handle, handles_noted
from lab.checks.common.pretended_gpu import GPU, asks_for_another
from lab.checks.common.tensors import close
from lab.checks.common.tiny import CPU, TinyNet
from lab.ranks.rank import Rank

IGNORED = -100
WRAPPERS = ("DDP", "FSDP")


class ValidationShard(Dataset):
    """As exercise 3.3 has it, which may not be done yet."""

    def __init__(self, dataset: TensorDataset, rank: int, world_size: int) -> None:
        self.dataset = dataset
        self.rank = rank
        self.world_size = world_size

    def __len__(self) -> int:
        return -(-len(self.dataset) // self.world_size)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        index = i * self.world_size + self.rank
        image, label = self.dataset[index if index < len(self.dataset) else 0]
        return image, label if index < len(self.dataset) else torch.full_like(label, IGNORED)


def evaluate_models(rank: Rank) -> dict[str, Any]:
    """The evaluation of the same network under DDP and under FSDP."""
    train = rank.student("train")
    given = rank.receive()
    images, labels = given["parts"][rank.rank]
    # The whole set again: each rank has every world_size-th sample of it, and filler where it ends.
    everything = [torch.stack(part, dim=1).flatten(0, 1) for part in zip(*given["parts"], strict=True)]
    whole = [part[everything[1] != IGNORED] for part in everything]
    size = given["batch_size"]

    def loader_of(count: int) -> DataLoader:
        """Of the first samples, as get_dataloaders() makes it for validation."""
        samples = TensorDataset(*(part[:count] for part in whole))
        return DataLoader(ValidationShard(samples, rank.rank, rank.world_size), batch_size=size)

    loader = loader_of(len(whole[1]))
    report: dict[str, Any] = {}
    for wrapper in WRAPPERS:
        net = TinyNet(given["weights"])
        model: nn.Module = DistributedDataParallel(net) if wrapper == "DDP" else shard(net)
        # As after a training epoch; FSDP prepares itself in the first pass, which must not be in inference mode.
        F.cross_entropy(model(images), labels.clamp(min=0)).backward()
        passes = note_evaluation(net)
        called = count_calls(model)
        pending: list[Handle] = []
        with watched(rank, model, weights=wrapper == "DDP") as left, handles_noted(pending):
            result = train.evaluate(model, loader, CPU)
        report[wrapper] = {
            **describe_evaluation(result),
            "called": len(called),
            "pending": sum(not handle.used for handle in pending),
            "left": left,
            "passes": list(passes),
            "restored": all(module.training for module in model.modules()),
            "gradients": torch.is_grad_enabled(),
        }
        torch.set_grad_enabled(True)
    # Once more, as after the next epoch, with other figures: those of the first batch alone.
    loader = loader_of(size * rank.world_size)
    report["again"] = describe_evaluation(train.evaluate(model, loader, CPU))
    report["few"] = {"values": {}}
    if on_every_rank(all(close(report[one]["values"].get("loss", 0.0), given["exact"]) for one in WRAPPERS)):
        # A sample less than there are ranks: all that the last rank has is filler.
        report["few"] = describe_evaluation(train.evaluate(model, loader_of(rank.world_size - 1), CPU))
    lines: list[int] = []
    report["elsewhere"] = runs_elsewhere(train.evaluate, TinyNet().to(META), loader, META, lines=lines)
    report["line"] = next(iter(lines), 0)
    report["asked"] = asks_for_another(train.evaluate, TinyNet(), loader, GPU)
    # Where there are enough, two batches of one size: what is left of the first one fits the second, too.
    net, loader = TinyNet(), loader_of(min(len(whole[1]), 2 * size * rank.world_size))
    lost = {"the model's second forward pass": swallowed(train.evaluate, fails_later(TinyNet()), loader, CPU)}
    failing: dict[str, list[tuple[Any, str]]] = {
        "model.eval()": [(net, "eval")],
        "F.cross_entropy()": [(F, "cross_entropy")],
    }
    for what, targets in (failing | {"the collective": COLLECTIVES}).items():
        lost[what] = swallowed_where(targets, train.evaluate, net, loader, CPU)
    report["swallowed"] = lost
    return report


def on_every_rank(true: bool) -> bool:
    """Whether something is true on all ranks: none of them goes on to where the others do not come."""
    everywhere = torch.tensor(int(true))
    dist.all_reduce(everywhere, op=dist.ReduceOp.MIN)
    return bool(everywhere)


def shard(net: TinyNet) -> nn.Module:
    for block in net.blocks:
        fully_shard(block)
    fully_shard(net)
    return net


def count_calls(model: nn.Module) -> list[None]:
    """Filled by each forward pass of the model itself, and not of what it has wrapped."""
    calls: list[None] = []
    forward = model.forward

    def noting(*args: Any, **kwargs: Any) -> Any:
        calls.append(None)
        return forward(*args, **kwargs)

    model.forward = noting
    return calls


def fails_later(net: TinyNet) -> TinyNet:
    """The network, whose first forward pass goes through and no other."""
    passes: list[None] = []

    def fail(module: nn.Module, inputs: Any) -> None:
        passes.append(None)
        if len(passes) > 1:
            no_memory()

    net.register_forward_pre_hook(fail)
    return net


def note_evaluation(net: TinyNet) -> list[dict[str, Any]]:
    """Filled by each forward pass: how many images, in training mode or not, with or without gradients."""
    passes: list[dict[str, Any]] = []

    def note(module: nn.Module, inputs: Any, output: Tensor) -> None:
        passes.append(
            {
                "images": len(output),
                "training": any(part.training for part in net.modules()),
                "gradients": torch.is_grad_enabled(),
            }
        )

    net.classifier.register_forward_hook(note)
    return passes


def describe_evaluation(result: Any) -> dict[str, Any]:
    values = {name: getattr(result, name, None) for name in ("loss", "accuracy")}
    return {
        "type": type(result).__name__,
        "fields": all(hasattr(result, name) for name in values),
        "types": {name: type(value).__name__ for name, value in values.items()},
        "values": {name: float(value) for name, value in values.items() if isinstance(value, float | int)},
    }
