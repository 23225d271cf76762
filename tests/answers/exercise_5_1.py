"""Answers to 5.1: everything together."""

from answers.entries import Bank

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
    def load():  # def_load
        more = {"cache_dir": args.output_dir, **options.input_options(args)}
        return load_datasets(args.dataset, args.data_dir, validation=args.validation, **more)  # load
    datasets = load_once(load, is_first=first)  # datasets
    workers, size = args.num_workers, args.loader_batch_size  # numbers
    loading = {"num_workers": workers, "seed": args.seed, **options.loader_options(args, device.type)}  # loading
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
            tests = get_dataloaders(datasets.train, datasets.test, size, **loading)[1]
            test = evaluate(model, tests, device)
            this_run.record_test(test.loss, test.accuracy)
cleanup()  # cleanup
return records  # result
""",
    },
)

LOADERS = "loaders = get_dataloaders(datasets.train, datasets.valid, size, **loading)"
WRAP = "model = wrap_model(model, device, args)"
OPTIMIZER = "optimizer = build_optimizer(model, args)"

# ---- right

bank.right("seeded at the start", setup="torch.manual_seed(args.seed)\ndevice = setup()", seed="")
bank.right(
    "every argument by name",
    train="records = train(\n    run=this_run, valid_loader=loaders[1], train_loader=loaders[0], "
    "optimizer=optimizer, model=model\n)",
)
bank.right("returns from the dry run", if_dry="if args.dry_run:\n    cleanup()\n    return []\nelse:")
bank.right(
    "cleans up in an ExitStack",
    setup="from contextlib import ExitStack\nstack = ExitStack()\nstack.callback(cleanup)\ndevice = setup()",
    cleanup="stack.close()",
)
bank.right(
    "an optimizer of its own, with the rate computed by hand",
    optimizer="""
if args.optimizer == "adam":
    optimizer = Adam(model.parameters(), args.learning_rate, weight_decay=args.weight_decay)
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
)

# ---- wrong: 5.1a

bank.wrong("wrong-strategy", "DDP whatever is asked for", if_ddp="if True:")
bank.wrong(
    "model-not-wrapped", "DDP without return", ddp="get_ddp_model(model, device, bucket_cap_mb=args.bucket_cap_mb)"
)
bank.wrong(
    "wrong-strategy", "FSDP1 for FSDP", fsdp="return get_fsdp1_model(model, device, precision=args.precision)"
)
bank.wrong("bucket-cap-ignored", "the bucket size is not handed on", ddp="return get_ddp_model(model, device)")
bank.wrong("precision-ignored", "the precision is not handed on", fsdp="return get_fsdp_model(model, device)")
bank.wrong("not-on-its-device", "not moved without a wrapper", none="return model")

# ---- wrong: 5.1b

bank.wrong("no-process-group", "setup is missing", setup="device = torch.device('cpu')")
bank.wrong("cleanup-missing", "cleanup is missing", cleanup="")
bank.wrong(
    "cleanup-too-early",
    "cleanup before training",
    begin="this_run.begin(model, optimizer, loaders[0])\ncleanup()",
    cleanup="",
)
bank.wrong("load-once-missing", "every rank downloads", datasets="datasets = load()")
bank.wrong("is-first-guessed", "rank 0 downloads for all nodes", first="first = torch.distributed.get_rank() == 0")
bank.wrong(
    "dataset-option-ignored",
    "--validation has no effect",
    load="return load_datasets(args.dataset, args.data_dir, **more)",
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
    numbers="workers, size = args.num_workers, args.per_device_batch_size",
)
bank.wrong(
    "loader-option-ignored",
    "--num-workers has no effect",
    loading="loading = {'seed': args.seed, **options.loader_options(args, device.type)}",
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
)
bank.wrong(
    "ranks-start-differently",
    "seeded after the model is built",
    seed="",
    wrap="torch.manual_seed(args.seed)\n" + WRAP,
)
bank.wrong("seed-hard-coded", "a fixed seed", seed="torch.manual_seed(0)")
bank.wrong("model-not-wrapped", "the model is not wrapped", wrap="")
bank.wrong(
    "model-not-wrapped", "wrapped, but the bare model goes on", wrap="wrapped = wrap_model(model, device, args)"
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
    cleanup="this_run.begin(model, optimizer, loaders[0])\ncleanup()",
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
    "wrong-arguments", "args in place of the run", train="records = train(model, optimizer, *loaders, args)"
)
bank.wrong("records-not-returned", "nothing is returned", result="")
bank.wrong("run-not-entered", "the Run without with", run="this_run = Run(args, device)\nif True:")
