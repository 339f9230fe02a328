"""CIFAR-10 and CIFAR-100 from the official Python files.

These files are pickles, and a pickle can run any code. Nobody checks a folder that a colleague
passed on. So references to NumPy's classes are resolved to stand-ins that only store the raw bytes,
and a reference to anything else is refused.
"""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from prunus.tasks.data.arrays import ArrayData, Split, array_data
from prunus.tasks.data.errors import DamagedDataError
from prunus.tasks.data.sources import SOURCES, find_folder, missing
from prunus.tasks.data.splits import DataOptions

_SHAPE = (3, 32, 32)
_VALIDATION_IMAGES = 5_000
_CIFAR10 = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)


def cifar10(root: Path, options: DataOptions) -> ArrayData:
    """CIFAR-10: 50,000 training and 10,000 test images of ten classes."""
    return _cifar("cifar10", root, options, "labels", num_classes=10)


def cifar100(root: Path, options: DataOptions) -> ArrayData:
    """CIFAR-100: like CIFAR-10, with one hundred classes (the fine labels)."""
    return _cifar("cifar100", root, options, "fine_labels", num_classes=100)


def _cifar(
    name: str, root: Path, options: DataOptions, label_key: str, *, num_classes: int
) -> ArrayData:
    folder = find_folder(name, root)
    paths = [folder / file for file in SOURCES[name].unpacked]
    absent = [path for path in paths if not path.is_file()]
    if absent:
        raise missing(name, absent)
    *train, test = [_read_split(path, label_key, num_classes) for path in paths]
    return array_data(
        _joined(train),
        test,
        options,
        num_classes=num_classes,
        validation_images=_VALIDATION_IMAGES,
        augment=True,
        classes=_CIFAR10 if name == "cifar10" else (),
    )


def _joined(parts: list[Split]) -> Split:
    return Split(
        torch.cat([part.images for part in parts]), torch.cat([part.labels for part in parts])
    )


def _read_split(path: Path, label_key: str, num_classes: int) -> Split:
    content = read_pickle(path)
    pixels, labels = content.get("data"), content.get(label_key)
    if not isinstance(pixels, _Array) or not isinstance(labels, list):
        raise DamagedDataError(f"{path} lacks its 'data' or {label_key!r}; get the file again")
    if pixels.shape != (len(labels), 3072) or len(pixels.data) != len(labels) * 3072:
        raise DamagedDataError(
            f"{path} has {len(labels)} labels but pixels of shape {pixels.shape}; "
            f"get the file again"
        )
    if not all(isinstance(label, int) and 0 <= label < num_classes for label in labels):
        raise DamagedDataError(f"{path} has labels outside 0..{num_classes - 1}; get it again")
    images = np.frombuffer(bytearray(pixels.data), dtype=np.uint8).reshape(-1, *_SHAPE)
    return Split(torch.from_numpy(images), torch.tensor(labels, dtype=torch.int64))


def read_pickle(path: Path) -> dict[str, Any]:
    """The dictionary in a CIFAR file, with its keys as text and its arrays as stand-ins."""
    try:
        with path.open("rb") as file:
            content = _CifarUnpickler(file, encoding="bytes").load()
        return {key.decode() if isinstance(key, bytes) else key: content[key] for key in content}
    except DamagedDataError as error:
        raise DamagedDataError(f"{path} is not a CIFAR file: {error}") from error
    except Exception as error:  # a damaged pickle can raise anything
        raise DamagedDataError(
            f"{path} is damaged or cut short ({error}); delete it and get it again"
        ) from error


class _Array:
    """Stands in for a NumPy array of uint8; stores its shape and bytes."""

    shape: tuple[int, ...] = ()
    data: bytes = b""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, self.shape, kind, in_columns, self.data = state
        if kind is not _Uint8 or in_columns or not isinstance(self.data, bytes):
            raise DamagedDataError("it holds an array in a form that CIFAR does not use")


class _Dtype:
    """Stands in for `numpy.dtype`."""

    def __setstate__(self, state: object) -> None:
        """Byte order and the like, which a single byte does not have."""


_Uint8 = _Dtype()


def _dtype(kind: object, *_: object) -> _Dtype:
    if kind not in ("u1", b"u1"):
        raise DamagedDataError(f"it holds an array of {kind!r}, not of bytes")
    return _Uint8


def _reconstruct(*_: object) -> _Array:
    return _Array()


def _from_buffer(buffer: bytes, kind: object, shape: tuple[int, ...], order: object) -> _Array:
    array = _Array()
    array.__setstate__((1, shape, kind, order != "C", bytes(buffer)))
    return array


# Python 2 wrote `numpy.core`; NumPy 2 writes `numpy._core`, and with protocol 5 `_frombuffer`.
_STAND_INS: dict[tuple[str, str], Callable[..., object]] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _dtype,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy.core.numeric", "_frombuffer"): _from_buffer,
    ("numpy._core.numeric", "_frombuffer"): _from_buffer,
}


class _CifarUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Callable[..., object]:
        try:
            return _STAND_INS[module, name]
        except KeyError:
            raise DamagedDataError(
                f"it asks to run {module}.{name}, which no official file does; do not trust it"
            ) from None
