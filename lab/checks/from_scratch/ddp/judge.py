"""Judges MyDDP: how it begins, when and how often it communicates, and the gradients that come of it."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from lab.checks.common.look import RETURN, Look
from lab.checks.common.report import expect, expect_as_many
from lab.checks.common.tensors import close, example, factor_between
from lab.checks.from_scratch.ddp.draw import TURNED, Drawn, Gradients, mean, own_gradients
from lab.checks.from_scratch.ddp.judge_buckets import judge_buckets, judge_callbacks, judge_overlap
from lab.checks.from_scratch.ddp.places import broadcast_list
from lab.grading.diagnosis import Diagnosis, unusable_report
from lab.grading.parts import compared

CALLS = [{"name": str, "bytes": int}]
REPORT = {
    "start": dict,
    "calls": CALLS,
    "in backward": int,
    "before last": int,
    "waited in backward": int,
    "waits": int,
    "ready": [int],
    "touched": int,
    "left": [int],
    "quiet in backward": int,
    "quiet ready": [int],
    "gradients": dict,
    "late callbacks": [int],
    "storages": int,
    "quiet calls": CALLS,
    "quiet gradients": dict,
    "scale": float,
    "second gradients": dict,
    "third gradients": dict,
    "second before last": int,
    "third in backward": int,
}
ALL_REDUCE = "allreduce_"
BUFFERS = ("scale", "centre")


def judge(look: Look, reports: Sequence[Any], drawn: Drawn) -> None:
    expect(reports, REPORT)
    expect_as_many([r["calls"] for r in reports], len(reports[0]["calls"]))
    for report in reports:
        for kind in ("start", "gradients", "quiet gradients", "second gradients", "third gradients"):
            if not all(_fits(drawn.weights[0], name, value) for name, value in report[kind].items()):
                raise unusable_report(f"a rank reported {kind} of other tensors")
    judge_start(look, [report["start"] for report in reports], drawn)
    for rank, report in enumerate(reports):
        judge_calls(look, rank, report)
    own = [own_gradients(drawn, rank, 0) for rank in range(len(reports))]
    for rank, report in enumerate(reports):
        judge_callbacks(look, rank, report, mean(own))
    judge_gradients(look, [report["gradients"] for report in reports], own, "")
    judge_buckets(look, [call["bytes"] for call in reports[0]["calls"]], drawn.cap_mb)
    judge_overlap(look, reports)
    judge_views(look, reports[0])
    judge_no_sync(look, reports, drawn)
    own = [own_gradients(drawn, rank, TURNED) for rank in range(len(reports))]
    judge_gradients(look, [report["third gradients"] for report in reports], own, "in the third step ")
    judge_counted(look, reports[0])


def _fits(like: Gradients, name: object, value: object) -> bool:
    if not isinstance(name, str) or name not in like or not isinstance(value, Tensor):
        return False
    return value.shape == like[name].shape and value.is_floating_point()


def judge_start(look: Look, start: Sequence[dict[str, Tensor]], drawn: Drawn) -> None:
    wanted = drawn.weights[0]
    for kind, name in (("parameters", "not-broadcast"), ("buffers", "buffers-not-broadcast")):
        names = [one for one in wanted if (one in BUFFERS) == (kind == "buffers")]
        for rank, state in enumerate(start):
            if missing := [one for one in names if one not in state or not close(state[one], wanted[one])]:
                raise Diagnosis(
                    name,
                    saw=f"{missing[0]} of rank {rank} is not that of rank 0 after MyDDP was made.",
                    means="A state_dict leaves out what was registered with persistent=False: module.buffers()."
                    if missing == ["centre"]
                    else f"Ranks that begin with other {kind} train other models, and average what does not fit.",
                    look=(len(missing) < len(names) and broadcast_list(look, kind)) or look(r"broadcast", r"hook"),
                )


def judge_calls(look: Look, rank: int, report: dict[str, Any]) -> None:
    calls = report["calls"]
    if others := [call["name"] for call in calls if call["name"] != ALL_REDUCE]:
        raise Diagnosis(
            "other-collective",
            saw=f"rank {rank} called {others[0].strip('_')} in the backward pass or in finish().",
            means="A bucket takes one all-reduce, and nothing else.",
            look=look.into("MyDDP._begin")(r"dist\."),
        )
    if not calls:
        raise Diagnosis(
            "never-reduced",
            saw=f"rank {rank} called no all-reduce, neither in backward() nor in finish().",
            means="Each rank keeps its own gradients: the models drift apart.",
            look=look(r"hook"),
        )
    if len(calls) > len(report["ready"]) > 0:
        raise Diagnosis(
            "several-for-a-bucket",
            saw=f"rank {rank} called {len(calls)} all-reduces for {len(report['ready'])} buckets.",
            means="A bucket's gradients lie in one flat tensor, so that they take one all-reduce: bucket.flat.",
            look=look.into("MyDDP._begin")(r"all_reduce"),
        )
    if report["touched"] and "def " in look(r"\.register_hook\("):
        raise Diagnosis(
            "changed-while-it-travels",
            saw=f"{report['touched']} times rank {rank} changed a tensor whose all-reduce had begun.",
            means="Whether the sum or a term of it was changed is chance: divide before, or after its wait().",
            look=look.into("MyDDP._begin")(r"/|div|mul", r"all_reduce"),
        )
    if report["waits"] < len(calls):
        raise Diagnosis(
            "not-waited",
            saw=f"rank {rank} began {len(calls)} all-reduces, and waited for {report['waits']}.",
            means="Until its wait() an all-reduce may still be writing: the optimizer would read half of a mean.",
            look=look.into("MyDDP.finish")(r"wait\(", r"for "),
        )


def judge_gradients(look: Look, found: Sequence[Gradients], own: Sequence[Gradients], when: str) -> None:
    right = mean(list(own))
    compared(f"{when}gradients", found, right)
    for rank, one in enumerate(found):
        if lacking := [name for name in right if name not in one]:
            if any(
                lacking[0] in other and close(other[lacking[0]], own[i][lacking[0]])
                for i, other in enumerate(found)
            ):
                raise not_reduced(look, f"{when}on another rank {lacking[0]} has the gradient of that rank alone.")
            raise Diagnosis(
                "gradient-missing",
                saw=f"{when}{lacking[0]} of rank {rank} has no gradient, though another rank has one.",
                means="A parameter that a rank has not used counts as zero there: all ranks have the same mean.",
                look=look.into("MyDDP.finish")(r"_begin", r"for "),
            )
    wrong = [(rank, name) for name in right for rank, one in enumerate(found) if not close(one[name], right[name])]
    if not wrong:
        return
    rank, name = wrong[0]
    saw = (
        f"{when}{len({name for _, name in wrong})} of {len(right)} gradients are no means; on rank {rank} "
        + example({name: found[rank][name]}, {name: right[name]})
    )
    if all(close(found[rank][name], own[rank][name]) for rank, name in wrong):
        if len({name for _, name in wrong}) == len(right):
            raise Diagnosis(
                "not-reduced",
                saw=f"{saw}: this rank's own.",
                means="Nothing of the other ranks has come into them: .grad must be what was reduced.",
                look=look.into("MyDDP._begin")(r"flat\s*=(?!=)", r"all_reduce"),
            )
        raise not_reduced(look, f"{saw}: this rank's own.")
    if ".register_hook(" in (at := look(r"\.register_hook\(")):
        raise Diagnosis(
            "hook-too-early",
            saw=f"{saw}.",
            means="A tensor's own hook runs before .grad has the gradient: register_post_accumulate_grad_hook.",
            look=at,
        )
    factor = factor_between(found[0], right)
    ranks = len(found)
    if factor is not None and abs(factor - ranks) < 1e-6:
        raise Diagnosis(
            "summed-not-averaged",
            saw=f"{saw}.",
            means=f"This is the sum: {ranks} times the mean, and so {ranks} times the learning rate.",
            look=look.into("MyDDP._begin")(r"all_reduce"),
        )
    if factor is not None and abs(factor * ranks - 1) < 1e-6:
        raise Diagnosis(
            "divided-twice",
            saw=f"{saw}.",
            means="It was divided by the number of ranks more than once.",
            look=look.into("MyDDP._begin")(r"/"),
        )
    raise Diagnosis(
        "wrong-gradients" if not when else "wrong-second-step",
        saw=f"{saw}.",
        means="Each gradient must be the mean over the ranks, in every step.",
        look=look.into("MyDDP._begin" if not when else "MyDDP.finish")(r"all_reduce", r"for "),
    )


def not_reduced(look: Look, saw: str) -> Diagnosis:
    return Diagnosis(
        "some-not-reduced",
        saw=saw,
        means="Every parameter is in a bucket, and each bucket is reduced, also one that never gets full.",
        look=look.into("make_buckets")(RETURN),
    )


def judge_views(look: Look, report: dict[str, Any]) -> None:
    if report["storages"] > len(report["calls"]):
        raise Diagnosis(
            "gradients-are-copies",
            saw=f"the gradients lie in {report['storages']} pieces of memory, and there are "
            f"{len(report['calls'])} buckets.",
            means="Copies of what was reduced take the memory once more: .grad can be a view of its bucket.",
            look=look.into("MyDDP.finish")(r"grad", r"for "),
        )


def judge_counted(look: Look, report: dict[str, Any]) -> None:
    """What a bucket that never got full leaves in the counter: rank 0 fills them all in the third step only."""
    left, begun = [one for one in report["left"] if one], report["third in backward"]
    if left and begun < len(report["calls"]):
        raise Diagnosis(
            "not-reset",
            saw=f"after finish() a bucket counts {left[0]} gradients; in the third step rank 0 computes all of "
            f"them, and backward() began {begun} of {len(report['calls'])} all-reduces.",
            means="A bucket that did not get full has counted less than it holds: the counter is set to 0.",
            look=look.into("MyDDP.finish")(r"\.ready", r"wait\(", r"for "),
        )


def judge_no_sync(look: Look, reports: Sequence[Any], drawn: Drawn) -> None:
    for rank, report in enumerate(reports):
        if report["quiet calls"]:
            raise Diagnosis(
                "no-sync-communicates",
                saw=f"in no_sync() rank {rank} called {report['quiet calls'][0]['name'].strip('_')}.",
                means="Micro-batches before the last one only add up: their all-reduces would be for nothing.",
                look=look.into("MyDDP._ready")(r"syncs", r"ready")
                if report["quiet in backward"]
                else look.into("MyDDP.finish")(r"_begin", r"for "),
            )
        quiet = own_gradients(drawn, rank, 1)
        for name, gradient in report["quiet gradients"].items():
            if name not in quiet or not close(gradient, quiet[name]):
                raise Diagnosis(
                    "no-sync-changes-gradients",
                    saw=f"after a backward pass in no_sync(), {name} of rank {rank} is not its own gradient.",
                    means="In no_sync() gradients stay as each rank has computed them.",
                    look=look.into("MyDDP.finish")(r"syncs", r"for "),
                )
    for rank, report in enumerate(reports):
        if not close(report["scale"], drawn.weights[0]["scale"]):
            raise Diagnosis(
                "buffers-differ",
                saw=f"in a forward pass of training, the buffer `scale` of rank {rank} is not that of rank 0.",
                means="BatchNorm's statistics come from each rank's own images: the ranks would drift apart.",
                look=look.into("MyDDP.forward")(r"buffers", r"return"),
            )
    found = [report["second gradients"] for report in reports]
    own = [own_gradients(drawn, rank, 1, 2) for rank in range(len(reports))]
    last = mean([own_gradients(drawn, rank, 2) for rank in range(len(reports))])
    if all(one.keys() == last.keys() and all(close(one[name], last[name]) for name in last) for one in found):
        raise Diagnosis(
            "no-sync-forgotten",
            saw="after a backward pass in no_sync() and one outside, the gradients are those of the second alone.",
            means="What was added up in no_sync() belongs to the same step: it must come into the buckets too.",
            look=look.into("MyDDP._begin")(r"collect|copy_|grad"),
        )
    right = mean(own)
    wrong = [name for name in right for one in found if name not in one or not close(one[name], right[name])]
    if wrong and (left := max(sum(report["left"]) for report in reports)):
        raise Diagnosis(
            "not-reset",
            saw=f"after finish() the buckets still count {left} gradients, and in the second step "
            f"{len(set(wrong))} of {len(right)} are no means.",
            means="finish() leaves the buckets as the next backward pass needs them: none ready, none begun.",
            look=look.into("MyDDP.finish")(r"\.ready", r"wait\(", r"for "),
        )
    late = not reports[0]["second before last"] and len(reports[0]["calls"]) > 1
    if (wrong or late) and (
        counted := max(sum(report["quiet ready"]) - sum(report["left"]) for report in reports)
    ):
        came = f"{len(set(wrong))} of {len(right)} came to be no means" if wrong else "no all-reduce began in time"
        raise Diagnosis(
            "counted-in-no-sync",
            saw=f"after a backward pass in no_sync() {counted} gradients were counted; in the next one {came}.",
            means="What was counted then makes buckets look full before their gradients are there, or never.",
            look=look.into("MyDDP._ready")(r"ready \+=|ready = ", r"ready"),
        )
    judge_gradients(look, found, own, "in the second step ")
    if late:
        raise Diagnosis(
            "not-reset",
            saw="in the second step no all-reduce began before the first layer's gradient was there.",
            means="finish() leaves the buckets as the next backward pass needs them: none ready, none begun.",
            look=look.into("MyDDP.finish")(r"wait\(", r"for "),
        )
