"""Which inputs the weights of a layer meet, and which weights make one output."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from prunus.selection import CONVOLUTIONS, Candidate, is_transposed_linear


@dataclass(frozen=True)
class InputLayout:
    """The inputs of a linear layer or a convolution."""

    inputs: int
    axis: int
    """The axis of the inputs in the tensor that the layer gets, counted from the end."""
    groups: int
    inputs_first: bool
    """Whether the weight is stored (inputs, outputs, ...), and not (outputs, inputs, ...)."""

    def by_output(self, tensor: Tensor) -> Tensor:
        """A tensor of the weight's shape as a matrix with a row for each output."""
        if not self.inputs_first:
            return tensor.flatten(1)
        grouped = tensor.reshape(self.groups, self.inputs // self.groups, *tensor.shape[1:])
        return grouped.transpose(1, 2).flatten(0, 1).flatten(1)

    def per_weight(self, values: Tensor, weight: Tensor) -> Tensor:
        """One value for each input, in a shape that multiplies `weight`."""
        kernel = (1,) * (weight.dim() - 2)
        if self.inputs_first:
            return values.view(-1, 1, *kernel)
        outputs = weight.shape[0] // self.groups  # of each group
        grouped = values.view(self.groups, -1).repeat_interleave(outputs, dim=0)
        return grouped.view(*grouped.shape, *kernel)


def input_layout(candidate: Candidate) -> InputLayout | None:
    """The layout of a weight's inputs; None unless its layer is linear or a convolution."""
    module, shape = candidate.module, candidate.parameter.shape
    if len(shape) < 2 or isinstance(module, NonDynamicallyQuantizableLinear):
        return None  # the latter is attention's output layer, which is never called
    if is_transposed_linear(module):
        return InputLayout(shape[0], -1, 1, inputs_first=True)
    if isinstance(module, nn.Linear):
        return InputLayout(shape[1], -1, 1, inputs_first=False)
    if isinstance(module, CONVOLUTIONS):
        channels = 1 - len(shape)
        return InputLayout(module.in_channels, channels, module.groups, module.transposed)
    return None
