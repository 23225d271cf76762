"""lab roofline: which kernels of a training step compute, which wait for memory, and how near to the best."""

import argparse
from pathlib import Path

HELP = "measure a training step's kernels, and draw them below what the device can do at best"
PRECISIONS = ("fp32", "bf16", "fp16")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", nargs="?", type=Path, metavar="FILE", help="draw a kernels.csv of before, and measure nothing"
    )
    parser.add_argument("--model", help="the network (default: resnet18)")
    parser.add_argument(
        "--precision", nargs="+", choices=PRECISIONS, help="default: fp32 and bf16 on a GPU, fp32 on the CPU"
    )
    parser.add_argument("--per-device-batch-size", type=int, metavar="N", help="images in the step (default: 128)")
    parser.add_argument("--output", type=Path, metavar="DIR", help="for file and figure (default: roofline/)")


def run(args: argparse.Namespace) -> int:
    from lab.base.errors import UsageError
    from lab.roofline.kinds import load, save, steps, table

    given = [
        name
        for name in ("model", "precision", "per_device_batch_size")
        if args.file is not None and getattr(args, name) is not None
    ]
    if given:
        raise UsageError(f"{args.file} is drawn as it is: --{given[0].replace('_', '-')} is for measuring")
    if args.file is not None:
        kinds, folder = load(args.file), args.output or args.file.parent
    else:
        kinds, folder = _measure(args), args.output or Path("roofline")
        folder.mkdir(parents=True, exist_ok=True)
        save(kinds, folder / "kernels.csv")
    found = steps(kinds)
    for step in found:
        print("\n".join([*table(step), ""]))
    from lab.roofline.draw import draw
    from lab.sweep.draw.plot import draw_all

    files = draw_all({"roofline": lambda: draw(found)}, folder, "lab roofline")
    print(f"Drawn: {', '.join(file.name for file in files)} in {folder}")
    return 0


def _measure(args: argparse.Namespace) -> list:
    import torch

    from lab.base.errors import UsageError
    from lab.roofline.measure import measure
    from lab.runs.options.own import is_own
    from lab.training.networks import NETWORKS

    model, batch = args.model or "resnet18", args.per_device_batch_size or 128
    if model not in NETWORKS and not is_own(model):
        raise UsageError(f"--model {model}: no such network; take {', '.join(NETWORKS)} or FILE:NAME")
    if args.per_device_batch_size is not None and args.per_device_batch_size < 1:
        raise UsageError(f"--per-device-batch-size {args.per_device_batch_size}: at least 1")
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")
    precisions = args.precision or (["fp32", "bf16"] if on_gpu else ["fp32"])
    if not on_gpu and "fp16" in precisions:
        raise UsageError("--precision fp16 needs a GPU")
    return [one for precision in precisions for one in measure(model, precision, batch, device)]
