"""Judges a learning rate that replays are to see."""

import random
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from lab.checks.common.look import RETURN, Look
from lab.checks.common.look_around import argument_of, kept_at, kept_default
from lab.checks.common.look_values import last_use, unreached
from lab.checks.common.report import ERROR, error_text, expect, expect_as_many, expect_returned, fail
from lab.checks.common.tensors import all_close, close, example, expect_tensors, number
from lab.checks.common.tiny import draw_batch, draw_weights, loss_and_gradients
from lab.grading.diagnosis import Diagnosis
from lab.grading.parts import compared

STEPS = 6  # two as ever, then replays
RATE = {"type": str, "id": int, "memory": int, "dtype": str, "value": float, "line": int, "copied": int}
GROUPS = {"rates": [float], "line": int}
PARAMETERS = {"error": (None, ERROR), "names": [str], "left": [str], "half": str}
REPORT = {
    "error": (None, ERROR),
    "type": str,
    "sgd": bool,
    "rates": [RATE],
    "refused": (None, ERROR),
    "failed": (None, ERROR),
}


def draw_rates(generator: torch.Generator) -> dict[str, Any]:
    """Rates that rise and fall, one of them to 0, a momentum, weights and batches."""
    rates = random.sample([0.03, 0.05, 0.08, 0.11, 0.15, 0.2, 0.24], STEPS)
    rates[STEPS - 2] = 0.0
    rates[-1] = random.choice([0.0625, 0.125, 0.1875])  # float32 holds these as they are, so == finds them
    return {
        "rates": rates,
        "momentum": random.choice([0.6, 0.7, 0.8]),
        "groups": [[0.5, 0.25], [rates[-1], 0.25], [0.5, rates[-1]]],  # the rates of two groups, before
        "other": 0.37,  # the rate of another optimizer, whose half is none of these
        "weights": draw_weights(generator),
        "batches": [draw_batch(generator, 6) for _ in range(STEPS)],
    }


def trained(given: dict[str, Any], rates: Sequence[float], momentum: float) -> dict[str, Tensor]:
    """SGD by its formula: v = momentum * v + gradient; w = w - rate * v."""
    weights = dict(given["weights"])
    velocity = {name: torch.zeros_like(value) for name, value in weights.items()}
    for batch, rate in zip(given["batches"], rates, strict=True):
        gradients = loss_and_gradients(weights, batch)[1]
        velocity = {name: momentum * velocity[name] + gradients[name] for name in weights}
        weights = {name: weights[name] - rate * velocity[name] for name in weights}
    return weights


def judge_rates(look: Look, reports: Sequence[Any], given: dict[str, Any]) -> None:
    """What each rank has seen: the rate that is set on one is to be set on all."""
    expect(reports, REPORT)
    for report in reports:
        judge_rank(look, report, given)


def judge_rank(look: Look, report: dict[str, Any], given: dict[str, Any]) -> None:
    setting = look.into("set_rate")
    if report["error"]:
        fail(report["error"], "capturable_sgd()", look)
    expect_returned(look, report["type"], "The training loop steps with it.", look(r"SGD\(", RETURN))
    if not report["sgd"]:
        raise Diagnosis(
            "no-sgd",
            saw=f"capturable_sgd() returned {report['type']}, and no SGD.",
            means="Its callers count on the updates of SGD.",
            look=look(RETURN),
        )
    expect([report], {"parameters": PARAMETERS, "elsewhere": str, "learned": bool})
    judge_first_rate(look, report, given)
    if error := report["failed"]:
        if report["learned"]:
            raise Diagnosis(
                "rate-with-gradient",
                saw=f"the rate's tensor requires a gradient, and set_rate() raised {error_text(error)}",
                means="Nothing learns the rate: a tensor without requires_grad can be written to in place.",
                look=argument_of(look, "SGD", "lr", 1) or look(r"requires_grad|Parameter\(", r"lr"),
            )
        fail(error, "set_rate()", setting)
    judge_later_rates(setting, report["rates"], given)
    if error := report["refused"]:
        refuses_number = error["type"] == "RecordingError"
        other = next(filter(None, (argument_of(look, "SGD", name) for name in ("fused", "foreach"))), "")
        raise Diagnosis(
            "not-fused" if refuses_number else "not-recordable",
            saw=f"a step with this optimizer cannot be recorded: {error_text(error)}",
            means="Only the fused kernel reads a rate where it is: the others ask the tensor for its number."
            if refuses_number
            else "Its steps have to be recorded: that is what it is for.",
            look=other or look(r"SGD\(", r"fused"),
        )
    expect_as_many([report["rates"]], STEPS)
    expect([report], {"after": dict, "groups": [GROUPS], "another": [float]})
    expect_as_many([report["groups"]], len(given["groups"]))
    expect_as_many([group["rates"] for group in report["groups"]], 2)
    judge_weights(look, report["after"], given)
    judge_groups(setting, report["groups"], given)
    judge_another(look, report, given)


