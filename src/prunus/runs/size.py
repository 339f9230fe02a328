"""How much of a masked network is left, beside the density of the weights that were masked."""

from __future__ import annotations

from torch import nn

from prunus.errors import AttachError
from prunus.gates import count_parameters, gated_parameters
from prunus.masks import Mask
from prunus.methods.common.costs import MultiplyAdds
from prunus.selection import Candidate


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

    def found(self) -> tuple[float, float | None]:
        """Kept fractions: of all parameters, and of the multiply-adds of masked layers, if any."""
        if self._counter is None:
            return 1.0, None
        mask, total = Mask.of(self._model), count_parameters(self._model)
        of_all = (total - mask.total + mask.kept) / total
        try:
            cost = self._counter.factors()
        except AttachError:  # no held-out data, so no forward pass
            self._counter.remove()
            return of_all, None
        kept = sum(cost[layer.name] * layer.kept for layer in mask.layers)
        every = sum(cost[layer.name] * layer.total for layer in mask.layers)
        return of_all, kept / every
