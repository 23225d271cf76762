"""Figures of a step under FSDP, moment by moment, and of what an all-reduce sends: sections 4 and 9."""

from __future__ import annotations

from dataclasses import dataclass

from lab.notebook.drawing import ALERT, FILLS, HALF_WIDTH, QUIET, Drawing, figure, whole_number
from lab.notebook.show import Card, Said

# What happens in a moment -> its letter and colour.
KINDS = {
    "all-gather": ("G", FILLS[1]),
    "forward": ("F", FILLS[0]),
    "backward": ("B", FILLS[0]),
    "reduce-scatter": ("R", FILLS[3]),
}
WHOLE, GRADIENT = FILLS[4], FILLS[5]


@dataclass(frozen=True)
class Moment:
    """What happens to which block, and the whole blocks' worth that a rank holds meanwhile, besides its shards."""

    kind: str
    block: int
    gradient: bool  # the block's whole gradient is there, too

    @property
    def held(self) -> int:
        return 1 + self.gradient


def moments(blocks: int) -> list[Moment]:
    """Forward from the first block to the last, then backward; a block is freed after each, even the last."""
    steps = []
    for block in range(blocks):
        steps += [Moment("all-gather", block, False), Moment("forward", block, False)]
    for block in reversed(range(blocks)):
        steps += [
            Moment("all-gather", block, False),
            Moment("backward", block, True),
            Moment("reduce-scatter", block, True),
        ]
    return steps


def fsdp_timeline(blocks: int = 3, ranks: int = 4) -> Card:
    """One step under FSDP: gather, compute, free, gather again, compute, reduce-scatter."""
    whole_number("blocks", blocks, 1, 5)
    whole_number("ranks", ranks, 2, 1024)
    steps = moments(blocks)
    alt = f"One step of {blocks} block{'s' * (blocks != 1)} on one of {ranks} ranks: " + "; ".join(
        f"{step.kind} block {step.block + 1}" for step in steps
    )
    left, cell, row = 76.0, min(26.0, (HALF_WIDTH - 80) / len(steps)), 32.0
    foot = 56 + blocks * row + 64  # of the bars of memory
    drawing = Drawing(HALF_WIDTH, foot + 52, alt + ".")
    turn = left + 2 * blocks * cell
    drawing.text(left, 14, "forward", size=12, bold=True)
    drawing.text(turn + 4, 14, "backward", size=12, bold=True)
    drawing.text(0, 42, "does", size=12)
    drawing.text(0, foot - 8, "holds", size=12)
    for block in range(blocks):
        drawing.text(0, 56 + block * row + 22, f"block {block + 1}", size=12)
    unit = 50 / (blocks / ranks + 2)  # pixels of one block's parameters
    for number, step in enumerate(steps):
        x, (letter, fill) = left + number * cell, KINDS[step.kind]
        drawing.box(x, 24, cell - 2, 26, fill, letter, size=12)
        for block in range(blocks):
            y = 56 + block * row
            if block == step.block:
                drawing.box(x, y + 2, cell - 2, 26, GRADIENT if step.gradient else WHOLE)
            else:
                drawing.box(x, y + 22, cell - 2, 6, QUIET)
        shards = blocks / ranks * unit
        drawing.box(x, foot - shards, cell - 2, shards, QUIET)
        drawing.box(x, foot - shards - unit, cell - 2, unit, WHOLE)
        if step.gradient:
            drawing.box(x, foot - shards - 2 * unit, cell - 2, unit, GRADIENT)
    drawing.line(turn - 1, 4, turn - 1, foot, dashed=True)
    for number, (fill, name) in enumerate(
        ((QUIET, "its shards"), (WHOLE, "one block, whole"), (GRADIENT, "and its gradient"))
    ):
        x = (0, 106, 260)[number]
        drawing.box(x, foot + 16, 14, 14, fill)
        drawing.text(x + 20, foot + 28, name, size=12)
    return figure(
        drawing,
        caption="G all-gather, F forward, B backward, R reduce-scatter; a block is freed after its F and after "
        "its R. So is the last one after its F, and gathered again at once. In all "
        f"{2 * blocks} all-gathers and {blocks} reduce-scatters. Drawn one after the other: in "
        "truth the next block is gathered while one computes, so that two are whole for a while. Not drawn: "
        "gradient shards, optimizer state, activations.",
    )


