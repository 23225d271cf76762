"""The strategies of section 9: the run itself wraps the model in what the student has built, never wrap_model().

So a main.py that was finished long before needs no change, and none trains with a model that is not wrapped.
"""

import argparse
import importlib
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from lab.base.errors import UserError
from lab.base.paths import module_file
from lab.runs.options.model import OWN_STRATEGIES


def wrap(model: nn.Module, args: argparse.Namespace) -> nn.Module:
    """The model, on its device, in the class that args.strategy names.

    Raises:
        UserError: its module does not lie beside main.py.
    """
    module, name = OWN_STRATEGIES[args.strategy]
    try:
        own: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in (module, module.partition(".")[0]):
            raise
        raise UserError(
            f"--strategy {args.strategy} trains with {name} of {module_file(module)}, which is not there: "
            f"lab reset --file {module_file(module)} brings it back"
        ) from None
    if args.strategy == "my-ddp":
        options: dict[str, Any] = {"bucket_cap_mb": args.bucket_cap_mb}
    else:
        # BatchNorm's parameters stay in fp32, as its statistics are; the run's autocast sees to the other layers.
        norms = any(isinstance(part, _BatchNorm) for part in model.modules())
        options = {"dtype": torch.bfloat16 if args.precision == "bf16" and not norms else torch.float32}
    wrapped: nn.Module = getattr(own, name)(model, **options)
    return wrapped


def check_wrapped(model: nn.Module, wrapped: nn.Module | None, args: argparse.Namespace) -> None:
    """Raises UserError unless the model that is about to be trained is the one that wrap() gave back."""
    if args.strategy in OWN_STRATEGIES and model is not wrapped:
        raise UserError(
            f"--strategy {args.strategy}: main.py must go on with the model that prepare_model() returned, and "
            "wrap_model() must only move it to its device"
        )
