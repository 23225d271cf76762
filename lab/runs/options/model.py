"""Options: what to train, and how it is spread. No torch."""

import argparse
from pathlib import Path

from lab.base.errors import UsageError
from lab.runs.options.numbers import positive
from lab.runs.options.own import metavar, one_of_or_own

# Those of section 9, which the student builds: module and class in the folder of main.py.
OWN_STRATEGIES = {
    "my-ddp": ("from_scratch.ddp", "MyDDP"),
    "my-zero": ("from_scratch.zero", "ZeroOptimizer"),
    "my-fsdp": ("from_scratch.fsdp", "MyFSDP"),
}
REPLICATED = ("ddp", "my-ddp", "my-zero")  # every rank has the whole model, and gradients travel in buckets
STRATEGIES = ("none", "ddp", "fsdp", "fsdp1", *OWN_STRATEGIES)
BARE = ("fsdp1", *OWN_STRATEGIES)  # without checkpoints, fp16, CUDA graphs and torch.compile
SHARDINGS = ("full", "grad", "hybrid")
MODELS = ("cnn", "resnet18", "vgg19", "mnist_cnn", "vit")

DEFAULT_WIDTH, DEFAULT_DEPTH = 192, 6
VGG19_WEIGHTS = "vgg19-dcbb9e9d.pth"  # as torchvision calls them: its name ends in its checksum


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what to train, and how it is spread")
    group.add_argument(
        "--strategy",
        choices=STRATEGIES,
        default="ddp",
        help="none: one device, no wrapper (only at world size 1); ddp: replicated; fsdp: sharded with "
        "fully_shard; fsdp1: sharded with FullyShardedDataParallel, for comparison; "
        "my-ddp, my-zero, my-fsdp: your own of exercises 9.2, 9.3 and 9.4",
    )
    group.add_argument(
        "--shard",
        choices=SHARDINGS,
        help="fsdp only; full: parameters are sharded again after each block's forward pass; grad: only after its "
        "backward pass, for fewer all-gathers and more memory; hybrid: several copies of the model, each sharded "
        "over some of the ranks, on a 2D mesh (default: full)",
    )
    group.add_argument(
        "--shard-ranks",
        type=positive(int),
        metavar="N",
        help="--shard hybrid only: ranks that share one copy (default: those of a node, where there are several)",
    )
    group.add_argument(
        "--model",
        type=one_of_or_own(MODELS),
        metavar=metavar(MODELS),
        default="cnn",
        help="cnn: the one of the exercises; resnet18: for 32x32 images; vgg19: torchvision's, for 224x224; "
        "mnist_cnn: for mnist; vit: a vision transformer for 32x32, as large as you like; FILE:NAME: your own",
    )
    group.add_argument(
        "--width", type=positive(int), metavar="N", help=f"vit only: a multiple of 64 (default: {DEFAULT_WIDTH})"
    )
    group.add_argument(
        "--depth", type=positive(int), metavar="N", help=f"vit only: transformer blocks (default: {DEFAULT_DEPTH})"
    )
    group.add_argument(
        "--pretrained",
        action="store_true",
        help="vgg19 only: begin with ImageNet weights, which are downloaded to --data-dir once",
    )
    group.add_argument(
        "--checkpoint-activations",
        action="store_true",
        help="keep each block's input only and compute the rest again for the backward pass: less memory, "
        "about a third more time",
    )


def resolve(
    options: argparse.Namespace, resolved: argparse.Namespace, world_size: int, ranks_per_node: int | None
) -> list[str]:
    """Fill in width, depth and shard_ranks. Returns warnings.

    Args:
        ranks_per_node: consecutive ranks on each node; None where the nodes differ, or nobody knows.

    Raises:
        UsageError: a size does not fit the model, the strategy the ranks, or the sharding either of them.
    """
    if options.strategy == "none" and world_size != 1:
        raise UsageError(
            f"--strategy none trains on one device, but there are {world_size} ranks: start one rank, or "
            "choose --strategy ddp or fsdp"
        )
    if options.strategy == "my-fsdp" and options.checkpoint_activations:
        raise UsageError(
            "--checkpoint-activations computes blocks again, for which --strategy my-fsdp does not gather them: "
            "use --strategy fsdp"
        )
    if options.model == "vit":
        resolved.width, resolved.depth = options.width or DEFAULT_WIDTH, options.depth or DEFAULT_DEPTH
    elif options.width is not None or options.depth is not None:
        raise UsageError(f"--width and --depth size the vit; --model {options.model} has one size only")
    if options.pretrained and options.model != "vgg19":
        raise UsageError(
            f"--pretrained: there are ImageNet weights for --model vgg19 only, not for {options.model}"
        )
    return _resolve_sharding(options, resolved, world_size, ranks_per_node)


def _resolve_sharding(
    options: argparse.Namespace, resolved: argparse.Namespace, world_size: int, ranks_per_node: int | None
) -> list[str]:
    if options.shard is not None and options.strategy != "fsdp":
        why = ", which has full sharding only here" if options.strategy == "fsdp1" else ""
        raise UsageError(
            f"--shard {options.shard} is for --strategy fsdp, not for {options.strategy}{why}: leave out one of "
            "them"
        )
    if options.shard != "hybrid":
        if options.shard_ranks is not None:
            raise UsageError("--shard-ranks divides the ranks for --shard hybrid only: add that, or leave it out")
        alone = options.shard is not None and world_size == 1
        return [f"--shard {options.shard} has no effect on one rank, which has no other to share with"] * alone
    sizes = [size for size in range(2, world_size) if world_size % size == 0]
    if not sizes:
        raise UsageError(
            f"--shard hybrid needs ranks for two copies, each shared by two or more: {world_size} cannot be "
            "divided so; start 4, 6, 8, ... of them, or use --shard full or grad"
        )
    size = options.shard_ranks or ranks_per_node
    named = " or ".join(map(str, sizes))
    if size not in sizes:
        if options.shard_ranks is not None:
            why = f"{size} ranks to a copy do not divide {world_size} into several copies of several ranks"
        elif size is None:
            why = "the nodes have different numbers of ranks"
        else:
            why = "all ranks are on one node" if size == world_size else f"there is {size} rank on each node"
        raise UsageError(f"--shard hybrid on {world_size} ranks: {why}; use --shard-ranks {named}")
    resolved.shard_ranks = size
    return []


def model_options(options: argparse.Namespace) -> dict[str, object]:
    """Keyword arguments for build_model(), from resolved options."""
    sizes = {} if options.image_size is None else {"image_size": options.image_size}
    if options.model == "vit":
        return {"width": options.width, "depth": options.depth, **sizes}
    if options.pretrained:
        return {"weights": weights_path(options.data_dir)}
    return sizes


def shard_options(options: argparse.Namespace) -> dict[str, int]:
    """Keyword arguments for get_fsdp_model(), from resolved options: with --shard hybrid, the ranks to a copy."""
    return {} if options.shard_ranks is None else {"shards": options.shard_ranks}


def weights_path(data_dir: Path) -> Path:
    """Where vgg19's weights are, or will be downloaded to."""
    return data_dir / VGG19_WEIGHTS
