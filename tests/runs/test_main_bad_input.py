"""Bad input ends main.py with one clear sentence and the right exit code, on every rank."""

import shutil
from pathlib import Path

import pytest
import torch
from main_observers import run_main
from PIL import Image

from lab.ranks.reports import GroupResult
from lab.ranks.server import server


@pytest.fixture
def start(root: Path, tmp_path: Path):
    """Start solutions/main.py on some ranks."""

    def start_main(
        *argv: str, ranks: int = 2, env: dict[str, str | None] | None = None, code: Path | None = None
    ) -> GroupResult:
        return server().run(
            run_main,
            ranks,
            code=code or root / "solutions",
            inputs=["--output-dir", str(tmp_path / "results"), *argv],
            env=env or {},
            timeout=60,
            set_up_process_group=False,
        )

    return start_main


def refused(result: GroupResult, code: int, *parts: str) -> str:
    """Assert that the first rank to fail exited with `code` and one sentence that has all `parts`."""
    first = result.first_failed
    assert first is not None
    assert not any("Traceback" in report.output for report in result.reports)
    assert (first.status, first.exit_code) == ("exited", code), [str(report) for report in result.reports]
    lines = first.output.strip().splitlines()
    sentence = lines[-1]
    for part in parts:
        assert part in sentence, first.output
    return sentence


def image_folder(folder: Path, *, classes: int = 2, images: int = 4) -> Path:
    for number in range(classes):
        (folder / "train" / f"class{number}").mkdir(parents=True)
        for i in range(images):
            Image.new("RGB", (32, 32), (40 * i, 99, 20 * number)).save(
                folder / "train" / f"class{number}" / f"{i}.png"
            )
    return folder


def test_none_on_two_ranks(start):
    refused(start("--strategy", "none"), 2, "--strategy none trains on one device, but there are 2 ranks")


def test_an_unknown_strategy(start):
    refused(start("--strategy", "zero"), 2, "'zero'", "ddp")


def test_a_global_batch_that_does_not_divide(start):
    refused(start("--global-batch-size", "255"), 2, "255", "2 ranks", "--global-batch-size 254")


def test_no_launcher(start):
    variables = dict.fromkeys(("RANK", "LOCAL_RANK", "WORLD_SIZE", "TORCHELASTIC_USE_AGENT_STORE"))
    result = start(ranks=1, env=variables)
    assert result.reports[0].exit_code == 2
    assert "torchrun --standalone --nproc-per-node 2 main.py" in result.reports[0].output
    assert "Traceback" not in result.reports[0].output


def test_half_a_launch_environment(start):
    refused(start(ranks=1, env={"LOCAL_RANK": None}), 2, "LOCAL_RANK")


def test_fp16_on_the_cpu(start):
    refused(
        start("--precision", "fp16"), 2, "--precision fp16 needs a GPU: on the CPU use --precision bf16 or fp32"
    )


def test_resuming_from_a_file_that_is_not_there(start, tmp_path):
    refused(start("--resume", "nowhere.pth"), 1, "--resume nowhere.pth: there is no such file")
    assert not list((tmp_path / "results").glob("*"))


def test_resuming_a_run_that_has_no_checkpoint(start):
    refused(start("--resume", "latest", "--run-id", "new"), 1, "there is no", "latest.pth", "--resume auto")


def test_resuming_from_a_truncated_checkpoint_and_one_with_code(start, tmp_path):
    broken = tmp_path / "broken.pth"
    broken.write_bytes(b"PK and then nothing")
    refused(start("--resume", str(broken)), 1, f"{broken} is not a whole checkpoint")
    torch.save({"format": 1, "model": {}, "run": Path}, broken)
    refused(start("--resume", str(broken)), 1, f"{broken} holds pickled Python objects")


def test_a_loss_that_is_no_number(start, tmp_path):
    result = start("--epochs", "1", "--base-lr", "1e12", "--run-id", "r", "--print-every", "1000")
    refused(result, 1, "the loss became", "at epoch 1, step", "There is no checkpoint yet")
    assert '"status": "failed"' in (tmp_path / "results" / "r" / "status.json").read_text()


def test_a_data_directory_that_is_not_there(start, tmp_path):
    missing = str(tmp_path / "no-such-folder")
    refused(start("--dataset", "imagefolder", "--data-dir", missing), 1, missing)


def test_an_image_folder_without_classes(start, tmp_path):
    (tmp_path / "data" / "train").mkdir(parents=True)
    refused(start("--dataset", "imagefolder", "--data-dir", str(tmp_path / "data")), 1, "train", "class")


def test_a_corrupt_image(start, tmp_path):
    data = image_folder(tmp_path / "data")
    broken = data / "train" / "class1" / "2.png"
    broken.write_bytes(b"\x89PNG\r\n\x1a\n but nothing more")
    refused(start("--dataset", "imagefolder", "--data-dir", str(data)), 1, "2.png")