def all_reduce_bytes(ranks: int = 8) -> Card:
    """How much the busiest rank sends in an all-reduce, for three ways to do it."""
    whole_number("ranks", ranks, 2, 1024)
    ways = [
        ("a ring", 2 * (ranks - 1) / ranks, FILLS[2]),
        ("all to all", float(ranks - 1), FILLS[1]),
        ("rank 0 adds up, and hands out", float(ranks - 1), ALERT),
    ]
    said = "; ".join(f"{name}: {times:.2f} times the tensor" for name, times, _ in ways)
    alt = f"What the busiest of {ranks} ranks sends in an all-reduce. {said}."
    drawing = Drawing(470, 8 + 44 * len(ways), alt)
    most = max(times for _, times, _ in ways)
    for row, (name, times, fill) in enumerate(ways):
        y = 8 + 44 * row
        drawing.text(0, y + 10, name)
        drawing.box(0, y + 15, 400 * times / most, 18, fill)
        drawing.text(400 * times / most + 8, y + 29, f"{times:.2f}", size=12)
    return figure(drawing, caption=f"{alt} Change ranks: only the ring's stays below 2.")


def zero_stages(ranks: int = 4) -> Card:
    """Who holds what: DDP and the three stages of ZeRO, with Adam in fp32."""
    whole_number("ranks", ranks, 2, 8)
    kinds = [("parameters", 1, FILLS[0]), ("gradients", 1, FILLS[1]), ("states", 2, FILLS[2])]
    stages = [("DDP", 0), ("ZeRO-1 (9.3)", 1), ("ZeRO-2", 2), ("ZeRO-3, FSDP (9.4)", 3)]
    held = {
        name: sum(size / (ranks if i >= 3 - s else 1) for i, (_, size, _) in enumerate(kinds))
        for name, s in stages
    }
    alt = f"What each of {ranks} ranks holds, with Adam, in times the parameters: " + "; ".join(
        f"{name} {times:.2f}" for name, times in held.items()
    )
    drawing = Drawing(HALF_WIDTH, 40 + 62 * len(stages), alt + ".")
    wide = 66.0  # of all parameters
    for number, (name, size, fill) in enumerate(kinds):
        drawing.box(136 * number, 4, 16, 16, fill)
        drawing.text(136 * number + 22, 17, f"{name}, {size}x")
    for row, (name, stage) in enumerate(stages):
        y = 34 + 62 * row
        drawing.text(0, y + 12, f"{name}: {held[name]:.2f}")
        x = 0.0
        for i, (_, size, fill) in enumerate(kinds):
            part = wide * size / ranks
            for rank in range(ranks):  # of a thing that is sharded, the part of rank 0 only is there
                mine = i < 3 - stage or rank == 0
                drawing.box(x + rank * part, y + 18, part, 26, fill if mine else "none")
            x += wide * size + 14
    return figure(
        drawing,
        caption=f"{alt}. Drawn is rank 0 of {ranks}: filled is what it holds, empty what other ranks hold for it. "
        "Not drawn: activations, and the one block that FSDP has gathered.",
    )


