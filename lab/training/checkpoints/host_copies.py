"""Copies in main memory of what is on a GPU, started and not waited for: for whoever writes a checkpoint.

    copies = HostCopies(device)
    host = copies.take(weight)      # the GPU has not copied it yet
    copied = copies.started()
    ...                             # stepper.copied = copied: the next step changes no weight before that
    copied.synchronize()            # in another thread: from here on host has the numbers

The copying goes through a stream of its own into page-locked memory, which the GPU writes to by itself. The CPU
goes on at once, and forward and backward pass of the next step run meanwhile: they only read the weights. The
optimizer waits, on the GPU, until they are copied.
"""

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

AHEAD = 256 * 2**20  # bytes of passing tensors, such as gathered weights, that may wait for their copying


class HostCopies:
    """The copies of one checkpoint.

    Args:
        device: a GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._waiting = 0

    def take(self, tensor: Tensor, *, passing: bool = False) -> Tensor:
        """A copy in the usual order in memory, of this rank's part where the tensor is sharded.

        Args:
            passing: nobody else keeps this tensor. Its memory is given back when it is copied.
        """
        if tensor.device.type == "cpu":  # such as the step counters of Adam
            return tensor.clone(memory_format=torch.contiguous_format)
        taken = torch.empty_like(tensor, device="cpu", pin_memory=True, memory_format=torch.contiguous_format)
        if isinstance(tensor, DTensor):
            assert isinstance(taken, DTensor)  # with this rank's part of it in main memory
            host, tensor = taken.to_local(), tensor.to_local()
        else:
            host = taken
        self._stream.wait_stream(torch.cuda.current_stream(self._device))  # whatever makes it is done first
        with torch.cuda.stream(self._stream):
            host.copy_(tensor, non_blocking=True)
        tensor.record_stream(self._stream)
        if passing:
            self._waiting += tensor.nbytes
            if self._waiting > AHEAD:
                self._stream.synchronize()
                self._waiting = 0
        return taken

    def started(self) -> torch.cuda.Event:
        """What tells that all of them are there."""
        return self._stream.record_event()
