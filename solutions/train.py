"""Section 6: the training loop, the same for one device, DDP and FSDP."""

from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from lab.training import EpochRecord, Run, capturable


@dataclass(frozen=True)
class Evaluation:
    """Means over all samples of all ranks."""

    loss: float
    accuracy: float  # a fraction, 0 to 1


@capturable  # so that --capture can record it as one CUDA graph; nothing to do here
def train_step(model: nn.Module, optimizer: Optimizer, images: Tensor, labels: Tensor, run: Run) -> Tensor:
    """One optimizer step on this rank's part of the batch.

    Args:
        optimizer: with --accumulate N, where a step has N batches, the run lets zero_grad() act in the first of
            them and step() in the last: gradients that are cleared in another way would be lost.
        images: [B, 3, 32, 32], on the model's device.
        labels: [B].
        run: run.autocast() is the context for the forward pass; run.backward(loss) is loss.backward(), ready
            for reduced precision.

    Returns:
        The mean loss of this rank's samples, detached and still on the device: .item() would make the CPU wait
        for the GPU in every step.
    """
    # TODO 6.1a: clear the old gradients; forward pass and mean cross-entropy; backward pass; optimizer step.
    ### BEGIN SOLUTION 6.1a
    optimizer.zero_grad()
    with run.autocast():
        loss = F.cross_entropy(model(images), labels)
    run.backward(loss)
    optimizer.step()
    return loss.detach()
    ### END SOLUTION


def train_one_epoch(model: nn.Module, optimizer: Optimizer, loader: DataLoader, epoch: int, run: Run) -> float:
    """One pass over the training set. Returns the mean loss over all ranks and samples.

    Each sample counts the same, and batches need not be of one size: on another loader they are not.

    Args:
        epoch: counted from 1.
        run: run.batches(loader) yields the batches on the device, and measures the time they take.
    """
    # TODO 6.1b: training mode; tell the sampler which epoch it is; a train_step for each of run.batches(loader);
    # then the mean loss over the samples of all ranks.
    ### BEGIN SOLUTION 6.1b
    model.train()
    loader.sampler.set_epoch(epoch)  # without it, every epoch comes in the same order
    sums = torch.zeros(2, device=run.device, dtype=torch.float64)  # of the losses, of the samples
    for images, labels in run.batches(loader):
        loss = train_step(model, optimizer, images, labels, run)
        sums += torch.stack([loss * len(labels), torch.full_like(loss, len(labels))])
    dist.all_reduce(sums)
    return (sums[0] / sums[1]).item()
    ### END SOLUTION


def evaluate(model: nn.Module, loader: DataLoader, device: torch.device) -> Evaluation:
    """Loss and accuracy over all samples of all ranks, each counted exactly once.

    Args:
        loader: yields the same number of batches on every rank; filler carries the label -100.
    """
    # TODO 6.2: evaluation mode, no gradients; sum up the loss, the right answers and the number of samples,
    # all without the filler; reduce the sums over all ranks and only then divide; back to training mode.
    ### BEGIN SOLUTION 6.2
    model.eval()
    sums = torch.zeros(3, device=device, dtype=torch.float64)  # of the losses, the right answers, the samples
    with torch.no_grad():
        for images, labels in loader:
            images, labels = images.to(device), labels.to(device)
            logits = model(images)
            sums[0] += F.cross_entropy(logits, labels, reduction="sum")  # ignores the label -100
            sums[1] += (logits.argmax(dim=1) == labels).sum()  # filler is never right
            sums[2] += (labels != -100).sum()
    dist.all_reduce(sums)
    model.train()
    loss, correct, samples = sums.tolist()
    return Evaluation(loss=loss / samples, accuracy=correct / samples)
    ### END SOLUTION


def train(
    model: nn.Module, optimizer: Optimizer, train_loader: DataLoader, valid_loader: DataLoader, run: Run
) -> list[EpochRecord]:
    """Train and evaluate in turn. Returns one record an epoch.

    Args:
        run: run.epochs() yields the epochs that are still to do; run.record(epoch, train_loss, loss, accuracy)
            prints and stores an epoch's figures and returns its EpochRecord.
    """
    # TODO 6.3: for each of run.epochs(): train one epoch, evaluate, record.
    ### BEGIN SOLUTION 6.3
    records = []
    for epoch in run.epochs():
        train_loss = train_one_epoch(model, optimizer, train_loader, epoch, run)
        evaluation = evaluate(model, valid_loader, run.device)
        records.append(run.record(epoch, train_loss, evaluation.loss, evaluation.accuracy))
    return records
    ### END SOLUTION
