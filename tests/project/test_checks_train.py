"""The checks of 6.1 and 6.3 accept different right answers and name what is wrong with the others."""

from pathlib import Path

import pytest
from answers.bank import SOLUTIONS, verdict, with_answer
from answers.templates import changed

from lab.grading.suite import run_exercise
from lab.grading.syllabus import syllabus

STEP = """
optimizer.zero_grad()  # zero
with run.autocast():  # autocast
    loss = F.cross_entropy(model(images), labels)  # loss
run.backward(loss)  # backward
optimizer.step()  # step
return loss.detach()  # result
"""


def step(**lines: str) -> str:
    return changed(STEP, **lines)


STEPS = {
    "loss.backward": step(backward="loss.backward()"),
    "torch.autograd": step(backward="torch.autograd.backward(loss)"),
    "cleared at the end": step(zero="pass", step="optimizer.step()\noptimizer.zero_grad()"),
    "cleared after the forward pass": step(zero="pass", backward="optimizer.zero_grad()\nrun.backward(loss)"),
    "set to zero": step(zero="optimizer.zero_grad(set_to_none=False)"),
    "cleared by the model": step(zero="model.zero_grad()"),
    "cleared by hand": step(zero="for p in model.parameters(): p.grad = None"),
    "nll of log_softmax": step(loss="loss = F.nll_loss(F.log_softmax(model(images), dim=1), labels)"),
    "a criterion": step(loss="loss = nn.CrossEntropyLoss()(model(images), labels)", result="return loss.data"),
    "sum divided": step(loss="loss = F.cross_entropy(model(images), labels, reduction='sum') / len(labels)"),
    "the loss outside": step(
        loss="logits = model(images)",
        backward="loss = F.cross_entropy(logits.float(), labels)\nrun.backward(loss)",
    ),
    "training mode": step(zero="model.train()\noptimizer.zero_grad()"),
}

WRONG_STEPS = {
    "no zero_grad": ("gradients-pile-up", step(zero="pass")),
    "step first": ("step-before-backward", step(backward="optimizer.step()", step="run.backward(loss)")),
    "no backward": ("no-backward", step(backward="pass")),
    "no step": ("no-step", step(step="pass")),
    "two steps": ("two-steps", step(step="optimizer.step()\noptimizer.step()")),
    "cleared before the step": ("cleared-before-step", step(step="optimizer.zero_grad()\noptimizer.step()")),
    "summed": ("loss-summed", step(loss="loss = F.cross_entropy(model(images), labels, reduction='sum')")),
    "times the batch": ("loss-summed", step(result="return loss.detach() * len(labels)")),
    "over the ranks": ("loss-divided-by-world-size", step(backward="run.backward(loss / run.world_size)")),
    "softmax": ("softmax-before-loss", step(loss="loss = F.cross_entropy(model(images).softmax(1), labels)")),
    "nll": ("log-softmax-missing", step(loss="loss = F.nll_loss(model(images), labels)")),
    "negated": ("ascent", step(backward="run.backward(-loss)")),
    "doubled": ("loss-times-world-size", step(backward="run.backward(loss * run.world_size)")),
    "tripled": ("wrong-factor", step(backward="run.backward(3 * loss)")),
    "smoothed": (
        "wrong-gradients",
        step(loss="loss = F.cross_entropy(model(images), labels, label_smoothing=0.1)"),
    ),
    "module": ("wrapper-bypassed", step(loss="loss = F.cross_entropy(model.module(images), labels)")),
    "item": ("loss-as-number", step(result="return loss.item()")),
    "graph": ("loss-not-detached", step(result="return loss")),
    "no return": ("nothing-returned", step(result="pass")),
    "each sample's": (
        "loss-not-a-number",
        step(result="return F.cross_entropy(model(images), labels, reduction='none').detach()"),
    ),
    "reduced": (
        "loss-reduced-in-step",
        step(result="loss = loss.detach()\ndist.all_reduce(loss)\nreturn loss / run.world_size"),
    ),
    "after the step": ("wrong-loss", step(result="return F.cross_entropy(model(images), labels).detach()")),
    "no autocast": ("no-autocast", step(autocast="if True:")),
    "only the loss in autocast": (
        "no-autocast",
        step(
            autocast="logits = model(images)\nwith run.autocast():", loss="loss = F.cross_entropy(logits, labels)"
        ),
    ),
    "always bf16": ("always-low-precision", step(autocast="with torch.autocast('cpu', dtype=torch.bfloat16):")),
    "misspelt": ("raised", step(backward="run.backwards(loss)")),
}

