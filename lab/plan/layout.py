"""How a model is laid over devices: data parallel with or without shards, tensor parallel, pipeline parallel."""

from dataclasses import dataclass

from lab.plan.network import Network
from lab.training.networks.vit import HEAD_WIDTH

ALONE = "none"  # no wrapper, on one device
DDP, ZERO, FSDP, FSDP_GRAD, HSDP, TP, PP = "DDP", "ZeRO-1", "FSDP full", "FSDP grad", "HSDP", "TP", "PP"
MICRO_PER_STAGE = 4  # micro-batches in a step for each stage: a bubble of at most a quarter


@dataclass(frozen=True)
class Layout:
    """One way to use the devices.

    gpus      all devices, `node` of them in one node
    shards    ranks that share one copy (FSDP, HSDP); 1 where each has the whole
    tensor    ranks over which each layer is split
    stages    pipeline stages, and `micro`, the micro-batches of a step in each pipeline
    batch     images a device, so that all layouts train the same global batch: gpus x batch
    """

    kind: str
    gpus: int
    node: int
    batch: int
    shards: int = 1
    tensor: int = 1
    stages: int = 1
    micro: int = 1

    @property
    def copies(self) -> int:
        """Ranks, or groups of them, that average their gradients."""
        return self.gpus // (self.shards * self.tensor * self.stages)

    @property
    def replica_batch(self) -> int:
        """Images of a step in one tensor parallel group or pipeline."""
        return self.batch * self.tensor * self.stages

    @property
    def name(self) -> str:
        if self.kind == HSDP:
            return f"HSDP {self.copies}x{self.shards}"
        split = self.tensor * self.stages
        return f"{self.kind} {split} x DDP {self.copies}" if split > 1 else self.kind


def layouts(network: Network, gpus: int, node: int, batch: int) -> tuple[list[Layout], dict[str, str]]:
    """All that these devices can be, and for each kind that they cannot, why not."""
    found = [Layout(DDP, gpus, node, batch)]
    why: dict[str, str] = {}
    if gpus == 1:
        return found, dict.fromkeys((ZERO, FSDP, FSDP_GRAD, HSDP, TP, PP), "there is one device")
    found.append(Layout(ZERO, gpus, node, batch))
    found += [Layout(kind, gpus, node, batch, shards=gpus) for kind in (FSDP, FSDP_GRAD)]
    if 1 < node < gpus:
        found.append(Layout(HSDP, gpus, node, batch, shards=node))
    else:
        why[HSDP] = "one copy a node needs several nodes of several devices"
    inside = min(node, gpus)
    tensors = [] if network.width is None else [t for t in _parts(inside) if network.width // HEAD_WIDTH % t == 0]
    found += [Layout(TP, gpus, node, batch, tensor=t) for t in tensors]
    if network.width is None:
        why[TP] = f"{network.name} has no attention heads to split: vit has"
    elif not tensors:
        why[TP] = f"{network.width // HEAD_WIDTH} heads cannot be split over a part of {inside} devices"
    for stages in _parts(gpus):
        if stages <= len(network.blocks):
            images = batch * stages
            micro = max(m for m in range(1, min(images, MICRO_PER_STAGE * stages) + 1) if images % m == 0)
            found.append(Layout(PP, gpus, node, batch, stages=stages, micro=micro))
    if not any(one.kind == PP for one in found):
        why[PP] = f"{len(network.blocks)} blocks cannot be split into stages over a part of {gpus} devices"
    return found, why


def _parts(count: int) -> list[int]:
    """Divisors from 2 on."""
    return [n for n in range(2, count + 1) if count % n == 0]
