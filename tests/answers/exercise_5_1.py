"""Answers to 5.1: everything together."""

from answers.entries import Bank, replaced

bank = Bank(
    "5.1",
    {
        "5.1a": """
if args.strategy == "ddp":  # if_ddp
    return get_ddp_model(model, device, bucket_cap_mb=args.bucket_cap_mb)  # ddp
if args.strategy == "fsdp":  # if_fsdp
    return get_fsdp_model(model, device, precision=args.precision)  # fsdp
if args.strategy == "fsdp1":  # if_fsdp1
    return get_fsdp1_model(model, device, precision=args.precision)  # fsdp1
return model.to(device)  # none
""",
        "5.1b": """
device = setup()  # setup
records = []  # records
with Run(args, device) as this_run:  # run
    args = this_run.args  # args
    first = is_first_on_filesystem(args.data_dir or args.output_dir)  # first
    datasets = load_once(lambda: read_datasets(args), is_first=first)  # datasets
    size, loading = args.loader_batch_size, loading_options(args, device)  # loading
    loaders = get_dataloaders(datasets.train, datasets.valid, size, **loading)  # loaders
    torch.manual_seed(args.seed)  # seed
    model = build_model(args.model, len(datasets.classes), **options.model_options(args))  # model
    model = this_run.prepare_model(model)  # prepare
    model = wrap_model(model, device, args)  # wrap
    optimizer = build_optimizer(model, args)  # optimizer
    this_run.begin(model, optimizer, loaders[0])  # begin
    if not args.dry_run:  # if_dry
        records = train(model, optimizer, *loaders, this_run)  # train
        if datasets.test is not None:  # if_test
            tests = get_dataloaders(datasets.train, datasets.test, size, **loading)[1]  # tests
            test = evaluate(model, tests, device)  # evaluate
            this_run.record_test(test.loss, test.accuracy)  # record
cleanup()  # cleanup
return records  # result
""",
    },
)

LOAD = """
def load():
    more = {"cache_dir": args.output_dir, **options.input_options(args)}
    return load_datasets(args.dataset, args.data_dir, validation=args.validation, **more)
datasets = load_once(load, is_first=first)
"""
LOADING = """
size, workers = args.loader_batch_size, {"num_workers": args.num_workers}
loading = {"seed": args.seed, **workers, **options.loader_options(args, device.type)}
"""
LOADERS = "loaders = get_dataloaders(datasets.train, datasets.valid, size, **loading)"
MODEL = "model = build_model(args.model, len(datasets.classes), **options.model_options(args))"
PREPARE = "model = this_run.prepare_model(model)"
WRAP = "model = wrap_model(model, device, args)"
OPTIMIZER = "optimizer = build_optimizer(model, args)"
BEGIN = "this_run.begin(model, optimizer, loaders[0])"
TRAIN = "records = train(model, optimizer, *loaders, this_run)"
TESTS = "tests = get_dataloaders(datasets.train, datasets.test, size, **loading)[1]"
EVALUATE = "test = evaluate(model, tests, device)"
RECORD = "this_run.record_test(test.loss, test.accuracy)"


def outdented(first: str, last: str) -> str:
    """The region, with its lines from `first` to before `last` one level further out."""
    lines = bank.texts["5.1b"].splitlines()
    begin, end = (
        next(i for i, line in enumerate(lines) if line.endswith(f"  # {name}")) for name in (first, last)
    )
    return "\n".join([*lines[:begin], *(line[4:] for line in lines[begin:end]), *lines[end:]])


IN_FUNCTIONS = """
def loaders(part):
    return get_dataloaders(datasets.train, part, args.loader_batch_size, **loading_options(args, device))

def started():
    torch.manual_seed(args.seed)
    model = build_model(args.model, num_classes=len(datasets.classes), **options.model_options(args))
    model = wrap_model(this_run.prepare_model(model), device, args)
    return model, build_optimizer(model, args)

device = setup()
try:
    with Run(args, device) as this_run:
        args = this_run.args
        datasets = load_once(
            is_first=is_first_on_filesystem(args.data_dir or args.output_dir), load=lambda: read_datasets(args)
        )
        train_loader, valid_loader = loaders(datasets.valid)
        model, optimizer = started()
        this_run.begin(model, optimizer, train_loader)
        if args.dry_run:
            return []
        records = train(model, optimizer, train_loader, valid_loader, this_run)
        if datasets.test:
            result = evaluate(model, loaders(datasets.test)[1], this_run.device)
            this_run.record_test(accuracy=result.accuracy, loss=result.loss)
        return list(records)
finally:
    cleanup()
"""

# ---- right

bank.right("seeded at the start", setup="torch.manual_seed(args.seed)\ndevice = setup()", seed="", slow=True)
bank.right(
    "its own call of load_datasets, its own dictionary of options", datasets=LOAD, loading=LOADING, slow=True
)
bank.right("helper functions, try and finally, returns from inside", whole={"5.1b": IN_FUNCTIONS})
bank.right(
    "every argument by name",
    train="records = train(\n    run=this_run, valid_loader=loaders[1], train_loader=loaders[0], "
    "optimizer=optimizer, model=model\n)",
    evaluate="test = evaluate(device=device, loader=tests, model=model)",
    slow=True,
)
bank.wrong(
    "training-set-replaced",
    "all loaders at the start, the test set in both places",
    loaders=LOADERS + "\nif datasets.test is not None:\n"
    "    tests = get_dataloaders(datasets.test, datasets.test, size, **loading)[1]",
    tests="",
    slow=True,
)
bank.right(
    "a shard of its own for the test images",
    tests="""
from torch.utils.data import DataLoader
from data import ValidationShard
ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
tests = DataLoader(ValidationShard(datasets.test, *ranks), batch_size=8)
""",
)
bank.right(
    "cleans up in an ExitStack",
    setup="from contextlib import ExitStack\nstack = ExitStack()\nstack.callback(cleanup)\ndevice = setup()",
    cleanup="stack.close()",
    slow=True,
)
bank.right(
    "an optimizer of its own, with the rate computed by hand",
    optimizer="""
if args.optimizer != "sgd":
    kind = {"adam": Adam, "adamw": AdamW}[args.optimizer]
    optimizer = kind(model.parameters(), args.learning_rate, weight_decay=args.weight_decay)
else:
    optimizer = SGD(
        list(model.parameters()),
        lr=args.base_lr * args.global_batch_size / 256,
        momentum=args.momentum,
        weight_decay=args.weight_decay,
        foreach=True,
    )
""",
)
bank.right(
    "a dictionary of strategies",
    whole={
        "5.1a": """
wrappers = {
    "none": lambda: model.to(device),
    "ddp": lambda: get_ddp_model(model, device, bucket_cap_mb=args.bucket_cap_mb),
    "fsdp": lambda: get_fsdp_model(model, device, precision=args.precision),
    "fsdp1": lambda: get_fsdp1_model(model, device, precision=args.precision),
}
return wrappers[args.strategy]()
"""
    },
    slow=True,
)
bank.right(
    "the weights of rank 0 for all, and a look at them, before wrapping",
    if_ddp="""model.to(device)
for parameter in model.parameters():
    torch.distributed.broadcast(parameter.data, 0)
total = sum(block.weight.sum().item() for block in model.modules() if isinstance(block, nn.Conv2d))
print(f"{len(model.blocks)} blocks, sum of the weights {total:.4f}")
if args.strategy == "ddp":""",
)

