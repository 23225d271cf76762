"""The checks of section 5 accept different right answers and name what is wrong with the others."""

import re
from pathlib import Path
from textwrap import indent

import pytest
from answers.bank import outcome_of, solution, verdict, with_answer

from lab.grading.diagnosis import Blocked, Failed

RUN = """
device = setup()
records = []
with Run(args, device) as this_run:
    args = this_run.args
    datasets = load_once(
        lambda: load_datasets(args.dataset, args.data_dir, cache_dir=args.output_dir, validation=args.validation,
                              **options.input_options(args)),
        is_first=is_first_on_filesystem(args.data_dir or args.output_dir),
    )
    seed, more = args.seed, options.loader_options(args, device.type)
    train_loader, valid_loader = get_dataloaders(
        datasets.train, datasets.valid, args.loader_batch_size, num_workers=args.num_workers, seed=seed, **more
    )
    torch.manual_seed(args.seed)
    model = build_model(args.model, len(datasets.classes), **options.model_options(args))
    model = this_run.prepare_model(model)
    model = wrap_model(model, device, args)
    optimizer = build_optimizer(model, args)
    this_run.begin(model, optimizer, train_loader)
    if not args.dry_run:
        records = train(model, optimizer, train_loader, valid_loader, this_run)
        if datasets.test is not None:
            _, test_loader = get_dataloaders(
                datasets.train, datasets.test, args.loader_batch_size, num_workers=args.num_workers, **more
            )
            test = evaluate(model, test_loader, device)
            this_run.record_test(test.loss, test.accuracy)
cleanup()
return records
"""

WRAP = solution("5.1a")


def change(*pairs: tuple[str, str]) -> str:
    code = RUN
    for old, new in pairs:
        assert old in code, old
        code = code.replace(old, new)
    return code


WRAPPED = "    model = wrap_model(model, device, args)\n"
OPTIMIZER = "    optimizer = build_optimizer(model, args)\n"
SEED = "    torch.manual_seed(args.seed)\n"
TRAIN = "    if not args.dry_run:\n        records = train("

RIGHT = {
    "the same": RUN,
    "seed first": "torch.manual_seed(args.seed)\n" + change((SEED, "")),
    "by name": change(
        (
            "train(model, optimizer, train_loader, valid_loader, this_run)",
            "train(run=this_run, valid_loader=valid_loader, train_loader=train_loader, optimizer=optimizer, "
            "model=model)",
        ),
        ("is_first=is_first", "is_first"),
    ),
    "finally": "device = setup()\ntry:\n"
    + indent(change(("device = setup()\n", ""), ("\ncleanup()", "")), "    ")
    + "finally:\n    cleanup()\n",
    "own names": change(("this_run", "r"), ("train_loader", "tl"), ("args = r.args", "a = args = r.args")),
    "optimizer of its own": change(
        (
            OPTIMIZER,
            "    if args.optimizer in ('adam', 'adamw'):\n"
            "        kind = Adam if args.optimizer == 'adam' else AdamW\n"
            "        optimizer = kind(model.parameters(), args.learning_rate, weight_decay=args.weight_decay)\n"
            "    else:\n"
            "        optimizer = SGD(list(model.parameters()), lr=args.base_lr * args.global_batch_size / 256,\n"
            "                        momentum=args.momentum, weight_decay=args.weight_decay, foreach=True)\n",
        ),
    ),
    "seeded generator state": change((SEED, "    torch.random.manual_seed(args.seed)\n")),
}