def judge_groups(look: Look, groups: Sequence[dict[str, Any]], given: dict[str, Any]) -> None:
    """Two parameter groups, of which one may have the rate already."""
    wanted = given["rates"][-1]
    for group, olds in zip(groups, given["groups"], strict=True):
        if all(close(rate, wanted) for rate in group["rates"]):
            continue
        left = ", ".join(map(number, group["rates"]))
        if wanted not in olds:
            raise Diagnosis(
                "first-group-only",
                saw=f"of two parameter groups, set_rate({wanted}) left one with {left}.",
                means="A model whose biases are a group of their own would train with two rates.",
                look=kept_default(look)
                or look.left_early()
                or unreached(look, look(r"param_groups|\[0\]", r"lr")),
            )
        raise Diagnosis(
            "group-left-out",
            saw=f"two parameter groups had the rates {', '.join(map(number, olds))}, and have {left} after "
            f"set_rate({wanted}).",
            means="That one group has this rate already says nothing of the others: go through all of them.",
            look=look.left_early() or (look.line(group["line"]) if group["line"] else look(r"param_groups")),
        )


def judge_another(look: Look, report: dict[str, Any], given: dict[str, Any]) -> None:
    """A second optimizer: with its own rate, in a tensor of its own."""
    if len(report["another"]) != 2:
        return
    found, first = report["another"]
    means = "Each optimizer needs a tensor of its own: two that share one have one rate between them."
    place = kept if (kept := kept_at(look)) else argument_of(look, "SGD", "lr", 1) or look.kept()
    if not close(found, given["other"]):
        saw = f"a second optimizer, for a rate of {number(given['other'])}, begins with {number(found)}."
        raise Diagnosis("rate-shared", saw=saw, means=means, look=place)
    if not close(first, given["rates"][-1]):
        saw = f"when a second optimizer had its rate, the first one's was {number(first)} too."
        raise Diagnosis("rate-shared", saw=saw, means=means, look=place)


def judge_first_rate(look: Look, report: dict[str, Any], given: dict[str, Any]) -> None:
    """The rate that the optimizer begins with."""
    first = report["rates"][0]
    if first["type"] not in ("Tensor", "Parameter"):
        raise Diagnosis(
            "rate-is-a-number",
            saw=f"the optimizer's rate is a {first['type']}, {number(first['value'])}.",
            means="A number is written into the graph as it is: every replay uses the rate of the recording.",
            look=look(r"lr=", r"SGD\("),
        )
    if not close(first["value"], given["rates"][0]):
        raise Diagnosis(
            "another-rate",
            saw=f"for a rate of {number(given['rates'][0])} the optimizer has {number(first['value'])}.",
            means="The rate is the caller's to choose.",
            look=look(r"lr=", r"SGD\("),
        )
    if first["dtype"] != "float32":
        raise Diagnosis(
            "rate-not-float32",
            saw=f"the optimizer's rate is a tensor of {first['dtype']}.",
            means="On a GPU the fused kernel reads a float32 there, and stops at all else in the first step.",
            look=look(r"dtype|double\(", r"torch\.(tensor|full|as_tensor)\(", r"lr="),
        )
    if report["elsewhere"] == "cpu":
        raise Diagnosis(
            "rate-on-cpu",
            saw="with the model on a GPU (here only pretended) the rate is a tensor on the CPU.",
            means="The kernel would wait for the CPU's number, and a graph would keep that of the recording.",
            look=look.source_of("tensor", "device", like=r"cuda|cpu|rank")
            or look(r"torch\.(tensor|full|as_tensor)\(", r"lr="),
        )
    if error := report["parameters"]["error"]:
        fail(error, "capturable_sgd() of a model with a norm", look)
    if (half := report["parameters"]["half"]) not in ("float32", ""):
        raise Diagnosis(
            "rate-not-float32",
            saw=f"of a model whose parameters are of bfloat16, the optimizer's rate is a tensor of {half}.",
            means="On a GPU the fused kernel reads a float32 there, and stops at all else in the first step.",
            look=look(r"dtype|new_tensor|new_full|_like", r"torch\.(tensor|full|as_tensor)\(", r"lr="),
        )
    names, left = report["parameters"]["names"], report["parameters"]["left"]
    if left:
        raise Diagnosis(
            "parameters-left-out",
            saw=f"the optimizer has {len(names) - len(left)} of a model's {len(names)} parameters: not "
            f"{', '.join(left[:3])}.",
            means="The others would never learn.",
            look=argument_of(look, "SGD", "params", 0) or look(r"parameters\(", r"SGD\("),
        )


