"""Whether the memory of the node, not of the GPU, was used up when a process was killed."""

import re

# DeepSpeed's see_memory_usage, psutil, and what programs print in the same words.
_MEMORY = re.compile(
    r"(?:CPU Virtual Memory: +used|\b(?:host|cpu|system|node)[ _]?(?:mem\w*|ram)"
    r"|(?<!gpu )\b(?:RAM|VmRSS|virtual_memory))\b"
    r".{0,60}?(?P<part>\d{1,3}(?:\.\d+)?) ?%",
    re.I,
)
_OFFLOAD = re.compile(r"cpu_adam|offload|CPU ?Adam|fp32 partitions|initializing optimizer states", re.I)
_GPU_FULL = re.compile(r"CUDA out of memory|OutOfMemoryError|HIP out of memory")
_FULL, _FULL_SOON = 90.0, 70.0  # percent; from the second on with more that was about to be allocated


def memory_used_up(log: str) -> str:
    """How full the node's memory was when a process was killed, in words; "" where it was not, or nothing says."""
    said = list(_MEMORY.finditer(log))
    if not said or _GPU_FULL.search(log):
        return ""
    part = float(said[-1]["part"])
    offload = part >= _FULL_SOON and _OFFLOAD.search(log)
    if not (_FULL <= part <= 100 or offload):
        return ""
    where = " and optimizer or parameters were being placed there (offload)" if offload else ""
    return f"the node's memory was {part:g} % full{where}"