# ---- wrong: 5.1a

bank.wrong("wrong-strategy", "DDP whatever is asked for", if_ddp="if True:")
bank.wrong(
    "model-not-wrapped", "DDP without return", ddp="get_ddp_model(model, device, bucket_cap_mb=args.bucket_cap_mb)"
)
bank.wrong(
    "wrong-strategy",
    "FSDP1 for FSDP",
    fsdp="return get_fsdp1_model(model, device, precision=args.precision)",
    slow=True,
)
bank.wrong("bucket-cap-ignored", "the bucket size is not handed on", ddp="return get_ddp_model(model, device)")
bank.wrong(
    "bucket-cap-rounded",
    "the bucket size is cut to a whole number",
    ddp="return get_ddp_model(model, device, bucket_cap_mb=int(args.bucket_cap_mb))",
)
bank.wrong(
    "precision-ignored", "the precision is not handed on to FSDP1", fsdp1="return get_fsdp1_model(model, device)"
)
bank.wrong(
    "precision-ignored", "the precision is not handed on", fsdp="return get_fsdp_model(model, device)", slow=True
)
bank.wrong(
    "precision-ignored",
    "bf16 whatever is asked for",
    fsdp="return get_fsdp_model(model, device, precision='bf16')",
    fsdp1="return get_fsdp1_model(model, device, precision='bf16')",
)
bank.wrong(
    "not-on-its-device",
    "DDP on the CPU",
    ddp="return get_ddp_model(model, torch.device('cpu'), bucket_cap_mb=args.bucket_cap_mb)",
)
bank.wrong("not-on-its-device", "not moved without a wrapper", none="return model", slow=True)

# ---- wrong: 5.1b

bank.wrong("no-process-group", "setup is missing", setup="device = torch.device('cpu')")
bank.wrong("cleanup-missing", "cleanup is missing", cleanup="")
bank.wrong(
    "cleanup-too-early",
    "cleanup before training",
    begin=BEGIN + "\ncleanup()",
    cleanup="",
)
bank.wrong("load-once-missing", "every rank downloads", datasets="datasets = read_datasets(args)")
bank.wrong("is-first-guessed", "rank 0 downloads for all nodes", first="first = torch.distributed.get_rank() == 0")
bank.wrong(
    "dataset-option-ignored",
    "--validation has no effect",
    datasets=LOAD.replace(" validation=args.validation,", ""),
)
bank.wrong("options-not-resolved", "the options of the command line, not those of the run", args="")
bank.wrong(
    "data-sets-swapped",
    "trains on the validation set",
    loaders=LOADERS.replace("train, datasets.valid", "valid, datasets.train"),
)
bank.wrong(
    "loader-option-ignored",
    "the local batch as the global one",
    loading="size, loading = args.per_device_batch_size, loading_options(args, device)",
)
bank.wrong(
    "loader-option-ignored", "--num-workers has no effect", loading=LOADING.replace(", **workers", ""), slow=True
)
bank.wrong(
    "num-classes-hard-coded", "ten classes whatever the data set has", model="model = build_model(args.model)"
)
bank.wrong(
    "no-build-model", "the model is fixed", model="from model import CNN\nmodel = CNN(len(datasets.classes))"
)
bank.wrong("ranks-start-differently", "no seed", seed="")
bank.wrong(
    "ranks-start-differently",
    "another seed on every rank",
    seed="torch.manual_seed(args.seed + torch.distributed.get_rank())",
    slow=True,
)
bank.wrong(
    "ranks-start-differently",
    "seeded after the model is built",
    seed="",
    wrap="torch.manual_seed(args.seed)\n" + WRAP,
)
bank.wrong("seed-hard-coded", "a fixed seed", seed="torch.manual_seed(0)")
bank.wrong("model-not-wrapped", "the model is not wrapped", wrap="", slow=True)
bank.wrong(
    "model-not-wrapped",
    "wrapped, but the bare model goes on",
    wrap="wrapped = wrap_model(model, device, args)",
    slow=True,
)
# github.com/pytorch/pytorch/issues/149205
bank.wrong(
    "optimizer-before-wrapping",
    "the optimizer is built before the model is sharded",
    optimizer="",
    wrap=OPTIMIZER + "\n" + WRAP,
)
# github.com/facebookresearch/moco/issues/98, github.com/Lightning-AI/pytorch-lightning/issues/3706
bank.wrong(
    "wrong-learning-rate",
    "the rate is scaled once more",
    optimizer="args.learning_rate *= torch.distributed.get_world_size()\n" + OPTIMIZER,
)
bank.wrong("wrong-optimizer", "SGD whatever is asked for", optimizer="args.optimizer = 'sgd'\n" + OPTIMIZER)
bank.wrong("no-begin", "begin is missing", begin="")
bank.wrong(
    "begin-after-train",
    "begin after training",
    begin="",
    train=TRAIN + "\n" + BEGIN,
)
bank.wrong("train-in-dry-run", "a dry run that trains", if_dry="if True:")
bank.wrong("train-not-called", "train is not called", train="pass")
bank.wrong(
    "train-twice",
    "a loop over the epochs",
    train="for epoch in range(2):\n    records = train(model, optimizer, *loaders, this_run)",
)
bank.wrong(
    "wrong-arguments",
    "the loaders are swapped",
    train="records = train(model, optimizer, *reversed(loaders), this_run)",
)
bank.wrong(
    "wrong-arguments",
    "args in place of the run",
    train="records = train(model, optimizer, *loaders, args)",
    slow=True,
)
bank.wrong("records-not-returned", "nothing is returned", result="")
bank.wrong("records-not-returned", "the last record only", result="return records[-1:]", slow=True)
bank.wrong("run-not-entered", "the Run without with", run="this_run = Run(args, device)\nif True:")
bank.wrong(
    "run-closed-too-early", "the with holds only its first line", whole={"5.1b": outdented("first", "cleanup")}
)
bank.wrong(
    "run-without-records", "a Run without records", run="with Run(args, device, records=False) as this_run:"
)
bank.wrong(
    "two-runs",
    "a Run for the options, and one for the records",
    setup="device = setup()\nargs = Run(args, device).args",
)
bank.wrong("device-guessed", "the Run on the CPU", run="with Run(args, torch.device('cpu')) as this_run:")
bank.wrong(
    "cleanup-inside-the-run",
    "cleanup in the last line of the with",
    record=RECORD + "\ncleanup()",
)

