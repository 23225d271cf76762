"""What cards and networks can do at best, where nothing was measured. Imports no torch.

Bandwidths of links are those of one direction and one device; memory, its bandwidth and NVLink from the data
sheets that metrics/peaks.py names. A card without NVLink talks over PCIe (gen 3: 16, gen 4: 32, gen 5: 64 GB/s).
Networks: one port a device, as in NVIDIA's DGX machines: InfiniBand HDR 200, NDR 400 Gbit/s; HPE Slingshot 200;
Ethernet as it is called.

Latencies, seconds a message: NCCL's own table (src/graph/tuning.cc, hwLat of a ring) has 0.6 to 3.4 us over
NVLink, 1.0 to 5.7 over PCIe, 2.7 to 14 over a network, by protocol.
"""

from dataclasses import dataclass

from lab.base.errors import UsageError
from lab.training.metrics.peaks import PEAKS, peak_flops

GB = 1e9


@dataclass(frozen=True)
class Card:
    """A card: its name as PyTorch has it, GiB, GB/s of its memory and to others in its node, and whether over
    NVLink."""

    name: str
    memory: float
    moves: float
    link: float
    nvlink: bool = True

    def peak(self, precision: str) -> float:
        """FLOP/s at best; products of fp32 without TF32, as PyTorch computes them.

        Raises:
            UsageError: the card has no such units.
        """
        peak = peak_flops(self.name, precision)
        if peak is None:
            raise UsageError(f"--precision {precision}: {self.name} has no units for it; take fp16 or fp32")
        return peak


CARDS = {
    "v100-16": Card("Tesla V100-SXM2-16GB", 16, 900, 150),
    "v100-32": Card("Tesla V100-SXM2-32GB", 32, 900, 150),
    "t4": Card("Tesla T4", 15, 320, 16, nvlink=False),
    "a100-40": Card("NVIDIA A100-SXM4-40GB", 40, 1555, 300),
    "a100": Card("NVIDIA A100-SXM4-80GB", 80, 2039, 300),
    "a40": Card("NVIDIA A40", 45, 696, 32, nvlink=False),
    "h100": Card("NVIDIA H100 80GB HBM3", 80, 3350, 450),
    "h100-pcie": Card("NVIDIA H100 PCIe", 80, 2000, 64, nvlink=False),
    "h200": Card("NVIDIA H200", 140, 4800, 450),
    "gh200": Card("NVIDIA GH200 120GB", 95, 4000, 450),
    "l4": Card("NVIDIA L4", 22, 300, 32, nvlink=False),
    "l40s": Card("NVIDIA L40S", 45, 864, 32, nvlink=False),
    "rtx4090": Card("NVIDIA GeForce RTX 4090", 24, 1008, 32, nvlink=False),
}
NETWORKS = {
    "ndr": 50.0,
    "hdr": 25.0,
    "slingshot": 25.0,
    "ethernet-100": 12.5,
    "ethernet-25": 3.125,
}  # GB/s a device
LATENCY = {"nvlink": (0.6e-6, 3.4e-6), "pcie": (1.0e-6, 5.7e-6), "network": (2.7e-6, 14e-6)}


def card_of(name: str) -> Card:
    """By its short name, or by the one that PyTorch reads from the driver.

    Raises:
        UsageError: it is in no table.
    """
    for short, card in CARDS.items():
        if name.lower() == short or name == card.name:
            return card
    known = "; its peak is known, its memory and links are not" if name in PEAKS else ""
    raise UsageError(f"--card {name}: not in the table{known}; take one of {', '.join(CARDS)}")
