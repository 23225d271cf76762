"""An epoch's figures, and the row of run.csv that they make. Imports no torch."""

import argparse
import math
from collections.abc import Mapping
from dataclasses import dataclass

from lab.runs.records.folder import job_id

GIB = 2**30
MIB = 2**20


@dataclass(frozen=True)
class Totals:
    """An epoch so far over all ranks; seconds are those of the slowest, bytes those of the fullest."""

    images: float  # seen in training
    correct: float  # of these
    seconds: float  # of the training pass
    evaluated: float  # images, filler included
    evaluation_seconds: float
    peak_memory: int  # allocated on CUDA this epoch; ever resident on the CPU
    gradient_norm: float = math.nan  # the mean over the steps; nan where it was not measured
    loss_scale: float = math.nan  # at the end; nan without fp16


@dataclass(frozen=True)
class Work:
    """What an image costs in training: its forward and its backward pass."""

    flops: float = math.nan  # nan where they were not counted
    best_seconds: float = math.nan  # of one device at its peak; nan where nobody knows the peak
    devices: int = 1

    def flops_per_second(self, images_per_second: float) -> float:
        """Of one device, when all together train so many images."""
        return self.flops * images_per_second / self.devices

    def utilisation(self, images_per_second: float) -> float:
        """The MFU, a fraction."""
        return self.best_seconds * images_per_second / self.devices


@dataclass(frozen=True)
class EpochRecord:
    """An epoch's figures over all ranks."""

    epoch: int  # counted from 1
    train_loss: float
    valid_loss: float
    valid_accuracy: float  # a fraction
    train_accuracy: float  # a fraction; measured while the weights changed
    seconds: float  # of the training pass, on the slowest rank
    images_per_second: float  # of the training pass, over all ranks
    peak_memory: int  # bytes on the fullest rank: allocated on CUDA, resident on the CPU
    step_seconds: float = math.nan  # of an optimizer step, on the slowest rank
    measured_steps: int = 0  # that this is the mean of
    steps_per_epoch: int = 0  # in one pass over the data set
    gradient_norm: float = math.nan  # over all parameters, before clipping; the mean over the steps
    loss_scale: float = math.nan  # fp16's, at the end
    flops_per_second: float = math.nan  # of one device, in the network's forward and backward passes
    mfu: float = math.nan  # model FLOPs utilisation: the part of a device's peak that this is, a fraction
    held_memory: int = 0  # bytes of weights, gradients and optimizer state on rank 0

    @property
    def metric_line(self) -> str:
        """The line of the log that programs read."""
        return (
            f"[METRIC] epoch={self.epoch} time={self.seconds:.3f} train_loss={self.train_loss:.4f} "
            f"val_loss={self.valid_loss:.4f} acc={self.valid_accuracy:.4f} "
            f"images_per_sec={self.images_per_second:.1f} peak_mem={self.peak_memory / MIB:.0f}MB"
        )


@dataclass(frozen=True)
class TimedSteps:
    """What --measure-steps has measured."""

    steps: int
    step_seconds: float  # of one, on the slowest rank
    images_per_step: int


def make_record(
    epoch: int,
    train_loss: float,
    valid_loss: float,
    valid_accuracy: float,
    totals: Totals,
    pass_steps: int,
    timed: TimedSteps | None,
    work: Work,
    held_memory: int = 0,
) -> EpochRecord:
    """An epoch's record.

    Args:
        pass_steps: optimizer steps in one pass over the data.
        timed: of a measurement: the record tells what a pass over the data takes at its speed.
        work: what an image costs.
        held_memory: bytes, of this rank.
    """
    images, seconds = totals.images or math.nan, totals.seconds if totals.images else math.nan
    speed, steps = images / seconds, pass_steps
    step_seconds = seconds / steps if steps else math.nan
    if timed is not None:
        steps, step_seconds = timed.steps, timed.step_seconds
        seconds, speed = step_seconds * pass_steps, timed.images_per_step / step_seconds
    return EpochRecord(
        epoch=epoch,
        train_loss=train_loss,
        valid_loss=valid_loss,
        valid_accuracy=valid_accuracy,
        train_accuracy=totals.correct / images,
        seconds=seconds,
        images_per_second=speed,
        peak_memory=totals.peak_memory,
        step_seconds=step_seconds,
        measured_steps=steps,
        steps_per_epoch=pass_steps,
        gradient_norm=totals.gradient_norm,
        loss_scale=totals.loss_scale,
        flops_per_second=work.flops_per_second(speed),
        mfu=work.utilisation(speed),
        held_memory=held_memory,
    )


def run_row(
    args: argparse.Namespace,
    hosts: list[str],
    on_gpus: bool,
    provenance: Mapping[str, str],
    record: EpochRecord | None,
) -> dict[str, object]:
    """A row of run.csv, as far as a single run can know it.

    Args:
        args: resolved.
        hosts: of every rank.
        provenance: the columns that say on what it runs, the commit among them.
        record: None for a run that has finished no epoch.
    """
    world_size, nodes = len(hosts), len(set(hosts))
    row: dict[str, object] = {
        "strategy": args.strategy,
        "model": args.model,
        "dataset": args.dataset,
        "precision": args.precision,
        "scaling": args.scaling or "",
        "repeat": args.repeat,
        "status": "running",
        "jobid": job_id(),
        "epochs": args.epochs,
        "world_size": world_size,
        "nodes": nodes,
        "gpus_per_node": world_size // nodes if on_gpus else 0,
        "global_batch": args.global_batch_size,
        "per_gpu_batch": args.per_device_batch_size,
        "input": args.input,
        "bucket_cap_mb": f"{args.bucket_cap_mb:g}" if args.strategy in ("ddp", "my-ddp") else "",
        **provenance,
    }
    if record is not None:
        row |= {
            "epoch": record.epoch,
            "train_top1": record.train_accuracy,
            "val_top1": record.valid_accuracy,
            "images_per_sec": record.images_per_second,
            "time_epoch_s": record.seconds,
            "mem_gb": record.peak_memory / GIB,
            "step_time_s": record.step_seconds,
            "measured_steps": record.measured_steps,
            "steps_per_epoch": record.steps_per_epoch,
            "grad_norm": _known(record.gradient_norm),
            "loss_scale": _known(record.loss_scale),
            "tflops_per_device": _known(record.flops_per_second / 1e12),
            "mfu": _known(record.mfu),
            "held_mb": record.held_memory / MIB or "",
        }
    return row


def _known(value: float) -> float | str:
    return "" if math.isnan(value) else value
