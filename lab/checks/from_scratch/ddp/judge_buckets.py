"""Judges the buckets of MyDDP: which parameters are in each, and when their all-reduces begin."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from lab.checks.common.look import Look, line_of
from lab.checks.common.look_values import late_bound
from lab.checks.common.report import numbers
from lab.checks.common.tensors import close
from lab.checks.from_scratch.ddp.draw import Gradients, bucket_sizes, sizes
from lab.grading.diagnosis import Diagnosis

FULL = r"(?<!-)>|<"  # where a size is compared


def judge_callbacks(look: Look, rank: int, report: dict[str, Any], right: Gradients) -> None:
    """What comes behind an all-reduce in a callback has come, too, when finish() returns."""
    found, late = report["gradients"], report["late callbacks"]
    wrong = [name for name in right if name not in found or not close(found[name], right[name])]
    if late and wrong:
        raise Diagnosis(
            "callback-not-awaited",
            saw=f"when finish() returned on rank {rank}, {len(late)} callbacks of futures had not run, and "
            f"{len(wrong)} of {len(right)} gradients were no means.",
            means="A callback may run later than its all-reduce ends: wait for the future that then() returns.",
            look=look.line(late[0]),
        )


def judge_overlap(look: Look, reports: Sequence[dict[str, Any]]) -> None:
    report = reports[0]
    count = len(report["calls"])
    if report["waited in backward"]:
        raise Diagnosis(
            "waits-in-backward",
            saw=f"{report['waited in backward']} times the backward pass waited for an all-reduce.",
            means="Meanwhile nothing is computed: begin with async_op=True, and wait in finish().",
            look=look.into("MyDDP._begin")(r"wait\(", r"all_reduce"),
        )
    *others, last = report["ready"] or [0]
    if others and last and not any(others) and not report["in backward"]:
        raise Diagnosis(
            "hooks-share-a-bucket",
            saw=f"when backward() ended, the last bucket had counted {last} gradients, and the others none.",
            means="A function made in a loop sees the loop's last value when called: lambda _, bucket=bucket: "
            "keeps this one.",
            look=late_bound(look) or look(r"lambda", r"hook", r"def "),
        )
    if not report["before last"] and count > 1:
        late = "after backward()" if not report["in backward"] else "when the first layer's gradient was there"
        raise Diagnosis(
            "no-overlap",
            saw=f"the first of {count} all-reduces began {late}.",
            means="The last layers' gradients are there first: they can travel while others are computed.",
            look=look.into("MyDDP._ready")(r"ready", r"_begin"),
        )
    for rank, one in enumerate(reports):
        # Rank 1 uses all layers: there each bucket is full at some time. The last two become so at once.
        if rank and one["in backward"] < count:
            raise Diagnosis(
                "full-bucket-waits",
                saw=f"rank {rank} had all gradients when backward() ended, and had begun {one['in backward']} of "
                f"{count} buckets.",
                means="The next one may be full already when a bucket begins: go on as long as they are full.",
                look=look.into("MyDDP._ready")(r"\bif .*(begun|ready|full|parameters)", r"_begin"),
            )


def judge_buckets(look: Look, found: Sequence[int], cap_mb: float) -> None:
    """In the order of the backward pass, each as large as it may be."""
    each = list(sizes().values())
    cap = round(cap_mb * 2**20)
    ends = {way: set(accumulate(order)) for way, order in (("backward", reversed(each)), ("forward", iter(each)))}
    reached = list(accumulate(found))
    said = f"with {cap} bytes to a bucket, the all-reduces had {numbers(found)} bytes"
    place = look.into("make_buckets")
    if list(found) == bucket_sizes(8 * cap) and counts_numbers(place):
        raise Diagnosis(
            "counts-numbers",
            saw=f"{said}.",
            means="numel() counts numbers, and each has several bytes: times element_size().",
            look=place(r"numel|size\(\)"),
        )
    for each_has in (2, 4):  # bytes, of numbers that have 8
        written = place(rf"(?<![\w.*]){each_has}(?![\w.]|\s*\*\*)")
        if list(found) == bucket_sizes(8 // each_has * cap) and line_of(written):
            raise Diagnosis(
                "bytes-of-another-type",
                saw=f"{said}: as if each number had {each_has} bytes, and here it has 8.",
                means="How many bytes a number has depends on its type: element_size() of the parameter.",
                look=written,
            )
    if len(found) == 1 or max(found) >= cap + max(each):
        raise Diagnosis(
            "buckets-too-large",
            saw=f"{said}.",
            means="A bucket that is full is closed: one for all can only begin when the backward pass is over.",
            look=place(FULL, r"for "),
        )
    if len(found) == len(each):
        raise Diagnosis(
            "no-buckets",
            saw=f"{said}: one for each of {len(each)} parameters.",
            means="Every all-reduce costs its latency: small gradients travel together.",
            look=place(FULL, r"for "),
        )
    if sum(found) > sum(each):
        raise Diagnosis(
            "frozen-in-buckets",
            saw=f"{said}: {sum(found)} together; the parameters that are trained have {sum(each)}.",
            means="A frozen parameter gets no gradient, so its bucket is never full: it belongs in none.",
            look=place(r"parameters\(", r"append"),
        )
    if not set(reached) <= ends["backward"]:
        forward = set(reached) <= ends["forward"]
        raise Diagnosis(
            "buckets-in-forward-order" if forward else "other-buckets",
            saw=f"{said}; from the last parameter to the first they have {numbers(reversed(each))}.",
            means="The backward pass comes to the last layers first: buckets are filled from there.",
            look=place(r"parameters\("),
        )
    if list(found) != bucket_sizes(cap):
        if list(found) == bucket_sizes(cap_mb * 1e6):
            raise Diagnosis(
                "megabytes",
                saw=f"{said}, and not {numbers(bucket_sizes(cap))}.",
                means="A MiB is 2**20 bytes, 1024 * 1024; 10**6 are 5% less.",
                look=place(r"1e6|10 ?\*\*|1_?000|cap_mb"),
            )
        early = list(found) == bucket_sizes(cap, before=True)
        raise Diagnosis(
            "closed-before-full" if early else "other-buckets",
            saw=f"{said}, and not {numbers(bucket_sizes(cap))}.",
            means="A bucket is closed when it has reached the size: the parameter with which it does is in it.",
            look=place(FULL, r"for "),
        )


def counts_numbers(place: Look) -> bool:
    """Whether the function counts a tensor's numbers, and nowhere the bytes that one has."""
    return bool(line_of(place(r"numel|size\(\)")) and not line_of(place(r"element_size|itemsize|nbytes|\b[48]\b")))
