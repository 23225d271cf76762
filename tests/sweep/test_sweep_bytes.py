"""results.csv keeps its bytes: what collect wrote before there was a table of pandas, it writes now."""

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest
from run_folders import write_run
from test_sweep_bad_logs import WHOLE

from lab.sweep.collect.collect import collect, filled_in_order

WRITTEN_BEFORE = Path(__file__).with_name("collected.csv")


def write_of_all_kinds(results: Path) -> None:
    """Settings, scalings, buckets, repeats; what failed, diverged or says little of itself; and a bare log."""
    for repeat in (1, 2, 3, 10):
        name = f"-r{repeat}"
        write_run(results, "none", 1, run_id="none" + name, repeat=repeat, seconds=(9.0, 8.0 + repeat / 7))
        for devices in (2, 4, 16):
            seconds = (9.0, 8.1 / devices + repeat / 70)
            write_run(results, "ddp", devices, run_id=f"ddp-{devices}{name}", repeat=repeat, seconds=seconds)
            cap = {"bucket_cap_mb": f"{repeat}.5", "run_id": f"cap-{devices}{name}"}
            write_run(results, "ddp", devices, repeat=repeat, seconds=seconds, **cap)
    for devices, strategy in ((1, "none"), (1, "ddp"), (2, "ddp"), (4, "fsdp"), (8, "fsdp1")):
        weak = {"scaling": "weak", "per_gpu_batch": 96, "global_batch": 96 * devices, "epochs": 1}
        options = {"variant": "--capture --measure-steps 50 --measure-warmup 10", "measure_steps": 50}
        run_id = f"weak-{strategy}-{devices}"
        write_run(
            results, strategy, devices, run_id=run_id, seconds=(0.7 / 3,), device="A card", **weak, **options
        )
    write_run(results, "fsdp", 4, loss=math.nan)
    write_run(results, "fsdp", 8, status="failed", reason='CUDA "out of memory", they say')
    write_run(results, "ddp", 32, status="running")
    early = write_run(results, "ddp", 64, status="failed", reason="lost")  # says not even on which device
    for name in ("run.csv", "config.json"):
        (early / name).unlink()
    write_run(results, "ddp", 2, run_id="cut-off").joinpath("run.csv").write_text("run_id\n")
    (results / "slurm-12.out").write_text(WHOLE)


def written(columns: Sequence[str], rows: Iterable[Mapping[str, str]]) -> str:
    """As a results.csv of these columns."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def test_generated_runs_are_collected_as_before(tmp_path):
    write_of_all_kinds(tmp_path)
    before, now = WRITTEN_BEFORE.read_bytes().decode(), collect(tmp_path).path.read_bytes().decode()
    then, today = (text.splitlines()[0].split(",") for text in (before, now))
    assert today[: len(then)] == then  # columns of later versions come last
    assert written(then, csv.DictReader(io.StringIO(now))) == before
    assert written(today, csv.DictReader(io.StringIO(now))) == now


@pytest.mark.parametrize("name", ["demo", "gpu"])
def test_committed_results_are_written_as_they_are(root, name):
    before = (root / "docs" / "results" / name / "results.csv").read_text()
    reader = csv.DictReader(io.StringIO(before))
    rows = [row | {"eff_strong": "", "eff_weak": ""} for row in reader]
    rows.sort(key=lambda row: row["ts"])  # not in the order of the table
    assert written(reader.fieldnames, filled_in_order(rows)) == before
