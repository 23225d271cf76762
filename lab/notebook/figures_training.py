"""Figures of sections 0 and 5 to 8: a step, a run from end to end, sums and means, scaling, a graph."""

from __future__ import annotations

from collections.abc import Sequence

from lab.notebook.drawing import ALERT, FILLS, HALF_WIDTH, QUIET, Drawing, figure, whole_number
from lab.notebook.show import Card, Said

STRONG, WEAK, IDEAL = "#3b8fd6", "#d9730d", "#8a9099"  # readable on white and on JupyterLab's dark grey
DEVICES = (1, 2, 4, 8, 16)
TIMELINE = 420.0  # pixels of the longer timeline of launches()


def one_step(ranks: int = 3, samples: int = 4) -> Card:
    """One step of data-parallel training."""
    whole_number("ranks", ranks, 1, 6)
    whole_number("samples", samples, 1, 64)
    alt = (
        f"{ranks} ranks, each with {samples} samples of its own and the same weights. Each computes its own "
        "gradient; the gradients are averaged between the ranks; then every rank makes the same step and has the "
        "same weights."
    )
    drawing = Drawing(HALF_WIDTH, 34 + ranks * 42, alt)
    columns = (("weights", 50), ("samples", 136), ("gradient", 222), ("mean", 318), ("new w", 400))
    for name, x in columns:
        drawing.text(x + 35, 18, name, size=12, anchor="middle", bold=True)
    for rank in range(ranks):
        y, fill = 30 + rank * 42, FILLS[rank % len(FILLS)]
        drawing.text(0, y + 20, f"rank {rank}")
        drawing.box(50, y, 66, 30, QUIET, "w")
        own = f"{rank * samples} … {(rank + 1) * samples - 1}" if samples > 1 else str(rank)
        drawing.box(136, y, 66, 30, fill, own, size=12)
        drawing.line(203, y + 15, 221, y + 15, arrow=True)
        drawing.box(222, y, 66, 30, fill, f"g{rank}")
        drawing.line(289, y + 15, 301, y + 15)
        drawing.box(318, y, 66, 30, FILLS[4], "mean g", size=12)
        drawing.line(385, y + 15, 399, y + 15, arrow=True)
        drawing.box(400, y, 66, 30, QUIET, "w'")
    drawing.line(303, 28, 303, 24 + ranks * 42, width=3)
    drawing.line(310, 28, 310, 24 + ranks * 42, width=3)
    return figure(
        drawing,
        caption="Samples and gradient are each rank's own. The double bar, an all-reduce, is the only place where "
        "the ranks talk: all must come to it. Then the mean, and so the new weights w', are the same everywhere.",
    )


def run_in_order() -> Card:
    """The steps of main.py, and at which of them the ranks communicate."""
    steps = (
        ("setup", "2", "join the group", True),
        ("load_once", "3", "a barrier", True),
        ("get_dataloaders", "3", "own samples", False),
        ("build_model", "1", "same seed", False),
        ("wrap_model", "4", "rank 0's weights", True),
        ("build_optimizer", "5", "wrapped parameters", False),
        ("train", "6", "every step", True),
        ("cleanup", "2", "leave together", True),
    )
    alt = "In order: " + "; ".join(
        f"{name} (section {section}): {what}{', all ranks must come' if meets else ''}"
        for name, section, what, meets in steps
    )
    drawing = Drawing(HALF_WIDTH, 10 + 44 * len(steps), alt + ".")
    for number, (name, section, what, meets) in enumerate(steps):
        y = 6 + number * 44
        drawing.box(6, y, 132, 30, FILLS[1] if meets else QUIET, name, bold=True)
        drawing.text(150, y + 20, f"{what} (section {section}){' · all ranks meet' if meets else ''}")
        if number < len(steps) - 1:
            drawing.line(72, y + 31, 72, y + 43, arrow=True)
    return figure(
        drawing,
        caption="In the orange steps all ranks meet. A rank that leaves one out lets the others wait.",
    )


def sums_or_means(right: Sequence[int] = (9, 1), samples: Sequence[int] = (10, 4)) -> Card:
    """Accuracy over ranks with unequal numbers of samples: from sums, and from the mean of the ranks' means."""
    if len(right) != len(samples) or not 1 <= len(samples) <= 6:
        raise Said("right and samples: one number for each of 1 to 6 ranks, such as right=(9, 1), samples=(10, 4)")
    for correct, count in zip(right, samples, strict=True):
        whole_number("samples", count, 1, 1_000_000)
        whole_number("right", correct, 0, count)
    exact = sum(right) / sum(samples)
    means = [correct / count for correct, count in zip(right, samples, strict=True)]
    wrong = sum(means) / len(means)
    parts = [
        f"rank {rank}: {right[rank]} of {samples[rank]} right, {100 * mean:.1f}%"
        for rank, mean in enumerate(means)
    ]
    drawing = Drawing(
        HALF_WIDTH,
        60 + 34 * len(means),
        f"{'; '.join(parts)}. From the sums {100 * exact:.1f}%; mean of the means {100 * wrong:.1f}%.",
    )
    for rank, mean in enumerate(means):
        y = 6 + rank * 34
        drawing.text(0, y + 18, f"rank {rank}")
        width = 220 * samples[rank] / max(samples)
        drawing.box(54, y, width, 26, QUIET)
        drawing.box(54, y, width * mean, 26, FILLS[2])
        drawing.text(288, y + 18, f"{right[rank]} of {samples[rank]} right: {100 * mean:.1f}%")
    y = 6 + len(means) * 34
    drawing.text(54, y + 20, f"sums: {sum(right)} / {sum(samples)} = {100 * exact:.1f}%", bold=True)
    drawing.text(54, y + 42, f"mean of the means: {100 * wrong:.1f}%")
    return figure(
        drawing,
        caption="Green: right. Add up first, divide last."
        if exact != wrong
        else "Green: right. Here both are the same.",
    )


