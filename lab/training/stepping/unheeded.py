"""Options that were given but did not come through: main.py and data.py hand them on, and might not."""

import argparse
from typing import Any

from lab.runs.options.data import loader_options
from lab.runs.options.model import model_options
from lab.runs.options.output import DEFAULT_PRINT_EVERY

LOADER_OPTIONS = {
    "pin_memory": "--pin-memory",
    "persistent_workers": "--persistent-workers",
    "prefetch_factor": "--prefetch",
}


def unheeded(options: argparse.Namespace, device_type: str, model: Any, train_loader: Any) -> list[str]:
    """Warnings about them, and about those that mean nothing on this device or in so short a run.

    Args:
        options: resolved.
        model: wrapped.
        train_loader: the training set's DataLoader.
    """
    warnings = []
    if options.pin_memory and device_type != "cuda":
        warnings.append("--pin-memory has no effect without a GPU")
    steps = len(train_loader) // options.accumulate * options.epochs
    if options.save_every_steps is not None and options.save_every_steps > steps:
        warnings.append(f"--save-every-steps has no effect: the whole run has only {steps} steps")
    length = options.measure_warmup + options.measure_steps if options.measure_steps else steps // options.epochs
    warmed = options.warmup_epochs * length
    if options.warmup_epochs and round(warmed) == 0:
        warnings.append(f"--warmup-epochs has no effect: that is {warmed:.2g} steps, which rounds to none")
    if options.print_every not in (DEFAULT_PRINT_EVERY, 1) and options.print_every >= length:
        warnings.append(f"--print-every prints no line: an epoch has only {length} steps")
    for name, wanted in loader_options(options, device_type).items():
        if getattr(train_loader, name) != wanted:
            warnings.append(
                f"{LOADER_OPTIONS[name]} has no effect: get_dataloaders() did not pass {name}={wanted} on to the "
                "DataLoader"
            )
    if options.augment and getattr(_innermost(train_loader.dataset, "dataset"), "pipeline", None) is None:
        warnings.append("--augment has no effect: load_datasets() was not given **options.input_options(args)")
    if model_options(options) != getattr(_innermost(model, "module"), "built_with", {}):
        given = (
            ["--pretrained"]
            if options.pretrained
            else [f"--{n.replace('_', '-')}" for n in model_options(options)]
        )
        have = "has" if len(given) == 1 else "have"
        warnings.append(
            f"{' and '.join(given)} {have} no effect: build_model() was not given **options.model_options(args)"
        )
    return warnings


def _innermost(wrapped: Any, name: str) -> Any:
    """What is inside of wrappers that call it `name`: DDP its module, a Subset its dataset."""
    while hasattr(wrapped, name):
        wrapped = getattr(wrapped, name)
    return wrapped
