"""Answers to 6.3: the whole training run."""

from answers.entries import Bank, replaced

bank = Bank(
    "6.3",
    {
        "6.3": """
records = []  # records
for epoch in run.epochs():  # loop
    loss = train_one_epoch(model, optimizer, train_loader, epoch, run)  # train
    valid = evaluate(model, valid_loader, run.device)  # evaluate
    records.append(run.record(epoch, loss, valid.loss, valid.accuracy))  # record
return records  # result
"""
    },
)

TRAIN = "loss = train_one_epoch(model, optimizer, train_loader, epoch, run)"
VALID = "valid = evaluate(model, valid_loader, run.device)"
RECORD = "records.append(run.record(epoch, loss, valid.loss, valid.accuracy))"

# ---- right

bank.right(
    "arguments by name",
    record="records += [run.record(epoch, loss, valid_accuracy=valid.accuracy, valid_loss=valid.loss)]",
)
bank.right(
    "a function for one epoch",
    whole={
        "6.3": """
def one(epoch):
    loss = train_one_epoch(model, optimizer, train_loader, epoch, run)
    result = evaluate(model, valid_loader, torch.device(run.device))
    return run.record(epoch, loss, result.loss, result.accuracy)
return [one(epoch) for epoch in run.epochs()]
"""
    },
)

bank.right(
    "the device of the model",
    evaluate="valid = evaluate(model, device=next(model.parameters()).device, loader=valid_loader)",
)
AVERAGED = f"""import torch.distributed as dist
{TRAIN}
mean = torch.tensor(loss, device=run.device)
dist.all_reduce(mean)
loss = mean.item() / dist.get_world_size()"""
bank.right("averages once more", train=AVERAGED)

# ---- wrong

bank.wrong("evaluated-before-training", "evaluation comes first", train=VALID, evaluate=TRAIN)
bank.wrong("no-record", "nothing is recorded", record="")
bank.wrong("no-evaluation", "no evaluation", evaluate="valid = Evaluation(0.0, 0.0)")
bank.wrong("no-training", "no training", train="loss = 1.0")
bank.wrong("nothing-returned", "nothing is returned", result="")
bank.wrong("not-the-records", "the last record only", result="return records[-1]")
bank.wrong(
    "not-the-records", "losses in place of records", result="return [record.train_loss for record in records]"
)
bank.wrong("returned-too-early", "returns inside the loop", record=RECORD + "\nreturn records")
bank.wrong("wrong-epochs", "epochs counted by hand", loop="for epoch in range(1, run.args.epochs + 1):")
bank.wrong("wrong-epochs", "epochs counted from 0", loop="for epoch, _ in enumerate(run.epochs()):")
bank.wrong(
    "evaluated-on-training-set",
    "evaluated on the training set",
    evaluate=VALID.replace("valid_loader", "train_loader"),
)
bank.wrong(
    "trained-on-validation-set",
    "trained on the validation set",
    train=TRAIN.replace("train_loader", "valid_loader"),
)
bank.wrong(
    "wrong-numbers-recorded",
    "the figures are swapped",
    record=RECORD.replace("valid.loss, valid.accuracy", "valid.accuracy, valid.loss"),
)
bank.wrong(
    "not-recorded-every-epoch",
    "recorded once, at the end",
    record="",
    result="return [run.record(epoch, loss, valid.loss, valid.accuracy)]",
)
bank.wrong("not-evaluated-every-epoch", "evaluated once", evaluate=f"if not records: {VALID}")
bank.wrong("not-on-every-rank", "only rank 0 records", record=f"if run.rank == 0: {RECORD}")
bank.wrong(
    "not-on-every-rank",
    "only rank 0 evaluates",
    evaluate=f"valid = Evaluation(0.0, 0.0)\nif run.rank == 0: {VALID}",
)
bank.wrong(
    "wrong-order",
    "recorded before the evaluation",
    evaluate="records.append(run.record(epoch, loss, 0.0, 0.0))",
    record=VALID,
)
bank.wrong(
    "remembers-records",
    "a list that lives on",
    records="records = train.__dict__.setdefault('records', [])",
)
bank.wrong("epochs-taken-ahead", "all epochs are taken first", loop="for epoch in list(run.epochs()):")
bank.wrong(
    "error-swallowed",
    "an error ends the epoch only",
    train=f"try:\n    {TRAIN}\nexcept Exception as error:\n    print(error)\n    continue",
)
bank.wrong("wrong-arguments", "the run in place of its device", evaluate=VALID.replace("run.device", "run"))
bank.wrong("wrong-arguments", "the device is the CPU", evaluate=VALID.replace("run.device", "torch.device('cpu')"))
bank.wrong(
    "wrong-arguments",
    "model and loader change places",
    evaluate=VALID.replace("model, valid_loader", "valid_loader, model"),
)
bank.wrong(
    "wrong-arguments",
    "optimizer and model change places",
    train=TRAIN.replace("model, optimizer", "optimizer, model"),
)
bank.wrong("wrong-arguments", "the epoch after the run", train=TRAIN.replace("epoch, run)", "run, epoch)"))
bank.wrong(
    "not-on-its-device", "averages once more, on the CPU", train=AVERAGED.replace(", device=run.device", "")
)