def gradients_kept(steps: int = 5) -> Card:
    """What .grad holds after each backward pass, with zero_grad and without it."""
    whole_number("steps", steps, 1, 8)
    alt = (
        f"After step {steps} .grad holds that step's gradient with zero_grad; without it, the sum of all {steps}."
    )
    drawing = Drawing(HALF_WIDTH, 136, alt)
    width = HALF_WIDTH / max(steps, 5)
    for row, (name, forgotten) in enumerate((("zero_grad() each step", False), ("zero_grad() forgotten", True))):
        y = 4 + row * 66
        drawing.text(0, y + 14, name)
        for step in range(1, steps + 1):
            sums = "g1" if step == 1 else f"g1+g{step}" if step == 2 else f"g1…+g{step}"
            fill = ALERT if forgotten and step > 1 else FILLS[2]
            label = sums if forgotten else f"g{step}"
            drawing.box((step - 1) * width, y + 22, width - 6, 32, fill, label, size=12)
    return figure(
        drawing,
        caption="What .grad holds when optimizer.step() is called, step after step: backward() adds to it.",
    )


def scaling(compute_ms: float = 100, communication_ms: float = 20, hidden: float = 0.0) -> Card:
    """Speed-up and efficiency by a simple model, for strong and for weak scaling.

    Args:
        compute_ms: one step's computation on one device.
        communication_ms: one all-reduce between very many devices; N devices take (N - 1) / N of it.
        hidden: the part of the communication, 0 to 1, that overlaps with the backward pass.
    """
    if not 0 < compute_ms <= 1e5 or not 0 <= communication_ms <= 1e5 or not 0 <= hidden <= 1:
        raise Said("compute_ms must be above 0, communication_ms at least 0, hidden from 0 to 1")
    exposed = [communication_ms * (n - 1) / n * (1 - hidden) for n in DEVICES]
    strong = [compute_ms / (compute_ms / n + wait) for n, wait in zip(DEVICES, exposed, strict=True)]
    weak = [n * compute_ms / (compute_ms + wait) for n, wait in zip(DEVICES, exposed, strict=True)]
    most = DEVICES[-1]
    alt = (
        f"On {most} devices strong scaling is {strong[-1]:.1f} times as fast as one "
        f"({100 * strong[-1] / most:.0f}% efficiency), weak scaling {weak[-1]:.1f} times "
        f"({100 * weak[-1] / most:.0f}%)."
    )
    speed_up = _panel(
        f"{alt} Speed-up, on a logarithmic scale.",
        "speed-up (log scale)",
        [("ideal", list(DEVICES), IDEAL), ("weak", weak, WEAK), ("strong", strong, STRONG)],
    )
    efficiency = [("ideal", [100.0] * 5, IDEAL)] + [
        (name, [100 * value / n for value, n in zip(series, DEVICES, strict=True)], colour)
        for name, series, colour in (("weak", weak, WEAK), ("strong", strong, STRONG))
    ]
    percent = _panel(
        "The same numbers as efficiency in per cent, over the devices.", "efficiency (%)", efficiency, percent=True
    )
    return figure(
        speed_up,
        percent,
        caption=f"{alt} Strong: the same global batch, cut into smaller parts. Weak: the same batch on every "
        "device, so that the global batch grows. A model with three numbers, not a measurement.",
    )


