"""The columns of results.csv, which type each has, and which of them make runs comparable. Imports no pandas."""

from lab.runs.records.folder import BEST_COLUMNS, EFFICIENCY_COLUMNS, HOW_COLUMNS, RUN_COLUMNS, SHARD_COLUMNS

BASELINE = "none"  # a plain run on one device: what every other point is compared with

ENOUGH_STEPS = 50  # measured; with fewer the spread of single steps shows

Row = dict[str, str]  # of results.csv, as it is written

_LATER = (*HOW_COLUMNS, *BEST_COLUMNS, *EFFICIENCY_COLUMNS, *SHARD_COLUMNS)
RESULT_COLUMNS = (
    *(name for name in RUN_COLUMNS if name not in _LATER),
    *("train_loss", "val_loss", "compare"),  # compare: what run_benchmarks.py was told
    *_LATER,  # these last, because tables of earlier versions end before them
)
COUNTS = (  # whole numbers, or <NA>
    *("repeat", "epochs", "world_size", "nodes", "gpus_per_node", "global_batch", "per_gpu_batch"),
    *("measured_steps", "steps_per_epoch", "best_epoch", "shard_ranks"),
)
FIGURES = (  # numbers, or NaN
    *("train_top1", "val_top1", "images_per_sec", "time_epoch_s", "dl_time_s", "fw_time_s", "bw_time_s"),
    *("comm_time_s", "mem_gb", "util_gpu", "eff_strong", "eff_weak", "step_time_s", "bucket_cap_mb"),
    *("train_loss", "val_loss", "best_top1", *EFFICIENCY_COLUMNS),
    *("held_mb", "shard_group_mb", "copies_group_mb"),
)
DTYPES = {  # of pandas; a text that is unknown is "", never NaN
    **dict.fromkeys(RESULT_COLUMNS, "str"),
    **dict.fromkeys(COUNTS, "Int64"),
    **dict.fromkeys(FIGURES, "float64"),
}

# Runs that differ in one of these did different work, or on other hardware: they are never compared. `batch` is
# no column but what stays the same along a curve: the global batch, or with weak scaling that of each device.
SETTING = ("model", "dataset", "precision", "batch", "scaling", "epochs", "input", "variant", "device")


def device_count(text: str) -> int:
    """A world size as a number; 0 for anything that is none."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 7 else 0
