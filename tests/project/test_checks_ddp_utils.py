"""The checks of 4.0 and 4.1 accept different right answers and name what is wrong with the others."""

import re
from pathlib import Path

import pytest
from answers.bank import SOLUTIONS, outcome_of, verdict, with_answer

from lab.grading.diagnosis import Failed

EACH = "for p in model.parameters():\n    if p.grad is not None:\n        "

AVERAGED = {
    "AVG": EACH + "dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)",
    "divided first": EACH + "p.grad.div_(dist.get_world_size())\n        dist.all_reduce(p.grad)",
    "a new tensor": EACH
    + "total = p.grad.clone()\n        dist.all_reduce(total)\n        p.grad = total / dist.get_world_size()",
    "gathered": EACH
    + """all_of_them = [torch.empty_like(p.grad) for _ in range(dist.get_world_size())]
        dist.all_gather(all_of_them, p.grad)
        p.grad.copy_(torch.stack(all_of_them).mean(dim=0))""",
    "flat": """
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        flat = torch.cat([g.flatten() for g in grads])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        for g, piece in zip(grads, flat.split([g.numel() for g in grads])):
            g.copy_(piece.view_as(g))
        """,
    "asynchronous": """
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        handles = [dist.all_reduce(g, async_op=True) for g in grads]
        for handle, g in zip(handles, grads):
            handle.wait()
            g /= dist.get_world_size()
        """,
    "reduced and broadcast": EACH
    + """dist.reduce(p.grad, dst=0)
            p.grad /= dist.get_world_size()
            dist.broadcast(p.grad, src=0)""".replace("            ", "        "),
    "zeros where there is none": """
        for p in model.parameters():
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            dist.all_reduce(p.grad)
            p.grad.mul_(1 / dist.get_world_size())
        """,
}

NOT_AVERAGED = {
    "summed": ("summed-not-averaged", EACH + "dist.all_reduce(p.grad)"),
    "nothing": ("not-reduced", "pass"),
    "a copy is reduced": (
        "not-reduced",
        EACH + "g = p.grad.clone()\n        dist.all_reduce(g)\n        g /= dist.get_world_size()",
    ),
    "only divided": ("only-divided", EACH + "p.grad /= dist.get_world_size()"),
    "two ranks": ("world-size-hard-coded", EACH + "dist.all_reduce(p.grad)\n        p.grad /= 2"),
    "three ranks": ("world-size-hard-coded", EACH + "dist.all_reduce(p.grad)\n        p.grad /= 3"),
    "four ranks": ("world-size-hard-coded", EACH + "dist.all_reduce(p.grad)\n        p.grad /= 4"),
    "weights": (
        "weights-not-gradients",
        EACH + "dist.all_reduce(p.data)\n        p.data /= dist.get_world_size()",
    ),
    "weights summed": ("weights-not-gradients", EACH + "dist.all_reduce(p.data)"),
    "a step taken": (
        "weights-changed",
        EACH + "dist.all_reduce(p.grad)\n        p.grad /= dist.get_world_size()\n        p.data -= p.grad",
    ),
    "first only": (
        "some-parameters-left-out",
        EACH + "dist.all_reduce(p.grad)\n        p.grad /= dist.get_world_size()\n        return",
    ),
    "weights, not biases": (
        "some-parameters-left-out",
        """
        for p in model.parameters():
            if p.grad is not None and p.ndim > 1:
                dist.all_reduce(p.grad)
                p.grad /= dist.get_world_size()
        """,
    ),
    "broadcast": ("broadcast-not-averaged", EACH + "dist.broadcast(p.grad, src=0)"),
    "maximum": ("maximum-not-mean", EACH + "dist.all_reduce(p.grad, op=dist.ReduceOp.MAX)"),
    "before and after": (
        "divided-twice",
        EACH
        + "w = dist.get_world_size()\n        p.grad /= w\n        dist.all_reduce(p.grad)\n        p.grad /= w",
    ),
    "AVG and divided": (
        "divided-twice",
        EACH + "dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)\n        p.grad /= dist.get_world_size()",
    ),
    "a strange factor": ("wrong-factor", EACH + "dist.all_reduce(p.grad)\n        p.grad *= 0.7"),
    "rank 0 divides": (
        "ranks-disagree",
        EACH + "dist.all_reduce(p.grad)\n        if dist.get_rank() == 0: p.grad /= dist.get_world_size()",
    ),
    "divided by rank": ("ranks-disagree", EACH + "dist.all_reduce(p.grad)\n        p.grad /= dist.get_rank() + 2"),
    "reduced to rank 0": (
        "ranks-disagree",
        EACH + "g = p.grad.clone()\n        dist.reduce(g, dst=0)\n"
        "        if dist.get_rank() == 0: p.grad.copy_(g / dist.get_world_size())",
    ),
    "None reduced": (
        "parameter-without-gradient",
        "for p in model.parameters():\n    dist.all_reduce(p.grad)\n    p.grad /= dist.get_world_size()",
    ),
    "not waited for": (
        "not-waited-for",
        EACH + "dist.all_reduce(p.grad, async_op=True)\n        p.grad /= dist.get_world_size()",
    ),
    "cleared": ("gradients-gone", EACH + "dist.all_reduce(p.grad)\n        p.grad = None"),
    "biases cleared": (
        "gradients-gone",
        EACH + "dist.all_reduce(p.grad)\n        p.grad = p.grad / dist.get_world_size() if p.ndim > 1 else None",
    ),
    "misspelt": ("raised", EACH + "dist.allreduce(p.grad)"),
}

