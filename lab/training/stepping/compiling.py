"""--compile: torch.compile makes a few large kernels of a network's many operations.

What is compiled is a forward(), the whole network's or that of each of its blocks, and with it its backward pass.
The module keeps its class, its parameters' names and its hooks: those of DDP and FSDP, and the run's own, stay
outside of the compiled code.
"""

import argparse
import importlib.util
import os
import shutil
import sys
import sysconfig
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.modules.batchnorm import _BatchNorm

from lab.base.errors import UserError
from lab.base.terminal import Terminal

CACHE_FOLDER = ".compiled"  # in --output-dir; the dot keeps it out of the table of runs
CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"  # PyTorch's own
# As the user has set it: PyTorch sets it too, once torch._dynamo is imported, to a folder in /tmp of each node.
USERS_CACHE = os.environ.get(CACHE_VARIABLE)
BACKEND = "inductor"
TICK = 0.5  # seconds between two drawings of the live line


class Compiler:
    """One rank's compiled forward() functions.

    Each is compiled for the first batch size that it meets in training, and for the first in evaluation. Another
    size, such as that of an evaluation's last batch, takes the network as it is: compiling for it would take
    longer than it saves.

    Args:
        args: resolved.
        say: takes a line for people and for the log.
        terminal: where seconds are counted meanwhile; None on all ranks but 0.

    Raises:
        UserError: nothing can be compiled here.
    """

    def __init__(
        self, args: argparse.Namespace, device: torch.device, say: Callable[[str], None], terminal: Terminal | None
    ) -> None:
        os.environ[CACHE_VARIABLE] = USERS_CACHE or str((args.output_dir / CACHE_FOLDER).resolve())
        check_toolchain(device)
        self.part = ""  # what is compiled: "model" or "blocks"
        self._model_name, self._strategy = args.model, args.strategy
        self._captured = args.capture
        self._says, self._terminal = say, terminal
        self._what = ""  # what is being compiled for
        self.seconds = 0.0  # of compiling so far
        self._said = 0.0  # of them
        self._began = 0.0
        self._over = threading.Event()  # set while nothing is compiled
        self._ticker: threading.Thread | None = None
        self._batches = {True: 0, False: 0}  # by whether they had the size that was compiled for
        if args.checkpoint_activations:
            # It parts the network where DDP's buckets end, and cannot do so in a checkpointed block.
            torch._dynamo.config.optimize_ddp = False

    def compile(self, model: nn.Module) -> None:
        """Compile a model before it is wrapped, in place; the work is done when it first computes."""
        torch.compiler.reset()  # of an earlier run in this process
        self.part, modules = parts(model, self._strategy)
        # A class of blocks has one forward(), of which there is a compiled form for each shape of its weights, in
        # training and in evaluation. PyTorch gives up after 8 forms and goes on without a word that stops a run.
        torch._dynamo.config.recompile_limit = max(8, 4 * len(modules))
        torch._dynamo.config.accumulated_recompile_limit = max(256, 4 * len(modules))
        torch._dynamo.config.fail_on_recompile_limit_hit = True
        torch._dynamo.config.suppress_errors = False
        for index, module in enumerate(modules):
            module.forward = self._compiled(module, counts=index == 0)
        handler = torch._dynamo.callback_handler
        handler.register_start_callback(self._begin)
        handler.register_end_callback(self._end)

    def follow(self, model: nn.Module) -> None:
        """The same model once it is wrapped.

        Raises:
            UserError: it has not come through compile().
        """
        if not self.part:
            raise UserError(
                "--compile finds nothing to compile: main.py needs model = this_run.prepare_model(model) before "
                "the model is wrapped"
            )
        if isinstance(model, FSDPModule):
            gather_norms_at_root(model)

    def _compiled(self, module: nn.Module, *, counts: bool) -> Callable[..., Any]:
        """Its forward(); `counts`: it is the module whose calls tell how many batches there were."""
        plain = module.forward
        compiled = torch.compile(plain, backend=BACKEND, dynamic=False, fullgraph=True)
        known: dict[tuple[bool, bool], list[torch.Size]] = {}

        def forward(*inputs: Any, **named: Any) -> Any:
            shapes = [one.shape for one in inputs if isinstance(one, Tensor)]
            kind = module.training, torch.is_grad_enabled()
            if kind not in known:
                known[kind] = shapes
                self._what = "training" if module.training else "evaluation"
            fits = known[kind] == shapes
            if counts:
                self._batches[fits] += 1
            if not fits:
                return plain(*inputs, **named)
            try:
                return compiled(*inputs, **named)
            except torch._dynamo.exc.FailOnRecompileLimitHit as error:
                raise UserError(
                    f"--compile cannot compile {self._model_name}, which computes something else in each step and "
                    "would be compiled again and again: leave it out, or find out why with TORCH_LOGS=recompiles"
                ) from error
            except torch._dynamo.exc.TorchDynamoException as error:
                said = [line.strip() for line in str(error).splitlines() if line.strip()]
                raise UserError(
                    f"--compile cannot compile {self._model_name}: leave it out, or mend what PyTorch names: "
                    f"{said[0] if said else type(error).__name__}"
                ) from error

        return forward

    @property
    def described(self) -> str:
        """One phrase for the start report."""
        what = "the whole network" if self.part == "model" else "each block of the network"
        return f"{what}, when it is first used; the code is kept in {self.cache}"

    @property
    def cache(self) -> Path:
        """Where compiled code is kept."""
        return Path(os.environ[CACHE_VARIABLE])

    def _begin(self, *_: object) -> None:
        self._began = time.perf_counter()
        if self._terminal is not None and self._terminal.is_one:
            self._over.clear()
            self._ticker = threading.Thread(target=self._count, args=(self._terminal,), daemon=True)
            self._ticker.start()

    def _end(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._began
        if self._ticker is not None:
            self._over.set()
            self._ticker.join()
            self._ticker = None

    def _count(self, terminal: Terminal) -> None:
        while not self._over.wait(TICK):
            spent = self.seconds - self._said + time.perf_counter() - self._began
            terminal.show(f"compiling for {self._what}: {spent:.0f} s (kept for the next run)")
        terminal.show("")

    def report(self) -> None:
        """Say how long compiling has taken, if anything was compiled since this was last said."""
        if self.seconds > self._said:
            spent = self.seconds - self._said
            self._says(f"compiled for {self._what} in {spent:.1f} s; the code is kept in {self.cache}")
            self._said = self.seconds

    def close(self, *, failed: bool) -> None:
        if not self.part:
            return
        handler = torch._dynamo.callback_handler
        handler.remove_start_callback(self._begin)
        handler.remove_end_callback(self._end)
        others, all_batches = self._batches[False], sum(self._batches.values())
        # A captured step runs none of this when it is replayed, so that its batches are not in the count.
        if not failed and not self._captured and others > all_batches / 2:
            self._says(
                f"warning: --compile had little effect: {others} of {all_batches} batches had another size than "
                "the one that was compiled for"
            )


def parts(model: nn.Module, strategy: str) -> tuple[str, list[nn.Module]]:
    """What to compile: ("model", [the model]) or ("blocks", the blocks and what stands beside them).

    FSDP gathers a block's parameters before its forward(), so that the blocks it is. Of the others the whole
    network is the faster one (ResNet-18 with DDP on two H200: 84,555 against 78,489 images/s), but blocks that are
    all alike, as in a transformer, are compiled once for all of them, and DDP can communicate between them.
    Beside the blocks, a single layer has nothing to be fused with.
    """
    blocks = list(getattr(model, "blocks", []))
    alike = {(type(block), tuple(p.shape for p in block.parameters())) for block in blocks}
    if blocks and (strategy == "fsdp" or (len(blocks) > 1 and len(alike) == 1)):
        others = [child for child in model.children() if child is not model.blocks and any(child.children())]
        return "blocks", [*blocks, *others]
    return "model", [model]


def gather_norms_at_root(model: nn.Module) -> None:
    """Let FSDP2 gather BatchNorms that are a group of their own when the network begins, and not in the blocks.

    It does so in hooks of each BatchNorm, at which a compiled block would have to end. The group is released with
    the gradients, at the end of the backward pass, as that of the network's root is.
    """
    norms = [
        module for module in model.modules() if isinstance(module, _BatchNorm) and isinstance(module, FSDPModule)
    ]
    for norm in norms:
        for hooks in (
            *(norm._forward_pre_hooks, norm._forward_pre_hooks_with_kwargs),
            *(norm._forward_hooks, norm._forward_hooks_with_kwargs, norm._forward_hooks_always_called),
        ):
            hooks.clear()

    def gather(*_: object) -> None:
        for norm in norms:
            norm.unshard()  # the first one does it for its group

    if norms:
        model.register_forward_pre_hook(gather)


def check_toolchain(device: torch.device) -> None:
    """Raises UserError where PyTorch would find nothing to compile with, or was told not to."""
    if torch._dynamo.config.disable:
        raise UserError("--compile cannot work while TORCH_COMPILE_DISABLE or TORCHDYNAMO_DISABLE is set")
    if device.type == "cuda":
        if importlib.util.find_spec("triton") is None:
            raise UserError("--compile needs Triton on a GPU: pip install triton")
        compilers = [os.environ["CC"]] if os.environ.get("CC") else ["gcc", "clang"]
        language, variable = "C", "CC"
    else:
        compilers = [os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")]
        language, variable = "C++", "CXX"
    if not any(shutil.which(name.split()[0]) for name in compilers):
        raise UserError(
            f"--compile needs a {language} compiler, and there is no {' or '.join(compilers)}: install one, or "
            f"name it in the variable {variable}"
        )
    headers = Path(sysconfig.get_paths()["include"])
    if not (headers / "Python.h").is_file():
        raise UserError(
            f"--compile needs Python's C headers, and there is no Python.h in {headers}: install python3-dev"
        )
