"""The command line of main.py: what it refuses, what it fills in, what it warns about."""

import pytest

from lab.base.errors import UsageError
from lab.runs import options


def resolve(*argv: str, world_size: int = 2):
    return options.resolve(options.parse(argv), world_size)


@pytest.mark.parametrize(
    ("argv", "value"),
    [
        (["--strategy", "dpp"], "dpp"),
        (["--dataset", "imagenet"], "imagenet"),
        (["--epochs", "0"], "0"),
        (["--epochs", "many"], "many"),
        (["--base-lr", "nan"], "nan"),
        (["--base-lr", "inf"], "inf"),
        (["--momentum", "-1"], "-1"),
        (["--momentum", "1.5"], "1.5"),
        (["--global-batch-size", "8", "--per-device-batch-size", "4"], "--global-batch-size"),
        (["--epoch", "3"], "--epoch"),  # no guessing of abbreviated options
    ],
)
def test_a_bad_value_is_a_usage_error_that_names_it(argv, value, capsys):
    with pytest.raises(SystemExit) as exit_:
        options.parse(argv)
    assert exit_.value.code == 2
    assert value in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "world_size", "part"),
    [
        (["--strategy", "none"], 2, "there are 2 ranks"),
        (["--global-batch-size", "256"], 3, "use --global-batch-size 255"),
        (["--global-batch-size", "1"], 3, "use --global-batch-size 3"),
        (["--dataset", "cifar10"], 1, "--dataset cifar10 needs --data-dir, the folder that holds the images"),
        (
            ["--model", "vgg19", "--pretrained"],
            1,
            "--pretrained needs --data-dir, the folder that holds the ImageNet",
        ),
        (["--pretrained", "--data-dir", "d"], 1, "ImageNet weights for --model vgg19 only, not for cnn"),
        (
            ["--width", "128", "--model", "resnet18"],
            1,
            "--width and --depth size the vit; --model resnet18 has one",
        ),
        (["--depth", "2"], 1, "--width and --depth size the vit; --model cnn has one"),
        (
            ["--dataset", "mnist", "--data-dir", "d"],
            1,
            "--model cnn takes colour images, .* add --model mnist_cnn",
        ),
        (["--model", "mnist_cnn"], 1, "those of shapes are in colour: add --dataset mnist"),
        (["--randaugment", "--no-augment"], 1, "--randaugment contradicts --no-augment"),
        (["--image-size", "63", "--model", "vit"], 1, "--image-size 63 is not between 64 and 224"),
        (["--image-size", "225", "--model", "vit"], 1, "--image-size 225 is not between 64 and 224"),
        (["--image-size", "100", "--model", "vit"], 1, "patches of 8 pixels: use 96"),
        (["--image-size", "64"], 1, "--model cnn takes one size only: leave out --image-size"),
        (["--image-size", "224", "--model", "vgg19"], 1, "--model vgg19 takes one size only"),
        (["--image-size", "64", "--dataset", "mine:load", "--model", "vit"], 1, "let it resize its own"),
        (["--run-id", "../elsewhere"], 1, "plain folder name"),
        (["--run-id", ".."], 1, "plain folder name"),
        (["--run-id", ""], 1, "plain folder name"),
        (["--global-batch-size", "8", "--accumulate", "3"], 2, "2 ranks x 3 accumulated batches: use .* 6"),
        (["--epochs", "2", "--warmup-epochs", "2"], 1, "leaves nothing of --epochs 2"),
        (["--resume", "latest"], 1, "name the run with --run-id"),
        (["--resume", "auto"], 1, "name the run with --run-id"),
        (["--strategy", "fsdp1", "--resume", "a.pth"], 1, "fsdp1 has no checkpoints, so no --resume"),
        (["--strategy", "fsdp1", "--save-every-steps", "1"], 1, "so no --save-every-steps: use --strategy fsdp"),
        (["--strategy", "fsdp1", "--save-frequency", "1"], 1, "so no --save-frequency"),
        (["--no-checkpoints", "--save-frequency", "1"], 1, "contradict each other"),
        (["--sync-batchnorm", "--compile"], 2, "which --compile cannot do: leave out one"),
        (["--sync-batchnorm", "--checkpoint-activations"], 2, "which --checkpoint-activations cannot do"),
    ],
)
def test_options_that_cannot_work_here_are_refused_with_the_repair(argv, world_size, part):
    with pytest.raises(UsageError, match=part):
        resolve(*argv, world_size=world_size)


def test_the_global_batch_is_divided_and_the_rate_follows_it():
    args, warnings = resolve("--global-batch-size", "512", "--base-lr", "0.1")
    assert (args.global_batch_size, args.per_device_batch_size) == (512, 256)
    assert args.learning_rate == pytest.approx(0.2)
    assert warnings == []


def test_accumulation_divides_the_batch_once_more():
    args, _ = resolve("--global-batch-size", "512", "--accumulate", "4")
    assert (args.global_batch_size, args.loader_batch_size, args.per_device_batch_size) == (512, 128, 64)
    args, _ = resolve("--per-device-batch-size", "64", "--accumulate", "4")
    assert (args.global_batch_size, args.loader_batch_size, args.per_device_batch_size) == (512, 128, 64)
    assert args.learning_rate == pytest.approx(2 * args.base_lr)