# ---- seen in other settings, on other ranks, in other hands

bank.right(
    "set_epoch too",
    train="train_loader.sampler.set_epoch(epoch)\n"
    "loss = train_one_epoch(model, optimizer, train_loader, epoch, run)",
)
bank.right(
    "isinstance",
    records="records = []\n"
    "assert isinstance(run, Run) and isinstance(train_loader, DataLoader) and "
    "type(run).__name__ == 'Run' and isinstance(optimizer, Optimizer)",
)
bank.wrong(
    "not-on-every-rank",
    "rank 0 keeps records",
    record="record = run.record(epoch, loss, valid.loss, valid.accuracy)\n"
    "if run.rank == 0: records.append(record)",
)
bank.wrong(
    "not-on-every-rank",
    "rank 0 returns",
    result="return records if run.rank == 0 else []",
)
bank.wrong(
    "error-swallowed",
    "record hidden",
    record="try:\n    records.append(run.record(epoch, loss, valid))\nexcept Exception as e:\n    print(e)",
)
bank.wrong(
    "returned-too-early",
    "break after the first",
    record="records.append(run.record(epoch, loss, valid.loss, valid.accuracy))\nbreak",
)
bank.wrong(
    "wrong-numbers-recorded",
    "train loss twice",
    record="records.append(run.record(epoch, loss, loss, valid.accuracy))",
)
bank.wrong(
    "wrong-numbers-recorded",
    "percent",
    record="records.append(run.record(epoch, loss, valid.loss, 100 * valid.accuracy))",
)

# ---- by somebody who had only a student's package at hand

STRAIGHT = {
    "6.3": """
records = []
for epoch in run.epochs():
    train_loss = train_one_epoch(model, optimizer, train_loader, epoch, run)
    result = evaluate(model, valid_loader, run.device)
    records.append(run.record(epoch, train_loss, result.loss, result.accuracy))
return records
""",
}