DDP = "return DistributedDataParallel("

WRAPPED = {
    "reassigned": "model = model.to(device)\n" + DDP + "model, bucket_cap_mb=bucket_cap_mb)",
    "in one line": "ids = None if device.type == 'cpu' else [device.index]\n"
    + DDP
    + "model.to(device), device_ids=ids, output_device=None, bucket_cap_mb=bucket_cap_mb)",
    "moved only to a GPU": """
        if device.type == "cuda":
            model.cuda(device)
            return DistributedDataParallel(model, device_ids=[device], bucket_cap_mb=bucket_cap_mb)
        return DistributedDataParallel(model, bucket_cap_mb=bucket_cap_mb)
        """,
    "more arguments": "model.to(device=device, non_blocking=True)\n"
    + DDP
    + "model, None, bucket_cap_mb=bucket_cap_mb, gradient_as_bucket_view=True, find_unused_parameters=True)",
    "the full name": """
        model.to(device)
        return torch.nn.parallel.DistributedDataParallel(
            model, device_ids=[device.index] if device.index is not None else None, bucket_cap_mb=bucket_cap_mb
        )
        """,
}

MOVED = "model.to(device)\n"
CAP = "bucket_cap_mb=bucket_cap_mb)"

NOT_WRAPPED = {
    "the model": ("not-wrapped", MOVED + "return model"),
    "wrapped and thrown away": ("not-wrapped", MOVED + "DistributedDataParallel(model, " + CAP + "\nreturn model"),
    "DataParallel": ("data-parallel", MOVED + "return nn.DataParallel(model)"),
    "no return": ("nothing-returned", MOVED + "DistributedDataParallel(model, " + CAP),
    "moved afterwards": ("wrapped-before-on-device", DDP + "model, " + CAP + ".to(device)"),
    "moved inside afterwards": (
        "wrapped-before-on-device",
        "ddp = DistributedDataParallel(model, " + CAP + "\nddp.module.to(device)\nreturn ddp",
    ),
    "not moved": ("not-on-device", DDP + "model, " + CAP),
    "to the rank's device": (
        "wrong-device",
        "model.to(f'cuda:{dist.get_rank()}' if device.type == 'cuda' else 'cpu')\n" + DDP + "model, " + CAP,
    ),
    "the rank as device id": (
        "wrong-device-ids",
        MOVED + DDP + "model, device_ids=[dist.get_rank()] if device.type == 'cuda' else None, " + CAP,
    ),
    "device_ids on the CPU": ("device-ids-on-cpu", MOVED + DDP + "model, device_ids=[device], " + CAP),
    "the rank as device id on the CPU": (
        "device-ids-on-cpu",
        MOVED + DDP + "model, device_ids=[dist.get_rank()], " + CAP,
    ),
    "no bucket size": ("bucket-cap-ignored", MOVED + DDP + "model)"),
    "bucket size in bytes": ("bucket-cap-wrong", MOVED + DDP + "model, bucket_cap_mb=bucket_cap_mb * 2**20)"),
    "a copy": ("wrapped-a-copy", "import copy\n" + DDP + "copy.deepcopy(model).to(device), " + CAP),
    "a container": ("wrapped-a-copy", MOVED + DDP + "nn.Sequential(model), " + CAP),
    "averaged twice": (
        "averaged-twice",
        MOVED + "for p in model.parameters(): p.register_hook(lambda g: g / dist.get_world_size())\n"
        + DDP + "model, " + CAP,
    ),
    "no synchronisation": (
        "gradients-not-synchronised",
        MOVED
        + "ddp = DistributedDataParallel(model, " + CAP
        + "\nddp.require_backward_grad_sync = False\nreturn ddp",
    ),
    "no broadcast": (
        "ranks-start-apart",
        MOVED + DDP + "model, init_sync=False, " + CAP,
    ),
    "initialised again": (
        "weights-changed",
        MOVED + "for p in model.parameters(): nn.init.zeros_(p)\n" + DDP + "model, " + CAP,
    ),
    "a frozen layer": (
        "wrong-gradients",
        MOVED + "model.classifier.weight.register_hook(lambda g: g * 3)\n" + DDP + "model, " + CAP,
    ),
    "another error": ("raised", DDP + "model.to(gpu), " + CAP),
}  # fmt: skip


