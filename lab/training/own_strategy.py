"""The strategies of section 9: the run itself applies what the student has built, never wrap_model().

So a main.py that was finished long before needs no change, and none trains with a model that is not wrapped.
"""

import argparse
import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from lab.base.errors import UserError
from lab.base.paths import module_file
from lab.runs.options.model import OWN_STRATEGIES


def own_class(args: argparse.Namespace) -> Any:
    """The class that args.strategy names.

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
    return getattr(own, name)


def wrap(model: nn.Module, args: argparse.Namespace) -> nn.Module:
    """The model, on its device, as args.strategy wants it wrapped.

    Raises:
        UserError: the module does not lie beside main.py.
    """
    own = own_class(args)
    if args.strategy == "my-zero":  # which begins where the gradients have been averaged
        device = next(model.parameters()).device
        return DistributedDataParallel(
            model,
            [device] if device.type == "cuda" else None,
            bucket_cap_mb=args.bucket_cap_mb,
            gradient_as_bucket_view=True,
        )
    if args.strategy == "my-ddp":
        options: dict[str, Any] = {"bucket_cap_mb": args.bucket_cap_mb}
    else:
        # BatchNorm's parameters stay in fp32, as its statistics are; the run's autocast sees to the other layers.
        norms = any(isinstance(part, _BatchNorm) for part in model.modules())
        options = {"dtype": torch.bfloat16 if args.precision == "bf16" and not norms else torch.float32}
    wrapped: nn.Module = own(model, **options)
    return wrapped


def own_hooks(
    model: nn.Module, optimizer: Optimizer, args: argparse.Namespace
) -> dict[str, Callable[[], object] | None]:
    """A stepper's `finish` and `update`: how the model waits, and what steps in place of main.py's optimizer."""
    if args.strategy not in OWN_STRATEGIES:
        return {}
    return {
        "finish": getattr(model, "finish", None),
        "update": sharded_step(optimizer, args) if args.strategy == "my-zero" else None,
    }


def sharded_step(optimizer: Optimizer, args: argparse.Namespace) -> Callable[[], object]:
    """The step of the student's sharded optimizer.

    It gets a twin of `optimizer`, whose groups may lose parameters: clearing, clipping and dividing gradients stay
    those of all parameters. The states are in both.
    """
    twin: Optimizer = object.__new__(type(optimizer))
    twin.__dict__.update(optimizer.__dict__)
    twin.param_groups = [dict(group) for group in optimizer.param_groups]
    sharded = own_class(args)(twin)

    def step() -> None:
        for group, own in zip(optimizer.param_groups, twin.param_groups, strict=True):
            own.update({name: value for name, value in group.items() if name != "params"})  # such as the rate
        sharded.step()

    return step


def check_wrapped(model: nn.Module, wrapped: nn.Module | None, args: argparse.Namespace) -> None:
    """Raises UserError unless the model that is about to be trained is the one that wrap() gave back."""
    if args.strategy in OWN_STRATEGIES and model is not wrapped:
        raise UserError(
            f"--strategy {args.strategy}: main.py must go on with the model that prepare_model() returned, and "
            "wrap_model() must only move it to its device"
        )
