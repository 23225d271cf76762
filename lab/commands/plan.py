"""lab plan: which layout of a model fits so many devices, what it sends, how long it takes and what it costs."""

import argparse
from pathlib import Path

HELP = "plan a training before anything runs: what fits, what it sends, how long it takes, what it costs"
DEFAULT_BATCH = 32


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpus", type=int, required=True, metavar="N", help="devices in all")
    parser.add_argument("--gpus-per-node", type=int, metavar="N", help="default: 8, or all where there are fewer")
    parser.add_argument(
        "--card", default="h100", metavar="NAME", help="h100, h200, a100, gh200, ... (default: h100)"
    )
    parser.add_argument("--memory", type=float, metavar="GIB", help="of a device (default: the card's)")
    parser.add_argument(
        "--network", default="ndr", help="between nodes: ndr, hdr, slingshot, ethernet-100, ethernet-25"
    )
    parser.add_argument("--model", default="vit", help="cnn, resnet18, vgg19, mnist_cnn or vit (default: vit)")
    parser.add_argument("--width", type=int, metavar="N", help="of a vit")
    parser.add_argument("--depth", type=int, metavar="N", help="of a vit")
    parser.add_argument("--image-size", type=int, metavar="PIXELS", help="of resnet18 and vit (default: 32)")
    batch = parser.add_mutually_exclusive_group()
    batch.add_argument("--per-device-batch-size", type=int, metavar="N", help=f"images (default: {DEFAULT_BATCH})")
    batch.add_argument("--global-batch-size", type=int, metavar="N", help="images of all devices, instead")
    parser.add_argument("--precision", choices=("fp32", "bf16", "fp16"), default="bf16", help="default: bf16")
    parser.add_argument("--optimizer", choices=("sgd", "adam", "adamw"), default="adamw", help="default: adamw")
    parser.add_argument("--checkpoint-activations", action="store_true", help="keep the blocks' inputs only")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--images", type=float, metavar="N", help="of the whole training, for its GPU-hours")
    length.add_argument("--steps", type=float, metavar="N", help="of the whole training, instead")
    parser.add_argument("--mtbf", type=float, metavar="HOURS", help="between failures of the whole job")
    parser.add_argument(
        "--disk", type=float, default=10.0, metavar="GB/S", help="at which checkpoints are written (default: 10)"
    )
    parser.add_argument("--results", type=Path, metavar="FILE", help="results.csv whose measurements are taken")
    parser.add_argument(
        "--bandwidth",
        type=Path,
        metavar="FILE",
        help="bandwidth.csv of lab bandwidth, for the links (default: the one beside --results)",
    )
    parser.add_argument("--json", action="store_true", help="all numbers, in bytes and seconds")


def run(args: argparse.Namespace) -> int:
    import json

    from lab.bandwidth.timings import FILE
    from lab.plan.hardware import card_of
    from lab.plan.links import links, links_beside
    from lab.plan.measured import constants
    from lab.plan.network import describe
    from lab.plan.plan import as_json, make_plan
    from lab.plan.table import table

    node, batch = _checked(args)
    card = card_of(args.card)
    network = describe(args.model, args.precision, width=args.width, depth=args.depth, image_size=args.image_size)
    checkpoint = args.checkpoint_activations
    measured = args.results and constants(args.results, network, args.gpus, batch, checkpoint=checkpoint)
    found = links(args.bandwidth, card) if args.bandwidth else None
    if args.results and not args.bandwidth:
        found = links_beside(args.results, card, FILE)
    plan = make_plan(
        network,
        card,
        gpus=args.gpus,
        node=node,
        batch=batch,
        memory_gib=args.memory or card.memory,
        between=args.network,
        optimizer=args.optimizer,
        checkpoint=checkpoint,
        images=args.steps * batch * args.gpus if args.steps else args.images,
        mtbf=args.mtbf,
        disk=args.disk,
        measured=measured,
        links=found,
    )
    print(json.dumps(as_json(plan), indent=2) if args.json else "\n".join(table(plan)))
    return 0


def _checked(args: argparse.Namespace) -> tuple[int, int]:
    """Devices in a node, and images a device.

    Raises:
        UsageError: a number is none, or one does not divide the other.
    """
    from lab.base.errors import UsageError
    from lab.plan.hardware import NETWORKS

    numbers = ("gpus", "gpus_per_node", "memory", "width", "depth", "image_size", "per_device_batch_size")
    for name in (*numbers, "global_batch_size", "images", "steps", "mtbf", "disk"):
        value = getattr(args, name)
        if value is not None and not 0 < value < float("inf"):
            raise UsageError(f"--{name.replace('_', '-')} {value:g}: it is more than 0")
    if args.network not in NETWORKS:
        raise UsageError(f"--network {args.network}: not in the table; take one of {', '.join(NETWORKS)}")
    node = args.gpus_per_node or min(8, args.gpus)
    if args.gpus % node:
        raise UsageError(
            f"--gpus {args.gpus} are not whole nodes of {node}: take {max(1, args.gpus // node) * node}, or "
            "another --gpus-per-node"
        )
    whole = args.global_batch_size
    if whole is not None and whole % args.gpus:
        raise UsageError(
            f"--global-batch-size {whole} cannot be divided among {args.gpus} devices: take "
            f"{max(1, whole // args.gpus) * args.gpus}"
        )
    return node, whole // args.gpus if whole is not None else args.per_device_batch_size or DEFAULT_BATCH