bank.right("plain", whole=STRAIGHT)
bank.right(
    "comprehension",
    whole={
        "6.3": """
def _epoch(epoch, model, optimizer, train_loader, valid_loader, run):
    loss = train_one_epoch(model, optimizer, train_loader, epoch, run)
    validation = evaluate(model, valid_loader, next(model.parameters()).device)
    return run.record(epoch, loss, validation.loss, validation.accuracy)

return [_epoch(e, model, optimizer, train_loader, valid_loader, run) for e in run.epochs()]
"""
    },
)
bank.right(
    "generator",
    whole={
        "6.3": """
def records():
    for epoch in run.epochs():
        loss = train_one_epoch(model, optimizer, train_loader, epoch=epoch, run=run)
        v = evaluate(model, valid_loader, device=run.device)
        yield run.record(epoch, loss, v.loss, v.accuracy)

return list(records())
"""
    },
)
bank.right(
    "iterator by hand",
    whole={
        "6.3": """
history: list[EpochRecord] = list()
epochs = iter(run.epochs())
while (epoch := next(epochs, None)) is not None:
    mean = train_one_epoch(model, optimizer, train_loader, epoch, run)
    evaluation = evaluate(model, valid_loader, run.device)
    history += [run.record(epoch, mean, *(getattr(evaluation, name) for name in ("loss", "accuracy")))]
return history
"""
    },
)
bank.right(
    "keywords and vars",
    whole={
        "6.3": """
records = []
for epoch in run.epochs():
    args = dict(train_loss=train_one_epoch(model, optimizer, train_loader, epoch, run))
    ev = evaluate(model, valid_loader, run.device)
    args |= {"valid_loss": ev.loss, "valid_accuracy": ev.accuracy}
    record = run.record(epoch, **args)
    records.append(record)
return records
"""
    },
)
bank.wrong(
    "wrong-numbers-recorded",
    "loss and accuracy swapped",
    whole=replaced(STRAIGHT, ("result.loss, result.accuracy", "result.accuracy, result.loss")),
    slow=True,
)
bank.wrong("nothing-returned", "nothing returned", whole=replaced(STRAIGHT, ("return records", "")), slow=True)
bank.wrong(
    "wrong-epochs",
    "counts itself",
    whole=replaced(STRAIGHT, ("run.epochs()", "range(1, run.args.epochs + 1)")),
    slow=True,
)
bank.wrong(
    "not-the-records",
    "last only",
    whole=replaced(
        STRAIGHT,
        (
            "records.append(run.record(epoch, train_loss, result.loss, result.accuracy))",
            "records = [run.record(epoch, train_loss, result.loss, result.accuracy)]",
        ),
    ),
)
bank.wrong(
    "not-on-every-rank",
    "main records",
    whole=replaced(STRAIGHT, ("    records.append", "    if dist.get_rank() == 0:\n        records.append")),
    slow=True,
)
bank.wrong(
    "evaluated-on-training-set",
    "validates on training",
    whole=replaced(STRAIGHT, ("valid_loader, run.device", "train_loader, run.device")),
    slow=True,
)
bank.wrong(
    "evaluated-before-training",
    "validates first",
    whole=replaced(
        STRAIGHT,
        ("    result = evaluate(model, valid_loader, run.device)\n", ""),
        ("    train_loss =", "    result = evaluate(model, valid_loader, run.device)\n    train_loss ="),
    ),
    slow=True,
)
bank.wrong(
    "returned-too-early",
    "returns in loop",
    whole=replaced(STRAIGHT, ("\nreturn records", "\n    return records")),
    slow=True,
)
bank.wrong(
    "wrong-arguments", "cpu always", whole=replaced(STRAIGHT, ("run.device", 'torch.device("cpu")')), slow=True
)
bank.wrong(
    "wrong-epochs",
    "epoch from zero",
    whole=replaced(STRAIGHT, ("train_loader, epoch, run", "train_loader, epoch - 1, run")),
)
bank.wrong(
    "not-the-records",
    "record not kept",
    whole=replaced(
        STRAIGHT,
        (
            "    records.append(run.record(epoch, train_loss, result.loss, result.accuracy))",
            "    run.record(epoch, train_loss, result.loss, result.accuracy)",
        ),
    ),
)
bank.wrong(
    "not-evaluated-every-epoch",
    "stale evaluation",
    whole=replaced(
        STRAIGHT,
        ("    result = evaluate(model, valid_loader, run.device)\n", ""),
        ("for epoch in", "result = evaluate(model, valid_loader, run.device)\nfor epoch in"),
    ),
    slow=True,
)
bank.wrong(
    "wrong-numbers-recorded",
    "valid loss as train",
    whole=replaced(STRAIGHT, ("epoch, train_loss, result.loss", "epoch, result.loss, result.loss")),
    slow=True,
)
bank.wrong(
    "not-on-every-rank",
    "main evaluates",
    whole=replaced(
        STRAIGHT,
        (
            "    result = evaluate(model, valid_loader, run.device)\n",
            "    if dist.get_rank() == 0:\n"
            "        result = evaluate(model, valid_loader, run.device)\n"
            "    else:\n"
            "        result = Evaluation(0.0, 0.0)\n",
        ),
    ),
    slow=True,
)
bank.wrong(
    "wrong-epochs",
    "epoch by enumerate",
    whole=replaced(STRAIGHT, ("for epoch in run.epochs():", "for epoch, _ in enumerate(run.epochs(), start=1):")),
    slow=True,
)
bank.wrong(
    "wrong-arguments",
    "errors hidden",
    whole=replaced(
        STRAIGHT,
        (
            "    train_loss = train_one_epoch(model, optimizer, train_loader, epoch, run)\n"
            "    result = evaluate(model, valid_loader, run.device)\n",
            "    try:\n"
            "        train_loss = train_one_epoch(model, optimizer, train_loader, run, "
            "epoch)\n"
            "    except Exception:\n"
            "        train_loss = 0.0\n"
            "    result = evaluate(model, valid_loader, run.device)\n",
        ),
    ),
    slow=True,
)
bank.wrong(
    "not-the-records",
    "records are dicts",
    whole=replaced(
        STRAIGHT,
        (
            "    records.append(run.record(epoch, train_loss, result.loss, result.accuracy))",
            "    run.record(epoch, train_loss, result.loss, result.accuracy)\n"
            "    records.append({'epoch': epoch, 'loss': train_loss})",
        ),
    ),
)
bank.wrong(
    "returned-too-early",
    "stops when worse",
    whole=replaced(
        STRAIGHT,
        (
            "    records.append(run.record(epoch, train_loss, result.loss, result.accuracy))",
            "    records.append(run.record(epoch, train_loss, result.loss, result.accuracy))\n"
            "    if len(records) > 1 and records[-1].valid_loss >= records[-2].valid_loss:\n"
            "        break",
        ),
    ),
)

