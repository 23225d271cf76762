"""The embedded data set: ten kinds of coloured shapes, 32x32, drawn in code from a seed. No download.

An image shows one shape at a random place, size, angle and squeeze, on a striped or shaded background among
small distractors, under noise. Each kind has its own part of the colour wheel, but the parts overlap: a network
soon learns the colours, and then has to learn the outlines. Edges are anti-aliased: coverage falls from one
to zero over the pixel that the outline crosses, found from the signed distance to it (negative inside).

The same seed gives the same bytes on every machine: the arrays go only through operations that IEEE 754
rounds alike everywhere (+, -, *, /, sqrt, floor, min, max), and the stream of numpy's RandomState is frozen
(NEP 19). The first N images do not depend on how many follow.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

SIZE = 32
TRAIN_IMAGES, TRAIN_SEED = 5_120, 1
VALID_IMAGES, VALID_SEED = 1_024, 2
DISTRACTORS = 3
CHUNK = 256  # images drawn together, few enough to stay in the processor's cache

SQRT_HALF = math.sqrt(0.5)
COS_36, SIN_36 = math.cos(math.pi / 5), math.sin(math.pi / 5)


# Outlines: the signed distance from the points (x, y) to a shape of radius about one; y points down.


def disc(x: np.ndarray, y: np.ndarray, radius: float = 0.88) -> np.ndarray:
    return np.sqrt(x * x + y * y) - radius


def box(x: np.ndarray, y: np.ndarray, half_width: float, half_height: float) -> np.ndarray:
    return np.maximum(np.abs(x) - half_width, np.abs(y) - half_height)


def arrow(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    head = np.maximum((np.abs(x) - y - 0.95) * SQRT_HALF, y + 0.1)
    return np.minimum(head, box(x, y - 0.4, 0.24, 0.55))


def crescent(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.maximum(disc(x, y, 0.95), -disc(x - 0.5, y, 0.78))


def cross(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.minimum(box(x, y, 0.95, 0.3), box(x, y, 0.3, 0.95))


def heart(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """A square on its tip and a disc on each of its two upper sides."""
    half, x = 0.58, np.abs(x)
    return np.minimum((x + np.abs(y)) * SQRT_HALF - half, disc(x - half * SQRT_HALF, y + half * SQRT_HALF, half))


def leaf(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return disc(np.abs(x) + 0.75, y, 1.25)


def ring(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.abs(disc(x, y, 0.72)) - 0.22


def square(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return box(x, y, 0.76, 0.76)


def star(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Five points: two reflections fold the plane onto one edge (Inigo Quilez, "2D distance functions")."""
    x = np.abs(x)
    for side in (1, -1):
        fold = 2 * np.maximum(side * COS_36 * x - SIN_36 * y, 0)
        x, y = x - side * COS_36 * fold, y + SIN_36 * fold
    x, y = np.abs(x), y - 1.05
    edge_x, edge_y = 0.45 * SIN_36, 0.45 * COS_36 - 1
    return (y * edge_x - x * edge_y) / math.hypot(edge_x, edge_y)


def triangle(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.maximum(math.sqrt(0.75) * np.abs(x) - 0.5 * y, y) - 0.52


OUTLINES: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "arrow": arrow,
    "crescent": crescent,
    "cross": cross,
    "disc": disc,
    "heart": heart,
    "leaf": leaf,
    "ring": ring,
    "square": square,
    "star": star,
    "triangle": triangle,
}
CLASSES = tuple(OUTLINES)