WRONG = {
    "no setup": ("no-process-group", change(("device = setup()", "device = torch.device('cpu')"))),
    "cleanup missing": ("cleanup-missing", change(("cleanup()\n", ""))),
    "cleanup first": ("cleanup-too-early", change((TRAIN, "    cleanup()\n" + TRAIN), ("\ncleanup()", "\npass"))),
    "every rank loads": (
        "load-once-missing",
        change(
            ("load_once(\n        lambda: load_datasets(", "(\n        lambda is_first: load_datasets("),
            ("output_dir),\n    )", "output_dir)\n    )"),
            ("input_options(args)),\n        is_first=", "input_options(args)))(\n        is_first="),
        ),
    ),
    "rank 0 is first": (
        "is-first-guessed",
        change(("is_first_on_filesystem(args.data_dir or args.output_dir)", "torch.distributed.get_rank() == 0")),
    ),
    "validation option": ("dataset-option-ignored", change((", validation=args.validation", ""))),
    "shapes": ("dataset-option-ignored", change(("args.dataset,", "'shapes',"))),
    "args": ("options-not-resolved", change(("    args = this_run.args\n", ""))),
    "args for the optimizer": (
        "options-not-resolved",
        change(
            ("args = this_run.args", "given, args = args, this_run.args"),
            ("build_optimizer(model, args)", "build_optimizer(model, given)"),
        ),
    ),
    "sets swapped": (
        "data-sets-swapped",
        change(("datasets.train, datasets.valid", "datasets.valid, datasets.train")),
    ),
    "train set twice": (
        "data-sets-swapped",
        change(("datasets.train, datasets.valid", "datasets.train, datasets.train")),
    ),
    "per-device batch": (
        "loader-option-ignored",
        change(("valid, args.loader_batch_size,", "valid, args.per_device_batch_size,")),
    ),
    "no workers": ("loader-option-ignored", change((", num_workers=args.num_workers, seed", ", seed"))),
    "order not seeded": ("loader-option-ignored", change((", seed=seed", ""))),
    "ten classes": (
        "num-classes-hard-coded",
        change((", len(datasets.classes), **options.model_options(args)", "")),
    ),
    "model fixed": ("no-build-model", change(("build_model(args.model, ", "__import__('model').CNN("))),
    "not seeded": ("ranks-start-differently", change((SEED, ""))),
    "seeded by rank": (
        "ranks-start-differently",
        change((SEED, "    torch.manual_seed(args.seed + torch.distributed.get_rank())\n")),
    ),
    "seeded too late": ("ranks-start-differently", change((SEED, ""), (WRAPPED, SEED + WRAPPED))),
    "seed 0": ("seed-hard-coded", change((SEED, "    torch.manual_seed(0)\n"))),
    "not wrapped": ("model-not-wrapped", change((WRAPPED, ""))),
    "wrapped, and forgotten": ("model-not-wrapped", change((WRAPPED, WRAPPED.replace("model = ", "wrapped = ")))),
    "optimizer before wrapping": (
        "optimizer-before-wrapping",
        change((OPTIMIZER, ""), (WRAPPED, OPTIMIZER + WRAPPED)),
    ),
    "base rate": (
        "wrong-learning-rate",
        change((OPTIMIZER, "    args.learning_rate = args.base_lr\n" + OPTIMIZER)),
    ),
    "always SGD": ("wrong-optimizer", change((OPTIMIZER, "    args.optimizer = 'sgd'\n" + OPTIMIZER))),
    "no begin": ("no-begin", change(("    this_run.begin(model, optimizer, train_loader)\n", ""))),
    "trains in a dry run": ("train-in-dry-run", change(("if not args.dry_run:", "if True:"))),
    "does not train": ("train-not-called", change(("if not args.dry_run:", "if args.dry_run and 0:"))),
    "an epoch loop": (
        "train-twice",
        change(("if not args.dry_run:", "for _ in range(0 if args.dry_run else 2):")),
    ),
    "loaders swapped": (
        "wrong-arguments",
        change(
            (
                "train(model, optimizer, train_loader, valid_loader",
                "train(model, optimizer, valid_loader, train_loader",
            )
        ),
    ),
    "args for run": ("wrong-arguments", change(("valid_loader, this_run)", "valid_loader, args)"))),
    "optimizer first": ("wrong-arguments", change(("train(model, optimizer,", "train(optimizer, model,"))),
    "nothing returned": ("records-not-returned", change(("return records", ""))),
    "no with": (
        "run-not-entered",
        change(("with Run(args, device) as this_run:", "this_run = Run(args, device)\nif True:")),
    ),
    "bug": ("raised", change(("len(datasets.classes)", "len(datasets.names)"))),
    "loader options": ("loader-option-ignored", change(("device.type)", "device.type) and {}"))),
    "the run's device": ("device-guessed", change(("Run(args, device)", "Run(args, torch.device('cpu'))"))),
}

