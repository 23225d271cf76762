"""The check of 6.2 accepts different right answers and names what is wrong with the others."""

from pathlib import Path

import pytest
from answers.bank import SOLUTIONS, outcome_of, verdict, with_answer
from answers.templates import changed

from lab.grading.diagnosis import Failed

EVALUATE = """
model.eval()  # eval
sums = torch.zeros(3, dtype=torch.float64, device=device)
with torch.no_grad():  # grad
    for images, labels in loader:  # loop
        logits = model(images.to(device))  # forward
        sums[0] += F.cross_entropy(logits, labels, reduction="sum")  # loss
        sums[1] += (logits.argmax(dim=1) == labels).sum()  # right
        sums[2] += (labels != -100).sum()  # count
dist.all_reduce(sums)  # reduce
model.train()  # train
loss, accuracy = (sums[:2] / sums[2]).tolist()  # divide
return Evaluation(loss, accuracy)  # result
"""
COUNT = "sums[2] += (labels != -100).sum()"
BATCH_MEANS = {
    "loss": "sums[0] += F.cross_entropy(logits, labels)",
    "right": "sums[1] += (logits.argmax(1) == labels).sum() / (labels != -100).sum()",
    "count": "sums[2] += 1",
}
LAST_BATCH = {
    "loss": "sums[0] = F.cross_entropy(logits, labels, reduction='sum')",
    "right": "sums[1] = (logits.argmax(1) == labels).sum()",
    "count": "sums[2] = (labels != -100).sum()",
}
TO_RANK_0 = "mine = sums.clone()\ndist.reduce(mine, dst=0)\nsums = mine if dist.get_rank() == 0 else sums"


def evaluate(**lines: str) -> str:
    return changed(EVALUATE, **lines)


RIGHT = {
    "inference mode": evaluate(grad="with torch.inference_mode():"),
    "gathered objects": evaluate(
        reduce="everybody = [None] * dist.get_world_size()\ndist.all_gather_object(everybody, sums.tolist())\n"
        "sums = torch.tensor(everybody).sum(dim=0)"
    ),
    "a mask": evaluate(
        loss="real = labels != -100\n"
        "sums[0] += F.cross_entropy(logits[real], labels[real], reduction='none').sum().item()",
        right="sums[1] += (logits[real].argmax(1) == labels[real]).sum().item()",
        count="sums[2] += int(real.sum())",
    ),
    "mode as it was": evaluate(eval="before = model.training\nmodel.train(False)", train="model.train(before)"),
    "weighted averages": evaluate(
        loss="n = (labels != -100).sum()\nsums[0] += F.cross_entropy(logits, labels) * n if n else 0"
    ),
    "three reductions": evaluate(reduce="for i in range(3): dist.all_reduce(sums[i])"),
    "each batch reduced by itself": evaluate(
        loss="part = torch.zeros(3)\npart[0] = F.cross_entropy(logits, labels, reduction='sum')",
        right="part[1] = (logits.argmax(1) == labels).sum()",
        count="part[2] = (labels != -100).sum()\ndist.all_reduce(part)\nsums += part",
        reduce="pass",
    ),
    "by hand": evaluate(
        loss="likely = logits.log_softmax(1).gather(1, labels.clamp(min=0)[:, None])[:, 0]\n"
        "sums[0] -= (likely * (labels >= 0)).sum()"
    ),
    "three floats": evaluate(
        divide="loss, correct, seen = (value.item() for value in sums)",
        result="return Evaluation(accuracy=correct / seen, loss=loss / seen)",
    ),
}

