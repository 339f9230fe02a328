"""Small gates of a model, made together at the start of its forward pass.

A gate alone costs some Python each way, between layers that have just emptied the processor's
caches. For small layers that is far more than the gate itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from prunus.gates.base import Gate
from prunus.gates.places import gate_of, gated
from prunus.gates.sigmoid import SigmoidGate, gate_weights
from prunus.gates.watching import Watcher

_SMALL = 1 << 17
"""Weights of more numbers are made just before their layer reads them, while they are in cache."""


def gate_together(model: nn.Module) -> None:
    """From now on, make the small gates of `model` together whenever it is trained."""
    together = Together([(module, attribute) for _, module, attribute in gated(model)])
    model.register_forward_pre_hook(together)
    model.register_forward_hook(Apart(together), always_call=True)


class Together(Watcher):
    """A forward pre-hook of the model. Gates that it passes over are made alone."""

    def __init__(self, places: Sequence[tuple[nn.Module, str]]) -> None:
        self.places = places
        self.made: list[SigmoidGate] = []

    def __call__(self, *_: Any) -> None:
        if torch.compiler.is_compiling() or not torch.is_grad_enabled():
            return
        pairs = (gate_of(*place) for place in self.places)
        small = {cast(SigmoidGate, gate): w for gate, w in pairs if _is_small(gate, w)}
        if len(small) > 1:
            self.made = list(small)
            weights = gate_weights(self.made, list(small.values()))
            for gate, weight in zip(self.made, weights, strict=True):
                gate.made = weight


class Apart(Watcher):
    """A forward hook of the model: forgets what was made, which is for this pass alone."""

    def __init__(self, together: Together) -> None:
        self.together = together

    def __call__(self, *_: Any) -> None:
        if not torch.compiler.is_compiling():
            for gate in self.together.made:
                gate.made = None


def _is_small(gate: Gate, w: Tensor) -> bool:
    # Of sharded tensors, which are of another type, not all numbers are here. On other devices
    # Python runs ahead of the arithmetic.
    plain = isinstance(gate, SigmoidGate) and {type(w), type(gate.score)} <= {Tensor, nn.Parameter}
    return plain and w.is_cpu and w.numel() <= _SMALL and not gate.is_hard
