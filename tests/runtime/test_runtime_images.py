"""Files of images are seen as people see them, by the runtime and in training."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from prunus.tasks.data.image_transforms import read_image
from prunus_runtime.images import Images

ORIENTATION = 0x112
GREY = np.arange(24, dtype=np.uint8).reshape(4, 6) * 10
SEEN = Images((0.0,), (1.0,), 4, order="grey")


def png(image: Image.Image, exif: Image.Exif | bytes | None = None) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG", **({} if exif is None else {"exif": exif}))
    return file.getvalue()


@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_are_turned_as_their_camera_says(orientation: int, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    stored = png(Image.fromarray(GREY), exif)
    expected = np.array(ImageOps.exif_transpose(Image.open(io.BytesIO(stored))))
    assert (orientation in (1, 2, 3, 4)) == (expected.shape == GREY.shape)
    height, width = expected.shape
    seen = SEEN.read(stored, (1, height, width))
    np.testing.assert_array_equal(seen[0], expected)
    (tmp_path / "it.png").write_bytes(stored)
    trained = np.array(read_image(tmp_path / "it.png"))
    np.testing.assert_array_equal(trained, np.stack([expected] * 3, -1))


def test_sixteen_bits_are_not_cut_off(tmp_path: Path) -> None:
    stored = png(Image.fromarray(GREY.astype(np.uint16) * 257))
    np.testing.assert_array_equal(SEEN.read(stored, (1, 4, 6))[0], GREY)
    (tmp_path / "it.png").write_bytes(stored)
    np.testing.assert_array_equal(np.array(read_image(tmp_path / "it.png"))[..., 0], GREY)


@pytest.mark.parametrize("exif", [b"Exif\0\0nonsense", b"Exif\0\0MM\0*\0\0\0\x08\xff\xff", b""])
def test_damaged_exif_data_leave_the_image(exif: bytes) -> None:
    stored = png(Image.fromarray(GREY), exif)
    np.testing.assert_array_equal(SEEN.read(stored, (1, 4, 6))[0], GREY)


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "LA", "P", "CMYK"])
def test_images_of_any_colours(mode: str) -> None:
    file = io.BytesIO()
    image = Image.fromarray(GREY).convert(mode)
    image.save(
        file, "JPEG" if mode == "CMYK" else "PNG", **({"quality": 100} if mode == "CMYK" else {})
    )
    seen = SEEN.read(file.getvalue(), (1, 4, 6))[0]
    assert np.abs(seen.astype(int) - GREY).max() <= (8 if mode == "CMYK" else 1)
