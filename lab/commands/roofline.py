"""lab roofline: which kernels of a training step compute, which wait for memory, and how near to the best."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.roofline.kinds import Kind, Step
    from lab.roofline.step import Subject

HELP = "measure a training step's kernels, and draw them below what the device can do at best"
PRECISIONS = ("fp32", "bf16", "fp16")
KERNELS, COUNTERS = "kernels.csv", "counters.csv"
SIZES = {"width": ("vit",), "depth": ("vit",), "image_size": ("resnet18", "vit")}  # -> whose they are
MEASURING = ("model", "precision", "per_device_batch_size", *SIZES, "code", "ncu")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        nargs="*",
        type=Path,
        metavar="FILE",
        help=f"draw {KERNELS} of before, with {COUNTERS} or what ncu has written, and measure nothing",
    )
    parser.add_argument("--model", help="the network, cnn and FILE:NAME too (default: resnet18)")
    parser.add_argument("--width", type=int, metavar="N", help="of a vit")
    parser.add_argument("--depth", type=int, metavar="N", help="of a vit")
    parser.add_argument("--image-size", type=int, metavar="PIXELS", help="of resnet18 and vit (default: 32)")
    parser.add_argument(
        "--code",
        metavar="DIR",
        help="where cnn's model.py lies (default: your exercises, found from here), or FILE",
    )
    parser.add_argument(
        "--precision", nargs="+", choices=PRECISIONS, help="default: fp32 and bf16 on a GPU, fp32 on the CPU"
    )
    parser.add_argument("--per-device-batch-size", type=int, metavar="N", help="images in the step (default: 128)")
    parser.add_argument(
        "--ncu", action="store_true", default=None, help="count FLOPs and bytes too, under NVIDIA's Nsight Compute"
    )
    parser.add_argument("--output", type=Path, metavar="DIR", help="for files and figure (default: roofline/)")


def run(args: argparse.Namespace) -> int:
    from lab.base.errors import UsageError
    from lab.roofline.kinds import steps

    given = [name for name in MEASURING if args.files and getattr(args, name) is not None]
    if given:
        raise UsageError(f"{args.files[0]} is drawn as it is: --{given[0].replace('_', '-')} is for measuring")
    folder = args.output or (args.files[0].parent if args.files else Path("roofline"))
    kinds = _read(args.files, folder) if args.files else _measure(args, folder)
    found = steps(kinds)
    _tell(found, kinds)
    if not found:
        print(f"Nothing is drawn: the roof is in the {KERNELS} of the same step; name that too")
        return 0
    from lab.roofline.draw import draw
    from lab.sweep.draw.plot import draw_all

    files = draw_all({"roofline": lambda: draw(found)}, folder, "lab roofline")
    print(f"Drawn: {', '.join(file.name for file in files)} in {folder}")
    return 0


def _tell(found: "list[Step]", kinds: "list[Kind]") -> None:
    from lab.roofline.kinds import by_time, counted_table, groups, table

    for step in found:
        print("\n".join([*table(step), ""]))
        if step.counted:
            print("\n".join([*counted_table(step.counted, step), ""]))
    drawn = {step.copy.subject for step in found}
    for subject, counted in groups(kinds).items():
        if subject not in drawn:
            print("\n".join([*counted_table(by_time(counted), None), ""]))


def _read(files: list[Path], folder: Path) -> "list[Kind]":
    """The rows of the files; those that ncu itself has written are kept in counters.csv."""
    from lab.roofline.kinds import load, save
    from lab.roofline.ncu import is_ncu, reduced

    raw = [file for file in files if is_ncu(file)]
    kinds = [one for file in files if file not in raw for one in load(file)]
    counted = [one for file in raw for one in reduced(file)]
    if counted:
        folder.mkdir(parents=True, exist_ok=True)
        save(counted, folder / COUNTERS)
        print(f"Added up by kind: {COUNTERS} in {folder}\n")
    return [*kinds, *counted]


def _measure(args: argparse.Namespace, folder: Path) -> "list[Kind]":
    """The rows of this machine; kept in kernels.csv and counters.csv."""
    import torch

    from lab.base.errors import UsageError
    from lab.roofline.kinds import save

    on_gpu = torch.cuda.is_available()
    if args.ncu and not on_gpu:
        raise UsageError("--ncu counts on an NVIDIA GPU, and PyTorch finds none here")
    precisions = args.precision or (["fp32", "bf16"] if on_gpu else ["fp32"])
    if not on_gpu and "fp16" in precisions:
        raise UsageError("--precision fp16 needs a GPU")
    subjects = [_subject(args, precision) for precision in precisions]
    folder.mkdir(parents=True, exist_ok=True)
    counted = []
    if args.ncu:  # before this process holds any of the GPU
        counted = _count(subjects, folder)
        save(counted, folder / COUNTERS)
    from lab.roofline.measure import measure

    device = torch.device("cuda", torch.cuda.current_device()) if on_gpu else torch.device("cpu")
    kinds = [one for subject in subjects for one in measure(subject, device)]
    save(kinds, folder / KERNELS)
    return [*kinds, *counted]


def _count(subjects: "list[Subject]", folder: Path) -> "list[Kind]":
    import json
    import sys
    from dataclasses import asdict

    from lab.roofline.ncu import count, reduced

    found = []
    for subject in subjects:
        file = folder / f"ncu-{subject.precision}.csv"
        print(f"Counting a step of {subject.name} in {subject.precision} under ncu", flush=True)
        count([sys.executable, "-P", "-m", "lab.roofline.marked", json.dumps(asdict(subject))], file)
        found += reduced(file)
    return found


def _subject(args: argparse.Namespace, precision: str) -> "Subject":
    from lab.base.errors import UsageError
    from lab.roofline.step import Subject
    from lab.runs.options.model import MODELS
    from lab.runs.options.own import is_own

    model = args.model or "resnet18"
    if model not in MODELS and not is_own(model):
        raise UsageError(f"--model {model}: no such network; take {', '.join(MODELS)} or FILE:NAME")
    for name in ("per_device_batch_size", *SIZES):
        value = getattr(args, name)
        if value is not None and value < 1:
            raise UsageError(f"--{name.replace('_', '-')} {value}: at least 1")
    options = {name: getattr(args, name) for name in SIZES if getattr(args, name) is not None}
    for name in options:
        if model not in SIZES[name]:
            raise UsageError(f"--{name.replace('_', '-')} sizes {' and '.join(SIZES[name])}, not {model}")
    own = model == "cnn" or is_own(model)
    if args.code is not None and not own:
        raise UsageError(f"--code {args.code} is for --model cnn and FILE:NAME: {model} is the lab's own")
    code = str(_code(args.code)) if model == "cnn" or args.code is not None else ""
    return Subject(model, precision, args.per_device_batch_size or 128, options, code)


def _code(name: str | None) -> Path:
    from lab.base.paths import student_sources
    from lab.syllabus.paths import find_code, is_labs_own

    code = find_code(name)
    return student_sources() / "solutions" if name is None and is_labs_own(code) else code  # no stubs
