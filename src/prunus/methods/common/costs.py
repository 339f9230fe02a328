"""What each weight costs: how often it is used for one input."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor, nn

from prunus.errors import AttachError
from prunus.gates import Watcher
from prunus.gates.granularity import TRANSPOSED
from prunus.selection import Candidate


class MultiplyAdds:
    """Counts at how many positions layers are computed, in the forward passes before `factors`.

    A weight of a convolution costs one multiply-add for each position of its output; one of a
    linear layer costs one for each vector that the layer is applied to. What is not called as a
    module, such as the layers inside `MultiheadAttention`, costs nothing here.
    """

    def __init__(self, selection: Iterable[Candidate]) -> None:
        self._counts: dict[str, int] = {}
        self._weights: dict[str, int] = {}
        self._handles = []
        self.known: Mapping[str, float] | None = None
        """The factors, once they have been asked for; or those of a run that is resumed."""
        for candidate in selection:
            self._counts[candidate.name] = 0
            self._weights[candidate.name] = candidate.parameter.numel()
            for _, module, _ in candidate.owners:
                count = _Counter(self._counts, candidate.name)
                self._handles.append(module.register_forward_hook(count))

    def factors(self) -> Mapping[str, float]:
        """The cost of a weight of each parameter, in units of the mean over all weights."""
        if self.known is None:
            total = sum(self._weights[name] * count for name, count in self._counts.items())
            if not total:
                raise AttachError(
                    "the multiply-adds of the layers are not known before the first forward pass: "
                    "call the model first, then penalty() and step()"
                )
            unit = total / sum(self._weights.values())
            self.known = {name: count / unit for name, count in self._counts.items()}
        self.remove()
        return self.known

    def remove(self) -> None:
        """Stop counting, and leave the model as it was."""
        for handle in self._handles:
            handle.remove()


class _Counter(Watcher):
    """A hook; an object, so that copies of a model do not count for the original."""

    def __init__(self, counts: dict[str, int], name: str) -> None:
        self.counts, self.name = counts, name

    def __call__(self, module: nn.Module, inputs: Any, output: Any) -> None:
        if isinstance(output, Tensor):
            # A transposed convolution uses its weights once for each position of its input.
            at = inputs[0] if isinstance(module, TRANSPOSED) else output
            of_images = isinstance(module, nn.modules.conv._ConvNd)
            self.counts[self.name] += math.prod(at.shape[2:] if of_images else at.shape[1:-1])
