"""Whether what runs now is being recorded into a CUDA graph, see capture.py."""

import torch


def is_recording() -> bool:
    """True while a graph is recorded: nothing is computed now, and a replay repeats none of what the CPU does."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()
