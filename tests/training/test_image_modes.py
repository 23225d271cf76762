"""What images hold besides 8-bit colours comes through: 16 bits and floats scaled, transparency on white."""

import numpy as np
import pytest
from PIL import Image

from lab.base.errors import UserError
from lab.training.data.imagefolder import decode_full, load_imagefolder

RAMP = np.linspace(0, 1, 32 * 32).reshape(32, 32)
EIGHT_BITS = np.floor(RAMP * 255 + 0.5).astype(np.uint8)


def save(array, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".pgm":
        height, width = array.shape
        path.write_bytes(b"P5\n%d %d\n65535\n" % (width, height) + array.astype(">u2").tobytes())
    else:
        Image.fromarray(array).save(path)
    return path


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("x.png", np.round(RAMP * 65535).astype(np.uint16)),
        ("x.tif", np.round(RAMP * 65535).astype(np.uint16)),
        ("x.pgm", np.round(RAMP * 65535).astype(np.uint16)),
        ("f.tif", RAMP.astype(np.float32)),
    ],
    ids=["png 16", "tiff 16", "pgm 16", "tiff float"],
)
def test_more_bits_are_scaled_and_not_cut_off(tmp_path, name, values, capfd):
    path = save(values, tmp_path / "train" / "a" / name)
    found = load_imagefolder(tmp_path, tmp_path / "cache")[1]["train"].images[0].numpy()
    assert np.abs(found.astype(int) - EIGHT_BITS).max() <= 1
    assert np.array_equal(found, decode_full(str(path)))
    assert "train: 1 image of 16 bits or floating point: scaled to 8 bits" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (np.arange(1024, dtype=np.int32).reshape(32, 32), "32-bit pixels from 0 to 1023"),
        (RAMP.astype(np.float32) * 255, "floating point pixels from 0 to 255"),
        (np.where(RAMP > 0.5, np.nan, RAMP).astype(np.float32), "floating point pixels from nan to nan"),
    ],
    ids=["32 bits", "floats beyond 1", "not a number"],
)
def test_where_nothing_says_what_is_white_the_file_is_named(tmp_path, values, says):
    path = save(values, tmp_path / "train" / "a" / "x.tif")
    with pytest.raises(UserError) as error:
        load_imagefolder(tmp_path, tmp_path / "cache")
    assert str(path) in str(error.value)
    assert says in str(error.value)
    assert "8 or 16 bits" in str(error.value)


def transparent(mode):
    image = Image.new("RGBA", (32, 32), (200, 0, 0, 255))
    image.paste((0, 0, 0, 0), (0, 0, 16, 32))  # the left half shows what is below
    if mode == "P":
        image = image.convert("RGB").quantize(4)
        image.info["transparency"] = image.getpixel((0, 0))
    return image if mode == "P" else image.convert(mode)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_what_is_transparent_becomes_white(tmp_path, mode, capfd):
    path = tmp_path / "train" / "a" / "x.png"
    path.parent.mkdir(parents=True)
    transparent(mode).save(path)
    found = load_imagefolder(tmp_path, tmp_path / "cache")[1]["train"].images[0].numpy()
    assert (found[:, :, :16] == 255).all()
    assert found[0, 0, 20] in (60, 200)
    assert "train: 1 image with transparent pixels: laid on white" in capfd.readouterr().err


def test_of_an_animation_the_first_picture_is_taken_and_that_is_said(tmp_path, capfd):
    path = tmp_path / "train" / "a" / "x.gif"
    path.parent.mkdir(parents=True)
    first, second = (Image.new("RGB", (32, 32), colour) for colour in ("red", "blue"))
    first.save(path, save_all=True, append_images=[second])
    assert load_imagefolder(tmp_path, tmp_path / "cache")[1]["train"].images[0, :, 0, 0].tolist() == [255, 0, 0]
    assert "train: 1 image of several frames: the first one taken" in capfd.readouterr().err