EPOCH = """
model.train()  # train
loader.sampler.set_epoch(epoch)  # set_epoch
sums = torch.zeros(2, dtype=torch.float64, device=run.device)
for images, labels in run.batches(loader):  # loop
    loss = train_step(model, optimizer, images, labels, run)  # step
    sums[0] += loss * len(labels)  # total
    sums[1] += len(labels)  # count
dist.all_reduce(sums)  # reduce
return (sums[0] / sums[1]).item()  # result
"""


def epoch(**lines: str) -> str:
    return changed(EPOCH, **lines)


EPOCHS = {
    "the loader itself": epoch(loop="for images, labels in loader:"),
    "gathered objects": epoch(
        reduce="everybody = [None] * run.world_size\ndist.all_gather_object(everybody, sums.tolist())",
        result="return sum(s for s, _ in everybody) / sum(n for _, n in everybody)",
    ),
    "weighted averages": epoch(
        reduce="share = sums[1].clone()\ndist.all_reduce(share)\nmean = sums[0] / sums[1] * sums[1] / share",
        result="dist.all_reduce(mean)\nreturn mean.item()",
    ),
    "floats": epoch(
        total="sums[0] += loss.item() * images.size(0)",
        reduce="total, count = torch.tensor(sums[0].item()), torch.tensor(int(sums[1]))\n"
        "dist.all_reduce(total, op=dist.ReduceOp.SUM)\ndist.all_reduce(count)",
        result="return float(total / count)",
    ),
    "keywords": epoch(
        step="loss = train_step(model=model, optimizer=optimizer, images=images, labels=labels, run=run)"
    ),
    "if it can": epoch(set_epoch="if hasattr(loader.sampler, 'set_epoch'): loader.sampler.set_epoch(epoch)"),
    "of the batch sampler": epoch(set_epoch="loader.batch_sampler.sampler.set_epoch(epoch)"),
}

STEP_CALL = "loss = train_step(model, optimizer, images, labels, run)"
TO_RANK_0 = "mine = sums.clone()\ndist.reduce(mine, dst=0)\nsums = mine if dist.get_rank() == 0 else sums"

