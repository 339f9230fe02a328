"""How each ATen operator becomes an operation of the graph: one small function each.

A function gets the walk, which writes operations down, and the operator's arguments by name. Those
that are tensors are constants of the model; those that are `Value`s come from the input.
"""

from prunus.deployment.operators import activations, arithmetic, layers, pooling, shaping
from prunus.deployment.operators.walk import Translate, Unsupported, Value

OPERATORS: dict[str, Translate] = {
    **layers.OPERATORS,
    **activations.OPERATORS,
    **pooling.OPERATORS,
    **shaping.OPERATORS,
    **arithmetic.OPERATORS,
}
"""Every operator that can be deployed, by its name without overloads."""

__all__ = ["OPERATORS", "Unsupported", "Value"]
