"""From the command line to the images that the network gets, and through a whole run of main.py."""

import csv
import hashlib
import re
import shutil
from pathlib import Path

import pytest
import torch
from mnist_files import tiny_mnist, write
from PIL import Image
from tiny_run import Stop, StopAt
from tiny_vgg import tiny_torchvision_vgg
from torch.utils.data import DataLoader

from lab.base.errors import UserError
from lab.ranks.rank import Rank
from lab.ranks.server import server
from lab.runs import options
from lab.runs.options import model
from lab.training.data.about import check_own_images
from lab.training.data.datasets import load_datasets

CODE = Path(__file__).resolve().parent.parent.parent / "solutions"


def inputs(*argv: str):
    args, _ = options.resolve(options.parse(argv), 1)
    return load_datasets(
        args.dataset,
        args.data_dir,
        cache_dir=args.output_dir,
        validation=args.validation,
        **options.input_options(args),
    )


def image_folder(folder: Path, *splits: str, sizes=((300, 280), (256, 400))) -> Path:
    """Two classes with an image of each size in each split."""
    for split in splits:
        for label, name in enumerate(("red", "blue")):
            (folder / split / name).mkdir(parents=True)
            for number, size in enumerate(sizes):
                colour = (200, 10, 10) if label == 0 else (10, 10, 200)
                Image.new("RGB", size, colour).save(folder / split / name / f"{number}.png")
    return folder


# Which pipeline ---------------------------------------------------------------------------------------------


def test_training_images_are_augmented_and_those_of_validation_are_not(tmp_path):
    write(tmp_path, tiny_mnist())
    argv = ["--model", "mnist_cnn", "--dataset", "mnist", "--data-dir", str(tmp_path)]
    plain, augmented = inputs(*argv), inputs(*argv, "--augment")
    for part in ("train", "valid", "test"):
        samples = zip(getattr(plain, part), getattr(augmented, part), strict=True)
        same = [torch.equal(ours[0], theirs[0]) for ours, theirs in samples]
        assert sum(same) < 5 if part == "train" else all(same)


def test_the_seed_chooses_the_augmentation():
    argv = ["--augment", "--seed"]
    one, again, other = (inputs(*argv, seed).train[0][0] for seed in ("1", "1", "2"))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_vgg19_gets_224_pixels_in_imagenets_colours(tmp_path):
    folder = image_folder(tmp_path, "train", "val")
    data = inputs("--model", "vgg19", "--dataset", "imagefolder", "--data-dir", str(folder))
    for part in (data.train, data.valid):
        assert len(part) == 4
        loader = DataLoader(part, batch_size=4)
        ((images, labels),) = loader
        assert images.shape == (4, 3, 224, 224)
        assert labels.tolist() == [0, 0, 1, 1]  # blue before red
        blue = (torch.tensor([10, 10, 200]) / 255 - torch.tensor([0.485, 0.456, 0.406])) / torch.tensor(
            [0.229, 0.224, 0.225]
        )
        assert torch.allclose(images[0], blue.view(3, 1, 1).expand(3, 224, 224), atol=1e-5)
    assert not (folder / ".decoded").exists()  # the images stay as large as they are


def test_image_size_cuts_images_of_any_size(tmp_path):
    folder = image_folder(tmp_path, "train", "val")
    argv = ["--image-size", "96", "--model", "resnet18"]
    for more in (["--dataset", "imagefolder", "--data-dir", str(folder)], []):  # files, and shapes in memory
        for augment in ("--augment", "--no-augment"):
            data = inputs(*argv, *more, augment)
            assert data.train[0][0].shape == data.valid[0][0].shape == (3, 96, 96)
    assert not (folder / ".decoded").exists()


def test_vgg19_sees_small_images_enlarged():
    data = inputs("--model", "vgg19", "--no-augment")
    image, _ = data.train[0]
    assert image.shape == (3, 224, 224)


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_damaged_image_is_one_sentence_from_a_loader_process_too(tmp_path, num_workers):
    folder = image_folder(tmp_path, "train", "val")
    damaged = folder / "train" / "blue" / "0.png"
    damaged.write_bytes(damaged.read_bytes()[:-30])
    data = inputs("--model", "vgg19", "--dataset", "imagefolder", "--data-dir", str(folder))
    with pytest.raises(UserError) as error:
        list(DataLoader(data.train, batch_size=4, num_workers=num_workers))
    assert str(error.value).startswith(f"The image {damaged} is damaged (")
    assert "\n" not in str(error.value)


