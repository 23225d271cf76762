"""Figures of sections 1 to 3: the batch and its parts, ranks on nodes, which rank draws which sample."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from lab.notebook import session
from lab.notebook.drawing import FILLS, HALF_WIDTH, INK, QUIET, Drawing, figure, stepped, whole_number
from lab.notebook.show import Card, Said


def batch_parts(samples: int = 10, global_batch: int = 8, ranks: int = 4) -> Card:
    """What arrives in forward() on each rank: a full batch, and the last one of the validation set."""
    whole_number("ranks", ranks, 1, 8)
    whole_number("global_batch", global_batch, ranks, 512)
    whole_number("samples", samples, 1, 100_000)
    if global_batch % ranks:
        raise Said(f"global_batch={global_batch} cannot be divided evenly among {ranks} ranks")
    share = global_batch // ranks
    last = (samples - 1) % global_batch + 1  # of the last batch over all ranks
    rest = -(-last // ranks)  # every rank gets as many; filler makes up for the difference
    rows = [("a full batch", share)] + ([("the last validation batch", rest)] if rest != share else [])
    alt = f"A batch of {global_batch} images over {ranks} ranks: " + "; ".join(
        f"{name} is [{size}, 3, 32, 32] on every rank" for name, size in rows
    )
    drawing = Drawing(HALF_WIDTH, 26 + 72 * len(rows), alt + ".")
    width = HALF_WIDTH / max(ranks, 4) - 6
    for rank in range(ranks):
        drawing.text(rank * (width + 6) + width / 2, 16, f"rank {rank}", size=12, anchor="middle", bold=True)
    for row, (name, size) in enumerate(rows):
        y = 24 + row * 72
        drawing.text(0, y + 16, name)
        for rank in range(ranks):
            label = f"[{size}, 3, 32, 32]" if width > 96 else f"[{size}, …]"
            drawing.box(rank * (width + 6), y + 24, width, 36, FILLS[rank % len(FILLS)], label, size=12)
    filler = ranks * rest - last
    filled = f" {filler} of the last batch's {ranks * rest} places are filler: section 3." if filler else ""
    return figure(
        drawing,
        caption="The first entry changes with the number of ranks and at the end; the other three never do."
        + filled,
    )


def rank_map(nodes: int = 2, gpus_per_node: int = 4) -> Card:
    """Ranks, local ranks and devices of a job with one process for each GPU."""
    whole_number("nodes", nodes, 1, 4)
    whole_number("gpus_per_node", gpus_per_node, 1, 8)
    world = nodes * gpus_per_node
    alt = f"{nodes} node{'s' * (nodes != 1)} with {gpus_per_node} GPUs each, {world} processes: " + "; ".join(
        f"node {node} has ranks {node * gpus_per_node} to {(node + 1) * gpus_per_node - 1}, "
        f"local ranks 0 to {gpus_per_node - 1}"
        for node in range(nodes)
    )
    width = max(64.0, min(84.0, 390 / gpus_per_node - 8))
    drawing = Drawing(720, 10 + 118 * nodes, alt + ".")
    for node in range(nodes):
        top = 6 + node * 118
        drawing.box(0, top, 66 + gpus_per_node * (width + 8), 106)
        drawing.text(8, top + 58, f"node {node}", size=12, bold=True)
        for local in range(gpus_per_node):
            x = 66 + local * (width + 8)
            drawing.box(x, top + 8, width, 32, FILLS[node], f"rank {node * gpus_per_node + local}", bold=True)
            drawing.text(x + width / 2, top + 60, f"local rank {local}", size=12, anchor="middle")
            drawing.box(x, top + 70, width, 28, QUIET, f"cuda:{local}", size=12)
    return figure(
        drawing,
        caption=f"World size {world}. The rank is unique in the whole job, the device index only on its node.",
    )


def two_dimensions(nodes: int = 2, ranks_per_node: int = 2, mb: float = 100) -> Card:
    """A step of HSDP on a mesh of nodes and positions, phase by phase: which ranks talk to which, and how much.

    Args:
        mb: MiB of all parameters.
    """
    whole_number("nodes", nodes, 1, 4)
    whole_number("ranks_per_node", ranks_per_node, 1, 4)
    if not 0 < mb <= 1e6:
        raise Said(f"mb={mb!r}: this figure takes a number above 0, up to 1000000")
    ranks = [list(range(node * ranks_per_node, (node + 1) * ranks_per_node)) for node in range(nodes)]
    columns = [list(column) for column in zip(*ranks, strict=True)]
    half = mb * (ranks_per_node - 1) / ranks_per_node  # of an all-reduce inside of a node
    between = 2 * mb / ranks_per_node * (nodes - 1) / nodes
    whole, shard, sums = "whole", f"1/{ranks_per_node}", "of its node"
    phases = [
        ("1 gather()", "all-gather inside each node: the parameters become whole", ranks, half, whole),
        ("2 forward and backward", "nothing is sent: each rank has images of its own", [], 0.0, "gradients"),
        ("3 reduce-scatter", f"inside each node: each rank has {shard} of the sum {sums}", ranks, half, shard),
        ("4 all-reduce", f"between nodes, down each column: {shard} of the sum over all", columns, between, shard),
    ]
    drawings = [
        _mesh(ranks, groups, what, f"each rank sends {sent:.4g} MiB", holds)
        for _, what, groups, sent, holds in phases
    ]
    world = nodes * ranks_per_node
    ddp = 2 * mb * (world - 1) / world
    caption = (
        f"{mb:g} MiB of parameters on {nodes} node{'s' * (nodes != 1)} with {ranks_per_node} rank"
        f"{'s' * (ranks_per_node != 1)} each. In a step a rank sends {2 * half:.4g} MiB inside of its node and "
        f"{between:.4g} MiB between nodes. With DDP over all {world} it sends {ddp:.4g} MiB, around one ring "
        f"through all nodes. Between steps a rank keeps {shard}: {mb / ranks_per_node:.4g} MiB."
    )
    return stepped(drawings, [label for label, *_ in phases], f"mesh-{nodes}-{ranks_per_node}", caption)


def _mesh(ranks: list[list[int]], groups: list[list[int]], title: str, sent: str, holds: str) -> Drawing:
    """The table of nodes and positions; the ranks of each group are joined, each group in a colour of its own."""
    said = "; ".join(f"ranks {', '.join(map(str, group))}" for group in groups if len(group) > 1) or "no ranks"
    top = 70
    drawing = Drawing(HALF_WIDTH, top + 86 * len(ranks) - 20, f"{title}; {sent}. Talking: {said}.")
    drawing.text(0, 14, title[0].upper() + title[1:], size=12, bold=True)
    drawing.text(0, 32, sent[0].upper() + sent[1:], size=12)
    width, gap = 76.0, 26.0
    place = {
        rank: (66 + position * (width + gap), top + 86 * node)
        for node, row in enumerate(ranks)
        for position, rank in enumerate(row)
    }
    for position in range(len(ranks[0])):
        drawing.text(
            66 + position * (width + gap) + width / 2, top - 10, f"position {position}", size=12, anchor="middle"
        )
    fills = {rank: FILLS[number % len(FILLS)] for number, group in enumerate(groups) for rank in group}
    for group in groups:
        for one, other in pairwise(group):
            (x1, y1), (x2, y2) = place[one], place[other]
            if y1 == y2:
                ends = ((x1 + width, y1 + 26), (x2, y2 + 26))
            else:
                ends = ((x1 + width / 2, y1 + 52), (x2 + width / 2, y2))
            for begin, end in (ends, ends[::-1]):
                drawing.line(*begin, *end, width=2.5, arrow=True)
    for node in range(len(ranks)):
        drawing.text(0, top + 86 * node + 30, f"node {node}", size=12, bold=True)
    for rank, (x, y) in place.items():
        drawing.box(x, y, width, 52, fills.get(rank, QUIET))
        drawing.text(x + width / 2, y + 22, f"rank {rank}", size=12, anchor="middle", bold=True, fill=INK)
        drawing.text(x + width / 2, y + 40, holds, size=12, anchor="middle", fill=INK)
    return drawing


def who_draws_what(
    samples: int = 12, ranks: int = 3, epochs: int = 2, *, sampler: bool = True, set_epoch: bool = True
) -> Card:
    """Which rank draws which training sample, in each epoch, as PyTorch's own samplers do it.

    Args:
        sampler: False: every rank has an ordinary shuffling loader of its own.
        set_epoch: False: sampler.set_epoch(epoch) is forgotten.
    """
    whole_number("samples", samples, 2, 40)
    whole_number("ranks", ranks, 1, 6)
    whole_number("epochs", epochs, 1, 4)
    if sampler and samples < ranks:
        raise Said(f"samples={samples}: fewer than {ranks} ranks, so that the sampler has none for some of them")
    drawn = _draws(samples, ranks, epochs, sampler=sampler, set_epoch=set_epoch)
    sentences = [
        f"epoch {epoch}: "
        + "; ".join(f"rank {rank} draws {', '.join(map(str, row))}" for rank, row in enumerate(rows))
        for epoch, rows in enumerate(drawn, start=1)
    ]
    cell = min(30.0, (HALF_WIDTH - 70) / max(len(row) for rows in drawn for row in rows))
    drawing = Drawing(720, 10 + epochs * (30 + ranks * 30), ". ".join(sentences) + ".")
    y = 8.0
    for epoch, rows in enumerate(drawn, start=1):
        drawing.text(0, y + 14, f"epoch {epoch}", bold=True)
        y += 22
        for rank, row in enumerate(rows):
            drawing.text(12, y + 17, f"rank {rank}")
            for position, index in enumerate(row):
                drawing.box(70 + position * cell, y, cell - 3, 24, FILLS[rank % len(FILLS)], str(index), size=12)
            y += 30
        y += 8
    return figure(drawing, caption=_what_it_means(drawn, samples))


def validation_parts(samples: int = 7, ranks: int = 2) -> Card:
    """Which rank validates which sample: each just once, and the same number of places on every rank."""
    whole_number("samples", samples, 1, 40)
    whole_number("ranks", ranks, 1, 6)
    places = -(-samples // ranks)
    filler = places * ranks - samples
    parts = [
        f"rank {rank} has {', '.join(str(i) for i in range(rank, samples, ranks)) or 'no sample'}"
        + (
            f" and {places - len(range(rank, samples, ranks))} filler"
            if len(range(rank, samples, ranks)) < places
            else ""
        )
        for rank in range(ranks)
    ]
    cell = min(42.0, (HALF_WIDTH - 70) / places)
    drawing = Drawing(720, 8 + ranks * 34, f"{samples} samples on {ranks} ranks: {'; '.join(parts)}.")
    for rank in range(ranks):
        y = 4 + rank * 34
        drawing.text(12, y + 18, f"rank {rank}")
        for place in range(places):
            index, x = place * ranks + rank, 70 + place * cell
            if index < samples:
                drawing.box(x, y, cell - 4, 26, FILLS[rank % len(FILLS)], str(index))
            else:
                drawing.box(x, y, cell - 4, 26, "none", "-100", size=12, dashed=True)
    few = (
        "Nothing to fill here."
        if not filler
        else f"Dashed: filler, {filler} in all, with the label -100, which is not counted."
    )
    return figure(drawing, caption=f"{places} place{'s' * (places > 1)} on every rank. {few}")


def _draws(samples: int, ranks: int, epochs: int, *, sampler: bool, set_epoch: bool) -> list[list[list[int]]]:
    """[epoch][rank] -> the indices in the order in which they are drawn."""
    session.warm()
    import torch
    from torch.utils.data import DistributedSampler, RandomSampler

    drawn = []
    if not sampler:
        for epoch in range(1, epochs + 1):
            rows = []
            for rank in range(ranks):
                own = torch.Generator().manual_seed(1000 * epoch + rank)
                rows.append(list(RandomSampler(range(samples), generator=own)))
            drawn.append(rows)
        return drawn
    data: Any = range(samples)
    dealt: list[DistributedSampler[int]] = [
        DistributedSampler(data, ranks, rank, shuffle=True, seed=0, drop_last=True) for rank in range(ranks)
    ]
    for epoch in range(1, epochs + 1):
        if set_epoch:
            for one in dealt:
                one.set_epoch(epoch)
        drawn.append([list(one) for one in dealt])
    return drawn


def _what_it_means(drawn: list[list[list[int]]], samples: int) -> str:
    first = [index for row in drawn[0] for index in row]
    twice = len(first) - len(set(first))
    said = [f"In epoch 1 the ranks draw {len(first)} samples, {len(set(first))} different ones of {samples}."]
    for epoch, rows in enumerate(drawn, start=1):
        if left_out := set(range(samples)).difference(*rows):
            said.append(f"In epoch {epoch} nobody draws {', '.join(map(str, sorted(left_out)))}.")
    if twice:
        said.append("Each rank works through the whole set: more ranks, but not less work for each.")
    if len(drawn) > 1 and drawn[0] == drawn[1]:
        said.append("Epoch 2 repeats the order of epoch 1.")
    return " ".join(said)
