"""What happens between backward() and the new weights: accumulation, fp16's scaler, clipping, the rate.

The training loop of train.py stays the usual one, zero_grad(), backward(), step() for each batch. A Stepper takes
the place of the optimizer's two methods, on that one object, as PyTorch's own LR schedulers do, so that the loop
need not change with the options.
"""

import argparse
import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.optim import SGD, Optimizer
from torch.utils.data import DataLoader

from lab.base.errors import UserError
from lab.runs.options.schedule import rate_factor
from lab.training.metrics.step_figures import GradientSquare, clip_gradients
from lab.training.profiling.phases import BACKWARD, OPTIMIZER, Phases
from lab.training.stepping.meter import is_recording
from lab.training.stepping.precision import make_scaler
from lab.training.stepping.seeding import random_states, restore_random_states
from lab.training.stepping.sharded_sgd import sharded_sgd_step


class Stepper:
    """Makes optimizer.zero_grad() and optimizer.step() do what the options ask for.

    Args:
        model: wrapped; the optimizer's parameters are its own.
        rate_factor: step -> what to multiply each group's rate by; steps count from 0.
        accumulate: micro-batches to an optimizer step. In such a step zero_grad() acts at its first
            and step() at its last micro-batch only, and no gradients are communicated before the last.
        clip_norm: the gradients' norm over all parameters and ranks is scaled down to this, if it is larger.
        scaler: fp16's.
        phases: told when the backward pass and the optimizer's work begin and end.
        finish: called before each step: a model of section 9 waits there for what it has begun to communicate.
        update: takes the step in place of the optimizer's own step().
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        *,
        rate_factor: Callable[[int], float] = lambda step: 1.0,
        accumulate: int = 1,
        clip_norm: float | None = None,
        scaler: torch.amp.GradScaler | None = None,
        phases: Phases | None = None,
        finish: Callable[[], object] | None = None,
        update: Callable[[], object] | None = None,
    ) -> None:
        self.steps = 0  # optimizer steps done
        self.scaler = scaler
        self.accumulate = accumulate
        self.model, self.optimizer = model, optimizer
        self.square: GradientSquare | None = None  # where the gradients' norm is wanted
        self._rate_factor = rate_factor
        self._clip_norm = clip_norm
        self._phases = phases or Phases()
        self._finish = finish
        self._scaled = False  # whether backward() has scaled a loss since the last step
        self._parts = 1  # micro-batches of the step going on; 1 outside of micro_batch()
        self._stepped = False  # whether step() was called in this micro-batch
        self.is_first = self.is_last = True  # whether this micro-batch begins, ends its step
        self.copied: torch.cuda.Event | None = None  # after it a checkpoint has the weights as they are now
        self._settings: list[tuple[dict[str, Any], dict[str, Any]]] = []  # of each group: its own, the captured
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])  # the name that PyTorch's schedulers use
        self._peak_rates = [float(group["initial_lr"]) for group in optimizer.param_groups]
        self.rates = list(self._peak_rates)  # of the latest step; read from here they need no GPU
        self._zero_grad, self._step = optimizer.zero_grad, optimizer.step
        self._zero_model_grad = model.zero_grad
        self._update: Callable[[], object] = update or optimizer.step  # what takes the step
        self._attach()

    def _attach(self) -> None:
        self.optimizer.zero_grad = self._zero_grad_at_first  # type: ignore[method-assign]
        self.optimizer.step = self._step_at_last  # type: ignore[method-assign, assignment]
        self.model.zero_grad = self._model_zero_grad_at_first  # type: ignore[method-assign]
        for group, (_, captured) in zip(self.optimizer.param_groups, self._settings, strict=False):
            group.update(captured)

    def release(self) -> None:
        """Give the optimizer and the model their own methods back."""
        self.optimizer.zero_grad, self.optimizer.step = self._zero_grad, self._step  # type: ignore[method-assign]
        self.model.zero_grad = self._zero_model_grad  # type: ignore[method-assign]
        for group, (own, _), rate in zip(self.optimizer.param_groups, self._settings, self.rates, strict=False):
            group.update({**own, "lr": rate})

    def make_capturable(self) -> None:
        """Let step() be a part of a CUDA graph: nothing in it is decided on the CPU, and its rates are on the GPU.

        Raises:
            UserError: this optimizer cannot do that.
        """
        for group in self.optimizer.param_groups:
            if "fused" not in group and "capturable" not in group:
                raise UserError(
                    f"--capture cannot record the steps of {type(self.optimizer).__name__}, which has neither "
                    "`fused` nor `capturable`: use --optimizer sgd, adam or adamw"
                )
            wanted = {"fused": True, "foreach": False, "capturable": True}
            captured: dict[str, Any] = {name: value for name, value in wanted.items() if name in group}
            captured["lr"] = torch.tensor(group["lr"], dtype=torch.float32, device=group["params"][0].device)
            self._settings.append(({name: group[name] for name in captured}, captured))
        self.optimizer._step_supports_amp_scaling = True  # type: ignore[attr-defined]  # fp16: the kernel decides
        if isinstance(self.optimizer, SGD) and isinstance(self.model, FSDPModule):
            self._update = functools.partial(sharded_sgd_step, self.optimizer)
        for parameter, state in self.optimizer.state.items():
            if "step" in state:  # from a checkpoint
                state["step"] = state["step"].to(parameter.device, torch.float32)
        self._attach()

    @contextlib.contextmanager
    def released(self) -> Iterator[None]:
        """For PyTorch's own use of the optimizer, such as setting up its state before a checkpoint is loaded."""
        self.release()
        try:
            yield
        finally:
            self._attach()

    @contextlib.contextmanager
    def micro_batch(self, index: int) -> Iterator[None]:
        """Around the index-th micro-batch of an epoch, from before its forward pass to after its step()."""
        position = index % self.accumulate
        self._parts = self.accumulate
        self.is_first, self.is_last = position == 0, position == self.accumulate - 1
        try:
            with contextlib.nullcontext() if self.is_last else no_gradient_sync(self.model):
                yield
        finally:
            self._parts, self.is_first, self.is_last, self._stepped = 1, True, True, False

    def backward(self, loss: Tensor) -> None:
        """loss.backward(), scaled up for fp16."""
        self._phases.enter(BACKWARD)
        if self.scaler is None:
            loss.backward()
        else:
            self.scaler.scale(loss).backward()
            self._scaled = True

    def _zero_grad_at_first(self, set_to_none: bool = True) -> None:
        if self.is_last if self._stepped else self.is_first:
            self._phases.enter(OPTIMIZER)
            self._zero_grad(set_to_none)
            self._phases.enter("")

    def _model_zero_grad_at_first(self, set_to_none: bool = True) -> None:
        if self.is_last if self._stepped else self.is_first:
            self._zero_model_grad(set_to_none)

    def _step_at_last(self, closure: None = None) -> None:
        if closure is not None:
            raise ValueError("a run's optimizer takes no closure: call backward(), then step()")
        if self.is_last:
            if self._finish is not None:
                self._finish()
            self._phases.enter(OPTIMIZER)
            self._apply_gradients()
        self._stepped = True  # a zero_grad() that comes now clears for the next step
        self._phases.enter("")

    def _apply_gradients(self) -> None:
        if self.scaler is not None:
            if not self._scaled:
                raise UserError("fp16 needs its loss scaled: call run.backward(loss) instead of loss.backward()")
            self._scaled = False
            self.scaler.unscale_(self.optimizer)
        if self._parts > 1:
            # The mean over the step. The gradients, not the losses, so that a plain loss.backward() is right.
            for gradient in self._gradients():
                gradient.div_(self._parts)
        if self.square is not None:
            self.square.measure(self._gradients())
        if self._clip_norm is not None:
            clip_gradients(self.model, self._parameters, self._clip_norm)
        recording = is_recording()  # then whoever replays it does the counting, and the waiting
        if not recording:
            self.await_copies()
            self.set_rates()
        if self.scaler is None:
            self._update()
        else:
            # The scaler calls optimizer.step(), unless a gradient overflowed.
            self.optimizer.step = self._update  # type: ignore[method-assign, assignment]
            self.scaler.step(self.optimizer)
            self.optimizer.step = self._step_at_last  # type: ignore[method-assign, assignment]
            self.scaler.update()
        self.steps += 0 if recording else 1

    def await_copies(self) -> None:
        """Let the GPU change no weight before a checkpoint has its copy; the CPU waits for nothing."""
        if self.copied is not None:
            torch.cuda.current_stream().wait_event(self.copied)
            self.copied = None

    def set_rates(self) -> None:
        """The learning rates of the next step."""
        factor = self._rate_factor(self.steps)
        self.rates = [peak * factor for peak in self._peak_rates]
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)  # a captured step reads it where it is
            else:
                group["lr"] = rate

    @property
    def _parameters(self) -> list[nn.Parameter]:
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]

    def _gradients(self) -> list[Tensor]:
        return [parameter.grad for parameter in self._parameters if parameter.grad is not None]