def draw(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Draw `count` images: uint8 [count, 3, 32, 32] and their labels, int64 [count], indices into CLASSES."""
    numbers = np.random.RandomState(seed).random_sample((count, Dice.SIDES))
    grain = np.random.RandomState(seed + 1_000_000)
    images, labels = np.empty((count, 3, SIZE, SIZE), np.uint8), np.empty(count, np.int64)
    for start in range(0, count, CHUNK):
        chunk = slice(start, min(start + CHUNK, count))
        images[chunk], labels[chunk] = _draw_chunk(Dice(numbers[chunk]), grain)
    return torch.from_numpy(images), torch.from_numpy(labels)


class Dice:
    """Random numbers, one for each image of the chunk; row i of `numbers` is all the chance in image i."""

    SIDES = 64  # numbers an image may use

    def __init__(self, numbers: np.ndarray) -> None:
        self.columns = iter(numbers.T)

    def __call__(self, low: float, high: float) -> np.ndarray:
        """[N] float32, uniform between low and high."""
        return (low + (high - low) * next(self.columns)).astype(np.float32)

    def coin(self) -> np.ndarray:
        """[N] bool."""
        return next(self.columns) < 0.5


def _draw_chunk(dice: Dice, grain: np.random.RandomState) -> tuple[np.ndarray, np.ndarray]:
    labels = np.floor(dice(0, len(CLASSES))).astype(np.int64)
    canvas = _background(dice)
    for _ in range(DISTRACTORS):
        _add_distractor(canvas, dice)
    _add_shape(canvas, labels, dice)
    noise = np.frombuffer(grain.bytes(canvas.size), np.uint8).reshape(canvas.shape).astype(np.float32)
    canvas += _spread(dice(0.02, 0.15)) * (noise / 255 - 0.5)
    return np.floor(np.clip(canvas, 0, 1) * 255 + 0.5).astype(np.uint8), labels


def _background(dice: Dice) -> np.ndarray:
    """[N, 3, SIZE, SIZE]: one colour turns into another along one direction, in half of the images in stripes."""
    first, second = (_colour(dice(0, 1), dice(0, 0.35), dice(0.05, 0.6)) for _ in range(2))
    x, y = _turned_grid(dice(8, 24), dice(8, 24), dice(-0.5, 0.5))
    ramp = np.clip(y / 40 + 0.5, 0, 1)
    wave = x / dice(5, 20)[:, None, None]
    triangle_wave = np.abs(wave - np.floor(wave) - 0.5) * 2
    stripes = np.clip(triangle_wave * 3 - 1, 0, 1)
    mix = np.where(dice.coin()[:, None, None], (ramp + stripes) / 2, ramp)
    return _spread(first) + mix[:, None] * _spread(second - first)


def _add_distractor(canvas: np.ndarray, dice: Dice) -> None:
    """A small disc or bar somewhere."""
    x, y = _turned_grid(dice(2, 30), dice(2, 30), dice(-0.5, 0.5))
    radius, flatness = dice(1.2, 3.2)[:, None, None], dice(0.35, 1)[:, None, None]
    dot, bar = disc(x, y, 0) - radius, np.maximum(np.abs(x) - radius, np.abs(y) - radius * flatness)
    distance = np.where(dice.coin()[:, None, None], dot, bar)
    _paint(canvas, distance, _colour(dice(0, 1), dice(0.2, 0.5), dice(0.2, 0.7)), dice(0.4, 0.9))


def _add_shape(canvas: np.ndarray, labels: np.ndarray, dice: Dice) -> None:
    x, y = _turned_grid(dice(12.5, 19.5), dice(12.5, 19.5), dice(-0.08, 0.08))
    radius, squeeze = dice(8.5, 12.5)[:, None, None], dice(0.8, 1)[:, None, None]
    x, y = x / radius, y / (radius * squeeze)
    distance = np.empty_like(x)
    for label, outline in enumerate(OUTLINES.values()):
        chosen = labels == label
        distance[chosen] = outline(x[chosen], y[chosen])
    hue = (labels / len(CLASSES)).astype(np.float32) + dice(-0.12, 0.12)
    _paint(canvas, distance * radius * squeeze, _colour(hue, dice(0.45, 1), dice(0.6, 1)), dice(0.75, 1))


def _turned_grid(centre_x: np.ndarray, centre_y: np.ndarray, turn: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pixel coordinates x, y [N, SIZE, SIZE] seen from a centre, turned by a fraction of a full turn."""
    pixels = np.arange(SIZE, dtype=np.float32) + 0.5
    x = pixels[None, None, :] - centre_x[:, None, None]
    y = pixels[None, :, None] - centre_y[:, None, None]
    # In float64, then rounded: a last digit that differs between machines does not get through.
    angle = 2 * math.pi * turn.astype(np.float64)[:, None, None]
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    return x * cos + y * sin, y * cos - x * sin


def _colour(hue: np.ndarray, saturation: np.ndarray, value: np.ndarray) -> np.ndarray:
    """HSV to RGB, [N] each to [N, 3]; the hue is a fraction of the colour wheel and may run over."""
    sector = hue[:, None] + np.array([0, 2 / 3, 1 / 3], np.float32)
    sector = 6 * (sector - np.floor(sector))
    pure = np.clip(np.abs(sector - 3) - 1, 0, 1)
    return value[:, None] * (1 - saturation[:, None] * (1 - pure))


def _paint(canvas: np.ndarray, distance: np.ndarray, colour: np.ndarray, opacity: np.ndarray) -> None:
    """Lay a colour over the pixels of the canvas [N, 3, SIZE, SIZE] where the distance [N, SIZE, SIZE] < 0."""
    coverage = np.clip(0.5 - distance, 0, 1) * opacity[:, None, None]
    canvas += coverage[:, None] * (_spread(colour) - canvas)


def _spread(values: np.ndarray) -> np.ndarray:
    """[N] or [N, 3] made to fit a canvas [N, 3, SIZE, SIZE]."""
    return values.reshape(len(values), -1, 1, 1)
