import gzip
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from prunus.tasks.data import (
    ArrayData,
    DamagedDataError,
    DataOptions,
    MissingDataError,
    load_data,
)
from prunus.tasks.data.idx import read_idx

OPTIONS = DataOptions(validation_images=2)


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">{1 + array.ndim}I", 0x0800 | array.ndim, *array.shape) + array.tobytes()


def write_mnist(folder: Path, *, compress: bool = True) -> Path:
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    for part, count in (("train", 6), ("t10k", 3)):
        images = random.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        for name, array in (
            (f"{part}-images-idx3-ubyte", images),
            (f"{part}-labels-idx1-ubyte", np.arange(count, dtype=np.uint8)),
        ):
            if compress:
                (folder / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
            else:
                (folder / name).write_bytes(idx(array))
    return folder


def test_idx_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "images"
    path.write_bytes(bytes([0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 2, 1, 2, 3, 4]))
    assert read_idx(path, dimensions=3).tolist() == [[[1, 2], [3, 4]]]


@pytest.mark.parametrize("compress", [True, False])
@pytest.mark.parametrize(
    ("name", "folder", "augmented"),
    [
        ("mnist", "mnist", False),
        ("mnist", "MNIST/raw", False),
        ("fashion-mnist", "fashion-mnist", True),
    ],
)
def test_mnist_and_fashion_mnist(
    tmp_path: Path, name: str, folder: str, augmented: bool, compress: bool
) -> None:
    write_mnist(tmp_path / folder, compress=compress)
    data = load_data(name, tmp_path, OPTIONS)
    assert isinstance(data, ArrayData)
    assert [len(part) for part in (data.train, data.validation, data.test)] == [4, 2, 3]
    assert (data.num_classes, data.image_size, data.channels) == (10, 28, 1)
    assert (data.padding, data.flip) == ((3, True) if augmented else (0, False))
    assert data.test.labels.tolist() == [0, 1, 2]
    assert data.test.images.dtype == torch.uint8


def shorter(content: bytes) -> bytes:
    return content[:-1]


def longer(content: bytes) -> bytes:
    return content + b"x"


def other_magic(content: bytes) -> bytes:
    return b"\0\0\x0d" + content[3:]


def header_only(content: bytes) -> bytes:
    return content[:7]


@pytest.mark.parametrize("damage", [shorter, longer, other_magic, header_only])
@pytest.mark.parametrize("compress", [True, False])
def test_damaged_file(tmp_path: Path, damage: Callable[[bytes], bytes], compress: bool) -> None:
    folder = write_mnist(tmp_path / "mnist", compress=compress)
    path = folder / f"train-images-idx3-ubyte{'.gz' if compress else ''}"
    content = path.read_bytes()
    damaged = damage(gzip.decompress(content) if compress else content)
    path.write_bytes(gzip.compress(damaged) if compress else damaged)
    with pytest.raises(DamagedDataError, match=f"{path} .*get it again"):
        load_data("mnist", tmp_path, OPTIONS)


@pytest.mark.parametrize("kept", [0, 5, 30, 1000])
def test_truncated_gzip(tmp_path: Path, kept: int) -> None:
    path = write_mnist(tmp_path / "mnist") / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(DamagedDataError, match=f"{path} is damaged or cut short"):
        load_data("mnist", tmp_path, OPTIONS)


def test_files_that_do_not_belong_together(tmp_path: Path) -> None:
    folder = write_mnist(tmp_path / "mnist", compress=False)
    (folder / "train-labels-idx1-ubyte").write_bytes(idx(np.zeros(5, dtype=np.uint8)))
    with pytest.raises(DamagedDataError, match=r"6 images but .* 5 labels"):
        load_data("mnist", tmp_path, OPTIONS)
    (folder / "train-labels-idx1-ubyte").write_bytes(idx(np.full(6, 10, dtype=np.uint8)))
    with pytest.raises(DamagedDataError, match="labels above 9"):
        load_data("mnist", tmp_path, OPTIONS)


def test_missing(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError) as error:
        load_data("mnist", tmp_path)
    assert f"looked at {tmp_path}/mnist, {tmp_path}/MNIST/raw" in str(error.value)
    assert "Run the same command with --download" in str(error.value)
    (write_mnist(tmp_path / "mnist") / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(MissingDataError, match=r"t10k-labels-idx1-ubyte\[\.gz\]"):
        load_data("mnist", tmp_path)