WRONG = {
    "training mode": ("evaluated-in-training-mode", evaluate(eval="pass")),
    "train instead": ("evaluated-in-training-mode", evaluate(eval="model.train()")),
    "restored too early": ("evaluated-in-training-mode", evaluate(count=f"{COUNT}\nmodel.train()")),
    "gradients": ("gradients-on", evaluate(grad="if True:")),
    "not restored": ("training-mode-not-restored", evaluate(train="pass")),
    "no all-reduce": ("no-all-reduce", evaluate(reduce="pass")),
    "batch means, no all-reduce": ("no-all-reduce", evaluate(**BATCH_MEANS, reduce="pass")),
    "batch means": ("average-of-averages", evaluate(**BATCH_MEANS)),
    "average of averages": (
        "average-of-averages",
        evaluate(reduce="sums /= sums[2].clone()\ndist.all_reduce(sums)"),
    ),
    "divided by the world size": (
        "divided-by-world-size",
        evaluate(divide="loss, accuracy = (sums[:2] / dist.get_world_size()).tolist()"),
    ),
    "and by the world size": (
        "divided-by-world-size",
        evaluate(reduce="dist.all_reduce(sums)\nsums[:2] /= dist.get_world_size()"),
    ),
    "loss not divided": ("not-divided", evaluate(result="return Evaluation(sums[0].item(), accuracy)")),
    "nothing divided": ("not-divided", evaluate(divide="loss, accuracy = sums[:2].tolist()")),
    "padding counted": ("padding-counted", evaluate(count="sums[2] += len(labels)")),
    "padding counted in the loss": (
        "padding-counted",
        evaluate(loss="sums[0] += F.cross_entropy(logits, labels) * len(labels)"),
    ),
    "over the batches": (
        "divided-by-batches",
        evaluate(result="return Evaluation((sums[0] / len(loader)).item(), accuracy)"),
    ),
    "means added": ("batch-means-added", evaluate(loss="sums[0] += F.cross_entropy(logits, labels)")),
    "last batch": ("last-batch-only", evaluate(**LAST_BATCH, reduce="pass")),
    "own count": ("count-not-reduced", evaluate(reduce="dist.all_reduce(sums[:2])")),
    "own total": ("total-not-reduced", evaluate(reduce="dist.all_reduce(sums[2])")),
    "averages added": (
        "summed-not-averaged",
        evaluate(reduce="sums /= sums[2].clone()\ndist.all_reduce(sums)\nsums[2] = 1"),
    ),
    "running sums reduced": ("reduced-in-loop", evaluate(count=f"{COUNT}\ndist.all_reduce(sums)", reduce="pass")),
    "percent": ("accuracy-in-percent", evaluate(result="return Evaluation(loss, 100 * accuracy)")),
    "a mean of no sample": (
        "nan-from-filler",
        evaluate(loss="sums[0] += F.cross_entropy(logits, labels) * (labels != -100).sum()"),
    ),
    "tensors": ("tensors-returned", evaluate(divide="loss, accuracy = sums[:2] / sums[2]")),
    "one tensor": ("tensors-returned", evaluate(result="return Evaluation(loss, torch.tensor(accuracy))")),
    "text": ("not-numbers", evaluate(result="return Evaluation(f'{loss:.3f}', f'{accuracy:.1%}')")),
    "a tuple": ("not-an-evaluation", evaluate(result="return loss, accuracy")),
    "nothing": ("nothing-returned", evaluate(result="pass")),
    "only on rank 0": (
        "nothing-returned",
        evaluate(result="if dist.get_rank() == 0: return Evaluation(loss, accuracy)"),
    ),
    "first batch": ("batches-left-out", evaluate(count=f"{COUNT}\nbreak")),
    "twice": ("batches-repeated", evaluate(loop="for images, labels in [*loader, *loader]:")),
    "reduced to rank 0": ("ranks-disagree", evaluate(reduce=TO_RANK_0)),
    "one in three": (
        "wrong-accuracy",
        evaluate(right="sums[1] += (logits.topk(3).indices == labels[:, None]).sum() / 3.7"),
    ),
    "another loss": ("wrong-loss", evaluate(loss="sums[0] += F.nll_loss(logits, labels, reduction='sum')")),
    "the wrapped module": ("wrapper-bypassed", evaluate(forward="logits = model.module(images)")),
}  # fmt: skip

DEADLOCKS = {
    "rank 0 only": (
        "collective-on-one-rank",
        evaluate(reduce="if dist.get_rank() == 0: dist.all_reduce(sums)"),
    ),
    "filler skipped under FSDP": (
        "uneven-steps",
        evaluate(loop="for images, labels in loader:\n    if (labels < 0).all(): continue"),
    ),
}


@pytest.mark.slow  # variants: tests/answers has one of each kind
@pytest.mark.parametrize("code", RIGHT.values(), ids=RIGHT)
def test_a_right_answer_passes(tmp_path: Path, code: str):
    assert verdict("6.2", with_answer(tmp_path, "6.2", code)) == "passed"


@pytest.mark.slow  # variants: tests/answers has one of each kind
@pytest.mark.parametrize(("name", "code"), [*WRONG.values(), *DEADLOCKS.values()], ids=[*WRONG, *DEADLOCKS])
def test_a_wrong_answer_gets_its_diagnosis(tmp_path: Path, name: str, code: str):
    assert verdict("6.2", with_answer(tmp_path, "6.2", code)) == name


def test_the_solution_passes():
    assert verdict("6.2", SOLUTIONS) == "passed"


def test_the_lines_say_what_was_seen_with_the_numbers(tmp_path: Path):
    outcome = outcome_of("6.2", with_answer(tmp_path, "6.2", WRONG["padding counted"][1]))
    assert isinstance(outcome, Failed)
    diagnosis = outcome.diagnosis
    assert diagnosis.saw.startswith("under DDP evaluate() gave the loss as: rank 0 ")
    assert diagnosis.means == "Filler carries the label -100; it must not count as a sample."
    assert diagnosis.look == "train.py:84  sums[2] += len(labels)"