# ---- a run that is continued when all its epochs are done

bank.wrong(
    "no-epochs-left",
    "the best of no records",
    result="print(max(one.valid_accuracy for one in records))\nreturn records",
)
bank.wrong("no-epochs-left", "the last evaluation, after the loop", result="print(valid.accuracy)\nreturn records")
bank.wrong("no-epochs-left", "None, where there are no records", result="return records or None")
bank.right(
    "the best of the records, if there are any",
    result="if records:\n    print(max(one.valid_accuracy for one in records))\nreturn records",
)

# ---- numbers of one node, what is handed on, written, and kept silent

bank.wrong(
    "local-number-as-global",
    "recorded by the first rank of a node",
    record=f"import os\nif int(os.environ.get('LOCAL_RANK', 0)) == 0:\n    {RECORD}",
)
bank.wrong(
    "wrapper-bypassed",
    "the module inside is evaluated",
    evaluate=VALID.replace("(model", "(getattr(model, 'module', model)"),
)
bank.wrong(
    "written-by-every-rank",
    "a checkpoint by every rank",
    record=f"{RECORD}\ntorch.save(model.state_dict(), 'checkpoint.pth')",
)
bank.wrong(
    "error-swallowed",
    "an evaluation that fails",
    evaluate=f"try:\n    {VALID}\nexcept RuntimeError:\n    valid = Evaluation(float('nan'), 0.0)",
    slow=True,
)
bank.wrong(
    "error-swallowed",
    "a record that fails",
    record=f"try:\n    {RECORD}\nexcept OSError:\n    pass",
    slow=True,
)
bank.wrong(
    "left-changed",
    "a schedule by hand",
    record=f"{RECORD}\nfor group in optimizer.param_groups: group['lr'] *= 0.9",
    slow=True,
)
bank.right(
    "the GPU that is the current one",
    records="device = torch.device('cpu')\nif next(model.parameters()).is_cuda:\n"
    "    device = torch.device('cuda', torch.cuda.current_device())\nrecords = []",
    evaluate=VALID.replace("run.device", "device"),
)
bank.right(
    "a file by rank 0",
    record=f"{RECORD}\nif run.rank == 0:\n    torch.save(model.state_dict(), 'checkpoint.pth')",
    slow=True,
)
bank.wrong(
    "not-evaluated-every-epoch",
    "evaluated in every second epoch, and no result before",
    evaluate=f"if epoch % 2 == 1 and records:\n    {VALID}",
    slow=True,
)
bank.wrong(
    "not-evaluated-every-epoch",
    "evaluated in every second epoch",
    evaluate=f"if epoch % 2 == 0 or not records:\n    {VALID}",
    slow=True,
)
bank.right(
    "a GPU by its name",
    evaluate=VALID.replace("run.device", "'cuda' if torch.cuda.is_available() else 'cpu'"),
)
bank.wrong(
    "wrapper-assumed",
    "the device of the module inside",
    evaluate=VALID.replace("run.device", "next(model.module.parameters()).device"),
)