@pytest.mark.slow  # variants: tests/answers has one of each kind
@pytest.mark.parametrize("code", AVERAGED.values(), ids=AVERAGED)
def test_gradients_can_be_averaged_in_many_ways(tmp_path: Path, code: str):
    assert verdict("4.0", with_answer(tmp_path, "4.0", code)) == "passed"


@pytest.mark.slow  # variants: tests/answers has one of each kind
@pytest.mark.parametrize(("name", "code"), NOT_AVERAGED.values(), ids=NOT_AVERAGED)
def test_wrong_averages_get_their_diagnoses(tmp_path: Path, name: str, code: str):
    assert verdict("4.0", with_answer(tmp_path, "4.0", code)) == name


def test_a_collective_on_rank_0_only_is_a_deadlock(tmp_path: Path):
    code = EACH + "if dist.get_rank() == 0: dist.all_reduce(p.grad)"
    assert verdict("4.0", with_answer(tmp_path, "4.0", code)) == "collective-on-one-rank"


@pytest.mark.slow  # variants: tests/answers has one of each kind
@pytest.mark.parametrize("code", WRAPPED.values(), ids=WRAPPED)
def test_a_model_can_be_wrapped_in_many_ways(tmp_path: Path, code: str):
    assert verdict("4.1", with_answer(tmp_path, "4.1", code)) == "passed"


@pytest.mark.slow  # variants: tests/answers has one of each kind
@pytest.mark.parametrize(("name", "code"), NOT_WRAPPED.values(), ids=NOT_WRAPPED)
def test_wrong_wrappers_get_their_diagnoses(tmp_path: Path, name: str, code: str):
    assert verdict("4.1", with_answer(tmp_path, "4.1", code)) == name


@pytest.mark.parametrize("exercise", ["4.0", "4.1"])
def test_the_solution_passes(exercise: str):
    assert verdict(exercise, SOLUTIONS) == "passed"


def test_the_lines_say_what_was_seen_with_the_numbers(tmp_path: Path):
    outcome = outcome_of("4.0", with_answer(tmp_path, "4.0", NOT_AVERAGED["summed"][1]))
    assert isinstance(outcome, Failed)
    diagnosis = outcome.diagnosis
    seen = re.fullmatch(
        r"every gradient is 3 times the mean over the 3 ranks: on rank 0 (\S+) holds (\S+) instead of (\S+)\.",
        diagnosis.saw,
    )
    assert seen
    assert float(seen[2]) == pytest.approx(3 * float(seen[3]), rel=1e-2)
    assert diagnosis.means == "Added up but not divided: every step is 3 times too long."
    assert diagnosis.look == "ddp_utils.py:18  dist.all_reduce(p.grad)"


def test_what_a_rank_forges_is_a_diagnosis_not_a_crash(tmp_path: Path):
    code = """
        import lab.checks._ddp
        lab.checks._ddp.weights_of = lambda model: {"weights": 3}
        """
    assert verdict("4.0", with_answer(tmp_path, "4.0", code)) == "unusable-result"
