"""What a sweep works on: run folders as main.py writes them, and a data set that trains in no time."""

import csv
import json
from pathlib import Path

from PIL import Image

from lab.runs.records.folder import METRICS_COLUMNS, RUN_COLUMNS

CONFIG_NAMES = {"global_batch": "global_batch_size", "per_gpu_batch": "per_device_batch_size"}


def write_run(
    results: Path,
    strategy: str = "ddp",
    devices: int = 2,
    *,
    run_id: str | None = None,
    seconds: tuple[float, ...] = (4.0, 2.0, 2.2),
    loss: float = 0.75,
    accuracy: float = 0.7,
    memory: float = 0.5,
    status: str = "done",
    reason: str = "",
    device: str = "cpu",
    steps_per_epoch: int = 20,
    measure_steps: int = 0,
    **identity: object,
) -> Path:
    """A complete run folder; `identity` overrides columns such as model, dataset, precision, global_batch."""
    identity = {
        "strategy": strategy,
        "model": "cnn",
        "dataset": "shapes",
        "precision": "fp32",
        "scaling": "strong",
        "repeat": 1,
        "epochs": len(seconds),
        "world_size": devices,
        "nodes": 1,
        "global_batch": 256,
        "input": "loader",
        "variant": "",
        "bucket_cap_mb": "25" if strategy == "ddp" else "",
        **identity,
    }
    identity.setdefault("per_gpu_batch", int(str(identity["global_batch"])) // devices)
    folder = results / (run_id or f"{strategy}-{devices}")
    folder.mkdir(parents=True)

    config = {CONFIG_NAMES.get(name, name): value for name, value in identity.items()} | {"device": device}
    config |= {"steps_per_epoch": steps_per_epoch, "measure_steps": measure_steps or None}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "status.json").write_text(
        json.dumps({"status": status, "reason": reason, "started": "2026-01-05T10:00:00+00:00", "ended": None})
    )
    common = {**identity, "run_id": folder.name, "commit": "0123456789ab", "ts": "2026-01-05T10:00:30+00:00"}
    rows = [
        {
            **common,
            "status": "running",
            "epoch": epoch,
            "train_top1": accuracy - 0.05,
            "val_top1": accuracy - 0.1 * (len(seconds) - epoch),
            "images_per_sec": 5120 / value if value else "nan",
            "time_epoch_s": value,
            "mem_gb": memory - 0.01 * (epoch == 2),
            "device": device,
            "step_time_s": value / steps_per_epoch,
            "measured_steps": measure_steps or steps_per_epoch,
            "steps_per_epoch": steps_per_epoch,
            "versions": "torch 2.14.0",
        }
        for epoch, value in enumerate(seconds, start=1)
    ]
    rows.append({**rows[-1], "epoch": "summary", "status": status, "reason": reason})
    with (folder / "run.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, RUN_COLUMNS, restval="")
        writer.writeheader()
        writer.writerows(rows)
    with (folder / "metrics.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(METRICS_COLUMNS)
        for epoch in range(1, len(seconds) + 1):
            writer.writerow([epoch, "train", loss + 0.1 * (len(seconds) - epoch), accuracy - 0.05, 1600.0])
            writer.writerow([epoch, "val", loss + 0.2 * (len(seconds) - epoch), accuracy, 4000.0])
    (folder / "train.log").write_text("[METRIC] epoch=1 time=4.0\n")
    (folder / "train.err").write_text("")
    return folder


def write_few_images(folder: Path) -> Path:
    """An image folder of 96 images, so that a test is about the sweep and not about training."""
    for part, count in (("train", 32), ("val", 16)):
        for label, (red, green, blue) in (("red", (200, 30, 30)), ("blue", (30, 30, 200))):
            (folder / part / label).mkdir(parents=True)
            for i in range(count):
                image = Image.new("RGB", (32, 32), (red + i, green + i, blue + i))
                image.save(folder / part / label / f"{i}.png")
    return folder
