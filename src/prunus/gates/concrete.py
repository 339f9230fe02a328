"""The gate of Concrete Ticket Search: `w -> z * w` with a concrete `z` for a mask that is drawn."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from prunus.gates.base import Gate, masked, wide

TEMPERATURE = 2 / 3
"""Of the concrete distribution."""

_EPS = 1e-6

Phase = Literal["open", "searching", "decided"]


class ConcreteGate(Gate):
    """`z = sigmoid((s + logit(u)) / tau)`, with `u ~ U(0, 1)` drawn anew in every forward pass.

    That is while `searching`, in training mode; in evaluation mode `z` is `sigmoid(s)`. While
    `open` the gate lets every weight through, and when `decided` those of the mask `kept`, which
    the method sets.

    The score `s` is a buffer: the method moves it by `gradient`, and by Adam's two moments.
    """

    score: Tensor
    first_moment: Tensor
    second_moment: Tensor
    kept: Tensor

    def __init__(self, weight: Tensor, score: float) -> None:
        super().__init__()
        start = torch.full_like(weight, score, dtype=wide(weight.dtype)).detach()
        self.register_buffer("score", start)
        self.register_buffer("first_moment", torch.zeros_like(start))
        self.register_buffer("second_moment", torch.zeros_like(start))
        self.register_buffer("kept", torch.ones_like(weight, dtype=torch.bool))
        self.phase: Phase = "open"
        self._probe: Tensor | None = None

    def enter(self, phase: Phase) -> None:
        """Begin a phase, or another step of it: gradients are collected anew."""
        self.phase = phase
        self._probe = None
        if phase == "searching":
            # Adding zero changes nothing but this: the zero gets the gradient of the score.
            self._probe = torch.zeros_like(self.score).requires_grad_()

    @property
    def gradient(self) -> Tensor | None:
        """`dL/ds`, summed over backward passes; None if there was none."""
        return None if self._probe is None else self._probe.grad

    def soft(self, w: Tensor) -> Tensor:
        if self.phase == "open":
            return w
        if self._probe is None:
            return masked(w, self.kept)
        if not self.training:
            return (torch.sigmoid(self.score) * w).to(w.dtype)
        noise = torch.rand_like(self.score).logit(_EPS)
        z = torch.sigmoid((self.score + self._probe + noise) / TEMPERATURE)
        return (z * w).to(w.dtype)

    def soft_mask(self) -> Tensor:
        """`sigmoid(s)` while searching: how probable it is that each weight is kept."""
        return torch.sigmoid(self.score) if self.phase == "searching" else self.kept.float()

    def decide(self) -> Tensor:
        return self.kept