# ---- wrong: 5.1b, the data

bank.wrong(
    "loaded-before-load-once",
    "loads while the arguments are put together",
    datasets="datasets = load_once(read_datasets(args), first)",
)
bank.wrong(
    "loaded-twice",
    "loads once more for the classes",
    datasets="datasets = load_once(lambda: read_datasets(args), first)\n"
    "datasets = load_once(lambda: read_datasets(args), first)",
)
bank.wrong(
    "first-of-another-folder",
    "asks about the folder of the output",
    first="first = is_first_on_filesystem(args.output_dir)",
)
bank.wrong(
    "first-of-another-folder",
    "forgets that shapes need no folder",
    first="first = is_first_on_filesystem(args.data_dir)",
    slow=True,
)
bank.wrong(
    "is-first-guessed",
    "the question itself in place of the answer",
    first="first = is_first_on_filesystem",
    slow=True,
)
bank.wrong(
    "not-on-every-rank",
    "only rank 0 asks who is first",
    first="first = torch.distributed.get_rank() == 0 and is_first_on_filesystem(args.data_dir or args.output_dir)",
)
bank.wrong(
    "dataset-option-ignored",
    "the decoded images go to the data",
    datasets=LOAD.replace("args.output_dir", "args.data_dir"),
    slow=True,
)
bank.wrong(
    "dataset-option-ignored",
    "--randaugment has no effect",
    datasets=LOAD.replace(", **options.input_options(args)", ""),
)
bank.wrong(
    "options-not-resolved",
    "the data is read by the options of the command line",
    args="given, args = args, this_run.args",
    datasets="datasets = load_once(lambda: read_datasets(given), is_first=first)",
    slow=True,
)
bank.wrong(
    "accumulation-ignored",
    "the whole global batch at a time",
    loading="size, loading = args.global_batch_size, loading_options(args, device)",
)
bank.wrong(
    "loader-option-ignored",
    "--persistent-workers and --prefetch have no effect",
    loading=LOADING.replace(", **options.loader_options(args, device.type)", ""),
    slow=True,
)
bank.wrong(
    "loader-option-ignored", "no options for the loaders", loaders=LOADERS.replace(", **loading", ""), slow=True
)
bank.wrong("loader-option-ignored", "no options for the test images", tests=TESTS.replace(", **loading", ""))
bank.wrong(
    "loader-option-ignored",
    "seed 0 taken for none",
    loading="size, loading = args.loader_batch_size, loading_options(args, device) | {'seed': args.seed or 42}",
    slow=True,
)

# ---- wrong: 5.1b, the model

bank.wrong("model-option-ignored", "the cnn whatever is asked for", model=MODEL.replace("args.model", "'cnn'"))
bank.wrong(
    "model-option-ignored",
    "--width and --depth have no effect",
    model="model = build_model(args.model, len(datasets.classes))",
    slow=True,
)
bank.wrong("seed-zero-replaced", "seed 0 taken for no seed", seed="torch.manual_seed(args.seed or 42)")
bank.wrong(
    "not-on-every-rank",
    "only rank 0 is seeded",
    seed="if torch.distributed.get_rank() == 0:\n    torch.manual_seed(args.seed)",
    slow=True,
)
bank.wrong("no-prepare-model", "the model is not prepared", prepare="")
bank.wrong("prepared-model-unused", "the prepared model is not kept", prepare="this_run.prepare_model(model)")
bank.wrong("prepared-after-wrapping", "prepared after wrapping", prepare="", wrap=WRAP + "\n" + PREPARE)
bank.wrong("used-before-made", "begin before the optimizer", optimizer="", begin=BEGIN + "\n" + OPTIMIZER)
bank.wrong("optimizer-after-begin", "another optimizer after begin", begin=BEGIN + "\n" + OPTIMIZER)
bank.wrong(
    "begin-before-wrapping",
    "begin with the bare model",
    wrap="",
    optimizer=OPTIMIZER,
    begin=BEGIN + "\n" + WRAP + "\n" + OPTIMIZER,
)
bank.wrong("begins-twice", "begin twice", begin=BEGIN + "\n" + BEGIN)
bank.wrong("wrong-arguments", "begin with the validation loader", begin=BEGIN.replace("[0]", "[1]"), slow=True)
bank.wrong("wrong-arguments", "begin with both loaders", begin=BEGIN.replace("[0]", ""), slow=True)
bank.wrong(
    "not-on-every-rank",
    "begin on rank 0 only",
    begin="if torch.distributed.get_rank() == 0:\n    " + BEGIN,
    slow=True,
)
bank.wrong(
    "wrong-optimizer",
    "an SGD of its own without weight decay",
    optimizer="optimizer = SGD(model.parameters(), lr=args.learning_rate, momentum=args.momentum)",
    slow=True,
)

# ---- wrong: 5.1b, the test images

