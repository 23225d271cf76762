"""Judges the messages of a ring all-reduce: who has sent how much to whom."""

import ast
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lab.checks.common.look import Look
from lab.checks.common.look_around import argument_of, in_helpers
from lab.checks.common.report import numbers
from lab.checks.common.syntax import assignments, calls_of
from lab.grading.diagnosis import Diagnosis

EXCHANGE, SCATTER, GATHER = "exchange", "reduce_scatter", "all_gather"

GIVEN = ("rank", "ranks", "parts")  # what both halves have from the lab


def made_for_incoming(look: Look, half: str) -> str:
    """Where the tensor was made that exchange() fills, in one half; "" where that is not known."""
    return argument_of(look.into(half), EXCHANGE, "incoming", 1)


def divided_at(look: Look) -> str:
    """Where something is divided, in whichever function; where reduce_scatter() adds, if that is not known."""
    divides = r"(?<!/)/(?!/)|\b(true_)?div(ide)?_?\(|\bmean\("
    places = (in_helpers(look.into(name), divides) for name in ("ring_all_reduce", SCATTER, GATHER, EXCHANGE))
    return next(filter(None, places), "") or look.into(SCATTER)(r"\+=|add_?\(", r"exchange\(")


def chosen_to_send(look: Look, *, last: bool = False) -> str:
    """Where it is chosen what exchange() sends, the first time or from round to round; or its call."""
    _, _, node = look.source()
    for call in calls_of(node, EXCHANGE) if node else ():
        handed = [part.id for one in call.args[:1] for part in ast.walk(one) if isinstance(part, ast.Name)]
        made = [line for name in handed for line in assignments(node, name) if name not in GIVEN]  # type: ignore[arg-type]
        loops = {part.lineno for part in ast.walk(node) if isinstance(part, ast.For)}  # type: ignore[arg-type]
        lines = sorted(set(made) - loops)
        return look.line(lines[-1 if last else 0]) if lines else look.line(call.lineno)
    return look(r"send")


def added_once_more(reports: Sequence[dict[str, Any]], total: Tensor) -> bool:
    """Whether each rank has added the first complete part that it got to its own part of the sum."""
    parts = total.tensor_split(len(reports))
    for rank, report in enumerate(reports):
        had, has = report["between"], report["sum"].tensor_split(len(reports))
        if had is None or had.shape != total.shape or had.dtype != total.dtype:
            return False
        if not torch.equal(has[rank], had.tensor_split(len(reports))[rank] + parts[rank]):
            return False
    return len(reports) > 1


def judge_messages(look: Look, sent: Sequence[Sequence[dict[str, int]]], tensor: Tensor) -> None:
    """Nobody sends more than 2(N-1) parts, and to one neighbour only."""
    ranks, size = len(sent), tensor.element_size()
    whole = len(tensor) * size
    most = 2 * (ranks - 1) * -(-len(tensor) // ranks) * size
    by_rank = [sum(one["bytes"] for one in own) for own in sent]
    peers = [sorted({one["to"] for one in own if one["bytes"]}) for own in sent]
    said = f"of {whole} bytes on each of {ranks} ranks, the ranks sent {numbers(by_rank)}"
    ring = f"In a ring each sends 2(N-1) parts of 1/N: {most} bytes at most, however many ranks there are."
    steps = 2 * (ranks - 1)
    if min(map(len, sent)) > steps and max(by_rank) > most and min(by_rank) < (ranks - 1) * whole:
        # The sums are right: a step more brings again what is there.
        endless = r"range\((?!.*- ?1)|while"
        scatter = look.into(SCATTER)(endless)
        raise Diagnosis(
            "too-many-steps",
            saw=f"{said}: {max(map(len, sent))} messages each.",
            means=f"Both halves take N-1 steps: 2(N-1) = {steps} messages from each rank.",
            look=scatter if "def " not in scatter else look.into(GATHER)(endless),
        )
    if max(by_rank) > most:
        alone = [rank for rank, one in enumerate(peers) if len(one) == ranks - 1]
        if len(alone) == 1 and max(by_rank) == by_rank[alone[0]]:
            raise Diagnosis(
                "one-rank-does-all",
                saw=f"{said}: rank {alone[0]} to all others.",
                means="All wait for that one's connection: with N ranks it sends N-1 times the tensor.",
                look=look.into(GATHER)(r"send\(|exchange\("),
            )
        name = "whole-tensors-sent" if min(by_rank) >= (ranks - 1) * whole else "too-many-bytes"
        raise Diagnosis(name, saw=f"{said}.", means=ring, look=look.into(SCATTER)(r"exchange\(|send\("))
    around = [[[(rank + turn) % ranks] for rank in range(ranks)] for turn in (1, -1)]
    if whole >= ranks * size and peers not in around:
        rank = next((rank for rank, one in enumerate(peers) if one != around[0][rank]), 0)
        raise Diagnosis(
            "not-a-ring",
            saw=f"rank {rank} of {ranks} sent to ranks {numbers(peers[rank]) or 'none'}.",
            means="In a ring every rank sends to its neighbour only: one cable a rank is enough.",
            look=look.into(EXCHANGE)(r"isend|send"),
        )