def _panel(
    alt: str, title: str, series: Sequence[tuple[str, Sequence[float], str]], *, percent: bool = False
) -> Drawing:
    """One chart over DEVICES: in per cent from 0, or on a logarithmic scale from 1."""
    import math

    left, top, height, width = 36.0, 34.0, 190.0, 240.0
    drawing = Drawing(340, 270, alt)
    drawing.text(left, 18, title, bold=True)

    def place(number: int, value: float) -> tuple[float, float]:
        x = left + width * number / (len(DEVICES) - 1)
        share = value / 100 if percent else math.log2(max(value, 0.5)) / math.log2(DEVICES[-1])
        return x, top + height * (1 - max(0.0, share))

    for tick in (0, 25, 50, 75, 100) if percent else DEVICES:
        _, y = place(0, tick)
        drawing.line(left - 4, y, left + width, y, width=0.3)
        drawing.text(left - 8, y + 4, str(tick), size=12, anchor="end")
    for number, devices in enumerate(DEVICES):
        drawing.text(place(number, 1)[0], top + height + 18, str(devices), size=12, anchor="middle")
    drawing.text(left + width / 2, top + height + 38, "devices", size=12, anchor="middle")
    ends: list[float] = []
    for name, values, colour in series:
        points = [place(number, value) for number, value in enumerate(values)]
        drawing.curve(points, colour, dashed=name == "ideal")
        y = points[-1][1] + 4
        while any(abs(y - other) < 14 for other in ends):
            y += 2
        ends.append(y)
        drawing.text(points[-1][0] + 8, y, name, size=12)
    return drawing


def launches(kernel_us: int = 6, launch_us: int = 10, kernels: int = 6) -> Card:
    """A step's launches on the CPU and its kernels on the GPU, one by one and as a graph.

    Args:
        kernel_us: microseconds of a kernel.
        launch_us: microseconds that the CPU takes for a launch; a graph's one launch takes the same here.
    """
    whole_number("kernel_us", kernel_us, 1, 1000)
    whole_number("launch_us", launch_us, 1, 1000)
    whole_number("kernels", kernels, 1, 12)
    eager: list[float] = []  # when each kernel begins
    for number in range(kernels):
        told = (number + 1) * launch_us
        eager.append(max(told, eager[-1] + kernel_us) if eager else told)
    recorded = [float(launch_us + number * kernel_us) for number in range(kernels)]
    ends = [begins[-1] + kernel_us for begins in (eager, recorded)]
    idle = ends[0] - launch_us - kernels * kernel_us
    alt = (
        f"{kernels} kernels of {kernel_us} us, {launch_us} us a launch: one by one {ends[0]:.0f} us, of which the "
        f"GPU waits {idle:.0f} us between kernels; as a graph {ends[1]:.0f} us."
    )
    drawing = Drawing(480, 216, alt)
    scale = TIMELINE / max(ends)
    for row, (name, begins, count) in enumerate((("one by one", eager, kernels), ("as a graph", recorded, 1))):
        y = 8 + row * 104
        drawing.text(0, y + 12, name, bold=True)
        drawing.text(0, y + 42, "CPU")
        drawing.text(0, y + 76, "GPU")
        for number in range(count):
            label = "launch" if launch_us * scale > 46 else ""
            drawing.box(40 + number * launch_us * scale, y + 24, launch_us * scale, 26, FILLS[1], label, size=12)
        for number, begin in enumerate(begins):
            end_before = begins[number - 1] + kernel_us if number else begin
            if begin > end_before:
                drawing.box(40 + end_before * scale, y + 58, (begin - end_before) * scale, 26, ALERT, dashed=True)
            label = f"k{number}" if kernel_us * scale > 24 else ""
            drawing.box(40 + begin * scale, y + 58, kernel_us * scale, 26, FILLS[2], label, size=12)
    return figure(drawing, caption=f"{alt} Dashed: the GPU has nothing to do.")


def graph_memory() -> Card:
    """Which tensors a recorded step reads and writes, and who else may touch them."""
    alt = (
        "Each batch is copied into the graph's own images and labels; the graph computes with them, with the "
        "weights and with the rate, in memory of its own; each replay writes the loss into the same tensor, from "
        "which it is cloned."
    )
    drawing = Drawing(480, 214, alt)
    drawing.box(0, 40, 56, 32, QUIET, "batch")
    drawing.line(58, 56, 112, 56, arrow=True)
    drawing.text(84, 48, "copy_()", size=12, anchor="middle")
    drawing.box(102, 4, 278, 206, dashed=True)
    drawing.text(241, 22, "the same tensors in every replay", size=12, anchor="middle", bold=True)
    drawing.box(114, 40, 112, 32, FILLS[0], "static inputs", size=12)
    drawing.box(114, 90, 112, 32, FILLS[2], "weights", size=12)
    drawing.box(114, 140, 112, 32, FILLS[4], "rate, a tensor", size=12)
    drawing.box(258, 64, 112, 34, FILLS[1], "gradients, ...", size=12)
    drawing.box(258, 140, 112, 32, FILLS[3], "static loss", size=12)
    drawing.line(228, 56, 256, 72, arrow=True)
    drawing.line(228, 106, 256, 90, arrow=True)
    drawing.line(314, 100, 314, 138, arrow=True)
    drawing.text(114, 196, "numbers of Python's: written in", size=12)
    drawing.line(372, 156, 418, 156, arrow=True)
    drawing.text(400, 148, "clone()", size=12, anchor="middle")
    drawing.box(420, 140, 52, 32, QUIET, "loss")
    return figure(
        drawing,
        caption="A tensor that was bound to the same name later is not in the picture: the graph does not see it.",
    )
