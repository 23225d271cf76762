"""Judges what a rank keeps of a block that is cut, and of a tensor by itself."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lab.checks.common.look import RETURN, Look
from lab.checks.from_scratch.tensor_parallel.net import COLUMN, CUT, PIECES, RANKS, draw_weights
from lab.grading.diagnosis import Diagnosis, unusable_report


def judge_sizes(look: Look, rank: int, blocks: Sequence[Any]) -> None:
    """A rank has half of each weight that is cut, in memory too."""
    whole = {name: value.numel() for name, value in draw_weights(torch.Generator())[0].items()}
    for own in blocks:
        if not all(len(one) == 3 and [type(value) for value in one] == [str, int, int] for one in own):
            raise unusable_report("a parameter's sizes are not its name and two numbers")
        found = {name: (size, kept) for name, size, kept in own}
        for name in CUT:
            size, kept = found.get(name, (whole[name], 0))
            layer = name.rpartition(".")[0]
            if size > whole[name] // RANKS:
                raise Diagnosis(
                    "weights-whole",
                    saw=f"rank {rank} has {size} of the {whole[name]} numbers of {name}.",
                    means="Each rank keeps its part of every linear layer: that is what the memory is saved by.",
                    look=look(rf"{layer.rpartition('.')[2]}\W.*=", rf"{layer.partition('.')[0]}\b"),
                )
            if kept > size:
                raise Diagnosis(
                    "part-is-a-view",
                    saw=f"{name} of rank {rank} has {size} numbers, and keeps {kept} in memory.",
                    means="A part of a tensor is a view, which keeps all of it alive: make a copy.",
                    look=look.into("own_part")(RETURN),
                )
        extra = sum(size for name, (size, _) in found.items() if name not in whole)
        if extra:
            names = [name for name in found if name not in whole]
            raise Diagnosis(
                "weights-whole",
                saw=f"rank {rank} has {extra} numbers in other parameters: {names[0]}, ...",
                means="What a parallel layer keeps is its part: the whole layer must be free to go.",
                look=look.into(f"{COLUMN}.__init__")(r"self\.\w+ = whole"),
            )


def judge_part(look: Look, parts: Sequence[Tensor], whole: Tensor) -> None:
    """Of pieces along the second dimension, too: the block's own pieces lie along the first.

    Which part of a piece is whose does not matter, as long as each of its columns is one rank's.
    """
    each = whole.shape[1] // PIECES
    shape = [len(whole), whole.shape[1] // RANKS]
    for rank, part in enumerate(parts):
        saw = f"of a {list(whole.shape)} with {PIECES} pieces along dimension 1 rank {rank} keeps "
        if list(part.shape) != shape:
            raise Diagnosis(
                "joined-along-other-dimension",
                saw=f"{saw}a {list(part.shape)} in place of {shape}.",
                means="Pieces that are cut apart along `dim` are joined along `dim` again.",
                look=look(r"\bcat\(|concat|stack", RETURN),
            )
        same = (part.T[:, None] == whole.T[None]).all(dim=2)  # [kept, whole]: which column is which
        if [int(piece.sum()) for piece in same.split(each, dim=1)] != [each // RANKS] * PIECES:
            raise Diagnosis(
                "pieces-along-one-dimension",
                saw=f"{saw}other columns than {each // RANKS} of each piece.",
                means="Pieces and parts of them lie along `dim`, whichever that is.",
                look=look(r"chunk|split|narrow", RETURN),
            )
