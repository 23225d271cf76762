"""lab roofline with ncu: its CSV added up by kind, beside the formulas; how it is started, what it refuses."""

import csv
import io
import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lab.base.errors import UserError
from lab.cli import main
from lab.roofline import marked
from lab.roofline import step as stepping
from lab.roofline.draw import draw
from lab.roofline.kinds import COPY, NCU, PEAK, Kind, counted_table, load, save, steps
from lab.roofline.ncu import MARKED, count, find_ncu, is_ncu, mark, reduced
from lab.roofline.step import Subject

# Of a step of ResNet-18 in bf16 on an NVIDIA H200: some columns of some rows, kernels' names cut, marks as now.
ABOVE = """\
==WARNING== Note: Running with unmodified GPU clocks.
==PROF== Connected to process 2547 (/usr/bin/python3.12)
==PROF== Disconnected from process 2547
"""
RANGES = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
FLOPS = "smsp__sass_thread_inst_executed_op_{}_pred_on.sum"
HEADER = [
    *("ID", "Process ID", "Process Name", "Host Name", RANGES, "Kernel Name", "device__attribute_display_name"),
    *("dram__bytes_read.sum", "dram__bytes_write.sum", "gpu__time_duration.sum"),
    *("sm__ops_path_tensor_src_bf16_dst_fp32.sum", "sm__ops_path_tensor_src_tf32_dst_fp32.sum"),
    *(FLOPS.format(one) for one in ("fadd", "ffma", "fmul")),
]
UNITS = ["", "", "", "", "", "", "", "byte", "byte", "ns", "", "", "inst", "inst", "inst"]
FORWARD, NORM, OPTIMIZER = "convolution, forward", "normalisation", "optimizer"
ROWS = [
    (
        FORWARD,
        "void nhwcAddPaddingKernel<__nv_bfloat16>(int)",
        "795,904",
        "256",
        "4,384",
        "0",
        "0",
        "0",
        "393,216",
    ),
    (
        *(FORWARD, "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16>(T1)", "2,139,392", "8,704", "38,112"),
        *("9,663,676,416", "0", "16,777,216", "16,777,216"),
    ),
    (
        *(
            NORM,
            "void at::native::batch_norm_collect_statistics_channels_last_kernel<float>(T2)",
            "16,840,704",
            "0",
        ),
        *("37,472", "0", "26,741,568", "35,655,744", "11,014,848"),
    ),
    (
        *(
            OPTIMIZER,
            "void at::native::<unnamed>::multi_tensor_apply_kernel<float>(T1)",
            "89,399,552",
            "24,869,376",
        ),
        *("35,296", "0", "0", "11,176,000", "0"),
    ),
]


def written(rows=ROWS, *, header=HEADER, units=UNITS, precision="bf16", above=ABOVE, prefix=None) -> str:
    """As ncu writes it: every field quoted."""
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\n")
    writer.writerows([header, units])
    for number, (kind, name, *numbers) in enumerate(rows):
        around = mark("resnet18", precision, 128, kind) if prefix is None else prefix
        ranges = f'2547  "<default domain>:{around}:none:none:none:none:none:none" '
        numbers.insert(4, "0")  # TF32
        writer.writerow(
            [number, 2547, "python3.12", "127.0.0.1", ranges, f"{around}/{name}", "NVIDIA H200", *numbers]
        )
    return above + text.getvalue()


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "ncu.csv"
    path.write_text(written())
    return path


def test_kernels_are_added_up_by_kind(file):
    assert is_ncu(file)
    found = {one.kind: one for one in reduced(file)}
    assert list(found) == [FORWARD, NORM, OPTIMIZER]
    forward = found[FORWARD]
    assert forward.subject == ("resnet18", "bf16", 128, "NVIDIA H200")
    assert (forward.source, forward.kernels) == (NCU, 2)
    assert forward.seconds == pytest.approx((4384 + 38112) * 1e-9)
    assert forward.flops == 9_663_676_416 + 2 * 16_777_216 + 16_777_216 + 393_216
    assert (forward.read, forward.written) == (795_904 + 2_139_392, 256 + 8_704)
    assert found[NORM].flops == 26_741_568 + 2 * 35_655_744 + 11_014_848
    assert found[OPTIMIZER].flops == 2 * 11_176_000


def test_a_kernel_in_no_mark_is_left_out(file, tmp_path):
    other = tmp_path / "other.csv"
    unmarked = written(ROWS[:1], prefix="nccl", above="").splitlines()[-1]
    other.write_text(file.read_text() + unmarked + "\n")
    assert reduced(other) == reduced(file)


