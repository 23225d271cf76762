"""`lab system`: what measurements were made on, without saying whose machine it is, and how to make them again."""

import getpass
import hashlib
import re
import socket
import sys
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest

from lab import __version__
from lab.base.errors import UserError
from lab.cli import main
from lab.doctor import machine
from lab.doctor.pages import lock, read_benchmarks, read_results, reproduce_page, system_page
from lab.runs.options.parser import build_parser


def test_both_pages_are_written_where_asked(tmp_path, capsys):
    assert main(["system", "--dir", str(tmp_path / "new")]) == 0
    page = (tmp_path / "new" / "SYSTEM.md").read_text()
    for part in ("| processor |", "| memory |", "| Python | CPython 3.", "| PyTorch | 2.", "\nnumpy=="):
        assert part in page
    assert (tmp_path / "new" / "docs" / "reproduce.md").is_file()
    assert capsys.readouterr().out.count("is written") == 3
    locked = (tmp_path / "new" / "requirements-lock.txt").read_text().splitlines()
    assert locked[0].startswith("# Written by `lab system` on 20")
    wanted = [line for line in locked if not line.startswith("#")]
    assert f"numpy=={version('numpy')}" in wanted
    assert all(re.fullmatch(r"[\w.-]+==[\w.!+-]+", line) for line in wanted)  # as pip install -r takes it
    assert not [line for line in wanted if line.startswith("scaling-lab")]
    assert f"# Without scaling-lab=={__version__} itself" in "\n".join(locked)


@pytest.mark.parametrize(("torch", "said"), [("2.14.1", 0), ("2.11.0+cu130", 1)])
def test_a_torch_for_one_cuda_is_said_in_the_lock(monkeypatch, torch, said):
    monkeypatch.setattr(machine, "software", lambda: {"PyTorch": torch, "commit": "abc"})
    assert lock("2026-01-01").count("pytorch.org/get-started/locally") == said


def test_modules_and_the_image_belong_to_the_system(tmp_path, monkeypatch):
    image = tmp_path / "project.sif"
    image.write_bytes(b"image")
    monkeypatch.setenv("LOADEDMODULES", "gcc/13:cuda/13.0")
    monkeypatch.setenv("APPTAINER_CONTAINER", str(image))
    page = system_page("2026-01-01")
    assert "| modules | gcc/13 cuda/13.0 |" in page
    assert f"| container | project.sif, SHA-256 {hashlib.sha256(b'image').hexdigest()} |" in page
    image.unlink()
    assert "| container | project.sif, whose contents cannot be read from inside |" in system_page("2026-01-01")
    monkeypatch.delenv("APPTAINER_CONTAINER")
    monkeypatch.delenv("LOADEDMODULES")
    assert "| container" not in system_page("2026-01-01")


def test_the_commands_alone_ask_nothing_of_the_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "machine", lambda: 1 / 0)
    monkeypatch.chdir(tmp_path)
    assert main(["system", "--commands-only"]) == 0
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.md")] == ["docs/reproduce.md"]


@pytest.mark.parametrize("inside", ["", "exercises"])
def test_a_students_folder_gets_no_page_of_the_repository(tmp_path, monkeypatch, capsys, inside):
    folder = tmp_path / "my-lab"
    assert main(["start", str(folder)]) == 0
    monkeypatch.chdir(folder / inside)
    assert main(["system"]) == 0
    assert "docs/reproduce.md is not: the commands are the repository's" in capsys.readouterr().out
    assert (folder / inside / "SYSTEM.md").is_file()
    assert not list(folder.rglob("reproduce.md"))
    assert main(["system", "--commands-only"]) == 1
    assert "is a student's folder" in capsys.readouterr().err


