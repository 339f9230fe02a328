"""The ways in which the native core can run on this machine, for tests."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from prunus_runtime import native

ISAS = [isa for isa in native.ISAS if native.available() and native.lanes(isa)]

BATCHES = (1, 2, 4, 7, 15, 16, 17, 128)
"""Of all numbers of images in a chunk, whole chunks and others."""


@contextmanager
def everything_shared() -> Iterator[None]:
    """Threads share every operation, however small, by positions wherever there are some."""
    with patch("prunus_runtime.builder.SHARE", 1), patch("prunus_runtime.convolutions.TILE", 1):
        yield