WRONG_WRAP = {
    "ddp for all": ("wrong-strategy", "return get_ddp_model(model, device, bucket_cap_mb=args.bucket_cap_mb)"),
    "nothing": ("model-not-wrapped", "return model.to(device)"),
    "ddp without return": ("model-not-wrapped", WRAP.replace("return get_ddp_model", "get_ddp_model")),
    "wrapped on one device": (
        "wrong-strategy",
        WRAP.replace('args.strategy == "ddp"', 'args.strategy in ("ddp", "none")'),
    ),
    "fsdp1 for fsdp": ("wrong-strategy", WRAP.replace("return get_fsdp_model", "return get_fsdp1_model")),
    "bucket cap": ("bucket-cap-ignored", WRAP.replace(", bucket_cap_mb=args.bucket_cap_mb", "")),
    "precision": ("precision-ignored", WRAP.replace(", precision=args.precision", "")),
    "not moved": ("not-on-its-device", WRAP.replace("return model.to(device)", "return model")),
}


@pytest.mark.slow  # variants: tests/answers has one of each kind
def test_to_draw_no_curves_takes_no_tensorboard(tmp_path: Path) -> None:
    ended = change(("return records", "import sys\nassert 'tensorboard' not in sys.modules\nreturn records"))
    assert verdict("5.1", with_answer(tmp_path, "5.1b", ended)) == "passed"


@pytest.mark.parametrize("code", RIGHT.values(), ids=RIGHT)
def test_a_right_answer_passes(tmp_path: Path, code: str):
    assert verdict("5.1", with_answer(tmp_path, "5.1b", code)) == "passed"


@pytest.mark.slow  # variants: tests/answers has one of each kind
@pytest.mark.parametrize(("name", "code"), WRONG.values(), ids=WRONG)
def test_a_wrong_answer_gets_its_diagnosis(tmp_path: Path, name: str, code: str):
    assert verdict("5.1", with_answer(tmp_path, "5.1b", code)) == name


@pytest.mark.slow  # variants: tests/answers has one of each kind
@pytest.mark.parametrize(("name", "code"), WRONG_WRAP.values(), ids=WRONG_WRAP)
def test_a_wrong_wrap_model_gets_its_diagnosis(tmp_path: Path, name: str, code: str):
    assert verdict("5.1", with_answer(tmp_path, "5.1a", code)) == name


def test_the_solution_passes_and_writes_nothing(tmp_path: Path):
    folder = with_answer(tmp_path, "5.1b", solution("5.1b"))
    before = sorted(path.name for path in folder.iterdir())
    assert verdict("5.1", folder) == "passed"
    assert sorted(path.name for path in folder.iterdir()) == before


def test_arguments_may_have_other_names(tmp_path: Path):
    """In the functions that main.py calls: it hands them over by their place."""
    folder = with_answer(tmp_path, "5.1b", solution("5.1b"))
    names = "model|device|loader|train_loader|train_set|valid_set|load|is_first|num_classes"
    for path in folder.glob("*.py"):
        code = path.read_text()
        path.write_text(re.sub(rf"(?<![.\w])({names})\b(?!=| import)", r"my_\1", code))
    assert "def evaluate(my_model: nn.Module, my_loader" in (folder / "train.py").read_text()
    assert verdict("5.1", folder) == "passed"


def test_a_piece_that_is_not_done_yet_blocks(tmp_path: Path):
    stub = 'raise NotImplementedError("Exercise 4.2 is not done yet: get_fsdp_model() in fsdp_utils.py")'
    assert outcome_of("5.1", with_answer(tmp_path, "4.2", stub)) == Blocked("4.2")


def test_section_6_is_not_needed(tmp_path: Path):
    stub = 'raise NotImplementedError("Exercise 6.3 is not done yet: train() in train.py")'
    assert verdict("5.1", with_answer(tmp_path, "6.3", stub)) == "passed"


def test_the_lines_name_command_line_numbers_and_place(tmp_path: Path):
    code = with_answer(tmp_path, "5.1b", WRONG["optimizer before wrapping"][1])
    outcome = outcome_of("5.1", code)
    assert isinstance(outcome, Failed)
    assert outcome.diagnosis.saw == (
        "--strategy fsdp: the optimizer holds 0 of the model's 8 parameters, and 8 that are not in the model."
    )
    assert re.fullmatch(r"main\.py:\d+  optimizer = build_optimizer\(model, args\)", outcome.diagnosis.look)
