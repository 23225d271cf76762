"""What NCCL's own log (NCCL_DEBUG=INFO) says of how the GPUs talk: rings, transports, GPUDirect RDMA, "
"switches."""

import re
from collections import Counter
from dataclasses import replace

from lab.diagnose import overcome
from lab.diagnose.told import left_behind
from lab.diagnose.told.finding import Finding

_VERSION = re.compile(r"NCCL version (\d[\d.]*)")
_RANKS = re.compile(r"NCCL INFO .*\bn[Rr]anks (\d+)(?: nNodes (\d+))?")
_RING = re.compile(r"NCCL INFO Channel (\d+)/\d+ : +\d+(?: +\d+)+ *$", re.M)
_LINK = re.compile(
    r"NCCL INFO (?:Channel|Ring) \S+ : (\d+)\S* -> (\d+)\S* (?:\[(?:send|receive)\] )?via (\S.*?) *$", re.M
)
_NETWORK = re.compile(r"NCCL INFO Using network (\S+)")
_NO_GDR = re.compile(r"GPU Direct RDMA Disabled for [^\n(]*\(([^)\n]*)\)")
_SET = re.compile(r"NCCL INFO (NCCL_\w+) set by environment to ([^\s.]+)")
_SWITCHED_OFF = (
    "NCCL_P2P_DISABLE",
    "NCCL_SHM_DISABLE",
    "NCCL_IB_DISABLE",
    "NCCL_NVLS_ENABLE",
    "NCCL_NET_GDR_LEVEL",
)
_NO_P2P = re.compile(r"P2P is disabled between connected GPUs (\d+) and (\d+)")
_NO_RDMA = re.compile(r"NCCL INFO (?:Failed to open libibverbs\S*|NET/IB : No device found.*)")
_LATE = re.compile(r"CANCELLED .*DUE TO TIME LIMIT")
_ON_NODE = re.compile(r"(?:^|: )([A-Za-z][\w.-]*):\d+:\d+ \[\d+\] NCCL INFO", re.M)
_ROCE = re.compile(r"NET/IB : Using .*/RoCE\b")
_GID_SET = re.compile(r"NCCL_IB_GID_INDEX\W{1,3}(?:set by environment to )?(\d+)")
_MEETS_BY = re.compile(r"NCCL INFO Bootstrap ?: Using (\S+?):(169\.254\.[\d.]+|fe80:[\w:]+)")
_SUSPECT = ": the first collective over it did not end, so it is the first suspect."
_MANY = 64 << 20
# That a way was chosen does not say that it worked.
_FAILED = {
    "p2p": re.compile(
        r"Watchdog caught(?:.*\n){1,400}?.*NCCL_P2P_DISABLE=1 |p2p\.cc:\d+ NCCL WARN"
        r"|peer access is not supported|failed to open CUDA IPC handle"
    ),
    "gdr": re.compile(r"Got completion .{0,80}(?:error|status=)\s?(?:4|10)\b|NCCL WARN Call to ibv_\w+ failed"),
    "rdma": re.compile(r"NCCL WARN Call to ibv_\w+ failed|Got completion .{0,80}(?:error|status=)\s?12\b"),
}
_LINKS = {
    "p2p": "Within a node GPUs reach each other's memory (P2P, {links}): NVLink or PCIe, as it should be.",
    "shm": "Within a node GPUs talk through the host's memory (SHM, {links}): slower; P2P was not possible.",
    "gdr": "Between nodes they use RDMA to and from the GPU (GDRDMA, {links}), as it should be.",
    "rdma": "Between nodes they use RDMA through the host's memory ({links} without GPUDirect RDMA): slower.",
    "socket": "Between nodes they use TCP (NET/Socket, {links}): the slowest way; no RDMA network was used.",
    "plugin": "Between nodes they use a plugin for this network ({links}).",
}


def explained(log: str) -> list[str]:
    """Sentences about the network of a job; none where its log has nothing of NCCL's."""
    if "NCCL INFO" not in log:
        return []
    log = log[:_MANY]
    said, nodes = _who(log)
    links = Counter(_kind(via) for _, _, via in _LINK.findall(log))
    ways = [
        _way(kind, count, failed=kind in _FAILED and _FAILED[kind].search(log) is not None)
        for kind, count in sorted(links.items())
        if kind in _LINKS
    ]
    said += [way.replace("Between nodes", "Within the node") for way in ways] if nodes == 1 else ways
    if (reason := _NO_GDR.search(log)) is not None:
        said.append(
            f"GPUDirect RDMA is off ({reason[1]}): nvidia_peermem is not loaded, or GPU and card are far apart."
        )
    if links["socket"] and "NET/IB : No device found" in log:
        said.append("It found no InfiniBand on the node: in a container, are its devices and libraries there?")
    if (pair := _NO_P2P.search(log)) is not None:
        said.append(
            f"Direct access between GPUs {pair[1]} and {pair[2]} is disabled: by the machine, or ACS and IOMMU."
        )
    if (by := _MEETS_BY.search(log)) is not None:
        said.append(
            f"Its ranks meet by {by[1]}, whose address {by[2]} is of one link only: no other node reaches it."
        )
    if left_behind.first_over_p2p(log):
        said = [one.replace(": NVLink or PCIe, as it should be.", _SUSPECT) for one in said]
    switched = {name: value for name, value in _SET.findall(log) if name in _SWITCHED_OFF}
    if switched:
        names = ", ".join(f"{name}={value}" for name, value in sorted(switched.items()))
        said.append(
            f"Set in the environment: {names}. Such switches are for a search, and cost speed if they stay."
        )
    return said


