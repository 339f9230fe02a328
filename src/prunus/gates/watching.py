"""Hooks of Prunus on modules, and the gate of Wanda, which sees what its layer gets."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from prunus.gates.base import wide
from prunus.gates.fixed import FixedGate
from prunus.gates.inputs import InputLayout


class Watcher:
    """Marks a hook on a module that is to be gone when the gates are taken off.

    Hooks are objects and not functions, so that those of a copied model belong to the copy.
    """


def stop_watching(module: nn.Module, kind: type[Watcher] = Watcher) -> None:
    """Take the hooks of that kind off a module (not off those inside it)."""
    for hooks in (module._forward_pre_hooks, module._forward_hooks):
        for key in [key for key, hook in hooks.items() if isinstance(hook, kind)]:
            del hooks[key]
            module._forward_hooks_always_called.pop(key, None)


class WatchingGate(FixedGate):
    """`w -> m * w`, and on request the squares of its layer's inputs, added up.

    `energy[j]` is the sum of `x_j^2`, and zero if the `layout` of the inputs is not known (None).
    """

    energy: Tensor

    def __init__(self, weight: Tensor, layout: InputLayout | None) -> None:
        super().__init__(torch.ones_like(weight, dtype=torch.bool))
        self.layout = layout
        inputs = layout.inputs if layout else 1
        energy = torch.zeros(inputs, dtype=wide(weight.dtype), device=weight.device)
        self.register_buffer("energy", energy)
        self.listening = False
        self._seen: Tensor | None = None

    def watch(self, x: Tensor) -> None:
        """Called before each forward pass of the layer; those with the hard mask do not count."""
        if self.layout is None or not self.listening or self.hard:
            return
        others = [axis for axis in range(x.dim()) if axis != x.dim() + self.layout.axis]
        squares = x.detach().to(self.energy.dtype).square().sum(others)
        self._seen = squares if self._seen is None else self._seen + squares

    def take(self) -> Tensor | None:
        """What this process has seen since the last call."""
        seen, self._seen = self._seen, None
        return seen


class InputWatcher(Watcher):
    """Shows a gate what its layer gets: a hook for `register_forward_pre_hook`."""

    def __init__(self, gate: WatchingGate) -> None:
        self.gate = gate

    def __call__(self, _: nn.Module, arguments: tuple[Any, ...]) -> None:
        if arguments and isinstance(arguments[0], Tensor):
            self.gate.watch(arguments[0])
