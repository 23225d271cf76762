"""One image file as 8-bit RGB, whatever it holds: nothing is cut off or dropped without a word."""

import struct
import zlib
from typing import Any

import numpy as np

from lab.base.errors import UserError

SIXTEEN_BITS = 65_535
WHITE = (255, 255, 255)

# What was done to an image that is not 8-bit RGB or grey already, for the note about a whole split.
SCALED = "of 16 bits or floating point: scaled to 8 bits"
ON_WHITE = "with transparent pixels: laid on white"
FIRST_FRAME = "of several frames: the first one taken"


def open_image(path: str) -> tuple[Any, list[str]]:
    """A Pillow image in RGB, and which of the changes above it took.

    Raises UserError when it cannot be read or decoded, or nobody says which of its numbers is white.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as opened:
            moves = bool(getattr(opened, "is_animated", False))
            opened.load()
            image, done = _to_rgb(opened, path)
            return image, [FIRST_FRAME] * moves + done
    except PermissionError as error:
        raise UserError(f"Cannot read the image {path}: no permission.") from error
    except UnidentifiedImageError as error:
        raise UserError(f"{path} is not an image: replace it or delete it.") from error
    except (OSError, ValueError, SyntaxError, struct.error, zlib.error, Image.DecompressionBombError) as error:
        raise UserError(f"The image {path} is damaged ({error}): replace it or delete it.") from error


def _to_rgb(image: Any, path: str) -> tuple[Any, list[str]]:
    from PIL import Image

    if image.mode.startswith("I") or image.mode == "F":
        return Image.fromarray(_to_8_bits(image, path)).convert("RGB"), [SCALED]
    if image.has_transparency_data:
        layers = image.convert("RGBA")
        if layers.getextrema()[3][0] < 255:  # else nothing shines through
            paper = Image.new("RGBA", layers.size, (*WHITE, 255))
            return Image.alpha_composite(paper, layers).convert("RGB"), [ON_WHITE]
        return layers.convert("RGB"), []
    return image.convert("RGB"), []


def _to_8_bits(image: Any, path: str) -> np.ndarray:
    """uint8 [H, W] of grey values that have more bits: black stays black, and the largest number is white.

    The largest number is 65,535 for 16 bits, also where Pillow keeps them in 32 (PGM), and 1.0 for floats. For
    other 32-bit images it could be anything. Pillow's own conversion would cut all above 255 off.
    """
    values = np.asarray(image)
    if image.mode == "F":
        if not (np.isfinite(values).all() and values.min() >= 0 and values.max() <= 1):
            raise UserError(
                f"{path} has floating point pixels from {values.min():g} to {values.max():g}, and nothing says "
                "which of them is white: scale them to 0..1, or save the image with 8 or 16 bits."
            )
        return np.floor(values * 255.0 + 0.5).astype(np.uint8)
    if image.mode == "I" and image.format not in ("PPM", "PNG"):
        raise UserError(
            f"{path} has 32-bit pixels from {values.min()} to {values.max()}, and nothing says which of them is "
            "white: save the image with 8 or 16 bits."
        )
    return ((values.astype(np.uint32) * 255 + SIXTEEN_BITS // 2) // SIXTEEN_BITS).astype(np.uint8)