def over_roce(finding: Finding, log: str) -> Finding:
    """The same, where an answer did not come over Ethernet: there the address of the card is what to look at."""
    if finding.name != "infiniband" or not finding.means.startswith("Error 12 ") or _ROCE.search(log) is None:
        return finding
    index = _GID_SET.search(log)
    taken = f" NCCL_IB_GID_INDEX is {index[1]}." if index else ""
    return replace(
        finding,
        means="Error 12 is an answer that did not come. It is RoCE, over Ethernet: likeliest the address (GID) "
        f"that was chosen is not one that leads to the other node, if no rank there had ended before.{taken} "
        "The switch, or a link, may be to blame too; TCP between the nodes works.",
        do=(
            "srun --ntasks-per-node=1 show_gids    # which index is v2 with the node's IPv4 address?",
            "NCCL_IB_GID_INDEX=3 {rerun}    # that index, mostly 3",
            "ib_write_bw -d mlx5_0 -x 3 NODE    # from one node to the other: does it answer by that index?",
        ),
    )


def by_tcp(log: str) -> Finding | None:
    """Nodes that talk by TCP for want of InfiniBand's library or devices, in a job that its time did not "
    "suffice."""
    why = _NO_RDMA.search(log)
    used = _NETWORK.search(log)
    if why is None or used is None or used[1] != "Socket" or not _LATE.search(log):
        return None
    nodes = set(_ON_NODE.findall(log))
    if len(nodes) < 2 or not overcome.since(log, len(log)):
        return None
    return Finding(
        "slow-network",
        f"It trained until its time limit, and its nodes talk by TCP: {why[0].strip()}",
        "NCCL found no InfiniBand: in a container its libraries (libibverbs1, ibverbs-providers, rdma-core) or "
        "its "
        "devices (/dev/infiniband) are missing. Each step then waits for the network; more time would only hide "
        "it.",
        (
            "srun --ntasks-per-node=1 ls /dev/infiniband    # in the container: is it there? and ldconfig -p, "
            "libibverbs?",
            "NCCL_DEBUG=INFO {rerun}    # until it says NET/IB, not NET/Socket",
        ),
        order=-1,
    )


def _who(log: str) -> tuple[list[str], int]:
    """Version, ranks, rings and network as a sentence, and the number of nodes: 0 where NCCL does not say it."""
    version, rings = _VERSION.search(log), {int(number) for number in _RING.findall(log)}
    ranks = [(int(count), int(nodes or 0)) for count, nodes in _RANKS.findall(log)]
    most, _ = max(ranks, default=(0, 0))
    nodes = max((nodes for count, nodes in ranks if count == most), default=0)
    network = _NETWORK.search(log)
    parts = [
        f"NCCL {version[1].rstrip('.')}" if version else "NCCL",
        f"{most} ranks" + (f" on {nodes} node{'s' if nodes > 1 else ''}" if nodes else "") if most else "",
        f"{len(rings)} rings" if len(rings) > 1 else "1 ring" if rings else "",
        f"network {network[1]}" if network else "",
    ]
    return [f"{', '.join(part for part in parts if part)}."], nodes


def _way(kind: str, count: int, *, failed: bool) -> str:
    said = _LINKS[kind].format(links=f"{count} link{'s' * (count > 1)}")
    if not failed:
        return said
    return said.replace(", as it should be.", ": it was chosen, and failed.").replace(
        ": slower.", ": it was chosen, and failed."
    )


def _kind(via: str) -> str:
    if via.startswith("P2P"):
        return "p2p"
    if via.startswith(("SHM", "direct shared memory")):
        return "shm"
    if "GDRDMA" in via:
        return "gdr"
    if via.startswith("NET/IB"):
        return "rdma"
    if via.startswith("NET/Socket"):
        return "socket"
    return "plugin" if via.startswith("NET/") else ""
