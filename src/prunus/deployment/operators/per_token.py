"""Masks that a model computes from its tokens: tensors each of whose elements depends on one token.

`tokens != padding`, as an attention takes it, is such a tensor, through whatever casts, views and
combinations with constants it went. It is known for every token that there is, so it needs no
operations: an attention reads from a table which tokens are hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from prunus.deployment.operators.walk import (
    OPERATORS,
    Arguments,
    Unsupported,
    Value,
    register,
    value_of,
)

if TYPE_CHECKING:
    from prunus.deployment.walk import Walk

VIEWS = {
    *("unsqueeze", "squeeze", "expand", "view", "_unsafe_view", "reshape", "transpose", "permute"),
    *("slice", "select", "index", "clone", "alias", "detach", "contiguous"),
}
"""Operators whose elements are elements of `self`."""
ELEMENTWISE = {
    *("ne", "eq", "lt", "le", "gt", "ge", "__and__", "__or__", "bitwise_and", "bitwise_or"),
    *("bitwise_not", "logical_and", "logical_or", "logical_not", "_to_copy", "to", "where"),
    *("masked_fill", "add", "sub", "rsub", "mul", "neg", "zeros_like", "ones_like", "full_like"),
}
"""Operators whose elements are made of the same elements of their operands."""


@dataclass(frozen=True)
class PerToken:
    """A tensor for a batch of one. Tokens that the model treats alike are a class: element e is
    `values[classes[t]][e]`, where t is the token at `position[e]`."""

    classes: Tensor
    values: tuple[Tensor, ...]
    position: Tensor


@register(OPERATORS, "ne", "eq", "lt", "le", "gt", "ge")
def _compared(walk: Walk, a: Arguments) -> PerToken:
    tokens = torch.arange(walk.most_tokens())
    if value_of(a["self"]) != walk.source or not len(tokens):
        raise Unsupported("on anything but tokens")
    if isinstance(a["other"], Value) or torch.as_tensor(a["other"]).numel() != 1:
        raise Unsupported("with more than one number")
    flags = walk.called(lambda known: tokens if isinstance(known, Value) else known).reshape(-1)
    shape = (1, *walk.input_shape)
    values = tuple(torch.full(shape, value) for value in (False, True))
    return PerToken(flags.long(), values, torch.arange(walk.input_shape[0]).expand(shape))


def computed(walk: Walk, name: str, operands: Sequence[Any]) -> PerToken:
    """What the operator `name` makes of `operands`, of which some are per token."""
    made = [operand for operand in operands if isinstance(operand, PerToken)]
    joint, members = torch.unique(
        torch.stack([x.classes for x in made]), dim=1, return_inverse=True
    )
    chosen = {id(x): row.tolist() for x, row in zip(made, joint, strict=True)}

    def of_class(number: int) -> Any:
        return walk.called(
            lambda x: x.values[chosen[id(x)][number]] if isinstance(x, PerToken) else x
        )

    values = tuple(map(of_class, range(joint.shape[1])))
    if name in VIEWS and len(made) == 1 and made[0] is operands[0]:
        position = walk.called(lambda x: x.position if isinstance(x, PerToken) else x)
    elif name in ELEMENTWISE:
        positions = [x.position.expand(values[0].shape) for x in made]
        position = positions[0]
        if any(not torch.equal(position, other) for other in positions):
            raise Unsupported("on several tokens at a time")
    else:
        raise Unsupported("on a mask that depends on tokens")
    return PerToken(members, values, position)