bank.wrong("test-not-evaluated", "no test", if_test="if False:")
bank.wrong(
    "test-on-other-images",
    "the validation images once more",
    evaluate="test = evaluate(model, loaders[1], device)",
)
bank.wrong(
    "test-on-other-images",
    "the training images as a test",
    evaluate="test = evaluate(model, loaders[0], device)",
    slow=True,
)
bank.wrong(
    "test-on-other-images",
    "the validation set as the test set",
    tests=TESTS.replace("datasets.test", "datasets.valid"),
    slow=True,
)
bank.wrong(
    "test-images-dropped",
    "a training loader of the test images",
    tests=TESTS.replace("datasets.train, datasets.test", "datasets.test, datasets.valid").replace("[1]", "[0]"),
)
bank.wrong(
    "test-loader-of-its-own",
    "a plain DataLoader of the test images",
    tests="from torch.utils.data import DataLoader\ntests = DataLoader(datasets.test, args.per_device_batch_size)",
)
bank.wrong("test-in-dry-run", "the test is not part of the if", whole={"5.1b": outdented("if_test", "cleanup")})
bank.wrong("test-images-assumed", "every data set has test images", if_test="if True:")
bank.wrong("test-not-recorded", "the test result is printed only", record="print(test)")
bank.wrong(
    "wrong-test-figures", "accuracy and loss are swapped", record="this_run.record_test(test.accuracy, test.loss)"
)
bank.wrong(
    "wrong-test-figures",
    "the validation's figures are recorded",
    record="this_run.record_test(records[-1].valid_loss, records[-1].valid_accuracy)",
    slow=True,
)
bank.wrong(
    "wrong-test-figures",
    "the accuracy in per cent",
    record="this_run.record_test(test.loss, 100 * test.accuracy)",
    slow=True,
)
bank.wrong("wrong-arguments", "the evaluation itself is recorded", record="this_run.record_test(test, test)")
bank.wrong(
    "not-on-every-rank",
    "the test on rank 0 only",
    if_test="if datasets.test is not None and torch.distributed.get_rank() == 0:",
    slow=True,
)
bank.wrong(
    "not-on-every-rank",
    "the result is recorded on rank 0 only",
    record="if torch.distributed.get_rank() == 0:\n    " + RECORD,
    slow=True,
)
bank.wrong("tested-before-training", "the test before the training", train="", record=RECORD + "\n" + TRAIN)
bank.wrong("tested-twice", "the test twice", evaluate="evaluate(model, tests, device)\n" + EVALUATE)
bank.wrong(
    "cleanup-too-early",
    "cleanup before the test",
    if_test="cleanup()\nif datasets.test is not None:",
    cleanup="",
    slow=True,
)
bank.wrong(
    "wrong-arguments", "args in place of the device", evaluate=EVALUATE.replace("device", "args"), slow=True
)
bank.wrong(
    "wrong-arguments", "the run in place of the device", evaluate=EVALUATE.replace("device", "this_run"), slow=True
)
bank.wrong(
    "wrong-arguments", "the test on the CPU", evaluate=EVALUATE.replace("device", "torch.device('cpu')"), slow=True
)
bank.wrong(
    "wrong-arguments",
    "the test of the bare model",
    wrap="bare = model\n" + WRAP,
    evaluate=EVALUATE.replace("model", "bare"),
)

# ---- wrong: 5.1b, what is named or handed on

bank.wrong(
    "unknown-name",
    "a function that is not imported",
    first="first = is_main_process() or is_first_on_filesystem(args.data_dir or args.output_dir)",
)
bank.wrong(
    "no-such-option", "an option that there is not", loading=LOADING.replace("loader_batch_size", "batch_size")
)
bank.wrong(
    "wrong-arguments",
    "a load that needs arguments",
    datasets="datasets = load_once(read_datasets, first)",
    slow=True,
)
bank.wrong(
    "wrong-arguments",
    "the classes, not their number",
    model=MODEL.replace("len(datasets.classes)", "datasets.classes"),
    slow=True,
)
bank.wrong(
    "wrong-arguments",
    "load and is_first change places",
    datasets="datasets = load_once(first, lambda: read_datasets(args))",
    slow=True,
)
bank.wrong(
    "raised",
    "the wrong thing is handed to get_dataloaders",
    loaders="loaders = get_dataloaders(len(datasets.train), datasets.valid, size, **loading)",
)
bank.wrong("records-not-returned", "a dry run returns None", records="records = None", slow=True)
bank.wrong(
    "records-not-returned", "a dry run has no return value", cleanup="cleanup()\nif args.dry_run:\n    return"
)

# ---- seen in other settings, on other ranks, in other hands

WRAPS = """
if args.strategy == "ddp":
    model = get_ddp_model(model, device, bucket_cap_mb=args.bucket_cap_mb)
elif args.strategy == "fsdp":
    model = get_fsdp_model(model, device, precision=args.precision)
elif args.strategy == "fsdp1":
    model = get_fsdp1_model(model, device, precision=args.precision)
else:
    model = model.to(device)
"""
bank.right(
    "isinstance of this_run",
    args="assert isinstance(this_run, Run) and type(this_run).__name__ == 'Run'\nargs = this_run.args",
    slow=True,
)
bank.right(
    "isinstance of loaders and datasets",
    loaders=(
        LOADERS + "\nassert isinstance(datasets, DataSets) and all(isinstance(one, "
        "torch.utils.data.DataLoader) for one in loaders)"
    ),
    slow=True,
)
bank.right("device asserts", setup="device = setup()\nassert isinstance(device, torch.device)", slow=True)
bank.right(
    "names of functions",
    setup="assert setup.__name__ == 'setup' and train.__name__ == 'train' and "
    "wrap_model.__name__ == 'wrap_model'\ndevice = setup()",
)
bank.right(
    "is_first by keyword", first="first = is_first_on_filesystem(path=args.data_dir or args.output_dir)", slow=True
)
bank.right("a barrier after building", optimizer=(OPTIMIZER + "\ntorch.distributed.barrier()"), slow=True)
bank.wrong(
    "wrap-model-not-called",
    "wrapped in run",
    wrap=WRAPS,
)
bank.wrong(
    "parameters-not-fp32",
    "the model in bf16 by hand",
    prepare=(PREPARE + "\nif args.precision == 'bf16': model = model.bfloat16()"),
)
bank.wrong(
    "wrap-model-not-called",
    "not wrapped on one rank",
    wrap="if torch.distributed.get_world_size() > 1:\n"
    "    model = wrap_model(model, device, args)\nelse:\n    model = model.to(device)",
    slow=True,
)
bank.wrong(
    "model-not-wrapped",
    "wrap_model: bare on one rank",
    if_ddp="if args.strategy == 'ddp' and torch.distributed.get_world_size() > 1:",
)
bank.wrong("seed-hard-coded", "the seed modulo 10", seed="torch.manual_seed(args.seed % 10)", slow=True)
bank.wrong("seed-hard-coded", "the seed modulo 100", seed="torch.manual_seed(args.seed % 100)", slow=True)
bank.wrong(
    "error-swallowed",
    "begin hidden",
    begin="try:\n    this_run.begin(model, optimizer)\nexcept Exception:\n    pass",
)
bank.wrong(
    "not-on-every-rank",
    "rank 0 prepares",
    prepare="if this_run.rank == 0:\n    model = this_run.prepare_model(model)",
    slow=True,
)
bank.wrong(
    "not-on-every-rank",
    "rank 0 builds loaders with options",
    loading="size, loading = args.loader_batch_size, loading_options(args, device)\n"
    "if this_run.rank == 1:\n    loading['seed'] = 5",
)
bank.wrong(
    "error-swallowed",
    "evaluate hidden",
    evaluate="test = None\ntry:\n    test = evaluate(tests, model, device)\nexcept Exception:\n    pass",
    record="if test: this_run.record_test(test.loss, test.accuracy)",
    slow=True,
)
bank.wrong(
    "loader-option-ignored",
    "two errors: another seed for the loaders, and no begin",
    loading="size, loading = args.loader_batch_size, loading_options(args, device) | {'seed': 5}",
    begin="",
    slow=True,
)

