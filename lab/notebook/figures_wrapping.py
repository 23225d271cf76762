"""Figures of section 4: a ring all-reduce, averaging by hand against DDP's buckets, replicated against sharded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lab.notebook.drawing import FILLS, HALF_WIDTH, QUIET, Drawing, figure, stepped, whole_number
from lab.notebook.show import Card, Said

PER_GIB = {"GiB": 1, "MiB": 2**10, "KiB": 2**20}
DONE, MOVED = "#b7e4a7", "#ffe066"
ONE_BLOCK = "one block and its gradient"  # whole, while FSDP computes with it
FIRST_BUCKET_MB = 1.0  # as in DDP: a small first bucket, so that communication begins early

# A network of ten layers, from input to output: MiB of parameters. Made up, like the speeds in averaging().
LAYERS_MB = (0.2, 0.5, 1.5, 2.5, 5.0, 7.0, 9.0, 9.0, 6.0, 0.3)


def ring_all_reduce(ranks: int = 4) -> Card:
    """How a sum over all ranks travels around a ring, step by step."""
    whole_number("ranks", ranks, 2, 6)
    state = [[{rank} for _ in range(ranks)] for rank in range(ranks)]
    labels = ["before"]
    drawings = [_ring(state, {}, "before: every rank has its own gradient, cut into pieces")]
    for step in range(2 * (ranks - 1)):
        adding = step < ranks - 1
        moves = {}  # receiver -> piece
        before = [[set(piece) for piece in row] for row in state]
        for rank in range(ranks):
            piece = (rank - step) % ranks if adding else (rank + 1 - (step - ranks + 1)) % ranks
            receiver = (rank + 1) % ranks
            state[receiver][piece] = before[rank][piece] | (before[receiver][piece] if adding else set())
            moves[receiver] = piece
        what = (
            "each rank adds one piece from its left neighbour" if adding else "each rank copies a finished piece"
        )
        labels.append(f"step {step + 1}")
        drawings.append(_ring(state, moves, f"step {step + 1}: {what}"))
    sent = 2 * (ranks - 1) / ranks
    caption = (
        f"Yellow: received in this step. Green: the sum over all ranks. Each rank sends {2 * (ranks - 1)} pieces "
        f"of 1/{ranks}: {sent:.2f} times the gradient in all, and never more than twice, however many ranks there "
        "are."
    )
    return stepped(drawings, labels, f"ring-{ranks}", caption)


def averaging(bucket_cap_mb: float = 25, latency_ms: float = 1.0, ms_per_mb: float = 0.5) -> Card:
    """One backward pass and its communication: by hand after it, and in DDP's buckets during it.

    Args:
        latency_ms: what every collective costs, however small.
        ms_per_mb: what each MiB costs besides.
    """
    for name, value, most in (("bucket_cap_mb", bucket_cap_mb, 1000), ("ms_per_mb", ms_per_mb, 10)):
        if not 0 < value <= most:
            raise Said(f"{name}={value!r}: this figure takes a number above 0, up to {most}")
    if not 0 <= latency_ms <= 20:
        raise Said(f"latency_ms={latency_ms!r}: this figure takes a number from 0 to 20")
    layer_ms = 4.0
    ready = [(number + 1) * layer_ms for number in range(len(LAYERS_MB))]  # from the last layer to the first
    backward = ready[-1]
    sizes = LAYERS_MB[::-1]
    by_hand = _schedule([backward] * len(sizes), sizes, latency_ms, ms_per_mb)
    grouped = buckets(sizes, bucket_cap_mb)
    bucket_sizes = [sum(sizes[i] for i in group) for group in grouped]
    ddp = _schedule([ready[group[-1]] for group in grouped], bucket_sizes, latency_ms, ms_per_mb)
    return _draw_averaging(backward, layer_ms, by_hand, ddp, bucket_sizes, bucket_cap_mb)


def buckets(sizes_mb: Sequence[float], cap_mb: float) -> list[list[int]]:
    """Positions of the layers in each bucket, in the order of the backward pass. A full bucket is closed."""
    grouped: list[list[int]] = [[]]
    for position, _ in enumerate(sizes_mb):
        grouped[-1].append(position)
        cap = min(FIRST_BUCKET_MB, cap_mb) if len(grouped) == 1 else cap_mb
        if sum(sizes_mb[i] for i in grouped[-1]) >= cap and position < len(sizes_mb) - 1:
            grouped.append([])
    return grouped


def memory(million_parameters: float = 100, ranks: int = 4, optimizer: str = "adam", blocks: int = 12) -> Card:
    """What one rank holds with DDP and with FSDP, in fp32: parameters, gradients, optimizer state."""
    whole_number("ranks", ranks, 1, 1024)
    whole_number("blocks", blocks, 1, 200)
    if not 0 < million_parameters <= 1e6:
        raise Said(f"million_parameters={million_parameters!r}: this figure takes a number above 0, up to 1000000")
    states = {"sgd": 0, "momentum": 1, "adam": 2}
    if optimizer not in states:
        raise Said(f"optimizer={optimizer!r}: this figure knows {', '.join(states)}")
    one = million_parameters * 1e6 * 4 / 2**30  # GiB of all parameters
    pieces = [("parameters", one), ("gradients", one), ("optimizer state", one * states[optimizer])]
    replicated = [(name, size) for name, size in pieces if size]
    gathered = one / blocks * 2 if ranks > 1 else 0.0  # one block's parameters and gradients, whole
    sharded = [(name, size / ranks) for name, size in replicated] + [(ONE_BLOCK, gathered)]
    rows = [("DDP", replicated), ("FSDP", [piece for piece in sharded if piece[1]])]
    totals = {name: sum(size for _, size in row) for name, row in rows}
    units = {name: _unit(min(size for _, size in row)) for name, row in rows}  # one for what is added up
    alt = "; ".join(
        f"{name}: {_size(totals[name], units[name])} on every rank "
        f"({', '.join(f'{what} {_size(size, units[name])}' for what, size in row)})"
        for name, row in rows
    )
    colours = dict(zip([*(name for name, _ in pieces), ONE_BLOCK], FILLS, strict=False))
    drawing = Drawing(HALF_WIDTH, 160, f"Memory of one of {ranks} ranks. {alt}.")
    scale = 330 / max(totals.values())
    for number, (name, row) in enumerate(rows):
        y, x = 6 + number * 48, 48.0
        drawing.text(0, y + 24, name, bold=True)
        for what, size in row:
            label = what if size * scale > 7.4 * len(what) else ""
            drawing.box(x, y, size * scale, 36, colours[what], label, size=12)
            x += size * scale
        drawing.text(x + 6, y + 23, _size(totals[name], units[name]), bold=True)
    for number, (name, fill) in enumerate(colours.items()):
        x, y = 48 + number % 2 * 190, 106 + number // 2 * 26
        drawing.box(x, y, 16, 16, fill)
        drawing.text(x + 24, y + 13, name)
    return figure(
        drawing,
        caption=f"{million_parameters:g} million parameters, fp32, one of {ranks} ranks. Not drawn: activations, "
        "which depend on the batch, and which neither of the two shards.",
    )


def _unit(gib: float) -> str:
    """The largest unit in which two digits after the point tell this size."""
    return next((unit for unit in ("GiB", "MiB") if gib * PER_GIB[unit] >= 0.05), "KiB")


def _size(gib: float, unit: str) -> str:
    return f"{gib * PER_GIB[unit]:.{1 if unit == 'KiB' else 2}f} {unit}"


@dataclass(frozen=True)
class _Send:
    start: float
    end: float


def _schedule(ready: Sequence[float], sizes: Sequence[float], latency: float, per_mb: float) -> list[_Send]:
    """One collective after the other, each as soon as it is ready."""
    sends: list[_Send] = []
    for at, size in zip(ready, sizes, strict=True):
        start = max(at, sends[-1].end if sends else 0.0)
        sends.append(_Send(start, start + latency + size * per_mb))
    return sends


def _draw_averaging(
    backward: float,
    layer_ms: float,
    by_hand: Sequence[_Send],
    ddp: Sequence[_Send],
    bucket_sizes: Sequence[float],
    cap: float,
) -> Card:
    last = max(by_hand[-1].end, ddp[-1].end)
    left, scale = 78.0, (HALF_WIDTH - 82) / last
    alt = (
        f"Backward takes {backward:.0f} ms. By hand, {len(by_hand)} all-reduces follow it, and the step is over "
        f"after {by_hand[-1].end:.1f} ms. DDP sends {len(ddp)} buckets while backward goes on, and is done after "
        f"{ddp[-1].end:.1f} ms."
    )
    drawing = Drawing(HALF_WIDTH, 212, alt)
    layers = len(by_hand)
    for number, (name, sends) in enumerate((("by hand", by_hand), ("DDP", ddp))):
        top = 26 + number * 104
        drawing.text(0, top - 10, name, bold=True)
        drawing.text(0, top + 20, "backward", size=12)
        drawing.text(0, top + 54, "all-reduce", size=12)
        for layer in range(layers):
            x, width = left + layer * layer_ms * scale, layer_ms * scale - 1
            drawing.box(x, top, width, 30, FILLS[0], str(layers - layer) if width > 16 else "", size=12)
        for position, send in enumerate(sends):
            width = (send.end - send.start) * scale - 1
            label = f"{bucket_sizes[position]:.1f}" if sends is ddp and width > 20 else ""
            drawing.box(left + send.start * scale, top + 34, width, 30, FILLS[1], label, size=12)
        x = left + sends[-1].end * scale
        drawing.line(x, top - 4, x, top + 68, dashed=True)
        drawing.text(x - 6, top - 10, f"optimizer.step() after {sends[-1].end:.1f} ms", size=12, anchor="end")
    share = sum(max(0.0, min(send.end, backward) - send.start) for send in ddp)
    total = sum(send.end - send.start for send in ddp)
    return figure(
        drawing,
        caption=f"bucket_cap_mb={cap:g}: {len(ddp)} buckets (MiB in the boxes), the first "
        f"closed at {min(FIRST_BUCKET_MB, cap):g} MiB so that sending begins early; {100 * share / total:.0f}% of "
        "DDP's communication hides behind backward. Network (ten layers, the last one first) and speeds are made "
        "up.",
    )


def _ring(state: Sequence[Sequence[set[int]]], moves: dict[int, int], title: str) -> Drawing:
    ranks = len(state)
    rows = [
        f"rank {rank} holds " + ", ".join("+".join(map(str, sorted(piece))) for piece in row)
        for rank, row in enumerate(state)
    ]
    width = min(130.0, (HALF_WIDTH - 60) / ranks)
    drawing = Drawing(HALF_WIDTH, 40 + ranks * 38, f"{title}. {'; '.join(rows)}.")
    drawing.text(0, 18, title[0].upper() + title[1:], bold=True)
    for rank, row in enumerate(state):
        y = 32 + rank * 38
        drawing.text(0, y + 20, f"rank {rank}")
        for piece, summed in enumerate(row):
            done, moved = len(summed) == ranks, moves.get(rank) == piece
            label = "+".join(map(str, sorted(summed))) + (" ✓" if done else "")
            fill = MOVED if moved else DONE if done else QUIET
            drawing.box(60 + piece * width, y, width - 6, 30, fill, label, size=12, bold=moved)
    return drawing
