"""A step's kernels as NVIDIA's Nsight Compute counts them: starting ncu, and reading its CSV. Imports no torch.

ncu runs each kernel alone, several times, and empties the caches before each run (its --cache-control all): what a
kernel reads comes from DRAM at least once, and what it writes counts only as far as it leaves the L2 cache before
the kernel ends. The text of the range around an operator begins the names of its kernels (--print-nvtx-rename).
"""

import io
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from lab.base.errors import UserError
from lab.roofline.kinds import NCU, Kind

TIME, READ, WRITTEN = "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum"
TENSOR = {  # FLOPs of the matrix units, by what they multiply; a multiplication and an addition are two
    "fp32": "sm__ops_path_tensor_src_tf32_dst_fp32.sum",
    "bf16": "sm__ops_path_tensor_src_bf16_dst_fp32.sum",
    "fp16": "sm__ops_path_tensor_src_fp16.sum",
}
SCALAR = {  # instructions of a thread -> FLOPs each; PyTorch's kernels compute in fp32 what is stored in 16 bits
    "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum": 2,
    "smsp__sass_thread_inst_executed_op_fadd_pred_on.sum": 1,
    "smsp__sass_thread_inst_executed_op_fmul_pred_on.sum": 1,
}
NAME, DEVICE = "Kernel Name", "device__attribute_display_name"
UNITS = {TIME: ("ns", "nsecond"), READ: ("byte",), WRITTEN: ("byte",)}
SUBJECT = ["model", "precision", "batch", "device", "kind"]
MARKED = r"^lab roofline\|(?P<model>[^|]*)\|(?P<precision>\w+)\|(?P<batch>\d+)\|(?P<kind>[^/]+)/"
HEADER = '"ID","Process ID",'  # begins the table, below what ncu says itself
AGAIN = "lab roofline --ncu makes such a file"


def mark(model: str, precision: str, batch: int, kind: str) -> str:
    """The text of the range around an operator of this kind."""
    return f"lab roofline|{model}|{precision}|{batch}|{kind}"


def count(program: Sequence[str], file: Path) -> None:
    """Run a program under ncu, which writes what lies between cudaProfilerStart and cudaProfilerStop to `file`.

    Raises:
        UserError: ncu is not here, or may not read the counters, or the program fails.
    """
    metrics = ",".join((TIME, READ, WRITTEN, *TENSOR.values(), *SCALAR))
    command = [
        *(
            find_ncu(),
            "--csv",
            "--page",
            "raw",
            "--print-units",
            "base",
            "--nvtx",
            "--print-nvtx-rename",
            "kernel",
        ),
        *(
            "--profile-from-start",
            "off",
            "--cache-control",
            "all",
            "--clock-control",
            "none",
            "--metrics",
            metrics,
        ),
        *("--log-file", str(file), *program),
    ]
    file.unlink(missing_ok=True)
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False
    )
    said = done.stdout + (file.read_text(encoding="utf-8", errors="replace") if file.exists() else "")
    if "ERR_NVGPUCTRPERM" in said:
        raise UserError(
            "--ncu: only administrators may read this GPU's counters (ERR_NVGPUCTRPERM), until one of them allows "
            "it to all: developer.nvidia.com/ERR_NVGPUCTRPERM. Without --ncu torch.profiler measures"
        )
    if done.returncode or HEADER not in said:
        lines = [line for line in said.splitlines() if line.strip() and not line.startswith('"')]
        raise UserError(f"--ncu: {command[0]} ended with exit code {done.returncode}:\n" + "\n".join(lines[-5:]))


def find_ncu() -> str:
    """The program.

    Raises:
        UserError: it is not here.
    """
    toolkit = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin")
    found = shutil.which("ncu") or shutil.which("ncu", path=toolkit)
    if found is None:
        raise UserError(
            f"--ncu: ncu is neither on PATH nor in {toolkit}. It is Nsight Compute of NVIDIA's CUDA toolkit (on a "
            "cluster: module load cuda, or its like). Without --ncu torch.profiler measures"
        )
    return found


def is_ncu(file: Path) -> bool:
    """Whether it has a table of ncu's, with or without the lines that ncu writes above it."""
    return file.is_file() and HEADER.encode() in file.read_bytes()


def reduced(file: Path) -> list[Kind]:
    """The kernels in ncu's table, added up by kind; those in no marked range are left out.

    Raises:
        UserError: a metric or the marks are missing, or what stands there is no number.
    """
    rows = [row for row in file.read_text(encoding="utf-8", errors="replace").splitlines() if row.startswith('"')]
    table = pd.read_csv(io.StringIO("\n".join(rows)), dtype=str, keep_default_na=False)
    needed = [NAME, DEVICE, TIME, READ, WRITTEN, *SCALAR]
    if missing := [name for name in needed if name not in table]:
        raise UserError(f"{file} lacks {', '.join(missing)}: {AGAIN}")
    for name, units in UNITS.items():
        if len(table) and table[name][0] not in units:
            raise UserError(f"{file} has {name} in {table[name][0]}, not in {units[0]}: {AGAIN}")
    kernels = table[1:]  # the first row has the units
    kernels = kernels.join(kernels[NAME].str.extract(MARKED)).dropna(subset="kind")
    if kernels.empty:
        raise UserError(f"{file} has no kernel with a mark of lab roofline: {AGAIN}")
    tensor = [name for name in TENSOR.values() if name in kernels]
    for precision in kernels["precision"].unique():
        if TENSOR.get(precision) not in tensor:
            raise UserError(f"{file} lacks {TENSOR.get(precision)}: {AGAIN}")
    try:
        numbers = kernels[[TIME, READ, WRITTEN, *tensor, *SCALAR]].apply(
            lambda column: pd.to_numeric(column.str.replace(",", ""))
        )
    except ValueError as error:
        raise UserError(f"{file} is damaged ({error}): {AGAIN}") from None
    costs = pd.DataFrame(
        {
            **{name: kernels[name] for name in SUBJECT if name != "device"},
            "device": kernels[DEVICE],
            "kernels": 1.0,
            "seconds": numbers[TIME] / 1e9,
            "flops": numbers[tensor].sum(axis=1) + sum(each * numbers[name] for name, each in SCALAR.items()),
            "bytes": numbers[READ] + numbers[WRITTEN],
            "written": numbers[WRITTEN],
        }
    ).astype({"batch": int, "flops": float, "bytes": float, "written": float})
    found = costs.groupby(SUBJECT, sort=False).sum().reset_index()
    return [Kind(**row, source=NCU) for row in found.to_dict("records")]