def make_stepper(
    model: nn.Module,
    optimizer: Optimizer,
    args: argparse.Namespace,
    steps_per_epoch: int,
    device: torch.device,
    phases: Phases,
    **own: Callable[[], object] | None,
) -> Stepper:
    """The stepper that the options ask for; `own` are its `finish` and `update`."""
    total, warmup = args.epochs * steps_per_epoch, round(args.warmup_epochs * steps_per_epoch)
    schedule = functools.partial(rate_factor, schedule=args.schedule, total_steps=total, warmup_steps=warmup)
    return Stepper(
        model,
        optimizer,
        rate_factor=schedule,
        accumulate=args.accumulate,
        clip_norm=args.clip_norm,
        scaler=make_scaler(device, args.precision),
        phases=phases,
        **own,
    )


@contextlib.contextmanager
def no_gradient_sync(model: nn.Module) -> Iterator[None]:
    """Inside, backward() adds to this rank's own gradients and communicates none; around the forward pass too.

    FSDP still gathers its parameters inside: they are sharded, and computing takes all of them.
    """
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            model.set_requires_gradient_sync(True)
    else:  # DDP's, FSDP1's, and those of section 9
        with getattr(model, "no_sync", contextlib.nullcontext)():
            yield


def rehearse_ddp(model: nn.Module, images: Tensor, autocast: contextlib.AbstractContextManager) -> None:
    """Let a resumed DDP arrange its buckets before its first step, as it did long ago in the run that goes on.

    DDP sums the gradients of its first step in the order of the parameters, and then rearranges its buckets in the
    order in which gradients become ready. With three or more ranks another arrangement is another order of adding,
    and so another last digit. The gradients here are zero; random numbers and buffers are put back as they were.
    """
    if not isinstance(model, nn.parallel.DistributedDataParallel):
        return
    before = random_states(images.device), [buffer.clone() for buffer in model.buffers()]
    with autocast:
        outputs = model(images)
    (outputs.float().sum() * 0).backward()
    model.zero_grad(set_to_none=True)
    restore_random_states(before[0], images.device)
    for buffer, value in zip(model.buffers(), before[1], strict=True):
        buffer.copy_(value)


def steps_per_epoch(loader: DataLoader, args: argparse.Namespace) -> int:
    """Optimizer steps in one pass over the loader; micro-batches that do not fill a last step are dropped.

    Raises:
        UserError: with accumulation, the loader does not deliver micro-batches, or too few for one step.
    """
    if args.accumulate > 1 and loader.batch_size != args.per_device_batch_size:
        raise UserError(
            f"--accumulate {args.accumulate} needs a loader of {args.per_device_batch_size} images on each rank, "
            f"but this one has {loader.batch_size}: give args.loader_batch_size to get_dataloaders()"
        )
    steps = len(loader) // args.accumulate
    if steps == 0 and args.accumulate > 1:
        raise UserError(
            f"an epoch has {len(loader)} micro-batches, too few for one step of --accumulate {args.accumulate}: "
            "use a smaller --global-batch-size"
        )
    return steps