# ---- by somebody who had only a student's package at hand

STRAIGHT = {
    "5.1a": """
if args.strategy == "none":
    return model.to(device)
if args.strategy == "ddp":
    return get_ddp_model(model, device, bucket_cap_mb=args.bucket_cap_mb)
if args.strategy == "fsdp":
    return get_fsdp_model(model, device, precision=args.precision, **options.shard_options(args))
if args.strategy == "fsdp1":
    return get_fsdp1_model(model, device, precision=args.precision)
raise ValueError(f"unknown strategy {args.strategy}")
""",
    "5.1b": """
device = setup()
records: list[EpochRecord] = []
with Run(args, device) as this_run:
    args = this_run.args
    datasets = load_once(lambda: read_datasets(args), is_first_on_filesystem(args.data_dir or args.output_dir))

    def loader(images):
        return get_dataloaders(datasets.train, images, args.loader_batch_size, **loading_options(args, device))[1]

    train_loader, valid_loader = get_dataloaders(
        datasets.train, datasets.valid, args.loader_batch_size, **loading_options(args, device)
    )
    torch.manual_seed(args.seed)
    model = build_model(args.model, len(datasets.classes), **options.model_options(args))
    model = this_run.prepare_model(model)
    model = wrap_model(model, device, args)
    optimizer = build_optimizer(model, args)
    this_run.begin(model, optimizer, train_loader)
    if args.evaluate_only:
        this_run.evaluate(model, datasets, loader)
    elif not args.dry_run:
        records = train(model, optimizer, train_loader, valid_loader, this_run)
        if datasets.test is not None:
            result = evaluate(model, loader(datasets.test), device)
            this_run.record_test(result.loss, result.accuracy)
cleanup()
return records
""",
}