def test_nothing_says_whose_machine_it_is(tmp_path, root, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = system_page("2026-01-01")
    secrets = {socket.gethostname(), getpass.getuser(), str(root), str(tmp_path), str(Path.home()), sys.prefix}
    for secret in secrets - {"localhost", "/"}:
        assert not re.search(rf"(?<![\w/-]){re.escape(secret)}(?![\w-])", page), secret
    assert not re.search(r"https?:|file:|git\+| @ |^-e ", page, re.MULTILINE)
    assert not re.search(r"(^|[\s|`(])/\w", page)  # no absolute path


def test_a_bare_machine_gives_a_page_too(tmp_path, monkeypatch):
    """No git, no Slurm, no nvidia-smi, no PyTorch."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "torchvision", None)
    page = system_page("2026-01-01")
    assert "| PyTorch | not here |" in page
    assert "| GPUs | none |" in page
    assert "commit" not in page
    assert "Slurm" not in page


def test_cards_of_one_kind_are_counted(monkeypatch):
    card = SimpleNamespace(name="NVIDIA H100 80GB HBM3", total_memory=79.1 * 2**30, major=9, minor=0)
    cuda = SimpleNamespace(
        is_available=lambda: True, device_count=lambda: 4, get_device_properties=lambda index: card
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(machine, "driver_version", lambda: "580.1")
    assert machine.cards() == {
        "GPUs": "4 x NVIDIA H100 80GB HBM3, 79.1 GiB, compute capability 9.0",
        "driver": "580.1",
    }


def test_the_way_gpus_are_connected_is_kept_without_colours_and_legend(monkeypatch):
    drawn = "\t\x1b[4mGPU0\tGPU1\x1b[0m\nGPU0\t X \tNV18\nGPU1\tNV18\t X \n\nLegend:\n  X = Self\n"
    monkeypatch.setattr(machine, "nvidia_smi", lambda *arguments: drawn)
    assert machine.topology() == "\tGPU0\tGPU1\nGPU0\t X \tNV18\nGPU1\tNV18\t X"


# The list -------------------------------------------------------------------------------------------------------


def test_every_result_has_its_commands(root):
    """A section or a picture without them could not be made again."""
    results, folder = read_results(root), root / "docs" / "results"
    sections = re.findall(r"^## (.+)$", (folder / "README.md").read_text(), re.MULTILINE)
    assert [result.title for result in results] == sections
    files = {name for result in results for name in result.files}
    assert files == {
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.suffix in (".png", ".svg", ".csv")
    }


def test_the_commands_are_understood(root):
    """Options of main.py that are no longer there would be commands of the past."""
    for result in read_results(root):
        for command in result.commands:
            _, found, options = command.partition("solutions/main.py")
            if found:
                build_parser().parse_args(options.split())
            for script in re.findall(r"\S+\.(?:py|sh)", command):
                assert (root / script).is_file(), command


def test_every_benchmark_says_how_to_run_it(root):
    commands = [re.search(r"benchmarks/\w+\.py", benchmark.command)[0] for benchmark in read_benchmarks(root)]
    assert commands == [f"benchmarks/{path.name}" for path in sorted((root / "benchmarks").glob("*.py"))]


def test_the_page_in_the_repository_is_what_the_command_writes(root):
    text = reproduce_page(root)
    assert (root / "docs" / "reproduce.md").read_text() == text, "run: lab system --commands-only"
    for target in re.findall(r"\]\((\S+?)\)", text):
        assert (root / "docs" / target).exists(), target


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "cannot read .*commands.toml: No such file"),
        ("[[result", "commands.toml is no TOML"),
        ('[[result]]\ntitle = "The demo"\nneeds = "time"', "the result 'The demo' has no 'commands'"),
    ],
)
def test_a_bad_list_is_named(tmp_path, text, sentence):
    if text is not None:
        (tmp_path / "docs" / "results").mkdir(parents=True)
        (tmp_path / "docs" / "results" / "commands.toml").write_text(text)
    with pytest.raises(UserError, match=sentence):
        read_results(tmp_path)


def test_a_folder_that_cannot_be_written_is_named(tmp_path, capsys):
    (tmp_path / "file").touch()
    assert main(["system", "--commands-only", "--dir", str(tmp_path / "file")]) == 1
    assert re.search(r"lab system: cannot write .*reproduce.md: Not a directory", capsys.readouterr().err)