# The loaders ------------------------------------------------------------------------------------------------


def get_loaders(rank: Rank) -> list[dict[str, object]]:
    argv = ["--num-workers", "1", "--prefetch", "3", "--persistent-workers"]
    args, _ = options.resolve(options.parse(argv), rank.world_size)
    data = inputs()
    loaders = rank.student("data").get_dataloaders(
        data.train, data.valid, 128, num_workers=1, **options.loader_options(args, "cpu")
    )
    names = ("num_workers", "prefetch_factor", "persistent_workers", "batch_size")
    return [{name: getattr(loader, name) for name in names} for loader in loaders]


def test_loader_options_reach_every_loader():
    expected = {"num_workers": 1, "prefetch_factor": 3, "persistent_workers": True, "batch_size": 64}
    assert server().run(get_loaders, 2, code=CODE, timeout=60).values == [[expected] * 2] * 2


# Whole runs -------------------------------------------------------------------------------------------------


def run_main(rank: Rank) -> None:
    main = rank.student("main")
    main.run(main.parse_args(rank.receive()))


def metrics(folder: Path) -> list[tuple[str, str]]:
    with open(folder / "metrics.csv", newline="") as file:
        return [(row["epoch"], row["phase"]) for row in csv.DictReader(file)]


def test_the_test_images_are_evaluated_after_the_last_epoch(tmp_path):
    write(tmp_path / "data", tiny_mnist())
    argv = ["--model", "mnist_cnn", "--dataset", "mnist", "--data-dir", str(tmp_path / "data"), "--epochs", "2"]
    argv += ["--global-batch-size", "12", "--output-dir", str(tmp_path)]
    for validation in ("split", "test"):
        given = [*argv, "--run-id", validation, "--validation", validation]
        result = server().run(run_main, 2, code=CODE, inputs=given, timeout=60, set_up_process_group=False)
        assert result.ok, result.reports
    epochs = [("1", "train"), ("1", "val"), ("2", "train"), ("2", "val")]
    assert metrics(tmp_path / "split") == [*epochs, ("2", "test")]
    assert metrics(tmp_path / "test") == epochs


def run_main_until(rank: Rank) -> list[list[float]]:
    """main.py, ended as by a crash at a given epoch and step if there is one; the records' losses."""
    main, given = rank.student("main"), rank.receive()

    class EndingRun(main.Run):
        def begin(self, *args: object) -> None:
            if given["stop"]:
                self.watchers.append(StopAt(*given["stop"]))
            super().begin(*args)

    main.Run = EndingRun
    try:
        return [[record.train_loss, record.valid_loss] for record in main.run(main.parse_args(given["argv"]))]
    except Stop:
        return []


@pytest.mark.parametrize("stop", [(2, 2), (3, 1)])
def test_a_resumed_run_sees_the_same_augmented_images(tmp_path, stop):
    write(tmp_path / "data", tiny_mnist())
    argv = ["--model", "mnist_cnn", "--dataset", "mnist", "--data-dir", str(tmp_path / "data"), "--augment"]
    argv += ["--randaugment", "--num-workers", "2", "--persistent-workers", "--epochs", "3", "--optimizer", "adam"]
    argv += ["--global-batch-size", "12", "--save-every-steps", "1", "--output-dir", str(tmp_path)]

    def losses(run_id: str, *more: str, stop: tuple[int, int] | None = None) -> list[list[float]]:
        given = {"argv": [*argv, "--run-id", run_id, *more], "stop": stop}
        result = server().run(run_main_until, 2, code=CODE, inputs=given, timeout=60, set_up_process_group=False)
        return result.values[0]

    whole = losses("whole")
    assert losses("parts", stop=stop) == []
    assert losses("parts", "--resume", "latest") == whole[1 if stop[0] == 2 else 2 :]
    assert metrics(tmp_path / "parts") == metrics(tmp_path / "whole")
    assert losses("parts-done", "--resume", str(tmp_path / "whole" / "checkpoints" / "latest.pth")) == []
    assert losses("whole", "--resume", "latest") == []
    assert metrics(tmp_path / "whole").count(("3", "test")) == 1