def test_the_batch_per_device_makes_the_global_batch():
    args, _ = resolve("--per-device-batch-size", "64", world_size=4)
    assert (args.global_batch_size, args.per_device_batch_size) == (256, 64)


@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
def test_the_rate_of_adam_follows_the_batch_only_when_asked(optimizer):
    argv = ["--optimizer", optimizer, "--base-lr", "0.002", "--global-batch-size", "1024"]
    assert resolve(*argv)[0].learning_rate == 0.002
    assert resolve(*argv, "--scale-lr")[0].learning_rate == pytest.approx(0.008)


def test_adamw_decays_as_pytorch_does_by_default():
    assert resolve("--optimizer", "adamw")[0].weight_decay == 0.01
    assert resolve("--optimizer", "sgd")[0].weight_decay == 5e-4


def test_checkpoints_are_written_unless_told_otherwise():
    assert resolve()[0].checkpoints
    assert not resolve("--no-checkpoints")[0].checkpoints
    assert not resolve("--strategy", "fsdp1", "--no-checkpoints")[0].checkpoints


@pytest.mark.parametrize(
    ("argv", "option"),
    [
        (["--data-dir", "somewhere"], "--data-dir"),
        (["--optimizer", "adam", "--momentum", "0.5"], "--momentum"),
        (["--prefetch", "4"], "--prefetch"),
        (["--persistent-workers"], "--persistent-workers"),
        (["--strategy", "fsdp", "--bucket-cap-mb", "50"], "--bucket-cap-mb"),
        (["--optimizer", "sgd", "--scale-lr"], "--scale-lr"),
        (["--strategy", "fsdp1"], "writes no checkpoints"),
        (["--randaugment", "--augment"], "--augment has no effect beside --randaugment"),
        (["--strategy", "fsdp1", "--no-checkpoints"], "--no-checkpoints has no effect with --strategy fsdp1"),
        (["--measure-steps", "2", "--no-checkpoints"], "--no-checkpoints has no effect with --measure-steps"),
        (["--no-checkpoints", "--run-id", "r", "--resume", "auto"], "--resume auto finds nothing"),
        (["--no-augment", "--dataset", "mine:load"], "--no-augment has no effect on --dataset mine:load"),
        (["--persistent-workers", "--num-workers", "1", "--epochs", "1"], "--persistent-workers has no effect"),
        (["--dry-run", "--tensorboard"], "--tensorboard has no effect in a dry run"),
        (["--dry-run", "--save-every-steps", "3"], "--save-every-steps has no effect in a dry run"),
        (["--dry-run", "--print-every", "3"], "--print-every has no effect in a dry run"),
        (["--epochs", "5", "--save-frequency", "6"], "--save-frequency"),
    ],
)
def test_an_option_without_effect_is_named(argv, option):
    _, warnings = resolve(*argv)
    assert len(warnings) == 1
    assert option in warnings[0]


@pytest.mark.parametrize(
    ("argv", "augment"),
    [
        ("--model resnet18 --dataset cifar10", True),
        ("--model vit --dataset imagefolder", True),
        ("--model resnet18 --dataset cifar10 --no-augment", False),
        ("--model cnn --dataset cifar10", False),  # the exercises compare it with a single process
        ("--model cnn --dataset cifar10 --augment", True),
        ("--model cnn --dataset cifar10 --randaugment", True),
        ("--model resnet18", False),  # shapes
        ("--model vgg19", True),
        ("--model mnist_cnn --dataset mnist", False),
    ],
)
def test_images_from_cameras_are_augmented_unless_told_otherwise(argv, augment):
    args, _ = resolve(*argv.split(), "--data-dir", "d")
    assert args.augment is augment


def test_the_options_of_a_vit_reach_the_network():
    assert options.model_options(resolve("--model", "vit", "--width", "128")[0]) == {"width": 128, "depth": 6}
    assert options.model_options(resolve("--model", "resnet18")[0]) == {}


def test_loader_options_are_those_that_a_dataloader_takes_here():
    args, _ = resolve("--num-workers", "2", "--prefetch", "3", "--persistent-workers")
    given = {"persistent_workers": True, "prefetch_factor": 3}
    assert options.loader_options(args, "cpu") == {"pin_memory": False, **given}
    assert options.loader_options(args, "cuda") == {"pin_memory": True, **given}
    assert options.loader_options(resolve("--no-pin-memory")[0], "cuda") == {"pin_memory": False}


def test_resolving_leaves_the_given_options_alone():
    given = options.parse([])
    options.resolve(given, 2)
    assert given.global_batch_size is None


def test_every_option_says_what_it_means_and_help_is_grouped():
    parser = options.build_parser()
    for action in parser._actions:
        assert action.help, action.option_strings
    text = parser.format_help()
    assert "precision and communication:" in text
    assert "(default: None)" not in text
