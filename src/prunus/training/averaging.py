"""An exponential moving average of a model's weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor, nn

from prunus.gates import plain_tensors


class WeightAverage:
    """Averages the weights and buffers of a model, but not what its gates learn.

    A mask on the model works on the average as on any weights, so removed ones count as zero.
    The decay at step `t` is at most `(1 + t) / (10 + t)`, so that even a short training forgets the
    initial weights.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self._live = {
            name: tensor.detach()
            for name, tensor in plain_tensors(model).items()
            if tensor.is_floating_point()
        }
        self._average = {name: tensor.clone() for name, tensor in self._live.items()}

    def update(self, step: int) -> None:
        """Take in the weights after training step number `step` (from 1)."""
        decay = min(self.decay, (1 + step) / (10 + step))
        for name, tensor in self._live.items():
            self._average[name].lerp_(tensor, 1 - decay)

    def apply(self) -> None:
        """Replace the model's weights with the average."""
        for name, tensor in self._live.items():
            tensor.copy_(self._average[name])

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Within this context the model has the average."""
        before = {name: tensor.clone() for name, tensor in self._live.items()}
        self.apply()
        try:
            yield
        finally:
            for name, tensor in self._live.items():
                tensor.copy_(before[name])

    def state_dict(self) -> dict[str, Tensor]:
        return dict(self._average)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        for name, average in self._average.items():
            average.copy_(state[name])