NET = """
from torch import nn

class Net(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.blocks = nn.ModuleList([nn.Sequential(nn.Conv2d(3, 4, 3, stride=4), nn.AdaptiveAvgPool2d(1))])
        self.head = nn.Linear(4, num_classes)

    def forward(self, images):
        assert images.shape[1:] == (3, 96, 96)
        return self.head(self.blocks[0](images).flatten(1))

class Sized(Net):
    def __init__(self, num_classes, image_size=32):
        super().__init__(num_classes)
        assert image_size == 96

def load(data_dir):
    import torch
    from lab.training import DataSets

    samples = [(torch.zeros(3, 32, 32), i % 2) for i in range(8)]
    return DataSets(samples, samples, None, ("a", "b"))
"""


@pytest.fixture
def code(tmp_path):
    """The reference, with a network and a data set of one's own beside it."""
    shutil.copytree(CODE, tmp_path / "code")
    (tmp_path / "code" / "mine.py").write_text(NET)
    return tmp_path / "code"


@pytest.mark.parametrize("name", ["Net", "Sized"])
def test_networks_of_ones_own_take_larger_images_and_the_report_says_what_was_read(tmp_path, code, name):
    folder = image_folder(tmp_path / "data", "train", "valid")
    argv = ["--dataset", "imagefolder", "--data-dir", str(folder), "--image-size", "96", "--epochs", "1"]
    argv += ["--model", f"mine:{name}", "--global-batch-size", "4", "--output-dir", str(tmp_path)]
    result = server().run(run_main, 2, code=code, inputs=argv, timeout=60, set_up_process_group=False)
    assert result.ok, result.reports
    said = result.reports[0].output
    assert "  data       4 training, 4 validation images of 2 classes, 96x96\n" in said
    assert "             validation: valid/\n" in said
    assert "warning" not in said


@pytest.mark.parametrize(("network", "takes"), [("vgg19", "[3, 224, 224]"), ("mnist_cnn", "[1, 28, 28]")])
def test_images_of_ones_own_that_a_network_does_not_take(tmp_path, code, network, takes):
    argv = [
        "--dataset",
        "mine:load",
        "--model",
        network,
        "--global-batch-size",
        "4",
        "--output-dir",
        str(tmp_path),
    ]
    with pytest.raises(
        UserError, match=re.escape(f"takes images {takes}, those of --dataset mine:load are [3, 32")
    ):
        check_own_images(options.parse(argv), [(torch.zeros(3, 32, 32), 0)])
    check_own_images(options.parse(argv), [(torch.zeros(*map(int, takes[1:-1].split(","))), 0)])


def run_tiny_vgg(rank: Rank) -> None:
    """main.py with a small network of the same build in the place of torchvision's VGG-19."""
    import torchvision.models

    given = rank.receive()
    torchvision.models.vgg19 = tiny_torchvision_vgg
    model.VGG19_WEIGHTS = given["name"]
    main = rank.student("main")
    main.run(main.parse_args(given["argv"]))


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_vgg19_trains_from_a_weights_file_that_was_put_there_by_hand(tmp_path, strategy):
    folder = image_folder(tmp_path / "data", "train", "test", sizes=((300, 280),) * 5)
    torch.save(tiny_torchvision_vgg().state_dict(), folder / "weights")
    checksum = hashlib.sha256((folder / "weights").read_bytes()).hexdigest()[:8]
    name = f"vgg19-{checksum}.pth"
    (folder / "weights").rename(folder / name)
    argv = ["--strategy", strategy, "--model", "vgg19", "--pretrained", "--dataset", "imagefolder"]
    argv += ["--data-dir", str(folder), "--global-batch-size", "4", "--epochs", "1", "--run-id", "r"]
    argv += ["--output-dir", str(tmp_path), "--checkpoint-activations", "--randaugment"]
    given = {"argv": argv, "name": name}
    result = server().run(run_tiny_vgg, 2, code=CODE, inputs=given, timeout=60, set_up_process_group=False)
    assert result.ok, result.reports
    assert metrics(tmp_path / "r") == [("1", "train"), ("1", "val"), ("1", "test")]