def judge_later_rates(look: Look, rates: Sequence[dict[str, Any]], given: dict[str, Any]) -> None:
    """What set_rate() does to the rate: another number in the same tensor."""
    for before, found, wanted in zip(rates, rates[1:], given["rates"][1:], strict=False):
        changed = look.line(found["line"]) if found["line"] else ""
        if found["type"] not in ("Tensor", "Parameter"):
            raise Diagnosis(
                "number-in-its-place",
                saw=f"after set_rate({wanted}) the rate is a {found['type']}, and no tensor any more.",
                means="The graph goes on reading the old tensor, in which nothing has changed.",
                look=changed or look(r"\blr\b", r"="),
            )
        if found["id"] != rates[0]["id"]:
            raise Diagnosis(
                "another-tensor",
                saw=f"after set_rate({wanted}) the rate is another tensor than before.",
                means="The graph goes on reading the old one, in which nothing has changed: write into that.",
                look=changed or look(r"\blr\b", r"="),
            )
        if found["memory"] != rates[0]["memory"]:
            raise Diagnosis(
                "other-memory",
                saw=f"after set_rate({wanted}) the rate's tensor lies elsewhere in memory than before.",
                means="The graph goes on reading the old place, in which nothing has changed: write into that.",
                look=changed or look(r"\.data\b|\bset_\(", r"\blr\b", r"="),
            )
        if not close(found["value"], wanted):
            if wanted == 0 and close(found["value"], before["value"]):
                raise Diagnosis(
                    "zero-not-set",
                    saw=f"after set_rate(0.0) the rate is still {number(found['value'])}.",
                    means="0 is a rate as any other: schedules begin or end there.",
                    look=look(r"\bif\b|\bor\b", r"\blr\b|\bgroup"),
                )
            copied = look.line(found["copied"]) if found["copied"] else ""
            raise Diagnosis(
                "rate-not-set",
                saw=f"after set_rate({wanted}) the rate is {number(found['value'])}.",
                means="The rate that was given is the one that later steps use.",
                look=changed or copied or used(look) or look(r"\blr\b|\bgroup", r"rate"),
            )


def used(look: Look) -> str:
    """What set_rate() does last with the rate that it is given; "" where it does nothing."""
    _, _, node = look.source()
    line = last_use(look, [one.arg for one in node.args.args[1:2]]) if node else 0
    return look.line(line) if line else ""


def judge_weights(look: Look, after: dict[str, Tensor], given: dict[str, Any]) -> None:
    """What the steps have come to."""
    right = trained(given, given["rates"], given["momentum"])
    compared("weights after all steps", [after], right)
    expect_tensors([after], {name: value.double() for name, value in right.items()})
    if all_close(after, right):
        return
    off = example(after, right)
    for momentum in (0.0, 0.9):
        if all_close(after, trained(given, given["rates"], momentum)):
            raise Diagnosis(
                "another-momentum",
                saw=f"the weights are those of SGD with momentum {number(momentum)}: {off}.",
                means=f"The caller has asked for {number(given['momentum'])}.",
                look=look(r"momentum=|SGD\(", RETURN),
            )
    raise Diagnosis(
        "other-updates",
        saw=f"after {STEPS} steps {off}, as SGD with these rates and this momentum has.",
        means="Nothing else is asked for: no weight decay, no Nesterov momentum, no dampening.",
        look=look(r"weight_decay|nesterov|dampening|maximize", r"SGD\(", RETURN),
    )
