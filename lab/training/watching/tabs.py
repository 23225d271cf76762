"""The texts beside the curves: what was asked for, the command, and the system that it ran on."""

import platform
from collections.abc import Mapping

import torch

from lab.base.machine import usable_cores
from lab.training.metrics.peaks import peak_flops

OF_THE_SYSTEM = ("hosts", "nodes", "world_size", "backend", "device", "driver", "versions", "allocator", "commit")


def texts(config: Mapping[str, object], device: torch.device) -> dict[str, str]:
    """Tab -> Markdown.

    Args:
        config: what config.json holds.
        device: rank 0's.
    """
    command = f"    {config['command']}\n\non each of {config['world_size']} ranks"
    return {
        "configuration": _table("option", config),
        "command": command,
        "system": _table("system", _system(config, device)),
    }


def _system(config: Mapping[str, object], device: torch.device) -> dict[str, object]:
    known = {name: config[name] for name in OF_THE_SYSTEM if config.get(name) not in (None, "")}
    peaks = {
        f"peak of the card in {words}": peak_flops(str(config["device"]), precision, tf32=words == "TF32")
        for words, precision in (("bf16", "bf16"), ("fp16", "fp16"), ("TF32", "fp32"), ("fp32", "fp32"))
    }
    if device.type == "cuda":
        known["memory of the card"] = f"{torch.cuda.get_device_properties(device).total_memory / 2**30:.1f} GiB"
    return {
        **known,
        **{name: f"{flops / 1e12:g} TFLOP/s" for name, flops in peaks.items() if flops is not None},
        "cores of rank 0": usable_cores(),
        "operating system": f"{platform.system()} {platform.release()}, {platform.machine()}",
    }


def _table(name: str, rows: Mapping[str, object]) -> str:
    lines = [f"| {key} | {value} |" for key, value in rows.items()]
    return "\n".join([f"| {name} | value |", "|---|---|", *lines])