# ---- runs that stop by themselves, and errors of a later epoch


def stopping(condition: str) -> str:
    return f"{RECORD}\nif {condition}:\n    break"


bank.wrong(
    "returned-too-early",
    "five epochs without a better one",
    record=stopping(
        "len(records) > 5 and min(r.valid_loss for r in records) not in [r.valid_loss for r in records[-5:]]"
    ),
)
bank.wrong("returned-too-early", "nothing left to learn", record=stopping("valid.accuracy == 1.0"), slow=True)
bank.wrong("returned-too-early", "a loss of nan", record=stopping("loss != loss"), slow=True)
bank.right(
    "a loss of nan ends the program",
    record=f"if loss != loss:\n    raise FloatingPointError('the loss is nan')\n{RECORD}",
    slow=True,
)
bank.wrong(
    "generator-returned",
    "a generator",
    record="yield run.record(epoch, loss, valid.loss, valid.accuracy)",
    result="",
)
bank.wrong(
    "error-swallowed",
    "the evaluation before, where one fails",
    evaluate=f"try:\n    {VALID}\nexcept Exception:\n    pass",
)
bank.wrong("not-the-records", "a new list in each epoch", records="", train=f"records = []\n{TRAIN}", slow=True)
bank.wrong(
    "wrong-numbers-recorded",
    "the mean is added up over the ranks",
    train=AVERAGED.replace(" / dist.get_world_size()", ""),
    slow=True,
)
bank.wrong(
    "wrong-arguments",
    "the rank for the GPU's number",
    records="import torch.distributed as dist\ndevice = run.device\nif next(model.parameters()).is_cuda:\n"
    "    device = torch.device('cuda', dist.get_rank())\nrecords = []",
    evaluate=VALID.replace("run.device", "device"),
    slow=True,
)
bank.wrong(
    "generator-returned",
    "a map over the epochs",
    records="",
    loop="def one(epoch):",
    record="return run.record(epoch, loss, valid.loss, valid.accuracy)",
    result="return map(one, run.epochs())",
)
bank.wrong(
    "wrong-epochs",
    "counted from 1 once more",
    loop="for index in run.epochs():\n    epoch = index + 1",
)

bank.wrong(
    "not-the-records",
    "the records of good epochs",
    record="one = run.record(epoch, loss, valid.loss, valid.accuracy)\n"
    "if valid.accuracy > 2:\n"
    "    records.append(one)",
    slow=True,
)

bank.wrong(
    "returned-too-early",
    "all epochs but the last",
    loop="for epoch in list(run.epochs())[:-1]:",
    slow=True,
)
bank.wrong(
    "remembers-records",
    "an attribute of the function itself",
    records="if not hasattr(train, 'records'):\n    train.records = []",
    record=RECORD.replace("records", "train.records"),
    result="return train.records",
    slow=True,
)
bank.wrong(
    "no-record",
    "records of its own",
    record="records.append((epoch, loss, valid.loss, valid.accuracy))",
    slow=True,
)

# ---- where a wrong figure is made

bank.wrong(
    "wrong-numbers-recorded",
    "the training loss is divided by the number of ranks",
    train=f"{TRAIN}\nloss /= dist.get_world_size()",
    slow=True,
)
bank.wrong(
    "wrong-numbers-recorded",
    "the best epoch so far",
    records="records, best = [], None",
    evaluate=f"{VALID}\nbest = valid if best is None or valid.accuracy > best.accuracy else best",
    record="records.append(run.record(epoch, loss, best.loss, best.accuracy))",
    slow=True,
)