bank.right("straight", whole=STRAIGHT, slow=True)
bank.right(
    "table and helpers",
    whole={
        "5.1a": """
import functools

def _inside(this_run, args, device):
    first = is_first_on_filesystem(args.data_dir or args.output_dir)
    datasets = load_once(functools.partial(read_datasets, args), first)
    both = functools.partial(
        get_dataloaders,
        datasets.train,
        global_batch_size=args.loader_batch_size,
        **loading_options(args, device),
    )
    train_loader, valid_loader = both(datasets.valid)
    torch.manual_seed(args.seed)
    bare = build_model(args.model, num_classes=len(datasets.classes), **options.model_options(args))
    model = wrap_model(this_run.prepare_model(bare), device, args)
    optimizer = build_optimizer(model, args)
    this_run.begin(model, optimizer, train_loader)
    if args.dry_run:
        return []
    if args.evaluate_only:
        this_run.evaluate(model, datasets, lambda images: both(images)[1])
        return []
    history = train(model, optimizer, train_loader, valid_loader, this_run)
    if datasets.test is not None:
        _, test_loader = both(datasets.test)
        test = evaluate(model, test_loader, device)
        this_run.record_test(loss=test.loss, accuracy=test.accuracy)
    return history

make = {
    "none": lambda: model.to(device),
    "ddp": lambda: get_ddp_model(model, device, bucket_cap_mb=args.bucket_cap_mb),
    "fsdp": functools.partial(get_fsdp_model, model, device, precision=args.precision),
    "fsdp1": functools.partial(get_fsdp1_model, model, device, precision=args.precision),
}
return make[args.strategy]()
""",
        "5.1b": """
import functools

def _inside(this_run, args, device):
    first = is_first_on_filesystem(args.data_dir or args.output_dir)
    datasets = load_once(functools.partial(read_datasets, args), first)
    both = functools.partial(
        get_dataloaders,
        datasets.train,
        global_batch_size=args.loader_batch_size,
        **loading_options(args, device),
    )
    train_loader, valid_loader = both(datasets.valid)
    torch.manual_seed(args.seed)
    bare = build_model(args.model, num_classes=len(datasets.classes), **options.model_options(args))
    model = wrap_model(this_run.prepare_model(bare), device, args)
    optimizer = build_optimizer(model, args)
    this_run.begin(model, optimizer, train_loader)
    if args.dry_run:
        return []
    if args.evaluate_only:
        this_run.evaluate(model, datasets, lambda images: both(images)[1])
        return []
    history = train(model, optimizer, train_loader, valid_loader, this_run)
    if datasets.test is not None:
        _, test_loader = both(datasets.test)
        test = evaluate(model, test_loader, device)
        this_run.record_test(loss=test.loss, accuracy=test.accuracy)
    return history

device = setup()
with Run(args, device) as this_run:
    history = _inside(this_run, this_run.args, device)
cleanup()
return history
""",
    },
)
bank.right(
    "match and exit stack",
    whole={
        "5.1a": """
match args.strategy:
    case "none":
        return model.to(device)
    case "ddp":
        return get_ddp_model(model, device, bucket_cap_mb=args.bucket_cap_mb)
    case "fsdp":
        extra = options.shard_options(args)
        return get_fsdp_model(model, device, precision=args.precision, **extra)
    case "fsdp1":
        return get_fsdp1_model(model, device, precision=args.precision)
    case other:
        raise ValueError(other)
""",
        "5.1b": """
import contextlib

with contextlib.ExitStack() as stack:
    device = setup()
    stack.callback(cleanup)
    this_run = stack.enter_context(Run(args, device))
    args = this_run.args
    where = args.data_dir or args.output_dir
    data = load_once(lambda: read_datasets(args), is_first=is_first_on_filesystem(where))
    kwargs = loading_options(args, device)
    train_loader, valid_loader = get_dataloaders(
        data.train, data.valid, args.loader_batch_size, **kwargs
    )
    torch.manual_seed(args.seed)
    model = build_model(args.model, len(data.classes), **options.model_options(args))
    model = wrap_model(this_run.prepare_model(model), device, args)
    optimizer = build_optimizer(model, args)
    this_run.begin(model, optimizer, train_loader)
    records = []
    if not args.dry_run and not args.evaluate_only:
        records = train(model, optimizer, train_loader, valid_loader, this_run)
        if data.test is not None:
            _, test_loader = get_dataloaders(data.train, data.test, args.loader_batch_size, **kwargs)
            e = evaluate(model, test_loader, device)
            this_run.record_test(e.loss, e.accuracy)
    elif args.evaluate_only:
        this_run.evaluate(
            model,
            data,
            lambda images: get_dataloaders(data.train, images, args.loader_batch_size, **kwargs)[1],
        )
return records
""",
    },
)
bank.right(
    "try finally",
    whole={
        "5.1a": """
if args.strategy == "none":
    return model.to(device)
if args.strategy == "ddp":
    return get_ddp_model(model, device, bucket_cap_mb=args.bucket_cap_mb)
if args.strategy == "fsdp":
    return get_fsdp_model(model, device, precision=args.precision, **options.shard_options(args))
if args.strategy == "fsdp1":
    return get_fsdp1_model(model, device, precision=args.precision)
raise ValueError(f"unknown strategy {args.strategy}")
""",
        "5.1b": """
device = setup()
result = None
records: list[EpochRecord] = []
this_run = Run(args, device)
with this_run:
    args = this_run.args
    datasets = load_once(
        lambda: read_datasets(args), is_first_on_filesystem(args.data_dir or args.output_dir)
    )

    def loader(images):
        return get_dataloaders(
            datasets.train, images, args.loader_batch_size, **loading_options(args, device)
        )[1]

    train_loader, valid_loader = get_dataloaders(
        datasets.train, datasets.valid, args.loader_batch_size, **loading_options(args, device)
    )
    torch.random.manual_seed(args.seed)
    model = build_model(args.model, len(datasets.classes), **options.model_options(args))
    model = this_run.prepare_model(model)
    model = wrap_model(model, device, args)
    optimizer = build_optimizer(model, args)
    this_run.begin(model, optimizer, train_loader)
    if args.evaluate_only:
        this_run.evaluate(model, datasets, loader)
    elif not args.dry_run:
        records = train(model, optimizer, train_loader, valid_loader, this_run)
        if datasets.test is not None:
            result = evaluate(model, loader(datasets.test), device)
            this_run.record_test(result.loss, result.accuracy)
cleanup()
return records
""",
    },
    slow=True,
)
bank.wrong(
    "optimizer-before-wrapping",
    "early optimizer",
    whole=replaced(
        STRAIGHT,
        ("    optimizer = build_optimizer(model, args)\n", ""),
        (
            "    model = wrap_model(model, device, args)",
            "    optimizer = build_optimizer(model, args)\n    model = wrap_model(model, device, args)",
        ),
    ),
    slow=True,
)
bank.wrong(
    "ranks-start-differently",
    "no seed, again",
    whole=replaced(STRAIGHT, ("    torch.manual_seed(args.seed)\n", "")),
    slow=True,
)
bank.wrong(
    "ranks-start-differently",
    "seed plus rank",
    whole=replaced(STRAIGHT, ("manual_seed(args.seed)", "manual_seed(args.seed + this_run.rank)")),
    slow=True,
)
bank.wrong(
    "ranks-start-differently",
    "seed too late",
    whole=replaced(
        STRAIGHT,
        ("    torch.manual_seed(args.seed)\n", ""),
        (
            "    model = this_run.prepare_model",
            "    torch.manual_seed(args.seed)\n    model = this_run.prepare_model",
        ),
    ),
    slow=True,
)
bank.wrong(
    "cleanup-inside-the-run",
    "cleanup within",
    whole=replaced(STRAIGHT, ("\ncleanup()", "\n    cleanup()")),
    slow=True,
)
bank.wrong("cleanup-missing", "no cleanup", whole=replaced(STRAIGHT, ("\ncleanup()", "")), slow=True)
bank.wrong(
    "records-not-returned", "returns nothing", whole=replaced(STRAIGHT, ("\nreturn records", "")), slow=True
)
bank.wrong(
    "options-not-resolved", "old args", whole=replaced(STRAIGHT, ("    args = this_run.args\n", "")), slow=True
)
bank.wrong(
    "accumulation-ignored",
    "wrong batch size",
    whole=replaced(STRAIGHT, ("args.loader_batch_size", "args.global_batch_size")),
    slow=True,
)
bank.wrong(
    "is-first-guessed",
    "rank zero first",
    whole=replaced(STRAIGHT, ("is_first_on_filesystem(args.data_dir or args.output_dir)", "this_run.rank == 0")),
    slow=True,
)
bank.wrong(
    "loaded-before-load-once",
    "loads at once",
    whole=replaced(STRAIGHT, ("load_once(lambda: read_datasets(args)", "load_once(read_datasets(args)")),
    slow=True,
)
bank.wrong(
    "train-in-dry-run", "dry run trains", whole=replaced(STRAIGHT, ("elif not args.dry_run:", "else:")), slow=True
)
bank.wrong(
    "precision-ignored",
    "precision dropped fsdp1",
    whole=replaced(
        STRAIGHT, ("get_fsdp1_model(model, device, precision=args.precision)", "get_fsdp1_model(model, device)")
    ),
    slow=True,
)
bank.wrong(
    "bucket-cap-ignored",
    "bucket dropped",
    whole=replaced(STRAIGHT, (", bucket_cap_mb=args.bucket_cap_mb)", ")")),
    slow=True,
)
bank.wrong(
    "wrong-strategy",
    "fsdp1 is fsdp",
    whole=replaced(STRAIGHT, ('if args.strategy == "fsdp":', 'if args.strategy.startswith("fsdp"):')),
)
bank.wrong(
    "num-classes-hard-coded", "ten classes", whole=replaced(STRAIGHT, ("len(datasets.classes)", "10")), slow=True
)
bank.wrong(
    "prepared-model-unused",
    "prepared dropped",
    whole=replaced(STRAIGHT, ("model = this_run.prepare_model(model)", "this_run.prepare_model(model)")),
    slow=True,
)
bank.wrong(
    "no-begin",
    "begin forgotten",
    whole=replaced(STRAIGHT, ("    this_run.begin(model, optimizer, train_loader)\n", "")),
    slow=True,
)
bank.wrong(
    "not-on-every-rank",
    "main records test",
    whole=replaced(
        STRAIGHT, ("if datasets.test is not None:", "if datasets.test is not None and this_run.rank == 0:")
    ),
    slow=True,
)
bank.wrong(
    "tested-before-training",
    "test before train",
    whole=replaced(
        STRAIGHT,
        ("        records = train(model, optimizer, train_loader, valid_loader, this_run)\n", ""),
        (
            "            this_run.record_test(result.loss, result.accuracy)\n",
            "            this_run.record_test(result.loss, result.accuracy)\n"
            "        records = train(model, optimizer, train_loader, valid_loader, this_run)\n",
        ),
    ),
    slow=True,
)
bank.wrong(
    "test-on-other-images",
    "tests the validation",
    whole=replaced(
        STRAIGHT, ("evaluate(model, loader(datasets.test), device)", "evaluate(model, valid_loader, device)")
    ),
    slow=True,
)
bank.wrong(
    "wrong-test-figures",
    "accuracy first",
    whole=replaced(
        STRAIGHT, ("record_test(result.loss, result.accuracy)", "record_test(result.accuracy, result.loss)")
    ),
    slow=True,
)
bank.wrong(
    "model-not-wrapped",
    "wrapped dropped",
    whole=replaced(STRAIGHT, ("    model = wrap_model(", "    wrap_model(")),
    slow=True,
)
bank.wrong(
    "loader-option-ignored",
    "loader options forgotten",
    whole=replaced(
        STRAIGHT, (", args.loader_batch_size, **loading_options(args, device)\n", ", args.loader_batch_size\n")
    ),
    slow=True,
)

