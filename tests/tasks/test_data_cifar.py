import pickle
import struct
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
from prunus.tasks.data.cifar import read_pickle

OPTIONS = DataOptions(validation_images=4)


def pixels(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 3072), dtype=np.uint8)


def python2_pickle(images: np.ndarray, labels: list[int]) -> bytes:
    """What Python 2's cPickle wrote into the official files: protocol 2 and byte strings."""

    def string(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    def number(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    dtype = b"cnumpy\ndtype\n(" + string(b"u1") + number(0) + number(1) + b"tR("
    dtype += number(3) + string(b"|") + b"NNN" + number(-1) + number(-1) + number(0) + b"tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(" + number(0) + b"t"
    array += string(b"b") + b"tR(" + number(1)
    array += b"(" + b"".join(map(number, images.shape)) + b"t" + dtype + b"\x89"
    array += b"T" + struct.pack("<i", images.size) + images.tobytes() + b"tb"
    content = string(b"data") + array
    content += string(b"labels") + b"](" + b"".join(map(number, labels)) + b"e"
    return b"\x80\x02}(" + content + b"u."


def write_cifar10(root: Path, count: int = 3) -> Path:
    folder = root / "cifar-10-batches-py"
    folder.mkdir()
    names = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    for seed, name in enumerate(names):
        content = {b"data": pixels(count, seed), b"labels": [seed] * count}
        (folder / name).write_bytes(pickle.dumps(content))
    return folder


def test_cifar10(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    data = load_data("cifar10", tmp_path, OPTIONS)
    assert isinstance(data, ArrayData)
    assert [len(part) for part in (data.train, data.validation, data.test)] == [11, 4, 3]
    assert (data.num_classes, data.image_size, data.channels) == (10, 32, 3)
    assert (data.padding, data.flip) == (4, True)
    assert data.test.labels.tolist() == [5, 5, 5]
    assert torch.equal(data.test.images, torch.from_numpy(pixels(3, 5)).reshape(3, 3, 32, 32))


def test_cifar10_at_half_the_size(tmp_path: Path) -> None:
    write_cifar10(tmp_path)
    data = load_data("cifar10", tmp_path, DataOptions(image_size=16, validation_images=4))
    assert isinstance(data, ArrayData)
    assert (data.image_size, data.padding) == (16, 2)


def test_cifar100(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-100-python"
    folder.mkdir()
    for name, count in (("train", 9), ("test", 2)):
        content = {"data": pixels(count), "fine_labels": [99] * count, "coarse_labels": [1] * count}
        (folder / name).write_bytes(pickle.dumps(content))
    data = load_data("cifar100", tmp_path, OPTIONS)
    assert isinstance(data, ArrayData)
    assert data.num_classes == 100
    assert data.train.labels.tolist() == [99] * 5


@pytest.mark.parametrize("protocol", [3, 4, 5])
def test_pickles_of_every_protocol(tmp_path: Path, protocol: int) -> None:
    path = tmp_path / "batch"
    path.write_bytes(pickle.dumps({b"data": pixels(2), b"labels": [1, 2]}, protocol))
    content = read_pickle(path)
    assert content["labels"] == [1, 2]
    assert (content["data"].shape, content["data"].data) == ((2, 3072), pixels(2).tobytes())


def test_pickle_of_python_2(tmp_path: Path) -> None:
    path = tmp_path / "batch"
    path.write_bytes(python2_pickle(pixels(2), [1, 2]))
    plain = pickle.loads(path.read_bytes(), encoding="bytes")
    assert np.array_equal(plain[b"data"], pixels(2))  # NumPy understands the bytes above
    content = read_pickle(path)
    assert content["labels"] == [1, 2]
    assert (content["data"].shape, content["data"].data) == ((2, 3072), pixels(2).tobytes())


class Evil:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.target,)


def test_a_pickle_cannot_run_code(tmp_path: Path) -> None:
    folder = write_cifar10(tmp_path)
    target = tmp_path / "owned"
    path = folder / "data_batch_3"
    path.write_bytes(pickle.dumps({b"data": Evil(target), b"labels": []}))
    with pytest.raises(DamagedDataError, match=r"data_batch_3 is not a CIFAR file: .*do not trust"):
        load_data("cifar10", tmp_path, OPTIONS)
    assert not target.exists()


@pytest.mark.parametrize("name", ["builtins\neval", "os\nsystem", "numpy\nload", "numpy\nfromfile"])
def test_no_other_name_is_looked_up(tmp_path: Path, name: str) -> None:
    path = tmp_path / "batch"
    path.write_bytes(f"c{name}\n.".encode())
    with pytest.raises(DamagedDataError, match=name.replace("\n", r"\.")):
        read_pickle(path)


@pytest.mark.parametrize("kept", [0, 1, 50, 3000, 9000])
def test_truncated_file(tmp_path: Path, kept: int) -> None:
    path = write_cifar10(tmp_path) / "data_batch_2"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(DamagedDataError, match=f"{path} is damaged or cut short"):
        load_data("cifar10", tmp_path, OPTIONS)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({b"data": pixels(2)}, "lacks its 'data' or 'labels'"),
        ({b"data": pixels(2), b"labels": [1]}, r"1 labels but pixels of shape \(2, 3072\)"),
        ({b"data": pixels(2), b"labels": [1, 10]}, r"labels outside 0\.\.9"),
        ({b"data": pixels(2).astype("f4"), b"labels": [1, 2]}, "array of 'f4', not of bytes"),
        ({b"data": np.asfortranarray(pixels(2)), b"labels": [1, 2]}, "CIFAR does not use"),
        ([1, 2], "damaged"),
    ],
)
def test_content_that_is_not_cifar(tmp_path: Path, content: object, message: str) -> None:
    path = write_cifar10(tmp_path) / "test_batch"
    path.write_bytes(pickle.dumps(content))
    with pytest.raises(DamagedDataError, match=f"test_batch .*{message}"):
        load_data("cifar10", tmp_path, OPTIONS)


def test_missing_folder_and_file(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError) as folder_missing:
        load_data("cifar10", tmp_path)
    message = str(folder_missing.value)
    assert f"looked at {tmp_path / 'cifar-10-batches-py'}" in message
    assert "Run the same command with --download" in message
    assert "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz" in message
    (write_cifar10(tmp_path) / "data_batch_4").unlink()
    with pytest.raises(MissingDataError, match="data_batch_4"):
        load_data("cifar10", tmp_path)
