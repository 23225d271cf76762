"""Judges what a rank keeps of a block that is cut, and of a tensor by itself."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from lab.checks.common.look import RETURN, Look, line_of
from lab.checks.common.report import expect, fits
from lab.checks.from_scratch.tensor_parallel.net import COLUMN, CUT, PIECES, RANKS, ROW, draw_weights
from lab.grading.diagnosis import Diagnosis, unusable_report

WHOLE_BIAS = "The rank has a part of the outputs, so it has the same part of the bias."


def judge_sizes(look: Look, rank: int, report: dict[str, Any]) -> None:
    """A rank has half of each weight that is cut, in memory too."""
    blocks = report["sizes"]
    expect([list(report["layers"].values())], [[str]])
    whole = {name: value.numel() for name, value in draw_weights(torch.Generator())[0].items()}
    for own in blocks:
        if not all(len(one) == 3 and [type(value) for value in one] == [str, int, int] for one in own):
            raise unusable_report("a parameter's sizes are not its name and two numbers")
        found = {name: (size, kept) for name, size, kept in own}
        for name in CUT:
            size, kept = found.get(name, (whole[name], 0))
            if size > whole[name] // RANKS:
                raise _whole(look, name, f"rank {rank} has {size} of the {whole[name]} numbers of {name}", report)
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


def _whole(look: Look, name: str, saw: str, report: dict[str, Any]) -> Diagnosis:
    """A weight is not cut, or no parameter: by what its layer is now, and the parallel layers that were made."""
    said: list[str] = report["layers"].get(name, [])
    kind, has = [*said, "", ""][:2]
    init = look.into(f"{kind}.__init__") if kind in (COLUMN, ROW) else None
    own = name.rpartition(".")[2]
    if init and has == "Tensor":
        return Diagnosis(
            "no-parameter",
            saw=f"{kind} has a plain tensor as its {own}: parameters() does not know {name}.",
            means="The optimizer steps what parameters() gives, and a checkpoint has it: make it an nn.Parameter.",
            look=init(rf"\b{own}\b.*=", rf"\b{own}\b"),
        )
    lines = [one for one in report["unplaced"] if fits(one, [object]) and len(one) == 2 and type(one[1]) is int]
    if not init and lines:
        wanted = COLUMN if name in ("attention.query_key_value.weight", "mlp.0.weight") else ROW
        made = next((one for one in lines if one[0] == wanted), lines[0])
        place = look.line(made[1])
        return Diagnosis(
            "not-put-back",
            saw=f"{saw}; a {made[0] if made[0] in (COLUMN, ROW) else 'layer'} was made, but not put there.",
            means="setattr() follows no dots: a module of that name is made beside the layer. Set it in its owner."
            if "setattr(" in place
            else "A name of the function is no part of the block: assign to the block's attribute, or to mlp[0].",
            look=place,
        )
    means = "Each rank keeps its part of every linear layer: that is what the memory is saved by."
    if init is None:  # nothing was made: it is missing behind what else there is of this half, or at the end
        place = look(rf"\b{name.partition('.')[0]}\b", last=True)
        return Diagnosis(
            "weights-whole", saw=f"{saw}.", means=means, look=place if line_of(place) else look(RETURN)
        )
    place = init(rf"\b{own}\b.*=", rf"\b{own}\b")
    if "own_part(" in place:
        place = look.into("own_part")(RETURN)
    elif own == "bias":
        return Diagnosis("bias-not-cut", saw=f"{saw}.", means=WHOLE_BIAS, look=place)
    return Diagnosis("weights-whole", saw=f"{saw}.", means=means, look=place)


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


def judge_more(look: Look, parts: Sequence[Any], whole: Tensor) -> None:
    """Of another number of ranks each gets a part of each piece, and nobody what another one has."""
    ranks = len(parts)
    each = whole.shape[1] // PIECES
    shape, taken = [len(whole), whole.shape[1] // ranks], torch.zeros(whole.shape[1], dtype=torch.int64)
    for rank, part in enumerate(parts):
        saw = f"of a {list(whole.shape)} with {PIECES} pieces rank {rank} of {ranks} "
        if isinstance(part, int):
            saw += "gets an error."
        elif list(part.shape) != shape:
            saw += f"keeps a {list(part.shape)} in place of {shape}."
        else:
            same = (part.T[:, None] == whole.T[None]).all(dim=2)
            taken += same.sum(dim=0)
            if [int(piece.sum()) for piece in same.split(each, dim=1)] == [each // ranks] * PIECES and (
                int(taken.max()) < 2
            ):
                continue
            saw += "keeps columns that another rank has, or other ones than of each piece."
        raise Diagnosis(
            "cut-for-two-ranks",
            saw=saw,
            means="Each piece is cut into as many parts as there are ranks, and each rank has one of its own.",
            look=for_two(look)
            or (look.line(part) if isinstance(part, int) else look(r"chunk|split|narrow", RETURN)),
        )


def for_two(look: Look) -> str:
    """Where a function has a number of ranks that is written there, or asks for the other one of two; or ""."""
    written = look(r"(?<![\w.\[])2(?![\w.:])", r"\b1 - rank|rank (==|!=|>|<) \d|\bnot rank|rank \^|\bif rank\b")
    return written if line_of(written) else ""


def fresh(look: Look, report: dict[str, Any], whole: Mapping[str, Tensor]) -> str:
    """Where a layer makes weights of its own, if a rank has numbers that the whole layer has not; "" if not."""
    keys, biases, outs = report["keys"], report["key biases"], report["outs"]
    for kind, own, name in ((COLUMN, keys, CUT[0]), (ROW, outs, CUT[2]), (COLUMN, biases, CUT[1])):
        if float(torch.isin(own, whole[name]).float().mean()) > 0.5:  # some are the same by chance
            continue
        init = look.into(f"{kind}.__init__")
        word = name.rpartition(".")[2]
        drawn = r"(init\.\w+|uniform|normal|zero|fill|ones|constant)_\("
        made = r"rand|zeros|ones|empty|nn\.Linear\(|super\(\).*features|reset_parameters"
        place = init(rf"{drawn}.*\b{word}\b|\b{word}\b.*{drawn}", rf"{word}\b.*({made})", drawn, made)
        return place if line_of(place) else init(rf"\b{word}\b.*=")
    return ""