# ---- get_dataloaders() called more than once, and --evaluate-only

TWICE = (
    "train_loader, _ = get_dataloaders(datasets.train, datasets.valid, size, **loading)\n"
    "_, valid_loader = get_dataloaders(datasets.train, datasets.valid, size, **loading)\n"
    "loaders = train_loader, valid_loader"
)
bank.right("a call for each loader", loaders=TWICE)
bank.wrong(
    "loader-option-ignored",
    "two calls, the one for validation without options",
    loaders=TWICE.replace("size, **loading)\nloaders", "size)\nloaders"),
    slow=True,
)
bank.wrong(
    "loader-option-ignored",
    "two calls, the one for training without options",
    loaders=TWICE.replace("size, **loading)\n_", "size)\n_"),
)
bank.wrong(
    "loader-option-ignored",
    "two calls, the one for validation with workers and seed alone",
    loaders=TWICE.replace(
        "size, **loading)\nloaders", "size, num_workers=args.num_workers, seed=args.seed)\nloaders"
    ),
    slow=True,
)
bank.wrong(
    "accumulation-ignored",
    "two calls, and the second one is for training",
    loaders="_, valid_loader = get_dataloaders(datasets.train, datasets.valid, size, **loading)\n"
    "train_loader, _ = get_dataloaders(datasets.train, datasets.valid, args.global_batch_size, **loading)\n"
    "loaders = train_loader, valid_loader",
    slow=True,
)
bank.wrong(
    "loader-option-ignored",
    "two calls, and the one for training has a seed of its own",
    loaders="_, valid_loader = get_dataloaders(datasets.train, datasets.valid, size, **loading)\n"
    "train_loader, _ = get_dataloaders(datasets.train, datasets.valid, size, **{**loading, 'seed': 0})\n"
    "loaders = train_loader, valid_loader",
    slow=True,
)

bank.wrong(
    "loader-option-ignored",
    "two calls, the one for validation without workers",
    loaders=TWICE.replace("size, **loading)\nloaders", "size, **{**loading, 'num_workers': 0})\nloaders"),
    slow=True,
)

OF_IMAGES = "get_dataloaders(datasets.train, images, size, **loading)[1]"
ONLY = (
    f"if args.evaluate_only:\n    this_run.evaluate(model, datasets, lambda images: {OF_IMAGES})\n"
    "elif not args.dry_run:"
)
bank.right("--evaluate-only", if_dry=ONLY, slow=True)
bank.right(
    "--evaluate-only, with a function of its own",
    if_dry="def loader_of(images):\n    _, loader = get_dataloaders(datasets.train, images, size, **loading)\n"
    "    return loader\n" + ONLY.replace(f"lambda images: {OF_IMAGES}", "loader_of"),
)
bank.wrong(
    "evaluates-other-images",
    "--evaluate-only, always the validation images",
    if_dry=ONLY.replace(OF_IMAGES, "loaders[1]"),
)
bank.wrong(
    "evaluates-other-images",
    "--evaluate-only, in a training loader",
    if_dry=ONLY.replace(OF_IMAGES, OF_IMAGES.replace("[1]", "[0]")),
    slow=True,
)
bank.wrong("loader-option-ignored", "--evaluate-only, without options", if_dry=ONLY.replace(", **loading", ""))
bank.wrong("train-in-evaluation", "--evaluate-only, and then training", if_dry=ONLY.replace("elif", "if"))
bank.wrong(
    "evaluates-unasked", "evaluated in place of training", if_dry=ONLY.replace("args.evaluate_only", "True")
)
bank.wrong(
    "wrong-arguments",
    "--evaluate-only, with a loader",
    if_dry=ONLY.replace(f"lambda images: {OF_IMAGES}", "loaders[1]"),
)

# ---- an error ends the run; where it is left early; no test images


def guarded(begin: str, end: str) -> dict[str, str]:
    """The region, with its `with` inside of a `try` or another `with` that is called `begin`, and then `end`."""
    lines = bank.texts["5.1b"].splitlines()
    first = next(i for i, line in enumerate(lines) if line.endswith("  # run"))
    last = next(i for i, line in enumerate(lines) if line.endswith("  # cleanup"))
    return {
        "5.1b": "\n".join(
            [*lines[:first], begin, *(f"    {one}" for one in lines[first:last]), end, *lines[last:]]
        )
    }