def test_images_of_ones_own_that_the_network_does_not_take(start, root, tmp_path):
    code = shutil.copytree(root / "solutions", tmp_path / "code")
    (code / "mine.py").write_text(
        "import torch\nfrom lab.training import DataSets\n"
        "samples = [(torch.zeros(3, 32, 32), i % 2) for i in range(8)]\n"
        "def load(_):\n    return DataSets(samples, samples, None, ('a', 'b'))\n"
    )
    argv = ("--dataset", "mine:load", "--model", "mnist_cnn", "--global-batch-size", "4")
    refused(start(*argv, code=code), 1, "--model mnist_cnn takes images [1, 28, 28], those of --dataset mine:load")


def test_more_ranks_than_samples(start, tmp_path):
    data = image_folder(tmp_path / "data", classes=2, images=1)
    shutil.copytree(data / "train", data / "val")
    refused(
        start("--dataset", "imagefolder", "--data-dir", str(data), "--global-batch-size", "3", ranks=3),
        2,
        "3",
        "samples",
    )


def test_an_exercise_that_is_not_done_is_named(root, tmp_path):
    result = server().run(
        run_main, 1, code=root / "exercises", inputs=["--output-dir", str(tmp_path)], set_up_process_group=False
    )
    refused(result, 1, "Exercise 5.1b is not done yet: run() in main.py")


@pytest.fixture(scope="module")
def vit(root, tmp_path_factory):
    """A checkpoint of the smallest vit, of 64x64 photographs."""
    folder = tmp_path_factory.mktemp("vit")
    argv = ["--strategy", "none", "--epochs", "1", "--dataset", "sample", "--model", "vit", "--width", "64"]
    argv += ["--depth", "1", "--image-size", "64", "--output-dir", str(folder), "--run-id", "vit"]
    group = server().run(
        run_main, 1, code=root / "solutions", inputs=argv, env={}, timeout=120, set_up_process_group=False
    )
    assert group.first_failed is None, group.reports[0].output
    return folder / "vit" / "checkpoints" / "latest.pth"


@pytest.mark.parametrize("what", [(), ("--evaluate-only",)], ids=["resumed", "evaluated"])
@pytest.mark.parametrize(
    ("given", "before", "now"),
    [
        (("64", "1", None), "with --image-size 64", "without --image-size"),
        (("128", "1", "64"), "with --width 64", "with --width 128"),
        (("128", "2", "64"), "with --width 64 and with --depth 1", "with --width 128 and with --depth 2"),
    ],
    ids=["size", "width", "width and depth"],
)
def test_a_checkpoint_of_the_same_network_in_another_size_names_the_option(start, vit, what, given, before, now):
    width, depth, size = given
    argv = ["--strategy", "none", "--dataset", "sample", "--model", "vit", "--width", width, "--depth", depth]
    argv += [*([] if size is None else ["--image-size", size]), "--resume", str(vit), *what]
    said = refused(
        start(*argv, ranks=1),
        1,
        f"{vit} was written {before}, and this run is {now}, ",
        "network of --model vit: ",
    )
    assert said.endswith("give the same options as then")


def test_an_evaluation_may_take_more_images_at_a_time_than_there_are_to_train_on(start, vit, tmp_path):
    argv = ["--strategy", "ddp", "--dataset", "sample", "--model", "vit", "--width", "64", "--depth", "1"]
    argv += ["--image-size", "64", "--evaluate-only", "--resume", str(vit), "--global-batch-size", "64"]
    group = start(*argv)
    said = group.reports[0].output
    assert group.first_failed is None, said
    report = said[: said.index("[METRIC]")]
    assert "47 training, 14 validation, 14 test images of 10 classes" in report
    assert f"  checkpoint {vit}, the end of epoch 1\n" in report
    assert "  batch      64 in all, 32 on each rank\n" in report
    for word in ("dropped", "steps an epoch", "resumed", "warning"):
        assert word not in report, word
    small = ["64" if one == "64" and argv[i - 1] != "--global-batch-size" else one for i, one in enumerate(argv)]
    small[-1] = "8"
    again = start(*small).reports[0].output
    scores = [line for line in said.splitlines() if line.startswith("[METRIC]")]
    assert scores == [line for line in again.splitlines() if line.startswith("[METRIC]")]
    refused(start(*(one for one in argv if one not in ("--evaluate-only",))), 2, "is larger than the 47 samples")


def test_an_evaluation_of_few_images_of_ones_own_takes_the_usual_batch(start, tmp_path):
    data = image_folder(tmp_path / "data")
    first = ["--strategy", "none", "--dataset", "imagefolder", "--data-dir", str(data)]
    made = start(*first, "--epochs", "1", "--global-batch-size", "4", "--run-id", "few", ranks=1)
    assert made.first_failed is None, made.reports[0].output
    checkpoint = tmp_path / "results" / "few" / "checkpoints" / "latest.pth"
    group = start(*first, "--evaluate-only", "--resume", str(checkpoint), ranks=1)
    assert group.first_failed is None, group.reports[0].output
