"""The one table of pandas: its types, what it adds to results.csv, and that students get it by lab.sweep.load."""

import numpy as np
import pandas as pd
import pytest
from run_folders import write_run

from lab.base.errors import UserError
from lab.sweep import load
from lab.sweep.collect.collect import collect
from lab.sweep.compare.columns import COUNTS, DTYPES, FIGURES, RESULT_COLUMNS
from lab.sweep.compare.points import points


@pytest.fixture
def results(tmp_path):
    write_run(tmp_path, "none", 1, seconds=(9.0, 8.0))
    for repeat in (1, 2, 3):
        write_run(tmp_path, "ddp", 2, run_id=f"ddp-{repeat}", repeat=repeat, seconds=(9.0, 4 + repeat / 10))
    write_run(tmp_path, "ddp", 2, run_id="weak", scaling="weak", per_gpu_batch=64, bucket_cap_mb="50")
    (tmp_path / "died").mkdir()
    collect(tmp_path)
    return tmp_path


def test_every_column_has_its_type_and_no_text_is_nan(results):
    runs = load(results)
    assert {name: str(kind) for name, kind in runs.dtypes.items()} == DTYPES | {
        "batch": "str",
        "setting": "str",
        "label": "str",
        "seconds": "float64",
        "efficiency": "float64",
    }
    assert {*COUNTS, *FIGURES} < {*RESULT_COLUMNS}
    assert not runs.select_dtypes("str").isna().any().any()
    died = runs[runs["run_id"] == "died"].iloc[0]
    assert (died["world_size"], died["strategy"], died["status"]) == (pd.NA, "", "failed")
    assert np.isnan(died["time_epoch_s"])
    assert load(results / "results.csv").equals(runs)


def test_seconds_efficiency_label_and_batch_are_those_of_the_kind_of_scaling(results):
    runs = load(results).set_index("run_id")
    strong, weak = runs.loc["ddp-1"], runs.loc["weak"]
    assert (strong["label"], strong["batch"], strong["seconds"]) == ("ddp", "global batch 256", 4.1)
    assert (weak["label"], weak["batch"]) == ("ddp 50 MiB", "batch 64 per device")
    assert weak["seconds"] == weak["step_time_s"]
    assert strong["efficiency"] == strong["eff_strong"] == pytest.approx(8 / (2 * 4.1), rel=1e-5)
    assert strong["setting"] != weak["setting"]


def test_three_lines_of_a_student_give_the_same_efficiencies(results):
    runs = load(results).query("status == 'done' and scaling == 'strong'")
    seconds = runs.groupby(["strategy", "world_size"])["time_epoch_s"].median()
    mine = seconds["none", 1] / (seconds.index.get_level_values("world_size") * seconds)
    ours = points(runs).set_index(["strategy", "world_size"])["efficiency"]
    assert mine["ddp", 2] == pytest.approx(ours["ddp", 2], rel=1e-4) == pytest.approx(8 / (2 * 4.2), rel=1e-4)


def test_without_results_it_is_one_sentence(tmp_path):
    with pytest.raises(UserError, match=r"there is no .*results.csv: write it with collect_results.py"):
        load(tmp_path)