bank.wrong(
    "error-swallowed",
    "an error is printed, and the run ends as if it were done",
    whole=guarded("try:", "except Exception as error:\n    print(error)"),
)
bank.wrong(
    "error-swallowed",
    "every error is suppressed",
    whole=guarded("import contextlib\nwith contextlib.suppress(Exception):", ""),
)
bank.wrong(
    "error-swallowed",
    "a return in finally",
    whole=guarded("try:", "finally:\n    cleanup()\n    return records"),
    slow=True,
)
bank.wrong(
    "error-swallowed",
    "exit code 0 after an error",
    whole=guarded("try:", "except BaseException as error:\n    print(error)\n    raise SystemExit(0)"),
    slow=True,
)
bank.right(
    "an error is printed, and goes on its way",
    whole=guarded("try:", "except Exception as error:\n    print(error)\n    raise"),
    slow=True,
)
bank.wrong("cleanup-missing", "a dry run returns", begin=BEGIN + "\nif args.dry_run:\n    return []")
bank.wrong("test-images-assumed", "how many test images", if_test="if len(datasets.test) > 0:")
bank.wrong(
    "test-images-assumed",
    "the first test image",
    if_test="if datasets.test[0] is not None:",
    slow=True,
)

# ---- what becomes of a wrapper's error, and with which training set each loader is made

bank.wrong(
    "error-swallowed",
    "a model that cannot be wrapped is trained without",
    whole={
        "5.1a": "\ntry:\n"
        + "\n".join(f"    {line.split('  #')[0]}" for line in bank.texts["5.1a"].strip().splitlines()[:-1])
        + "\nexcept Exception as error:\n    print(error)\nreturn model.to(device)\n"
    },
)
bank.wrong(
    "training-set-replaced",
    "the test images as training set too",
    tests=TESTS.replace("datasets.train", "datasets.test"),
)
bank.wrong(
    "wrong-strategy",
    "a dict of calls, which makes all of them",
    whole={
        "5.1a": """
return {
    "none": model.to(device),
    "ddp": get_ddp_model(model, device, bucket_cap_mb=args.bucket_cap_mb),
    "fsdp": get_fsdp_model(model, device, precision=args.precision, **options.shard_options(args)),
    "fsdp1": get_fsdp1_model(model, device, precision=args.precision),
}[args.strategy]
"""
    },
)

# ---- the `if` that decides

RECORDS = "if records:\n    cleanup()"
bank.wrong("no-begin", "a dry run does not begin", begin=f"if not args.dry_run:\n    {BEGIN}", slow=True)
bank.wrong(
    "no-begin",
    "a dry run returns before begin",
    optimizer=OPTIMIZER + "\nif args.dry_run:\n    return []",
    slow=True,
)
bank.wrong(
    "no-begin",
    "only a run of many ranks begins",
    begin=f"if args.strategy != 'none' and not args.dry_run:\n    {BEGIN}",
    slow=True,
)
bank.wrong("cleanup-missing", "no cleanup without records", cleanup=RECORDS, slow=True)
bank.wrong(
    "train-not-called", "only the strategies of many ranks train", if_dry="if args.strategy == 'fsdp':", slow=True
)
bank.wrong(
    "test-not-recorded",
    "only good results are recorded",
    record=f"if test.accuracy > 1:\n    {RECORD}",
    slow=True,
)
bank.wrong(
    "test-images-dropped",
    "a helper gives the first of the loaders",
    whole=replaced(
        STRAIGHT,
        ("get_dataloaders(datasets.train, images,", "get_dataloaders(images, images,"),
        ("device))[1]", "device))[0]"),
    ),
    slow=True,
)
bank.wrong(
    "test-on-other-images",
    "a helper gives the loader of the training images",
    whole=replaced(
        STRAIGHT,
        ("return get_dataloaders(datasets.train, images,", "pair = get_dataloaders(datasets.train, images,"),
        ("device))[1]", "device))\n        return pair[0]"),
    ),
    slow=True,
)

# ---- the call that hands on what is wrong

bank.wrong(
    "test-on-other-images",
    "the first of the loaders that a helper makes",
    whole=replaced(
        STRAIGHT,
        ("device))[1]", "device))"),
        (
            "this_run.evaluate(model, datasets, loader)",
            "this_run.evaluate(model, datasets, lambda x: loader(x)[1])",
        ),
        ("loader(datasets.test)", "loader(datasets.test)[0]"),
    ),
    slow=True,
)
bank.wrong(
    "options-not-resolved",
    "the optimizer gets the options of the command line",
    whole=replaced(
        STRAIGHT,
        ("    args = this_run.args\n", "    given, args = args, this_run.args\n"),
        ("build_optimizer(model, args)", "build_optimizer(model, given)"),
    ),
    slow=True,
)

# ---- a value that comes to where it does harm by way of a variable, a helper or a class

bank.wrong(
    "train-in-evaluation",
    "what is to be done is worked out first",
    whole=replaced(
        STRAIGHT,
        (
            "    if args.evaluate_only:\n        this_run.evaluate(model, datasets, loader)\n"
            "    elif not args.dry_run:\n",
            "    to_evaluate = args.evaluate_only and not args.dry_run\n    to_train = not args.dry_run\n"
            "    if to_evaluate:\n        this_run.evaluate(model, datasets, loader)\n    if to_train:\n",
        ),
    ),
    slow=True,
)
bank.wrong(
    "ranks-start-differently",
    "a helper that seeds is handed the rank",
    whole=replaced(
        STRAIGHT,
        (
            "    torch.manual_seed(args.seed)\n",
            "    def seed_everything(seed, rank=0):\n        torch.manual_seed(seed + rank)\n\n"
            "    seed_everything(args.seed, torch.distributed.get_rank())\n",
        ),
    ),
    slow=True,
)
bank.wrong(
    "seed-hard-coded",
    "a helper that seeds is handed nothing",
    whole=replaced(
        STRAIGHT,
        (
            "    torch.manual_seed(args.seed)\n",
            "    def seed_everything(seed=42):\n        torch.manual_seed(seed)\n\n    seed_everything()\n",
        ),
    ),
    slow=True,
)
bank.wrong(
    "test-images-dropped",
    "a helper is given the test images to train on",
    whole=replaced(
        STRAIGHT,
        (
            "    def loader(images):\n        return get_dataloaders(datasets.train, images,",
            "    def loader(images):\n        return both(datasets.train, images)[1]\n\n"
            "    def both(trained, measured):\n        return get_dataloaders(trained, measured,",
        ),
        ("device))[1]", "device))"),
        (
            "result = evaluate(model, loader(datasets.test), device)",
            "test_loader, _ = both(datasets.test, datasets.valid)\n"
            "            result = evaluate(model, test_loader, device)",
        ),
    ),
    slow=True,
)