WRONG_EPOCHS = {
    "no set_epoch": ("no-set-epoch", epoch(set_epoch="pass")),
    "constant": ("set-epoch-constant", epoch(set_epoch="loader.sampler.set_epoch(0)")),
    "from zero": ("set-epoch-wrong-number", epoch(set_epoch="loader.sampler.set_epoch(epoch - 1)")),
    "too late": (
        "set-epoch-too-late",
        epoch(set_epoch="pass", step="loader.sampler.set_epoch(epoch)\n" + STEP_CALL),
    ),
    "at the end": (
        "set-epoch-too-late",
        epoch(set_epoch="pass", result="loader.sampler.set_epoch(epoch)\nreturn (sums[0] / sums[1]).item()"),
    ),
    "evaluation mode": ("not-in-training-mode", epoch(train="pass")),
    "eval": ("not-in-training-mode", epoch(train="model.eval()")),
    "first batch": ("batches-left-out", epoch(count="sums[1] += len(labels)\nbreak")),
    "twice": ("batches-repeated", epoch(loop="for images, labels in [*loader, *loader]:")),
    "no steps": ("no-train-step", epoch(step="loss = F.cross_entropy(model(images), labels)")),
    "no all-reduce": ("no-all-reduce", epoch(reduce="pass")),
    "unweighted": ("average-of-averages", epoch(total="sums[0] += loss", count="sums[1] += 1")),
    "unweighted, no all-reduce": (
        "no-all-reduce",
        epoch(total="sums[0] += loss", count="sums[1] += 1", reduce="pass"),
    ),
    "average of averages": (
        "average-of-averages",
        epoch(
            reduce="mean = sums[0] / sums[1]\ndist.all_reduce(mean)", result="return mean.item() / run.world_size"
        ),
    ),
    "means added up": (
        "summed-not-averaged",
        epoch(reduce="mean = sums[0] / sums[1]\ndist.all_reduce(mean)", result="return mean.item()"),
    ),
    "last batch": ("last-batch-only", epoch(total="sums[0] = loss", count="sums[1] = 1", reduce="pass")),
    "last batch of all": ("last-batch-only", epoch(total="sums[0] = loss", count="sums[1] = 1")),
    "not divided": ("loss-summed-over-epoch", epoch(result="return sums[0].item()")),
    "by the world size too": ("divided-by-world-size", epoch(reduce="dist.all_reduce(sums)\nsums[0] /= 2")),
    "by the batches": ("divided-by-batches", epoch(result="return (sums[0] / len(loader)).item()")),
    "means over samples": ("means-added", epoch(total="sums[0] += loss")),
    "own count": ("count-not-reduced", epoch(reduce="dist.all_reduce(sums[0])")),
    "own loss": ("loss-not-reduced", epoch(reduce="dist.all_reduce(sums[1])")),
    "in the loop": (
        "reduced-in-loop",
        epoch(count="sums[1] += len(labels)\ndist.all_reduce(sums)", reduce="pass"),
    ),
    "reduced to rank 0": ("ranks-disagree", epoch(reduce=TO_RANK_0)),
    "one too many": ("wrong-mean", epoch(result="return (sums[0] / sums[1]).item() + 1")),
    "tensor": ("tensor-returned", epoch(result="return sums[0] / sums[1]")),
    "nothing": ("nothing-returned", epoch(result="pass")),
    "a list": ("not-a-number", epoch(result="return sums.tolist()")),
}

RUN = """
records = []
for epoch in run.epochs():  # loop
    loss = train_one_epoch(model, optimizer, train_loader, epoch, run)  # train
    valid = evaluate(model, valid_loader, run.device)  # evaluate
    records.append(run.record(epoch, loss, valid.loss, valid.accuracy))  # record
return records  # result
"""
TRAIN = "loss = train_one_epoch(model, optimizer, train_loader, epoch, run)"
VALID = "valid = evaluate(model, valid_loader, run.device)"


def run(**lines: str) -> str:
    return changed(RUN, **lines)


RUNS = {
    "keywords": run(
        record="args = {'valid_loss': valid.loss, 'valid_accuracy': valid.accuracy}\n"
        "records += [run.record(epoch, train_loss=loss, **args)]"
    ),
    "in a function": """
        def one(epoch):
            loss = train_one_epoch(model, optimizer, train_loader, epoch, run)
            result = evaluate(model, valid_loader, torch.device(run.device))
            return run.record(epoch, loss, result.loss, result.accuracy)
        return [one(epoch) for epoch in run.epochs()]
        """,
}  # fmt: skip