def without(name: str, cells: list[str]) -> list[str]:
    return [one for column, one in zip(HEADER, cells, strict=True) if column != name]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (written(prefix="forward"), "has no kernel with a mark of lab roofline"),
        (written([]), "has no kernel with a mark of lab roofline"),
        (written(precision="fp16"), "lacks sm__ops_path_tensor_src_fp16.sum"),
        (written(units=["usecond" if one == "ns" else one for one in UNITS]), "in usecond, not in ns"),
        (written([(*ROWS[0][:4], "n/a", *ROWS[0][5:])]), "is damaged"),
        (written(header=[one.replace("dram__bytes_write", "x") for one in HEADER]), "lacks dram__bytes_write.sum"),
    ],
)
def test_a_table_that_cannot_be_used_is_said(tmp_path, text, sentence):
    path = tmp_path / "ncu.csv"
    path.write_text(text)
    with pytest.raises(UserError, match=f"{path.name} .*{sentence}.*lab roofline --ncu makes such a file"):
        reduced(path)


def formulas() -> list[Kind]:
    """What a step on a device of 100 TFLOP/s and 1 TB/s is by its formulas."""
    about = ("resnet18", "bf16", 128, "NVIDIA H200")
    return [
        Kind(*about, FORWARD, 2, 5e-5, 4.8e9, 18e6, 16e6),
        Kind(*about, NORM, 1, 4e-5, 8e6, 16.8e6, 8.4e6),
        Kind(*about, OPTIMIZER, 1, 4e-5, 11e6, 134e6, 44.7e6),
        Kind(*about, f"{PEAK}bf16", 1, 1.0, 100e12, 1e9, 0.3e9),
        Kind(*about, COPY, 1, 1.0, 0.0, 1e12, 0.5e12),
    ]


def test_what_is_counted_stands_beside_the_formulas(file):
    (step,) = steps([*formulas(), *reduced(file)])
    lines = counted_table(step.counted, step)
    assert lines[0].startswith("resnet18, bf16, 128 images on NVIDIA H200: 0.115 ms, counted by ncu")
    cells = [line.rsplit(maxsplit=9) for line in lines[2:]]
    assert [row[0].strip() for row in cells] == [FORWARD, NORM, OPTIMIZER]  # longest first
    forward, norm, optimizer = (row[1:] for row in cells)
    #                kernels, ms, GFLOP, x formula, MB read, x least, written, x least, of roof
    assert forward == ["2", "0.0425", "9.71", "2.02", "2.94", "1.47", "0.00896", "<0.001", "229%"]
    assert norm == ["1", "0.0375", "0.109", "13.6", "16.8", "2.00", "0", "0", "45%"]
    assert optimizer == ["1", "0.0353", "0.0224", "2.03", "89.4", "1.00", "24.9", "0.556", "324%"]


def test_without_the_written_bytes_of_the_formulas_there_is_no_ratio(file):
    old = [replace(one, written=float("nan")) for one in formulas()]
    (step,) = steps([*old, *reduced(file)])
    assert [line.split()[-4] for line in counted_table(step.counted, step)[2:]] == ["-", "-", "-"]


def test_both_files_are_drawn_and_the_counters_kept(file, tmp_path, capsys, monkeypatch):
    kernels, output = tmp_path / "kernels.csv", tmp_path / "out"
    save(formulas(), kernels)
    assert main(["roofline", str(kernels), str(file), "--output", str(output)]) == 0
    out = capsys.readouterr().out
    assert "x least" in out
    kept = load(output / "counters.csv")
    assert [(one.kind, one.source) for one in kept] == [(FORWARD, NCU), (NORM, NCU), (OPTIMIZER, NCU)]
    assert [one.read for one in kept] == pytest.approx([one.read for one in reduced(file)], rel=1e-5)
    assert (output / "roofline.png").stat().st_size > 10_000
    monkeypatch.setattr("lab.sweep.draw.plot.draw_all", lambda *arguments: [])
    assert main(["roofline", str(kernels), str(output / "counters.csv"), "--output", str(output)]) == 0
    again = capsys.readouterr().out.partition("Drawn:")[0]
    assert again == out.removeprefix(f"Added up by kind: counters.csv in {output}\n\n").partition("Drawn:")[0]
    assert main(["roofline", str(kernels), str(file), str(output / "counters.csv")]) == 1
    assert "is there twice; name each measurement once" in capsys.readouterr().err


def test_what_computes_nothing_does_not_stretch_the_figure(file):
    counted = [replace(one, flops=100.0) if one.kind == OPTIMIZER else one for one in reduced(file)]
    (axes,) = draw(steps([*formulas(), *counted])).axes
    assert axes.get_xlim()[0] > 0.01
    assert len(axes.collections) == 3 + 2 + 1  # discs, diamonds, and the legend's


def test_counters_alone_have_no_roof(file, tmp_path, capsys):
    assert main(["roofline", str(file)]) == 0
    out = capsys.readouterr().out
    assert "counted by ncu" in out
    assert "Nothing is drawn: the roof is in the kernels.csv of the same step" in out
    assert not (tmp_path / "roofline.png").exists()


