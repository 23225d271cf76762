"""For judges: numbers compared with what they should be, and how they differ, in words."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from lab.base.source import searchable
from lab.base.words import one_line
from lab.checks.common.report import expect
from lab.grading.diagnosis import Diagnosis

TOLERANCE = 1e-4  # of the largest value: well above fp32 rounding, well below any mistake

Tensors = Mapping[str, Tensor]


def expect_tensors(values: Sequence[object], like: Tensors) -> None:
    """Raise a Diagnosis unless every value is a dict of floating-point tensors with these names and shapes."""
    expect(values, dict.fromkeys(like, Tensor))
    for value in values:
        assert isinstance(value, dict)
        fitting = all(value[name].shape == like[name].shape and value[name].is_floating_point() for name in like)
        if value.keys() != like.keys() or not fitting:
            shapes = {name: list(tensor.shape) for name, tensor in value.items() if isinstance(tensor, Tensor)}
            raise Diagnosis(
                "unusable-result",
                saw=f"a rank reported tensors of shapes {str(shapes)[:80]}...",
                means="These are not the shapes of the model's parameters.",
                look="code that changes the parameters of the model, not only their values",
            )


def expect_texts(values: Sequence[object]) -> None:
    """Raise a Diagnosis unless every value is a dict of texts by name."""
    for value in values:
        expect([list(value) if isinstance(value, dict) else value], [str])
        assert isinstance(value, dict)
        expect([list(value.values())], [str])


@contextmanager
def retold(
    pattern: str,
    name: str,
    means: str,
    *,
    saw: str = "",
    look: str = "",
    found: Callable[[str], str] = lambda place: place,
    unless: Callable[[], bool] = lambda: False,
) -> Iterator[None]:
    """Give an exception that a known mistake leads to its own name and meaning.

    Args:
        saw: in place of PyTorch's words; {rank} in it becomes "rank 2", whichever raised first.
        look: the place, where that of the exception says little.
        found: or the place that is found from that of the exception.
        unless: asked when it has been raised: then it is something else.
    """
    try:
        yield
    except Diagnosis as diagnosis:
        if (
            diagnosis.name in ("raised", "unusable-result")
            and re.search(pattern, searchable(diagnosis.saw))
            and not unless()
        ):
            who = re.match(r"rank \d+", searchable(diagnosis.saw))
            said = saw.format(rank=who[0] if who else "a rank") or one_line(diagnosis.saw, 200)
            raise Diagnosis(name, saw=said, means=means, look=look or found(diagnosis.look)) from None
        raise


def close(observed: Tensor | float, expected: Tensor | float) -> bool:
    """Whether all differences are small beside the largest expected value. NaN is close to nothing."""
    a, b = (torch.as_tensor(x, dtype=torch.float64) for x in (observed, expected))
    if a.shape != b.shape:
        return False
    if b.numel() == 0:
        return True
    return bool((a - b).abs().max() <= TOLERANCE * max(b.abs().max().item(), 1e-12))


def all_close(observed: Tensors, expected: Tensors) -> bool:
    """The same for tensors by name; all names must be there."""
    return observed.keys() == expected.keys() and all(close(observed[name], expected[name]) for name in expected)


def example(observed: Tensors, expected: Tensors) -> str:
    """The number that is off the most: "classifier.weight holds 0.4321 instead of 0.2160"."""
    worst, found = -1.0, ""
    for name in expected:
        if name not in observed:
            return f"{name} has none"
        if observed[name].shape != expected[name].shape:
            return f"{name} has the shape {list(observed[name].shape)} instead of {list(expected[name].shape)}"
        difference = (observed[name].double() - expected[name].double()).abs().nan_to_num(float("inf")).flatten()
        if difference.numel() and difference.max().item() > worst:
            worst, at = difference.max().item(), int(difference.argmax())
            here, there = observed[name].flatten()[at], expected[name].flatten()[at]
            found = f"{name} holds {number(here)} instead of {number(there)}"
    return found


def number(value: Tensor | float) -> str:
    """Five digits."""
    return f"{float(value):.5g}"


def factor_between(observed: Tensors, expected: Tensors) -> float | None:
    """The c with observed = c * expected in all tensors; None if there is none."""
    if {name: value.shape for name, value in observed.items()} != {
        name: value.shape for name, value in expected.items()
    }:
        return None
    a = torch.cat([observed[name].double().flatten() for name in expected])
    b = torch.cat([expected[name].double().flatten() for name in expected])
    c = (torch.dot(a, b) / torch.dot(b, b)).item()
    return c if c != 0 and close(a, c * b) else None