def tensor_parallel_block(ranks: int = 2) -> Card:
    """Half of a transformer's block under tensor parallelism: what each rank computes, and where they sum."""
    whole_number("ranks", ranks, 2, 6)
    part = f"1/{ranks}"
    alt = (
        f"The MLP of a block on {ranks} ranks. All have the same x. Each computes {part} of its columns, GELU, "
        f"and {part} of its rows. Forward, an all-reduce sums what came of the rows; backward, another all-reduce "
        "sums the gradient of x behind the columns"
    )
    drawing = Drawing(HALF_WIDTH, 76 + 44 * ranks, alt + ".")
    for rank in range(ranks):
        y = 26 + 44 * rank
        drawing.text(0, y + 20, f"rank {rank}", size=12)
        for x, width, words, fill in (
            (50, 34, "x", QUIET),
            (118, 84, f"columns {part}", FILLS[rank]),
            (208, 50, "GELU", FILLS[rank]),
            (264, 70, f"rows {part}", FILLS[rank]),
            (372, 60, "output", QUIET),
        ):
            drawing.box(x, y, width, 32, fill, words, size=12)
    low = 26 + 44 * ranks - 12
    for x, above, below in ((100, "hands on", "all-reduce"), (352, "all-reduce", "hands on")):
        drawing.box(x - 9, 22, 18, low - 18, ALERT, "")
        drawing.text(x, 14, above, size=12, anchor="middle")
        drawing.text(x, low + 22, below, size=12, anchor="middle")
    drawing.text(200, 14, "forward", size=12, bold=True)
    drawing.text(195, low + 22, "backward", size=12, bold=True)
    return figure(
        drawing,
        caption=f"{alt}. Attention is the other half: heads in place of GELU. So a block has one all-reduce more "
        "in each direction. Each all-reduce is as large as x, on any number of ranks.",
    )


def pipeline_schedule(ranks: int = 3, micro_batches: int = 4, schedule: str = "1f1b") -> Card:
    """When each rank of a pipeline computes what, where a backward pass takes as long as a forward pass."""
    whole_number("ranks", ranks, 2, 6)
    whole_number("micro_batches", micro_batches, 1, 12)
    if schedule not in ("gpipe", "1f1b"):
        raise Said(f"schedule={schedule!r}: this figure knows gpipe, 1f1b")
    kept = [micro_batches if schedule == "gpipe" else min(ranks - rank, micro_batches) for rank in range(ranks)]
    length = 2 * (micro_batches + ranks - 1)
    grid = _played([_actions(most, micro_batches) for most in kept], length)
    share = (ranks - 1) / (micro_batches + ranks - 1)
    alt = f"{schedule} on {ranks} ranks with {micro_batches} micro-batches. " + "; ".join(
        f"rank {rank}: {' '.join(cell or '.' for cell in row)}" for rank, row in enumerate(grid)
    )
    cell = min(30.0, (HALF_WIDTH - 50) / length)
    drawing = Drawing(HALF_WIDTH, 8 + 34 * ranks, alt + ".")
    for rank, row in enumerate(grid):
        y = 4 + 34 * rank
        drawing.text(0, y + 19, f"rank {rank}", size=12)
        for time, action in enumerate(row):
            fill = "none" if not action else FILLS[0] if action[0] == "F" else FILLS[1]
            drawing.box(48 + cell * time, y, cell, 28, fill, action if cell >= 22 else "", size=12)
    return figure(
        drawing,
        caption=f"{alt}. F is forward, B backward, with the number of the micro-batch; {share:.0%} of the "
        f"time is bubble. Rank 0 keeps the activations of {kept[0]} micro-batch{'es' * (kept[0] > 1)} at most.",
    )


def _actions(most: int, micro_batches: int) -> list[tuple[str, int]]:
    """A rank's actions, where at most so many micro-batches are forward and not yet backward."""
    actions = [("F", micro) for micro in range(most)]
    for micro in range(micro_batches):
        actions.append(("B", micro))
        if most + micro < micro_batches:
            actions.append(("F", most + micro))
    return actions


def _played(ranks: list[list[tuple[str, int]]], length: int) -> list[list[str]]:
    """What each rank does at each time: an action begins as soon as its neighbour's was done."""
    grid = [[""] * length for _ in ranks]
    done: set[tuple[int, str, int]] = set()
    waiting = [list(actions) for actions in ranks]
    for time in range(length):
        begun = []
        for rank, actions in enumerate(waiting):
            if actions:
                kind, micro = actions[0]
                needed = rank - 1 if kind == "F" else rank + 1
                if not 0 <= needed < len(ranks) or (needed, kind, micro) in done:
                    begun.append((rank, kind, micro))
        for rank, kind, micro in begun:
            waiting[rank].pop(0)
            grid[rank][time] = f"{kind}{micro}"
        done.update(begun)
    return grid