WRONG_RUNS = {
    "evaluation first": ("evaluated-before-training", run(train=VALID, evaluate=TRAIN)),
    "no record": ("no-record", run(record="pass")),
    "no evaluation": ("no-evaluation", run(evaluate="valid = Evaluation(0.0, 0.0)")),
    "no training": ("no-training", run(train="loss = 1.0")),
    "returns nothing": ("nothing-returned", run(result="pass")),
    "returns the last": ("not-the-records", run(result="return records[-1]")),
    "returns too early": (
        "returned-too-early",
        run(record="records.append(run.record(epoch, loss, valid.loss, valid.accuracy))\nreturn records"),
    ),
    "returns losses": ("not-the-records", run(result="return [record.train_loss for record in records]")),
    "epochs from 1": ("wrong-epochs", run(loop="for epoch in range(1, run.args.epochs + 1):")),
    "epochs from 0": ("wrong-epochs", run(loop="for epoch, _ in enumerate(run.epochs()):")),
    "three epochs": ("wrong-epochs", run(loop="for epoch in range(3):")),
    "training set": ("evaluated-on-training-set", run(evaluate=VALID.replace("valid_loader", "train_loader"))),
    "validation set": ("trained-on-validation-set", run(train=TRAIN.replace("train_loader", "valid_loader"))),
    "figures swapped": (
        "wrong-numbers-recorded",
        run(record="records.append(run.record(epoch, loss, valid.accuracy, valid.loss))"),
    ),
    "recorded once": (
        "not-recorded-every-epoch",
        run(record="pass", result="return [run.record(epoch, loss, valid.loss, valid.accuracy)]"),
    ),
    "evaluated once": ("not-evaluated-every-epoch", run(evaluate=f"if not records: {VALID}")),
    "recorded on rank 0": (
        "not-on-every-rank",
        run(record="if run.rank == 0: records.append(run.record(epoch, loss, valid.loss, valid.accuracy))"),
    ),
    "evaluated on rank 0": (
        "not-on-every-rank",
        run(evaluate=f"valid = Evaluation(0.0, 0.0)\nif run.rank == 0: {VALID}"),
    ),
    "recorded before the evaluation": (
        "wrong-order",
        run(evaluate="records.append(run.record(epoch, loss, 0.0, 0.0))", record=VALID),
    ),
}


def cases(exercise: str, region: str, right: dict[str, str], wrong: dict[str, tuple[str, str]]) -> list:
    """Parameters (exercise, region, "passed" or the name of the diagnosis, code)."""
    answers = {name: ("passed", code) for name, code in right.items()} | wrong
    return [pytest.param(exercise, region, *answer, id=f"{region}-{name}") for name, answer in answers.items()]


@pytest.mark.slow  # variants: tests/answers has one of each kind
@pytest.mark.parametrize(
    ("exercise", "region", "name", "code"),
    [
        *cases("6.1", "6.1a", STEPS, WRONG_STEPS),
        *cases("6.1", "6.1b", EPOCHS, WRONG_EPOCHS),
        *cases("6.3", "6.3", RUNS, WRONG_RUNS),
    ],
)
def test_right_answers_pass_and_wrong_ones_get_their_diagnoses(
    tmp_path: Path, exercise: str, region: str, name: str, code: str
):
    assert verdict(exercise, with_answer(tmp_path, region, code)) == name


def test_an_all_reduce_on_rank_0_only_is_a_deadlock(tmp_path: Path):
    code = epoch(reduce="if dist.get_rank() == 0: dist.all_reduce(sums)")
    assert verdict("6.1", with_answer(tmp_path, "6.1b", code)) == "collective-on-one-rank"


@pytest.mark.parametrize("exercise", ["6.1", "6.3"])
def test_the_solution_passes(exercise: str):
    assert verdict(exercise, SOLUTIONS) == "passed"


def test_an_epoch_is_checked_apart_from_the_step(tmp_path: Path):
    folder = with_answer(tmp_path, "6.1a", WRONG_STEPS["item"][1])
    checked = run_exercise(syllabus()["6.1"], folder).checks
    assert [check.outcome.word for check in checked] == ["failed", "passed"]


def test_the_lines_say_what_was_seen(tmp_path: Path):
    checked = run_exercise(syllabus()["6.1"], with_answer(tmp_path, "6.1a", WRONG_STEPS["step first"][1])).checks
    assert checked[0].outcome.diagnosis.lines == (
        "one train_step() did: forward, step, backward.",
        "The optimizer uses the gradients of the batch before, and in the first step none.",
        "train.py:41  optimizer.step()",
    )
