"""The gate of Continuous Sparsification: `w -> c * sigmoid(beta * s) * w`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self, cast

import torch
from torch import Tensor, nn

from prunus.gates import native
from prunus.gates.base import Gate, wide
from prunus.gates.granularity import Layout
from prunus.gates.passes import L1, Pass, SigmoidGates, closed
from prunus.gates.sharded import is_sharded, local, summed_up


class SigmoidGate(Gate):
    """A soft gate with a learned score `s`, hardened by raising its temperature `beta`.

    The score is float32 (or wider, if the weight is) and has the layout's shape; `scale` is the
    factor `c`. The temperature is a buffer: changing it recompiles nothing, `state_dict` has it.
    So are, if it is learned how much a kept weight counts, `size`, which is that, and `settling`, a
    factor of the soft gate alone that falls to 1.
    """

    temperature: Tensor
    settling: Tensor | None
    size: Tensor | None

    def __init__(
        self,
        weight: Tensor,
        layout: Layout,
        mask_init: float,
        scale: float,
        penalised: bool,
        learns_size: bool = False,
    ) -> None:
        super().__init__()
        self.layout = layout
        self.scale = scale
        self.penalised = penalised
        dtype = wide(weight.dtype)
        if layout.score == layout.weight:  # full_like keeps the memory format
            score = torch.full_like(weight, mask_init, dtype=dtype)
        else:
            score = torch.full(layout.score, mask_init, dtype=dtype, device=weight.device)
        self.score = nn.Parameter(score.detach())
        self.register_buffer("temperature", torch.ones((), dtype=dtype, device=weight.device))
        one = torch.ones_like(self.temperature)
        self.register_buffer("settling", 2 * one if learns_size else None)
        self.register_buffer("size", one.clone() if learns_size else None)
        self._pull = one.clone().requires_grad_() if learns_size else None
        self.made: Tensor | None = None
        """The gated weight, during a forward pass that made it with others (`together.py`)."""
        self._forward_l1: tuple[Tensor, tuple[int, int], bool] | None = None

    def soft(self, w: Tensor) -> Tensor:
        if torch.compiler.is_compiling():  # which fuses by itself, and breaks at `out=`
            m = self.soft_mask()
            gated = self._factor() * m * w.view(self.layout.view)
            if self._pull is not None:
                gated = gated * self._pull  # a factor of 1, whose gradient is the pull
            if self.penalised and torch.is_grad_enabled():
                self._keep_l1(m.sum() * self.layout.weights_per_gate, compiled=True)
            return gated.reshape(w.shape).to(w.dtype)
        if self.made is not None and torch.is_grad_enabled():
            return self.made
        return gate_weights([self], [w])[0]

    def l1(self) -> Tensor:
        """`||sigmoid(beta*s)||_1` over all weights of this gate, differentiable.

        The forward pass has the soft mask in its hands anyway: the sum is taken there, and its
        gradient rides on the gate's own backward pass. Only when that sum is out of date (no
        forward pass since score or temperature changed, or a backward pass of a compiled model used
        it) is it computed here.
        """
        latest, self._forward_l1 = self._forward_l1, None
        if is_sharded(self.score):  # the forward pass had other tensors, all of each
            mask = closed(torch.sigmoid(local(self.score) * self.temperature))
            return summed_up(mask.sum() * self.layout.weights_per_gate, self.score)
        if latest is not None and torch.is_grad_enabled():
            l1, versions, compiled = latest
            current = versions == (self.score._version, self.temperature._version)
            if current and not (compiled and _is_freed(l1)):
                return l1
        if native.takes(self.score) and not torch.compiler.is_compiling():
            l1 = cast(Tensor, L1.apply(self.score, self.temperature))  # type: ignore[no-untyped-call]
        else:
            l1 = self.soft_mask().sum()
        return l1 * self.layout.weights_per_gate

    def move(self, gradient: Tensor, rate: float) -> None:
        """`s <- s - rate * dL/du` with `u = beta*s`, by the `gradient` of `s`.

        An overflow in half precision, for which optimisers skip a step, moves nothing.
        """
        if native.takes(self.score, gradient):
            native.move(self.score, gradient, self.temperature, rate)
        else:
            step = (gradient / self.temperature).nan_to_num_(0.0, 0.0, 0.0)
            self.score.sub_(step, alpha=rate)

    @property
    def learns_size(self) -> bool:
        """Whether each backward pass adds to the `pull`."""
        return self._pull is not None

    def feel(self, pull: Tensor) -> None:
        """Add the pull that one backward pass has found."""
        assert self._pull is not None
        if self._pull.device != pull.device:  # `fully_shard` moves parameters and buffers alone
            self._pull = torch.ones_like(pull).requires_grad_()
        self._pull.grad = pull if self._pull.grad is None else self._pull.grad + pull

    def take_pull(self) -> Tensor:
        """`dL/dlog(size)`, summed over backward passes since the last call.

        Zero if there were none: of several processes, some may not use the gate.
        """
        assert self._pull is not None
        pull, self._pull.grad = self._pull.grad, None
        nothing = torch.zeros_like(self.temperature)
        return nothing if pull is None else pull.to(nothing.device)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """As of any module; clears the pull too."""
        super().zero_grad(set_to_none)
        if self._pull is not None:
            self._pull.grad = None

    def effective(self, w: Tensor) -> Tensor:
        return super().effective(w) if self.size is None else (w * self.size).to(w.dtype)

    @torch.no_grad()
    def fold(self, w: Tensor) -> None:
        if self.size is not None:
            w.mul_(self.size.item())
            self.unscale()

    def unscale(self) -> None:
        if self.size is not None:
            self.size.fill_(1.0)

    def scale_like(self, other: Gate) -> None:
        if self.size is not None and isinstance(other, SigmoidGate) and other.size is not None:
            self.size.copy_(other.size)

    def soft_mask(self) -> Tensor:
        """`sigmoid(beta*s)`, one value per gate; exactly zero below `CLOSED`."""
        return closed(torch.sigmoid(self.score * self.temperature))

    def decide(self) -> Tensor:
        # H(s): decided by the sign of s, never by a sigmoid that underflows.
        return (self.score > 0).expand(self.layout.view).reshape(self.layout.weight)

    def _factor(self) -> float | Tensor:
        """What the soft gate multiplies by, beside the soft mask."""
        if self.settling is None or self.size is None:
            return self.scale
        return self.settling * self.size

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        if self._pull is not None:  # on the same device as all else
            self._pull = torch.ones_like(self.temperature).requires_grad_()
        return self

    def _keep_l1(self, l1: Tensor, compiled: bool = False) -> None:
        self._forward_l1 = (l1, (self.score._version, self.temperature._version), compiled)

    def __getstate__(self) -> dict[str, Any]:
        # A tensor inside an autograd graph can be neither copied nor saved.
        return {**self.__dict__, "made": None, "_forward_l1": None}


def gate_weights(gates: Sequence[SigmoidGate], weights: Sequence[Tensor]) -> list[Tensor]:
    """What the network computes with instead of `weights`: one node of the autograd graph."""
    learning = torch.is_grad_enabled()
    settings: list[Pass] = []
    tensors: list[Tensor] = []
    for gate, w in zip(gates, weights, strict=True):
        # A view would be a node too, even if it changes nothing.
        view = w if gate.layout.view == w.shape else w.view(gate.layout.view)
        scale = gate._factor()
        if isinstance(scale, Tensor):
            if native.takes(view, gate.score):
                scale = scale.item()
            else:  # to read a number of another device would be to wait for it
                view, scale = view * scale, 1.0
        settings.append((scale, gate.penalised and learning, gate))
        tensors += view, gate.score, gate.temperature
    outputs = SigmoidGates.apply(settings, *tensors)  # type: ignore[no-untyped-call]
    gated: list[Tensor] = []
    for i, (gate, w) in enumerate(zip(gates, weights, strict=True)):
        if settings[i][1]:
            gate._keep_l1(outputs[2 * i + 1])
        out = outputs[2 * i]
        gated.append((out if out.shape == w.shape else out.reshape(w.shape)).to(w.dtype))
    return gated


def _is_freed(l1: Tensor) -> bool:
    """Whether a backward pass has used the compiled graph behind this sum, or may have."""
    try:
        cast(Any, l1.grad_fn).saved_tensors  # noqa: B018
    except (RuntimeError, AttributeError):  # the latter where the backend does not compile
        return True
    return False
