"""Trainers of a small network."""

from collections.abc import Callable
from typing import Any

import pytest

import prunus
from prunus.tasks.recipes import Recipe
from prunus.training import Engine, EngineSettings, Trainer
from support.small import batches, network


@pytest.fixture
def make() -> Callable[..., Trainer]:
    """A trainer of the network with CS on it (or with `method=None`)."""

    def make(method: bool = True, recipe: dict[str, Any] | None = None, **settings: Any) -> Trainer:
        engine = Engine(EngineSettings(accelerator="cpu", **settings))
        model = engine.prepare(network())
        cs = (
            prunus.ContinuousSparsification(model, steps=10, mask_init=0.01, rewind_step=2)
            if method
            else None
        )
        values = {"epochs": 2, "batch_size": 8, "lr": 0.05, "drops": (1.5,), **(recipe or {})}
        return Trainer(engine, model, batches(engine), Recipe(**values), method=cs)

    return make
