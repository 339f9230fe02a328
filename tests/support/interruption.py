"""Runs that are interrupted in the middle of a step."""

from collections.abc import Callable

import pytest

from prunus.training import Trainer


def with_plug_pulled(
    monkeypatch: pytest.MonkeyPatch, step: int, work: Callable[[], object]
) -> None:
    """Do `work` until training step number `step` (from 1) begins, which fails."""
    forward, calls = Trainer._forward_backward, []

    def failing(self: Trainer, batch: object) -> object:
        calls.append(1)
        if len(calls) == step:
            raise RuntimeError("pulled the plug")
        return forward(self, batch)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_forward_backward", failing)
        with pytest.raises(RuntimeError, match="plug"):
            work()
