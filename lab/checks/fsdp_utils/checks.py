"""Checks of the second part of section 4: parameters sharded over the ranks with fully_shard."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from lab.checks.common.look import Look
from lab.checks.common.look_values import made_of_one
from lab.checks.common.tensors import retold
from lab.checks.common.tiny import LIMIT, draw_batch, draw_training, draw_weights, fresh_generator, parts
from lab.checks.fsdp_utils.judge_precision import judge_alone, judge_precision
from lab.checks.fsdp_utils.judge_shards import (
    EVERY_RANK,
    FSDP1,
    MESH_SIZE,
    SHARDS,
    judge_shards,
    sent_after_sharding,
)
from lab.checks.fsdp_utils.judge_training import judge_training
from lab.grading.check import Group, Order, check
from lab.grading.parts import part

# What ranks do, by name: it imports more than the grader's own process needs.
TRAIN_IN_BF16 = f"{__package__}.observe:train_in_bf16"
TRAIN_SHARDED = f"{__package__}.observe:train_sharded"


@contextmanager
def odd_arguments() -> Iterator[None]:
    """Names what comes of modules and arguments that fully_shard is called with."""
    with ExitStack() as stack:
        for told in (
            retold(
                "OffloadError",
                "parameters-offloaded",
                "They would travel to the GPU and back in every step: the shards stay on `device`.",
                saw="fully_shard was called with offload_policy=CPUOffloadPolicy(): shards on the CPU.",
            ),
            retold(
                "can only be applied to a module once",
                "sharded-twice",
                "Each is handed over once: with 16 bits BatchNorms by shard_batchnorms, each whole block here.",
                saw="fully_shard was called for a module for which it has been called before.",
            ),
        ):
            stack.enter_context(told)
        yield


def raised_in_own_code(group: Group) -> bool:
    """Whether a line of the student's own took an item that is not there, and not one of PyTorch's."""
    errors = [report.error for result in group.results for report in result.reports]
    last = [error.frames[-1].file for error in errors if error and error.frames]
    return any(Path(file).is_relative_to(group.code) for file in last)


@check("4.2", "every rank keeps its shard of each block, and trains as one process would")
def trains_sharded(group: Group) -> None:
    look = Look(group.code, "fsdp_utils.py", "get_fsdp_model")
    started = []
    for world_size in (2, 3):
        weights, batches, given = draw_training(world_size)
        order = Order(TRAIN_SHARDED, world_size, given, timeout=LIMIT)
        started.append((group.start(order), weights, batches))
    for report, weights, batches in started:
        with (
            sent_after_sharding(look),
            retold(
                "WrongSourceError", "sources-differ", "src is the rank that sends: all name the same one, rank 0."
            ),
            retold(
                "IndexError: list index out of range",
                MESH_SIZE,
                EVERY_RANK,
                look=look.source_of("fully_shard", "mesh", like=r"\(.*\d")
                or look(r"[mM]esh\w*\(.*\d", r"[mM]esh\w*\(", r"fully_shard\("),
                unless=lambda: raised_in_own_code(group),
            ),
            retold(
                "mesh_dim_names specified",
                "mesh-of-two-dimensions",
                "On a 2D mesh fully_shard keeps copies along the first dimension: here it is 1D, of all ranks.",
                saw="fully_shard was called with a mesh of two dimensions, and without names for them.",
                look=made_of_one(look)
                or look.source_of("fully_shard", "mesh", like=r",\s*1\b|\b1\s*,|\[\[")
                or look(r"[mM]esh\w*\(", r"fully_shard\("),
            ),
            odd_arguments(),
            retold(
                "uniform `requires_grad`",
                "fsdp1-not-fsdp2",
                FSDP1,
                saw="get_fsdp_model() called FullyShardedDataParallel, which refuses frozen parameters.",
            ),
            retold(
                "do(es)? not implement forward",
                "container-sharded",
                "A ModuleList only holds modules, nobody calls it: shard each of the modules in model.blocks.",
                saw="get_fsdp_model() called fully_shard for a list of modules, which has no forward().",
                look=look(r"\bfor\b.*(children|named_children)\(", r"fully_shard\(\s*model\.blocks"),
            ),
        ):
            reports = group.values(report())
        judge_shards(look, reports, weights)
        with part("trains as one process would", after=[SHARDS]):
            judge_training(look, reports, weights[0], batches)


@check("4.2", "precision='bf16' computes in bf16, and keeps in fp32 what needs it", after_passed=True)
def trains_in_bf16(group: Group) -> None:
    look = Look(group.code, "fsdp_utils.py", "get_fsdp_model")
    generator = fresh_generator()
    weights, own = draw_weights(generator), parts(draw_batch(generator, 8), 2)
    # On one rank too, where a sweep's curve begins: what is not sharded there computes in fp32.
    both, alone = (
        group.start(Order(TRAIN_IN_BF16, len(ranks), {"weights": weights, "parts": ranks}, timeout=LIMIT))
        for ranks in (own, own[:1])
    )
    with part("computes in bf16 and fp16"), odd_arguments():
        judge_precision(look, group.values(both()))
        judge_alone(look, group.values(alone()))
