"""How much of a masked network is left, beside the density of the weights that were masked."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor, nn

from prunus.errors import AttachError
from prunus.gates import Watcher, count_parameters, gated_parameters
from prunus.masks import Mask
from prunus.methods.common.costs import MultiplyAdds
from prunus.runs.connected import effective_density
from prunus.selection import Candidate


class Kept(NamedTuple):
    """Kept fractions, as `StageResult` has them; None where nobody knows."""

    network_density: float
    kept_macs: float | None = None
    effective_density: float | None = None


class Size:
    """Counts multiply-adds in the forward passes between its making and `found()`."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        masked = [
            Candidate(name, "", weight, ((name, model.get_submodule(path), attribute),))
            for name, (_, weight) in gated_parameters(model).items()
            for path, _, attribute in [name.rpartition(".")]
        ]
        self._counter = MultiplyAdds(model, masked) if masked else None
        self._inputs = _FirstInputs()
        self._handle = model.register_forward_pre_hook(self._inputs, with_kwargs=True)

    def found(self) -> Kept:
        """What is kept of all parameters, and of the multiply-adds of masked layers; and what of
        the masked weights is connected."""
        self._handle.remove()
        if self._counter is None:
            return Kept(1.0)
        mask, total = Mask.of(self._model), count_parameters(self._model)
        of_all = (total - mask.total + mask.kept) / total
        try:
            cost = self._counter.factors()
        except AttachError:  # no held-out data, so no forward pass
            self._counter.remove()
            return Kept(of_all)
        kept = sum(cost[layer.name] * layer.kept for layer in mask.layers)
        every = sum(cost[layer.name] * layer.total for layer in mask.layers)
        example = self._inputs.example
        connected = None if example is None else effective_density(self._model, mask, example)
        return Kept(of_all, kept / every, connected)


class _FirstInputs(Watcher):
    """A hook that keeps one sample of the model's first input, if that is a single tensor."""

    def __init__(self) -> None:
        self._seen = False
        self.example: Tensor | None = None

    def __call__(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not self._seen and len(args) == 1 and not kwargs and isinstance(args[0], Tensor):
            self.example = args[0][:1].detach()
        self._seen = True