@pytest.fixture
def play_ncu(tmp_path, monkeypatch):
    """Put a program called ncu on PATH, which does what its Python text says; `log` is ncu's --log-file."""

    def play(text: str) -> None:
        folder = tmp_path / "bin"
        folder.mkdir()
        program = folder / "ncu"
        start = "import sys, pathlib\nlog = pathlib.Path(sys.argv[sys.argv.index('--log-file') + 1])\n"
        program.write_text(f"#!{sys.executable}\n{start}{text}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(folder))

    return play


def test_ncu_is_started_with_the_program(play_ncu, file, tmp_path):
    play_ncu(f"log.write_text(pathlib.Path({str(file)!r}).read_text() + repr(sys.argv))")
    made = tmp_path / "made.csv"
    count(["python", "-m", "step"], made)
    assert len(reduced(made)) == 3
    said = made.read_text().splitlines()[-1]
    assert said.endswith("'python', '-m', 'step']")
    assert "sm__ops_path_tensor_src_bf16_dst_fp32.sum" in said


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "log.write_text('==ERROR== ERR_NVGPUCTRPERM - The user has no permission')",
            "only administrators may read",
        ),
        (
            "print('==ERROR== Failed to find metric x'); sys.exit(1)",
            "exit code 1:\n==ERROR== Failed to find metric x",
        ),
        ("log.write_text('==WARNING== No kernels were profiled.')", "exit code 0:\n==WARNING== No kernels were"),
    ],
)
def test_what_ncu_refuses_is_said(play_ncu, tmp_path, text, sentence):
    play_ncu(text)
    with pytest.raises(UserError, match=sentence):
        count(["python"], tmp_path / "ncu.csv")


def test_an_older_file_is_not_taken_for_a_new_one(play_ncu, file):
    play_ncu("print('nothing')")
    with pytest.raises(UserError, match="ncu ended with exit code 0"):
        count(["python"], file)


def test_where_ncu_is_missing_it_is_said(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    with pytest.raises(UserError, match=f"--ncu: ncu is neither on PATH nor in {tmp_path}/bin.*module load cuda"):
        count(["python"], tmp_path / "ncu.csv")


def test_without_a_gpu_there_is_nothing_to_count(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["roofline", "--ncu"]) == 2
    assert "--ncu counts on an NVIDIA GPU" in capsys.readouterr().err


def test_the_step_under_ncu_is_the_one_that_was_asked_for(monkeypatch, tmp_path):
    """`--ncu` up to the start of ncu, on a machine that only seems to have a GPU."""
    started = []

    def play(program, path):
        started.append(program)
        path.write_text(written(precision=json.loads(program[-1])["precision"]))

    def stop(subject, device):
        raise UserError("measured")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr("lab.roofline.ncu.count", play)
    monkeypatch.setattr("lab.roofline.measure.measure", stop)
    sizes = ["--model", "vit", "--width", "64", "--per-device-batch-size", "8"]
    assert main(["roofline", "--ncu", *sizes, "--output", str(tmp_path)]) == 1
    assert [json.loads(program[-1])["precision"] for program in started] == ["fp32", "bf16"]
    first = Subject(**json.loads(started[0][-1]))
    assert first == Subject("vit", "fp32", 8, {"width": 64})
    assert len(load(tmp_path / "counters.csv")) == 6


def test_every_operator_of_one_step_is_marked(monkeypatch):
    said = []
    monkeypatch.setattr(stepping, "WARM_UP", 1)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr("torch.cuda.profiler.start", lambda: said.append("start"))
    monkeypatch.setattr("torch.cuda.profiler.stop", lambda: said.append("stop"))
    monkeypatch.setattr("torch.cuda.nvtx.range_push", said.append)
    monkeypatch.setattr("torch.cuda.nvtx.range_pop", lambda: None)
    marked.run(Subject("mnist_cnn", "fp32", 2), torch.device("cpu"))
    assert (said[0], said[-1]) == ("start", "stop")
    found = [re.match(MARKED, f"{text}/kernel(int)") for text in said[1:-1]]
    assert all(found)
    assert {one["model"] for one in found} == {"mnist_cnn"}
    kinds = [one["kind"] for one in found]
    assert kinds.count("convolution, forward") == kinds.count("convolution, backward") == 2  # one step of it
    assert OPTIMIZER in kinds


@pytest.mark.gpu
def test_ncu_counts_what_the_formulas_say(tmp_path):
    try:
        find_ncu()
    except UserError as error:
        pytest.skip(str(error))
    assert main(["roofline", "--ncu", "--model", "resnet18", "--output", str(tmp_path)]) == 0
    for step in steps([*load(tmp_path / "kernels.csv"), *load(tmp_path / "counters.csv")]):
        counted = {one.kind: one for one in step.counted}
        formula = {one.kind: one for one in step.kinds}
        assert 0.95 < counted[FORWARD].flops / formula[FORWARD].flops < 1.5
        assert 0.9 < counted[OPTIMIZER].read / formula[OPTIMIZER].read < 1.1
