"""Small runs on digits."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from prunus.search import execute, resolve

SMALL = {
    "task": "digits/digits_convnet",
    "recipe": {"epochs": 2, "batch_size": 25},
    "data": {"train_images": 100},
    "engine": {"accelerator": "cpu"},
}


@pytest.fixture
def settle(tmp_path: Path) -> Callable[..., Any]:
    """Settings and task of a small run."""

    def settle(command: str, /, **given: Any) -> Any:
        return resolve(command, {**SMALL, "out": str(tmp_path / "runs"), **given})

    return settle


@pytest.fixture
def perform(settle: Callable[..., Any]) -> Callable[..., Any]:
    """Executes a small run; returns its results and its folder."""

    def perform(command: str, /, **given: Any) -> Any:
        settings, task = settle(command, **given)
        return execute(settings, task), settings.folder

    return perform
