"""Ready sweeps, by name. A preset is one sweep or several that share their baselines.

Those of the measurement on GPUs are parted so that each has its own baseline and takes less than nine minutes on
four GPUs of one host; together they are the preset `gpu`.
"""

from dataclasses import replace
from pathlib import Path

from lab.sweep.plan.sweep import Sweep

_DEMO = Sweep(
    devices=(1, 2),
    global_batches=(256,),
    epochs=3,
    code="solutions",
    launcher="local",
    flags=("--dataset", "shapes", "--model", "cnn"),
    output_dir=Path("results/demo"),  # beside your own results, not among them
)

_COURSE = Sweep(
    devices=(1, 2),
    strategies=("ddp", "fsdp"),
    scalings=("strong", "weak"),
    global_batches=(256,),
    per_device_batches=(128,),
    repeats=2,
    measure_steps=50,
    measure_warmup=10,
    cpu=True,
    code="",
    launcher="local",
    flags=("--dataset", "shapes", "--model", "cnn", "--input", "device"),
    output_dir=Path("results/course"),
)

# How large may a batch be? The time to an accuracy, which images/s do not tell.
_BATCHES = Sweep(
    devices=(1, 2),
    strategies=("ddp",),
    global_batches=(64, 128, 256, 512, 1024),
    epochs=8,
    code="",
    launcher="local",
    flags=("--dataset", "shapes", "--model", "cnn", "--input", "device"),
    output_dir=Path("results/batches"),
)

_GPU = Sweep(
    devices=(1, 2, 4),
    strategies=("ddp", "fsdp"),
    global_batches=(512,),
    per_device_batches=(128,),
    precisions=("bf16",),
    repeats=3,
    measure_steps=100,
    measure_warmup=20,
    code="",
    launcher="local",
    flags=("--dataset", "shapes", "--model", "resnet18", "--input", "device"),
    output_dir=Path("results/gpu"),
)
_GPU_WEAK = replace(_GPU, scalings=("weak",))
_GPU_CNN = replace(_GPU, measure_steps=300, flags=("--dataset", "shapes", "--model", "cnn", "--input", "device"))

GPU_GROUPS: dict[str, tuple[Sweep, ...]] = {
    "gpu-resnet18-strong": (_GPU,),
    "gpu-resnet18-weak": (_GPU_WEAK,),
    "gpu-cnn-strong": (_GPU_CNN,),
    "gpu-cnn-weak": (replace(_GPU_CNN, scalings=("weak",)),),
    "gpu-fp32": (replace(_GPU, devices=(1, 4), precisions=("fp32",)),),
    "gpu-buckets": (replace(_GPU_WEAK, devices=(4,), strategies=("ddp",), bucket_caps=(1, 5, 25, 50, 100)),),
    "gpu-vit": (
        # 302 million parameters: 4.8 GB of weights, gradients and Adam's two moments in fp32
        replace(
            _GPU_WEAK,
            devices=(4,),
            measure_steps=50,
            flags=(
                *("--dataset", "shapes", "--model", "vit", "--width", "1024", "--depth", "24"),
                *("--optimizer", "adamw", "--input", "device"),
            ),
        ),
    ),
    "gpu-capture": (replace(_GPU_WEAK, devices=(1, 4), strategies=("ddp",), compare=("--capture",)),),
}

_VIT_151M = ("--dataset", "shapes", "--model", "vit", "--width", "1024", "--depth", "12")

# A network that is launch-bound, one that computes, one with parameters worth sharding; --devices 1 2 is what a
# host with two GPUs can do of it.
_EIGHT = tuple(
    replace(
        _GPU,
        devices=(1, 2, 4, 8),
        scalings=("strong", "weak"),
        compare=("--capture", "--compile"),
        measure_steps=steps,
        flags=(*flags, "--input", "device"),
        output_dir=Path("results/eight"),
    )
    for flags, steps in (
        (("--dataset", "shapes", "--model", "cnn"), 300),
        (("--dataset", "shapes", "--model", "resnet18"), 100),
        ((*_VIT_151M, "--optimizer", "adamw"), 50),
    )
)

_SENSITIVITY = replace(_GPU_WEAK, devices=(4,), launcher="", output_dir=Path("results/sensitivity"))

PRESETS: dict[str, tuple[Sweep, ...]] = {
    "demo": (_DEMO,),
    "course": (_COURSE,),
    # One thing at a time is changed; the point in the middle is the same for all.
    "sensitivity": (
        replace(_SENSITIVITY, strategies=("ddp",), bucket_caps=(25, 50, 100)),
        replace(_SENSITIVITY, precisions=("fp32", "bf16")),
        replace(_SENSITIVITY, strategies=("ddp",), per_device_batches=(64, 128, 256)),
        replace(
            _SENSITIVITY,
            strategies=("ddp",),
            workers=(0, 2, 4, 8),
            flags=("--dataset", "shapes", "--model", "resnet18", "--input", "loader"),
        ),
    ),
    "optimisation": (
        replace(
            _GPU,
            devices=(1, 2, 4),
            strategies=("ddp",),
            compare=("--capture",),
            launcher="",
            output_dir=Path("results/optimisation"),
        ),
    ),
    "batches": (_BATCHES,),
    "eight": _EIGHT,
    "gpu": tuple(sweep for group in GPU_GROUPS.values() for sweep in group),
    **GPU_GROUPS,
}
