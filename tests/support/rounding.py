"""How far apart two programs may be that compute the same network in float32.

A running error analysis: each operation passes on the errors of its inputs, enlarged by as much as
it can enlarge them, and adds the rounding of its own, which is as large as the terms of its sums
are, not as what is left of these. So nothing has to be left out: where a norm divides what is
rounding alone, the bound is large, and only there.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from prunus_runtime import reference
from prunus_runtime.graph import Graph, Operation
from prunus_runtime.ops import kind_of

ONCE = 2.0**-24
"""What one rounding may add, times what is rounded."""
OFTEN = 16 * ONCE
"""And all roundings of an operation but those of long sums, in both programs, each of which has its
own exponential and its own error function."""
TINY = 1e-35
"""Below this an exponential may be zero."""

Values = NDArray[np.float64]

MOVING = {"max_pool", "concatenate", "flatten", "pad", "slice", "reshape", "transpose"}
CLAMPING = {"relu", "clamp"}
SUMMANDS = {"bias", "plane", "shift"}
STEEPEST = {"sigmoid": 0.25, "hardsigmoid": 1 / 6, "silu": 1.1, "gelu": 1.13, "gelu_tanh": 1.13}
STEEPEST |= {"hardswish": 1.5}
"""The largest slope of each function, if that is not 1 nor what its attribute `slope` says."""


def run_bounded(graph: Graph, x: np.ndarray) -> tuple[np.ndarray, Values]:
    """The output of the reference, and how far from it each element of another program's may be."""
    seen: dict[str, list[np.ndarray]] = {}
    output = reference.run(graph, x, lambda name, value: seen.setdefault(name, []).append(value))
    values = {name: np.concatenate(parts).astype(np.float64) for name, parts in seen.items()}
    errors = {graph.input: np.zeros(x.shape)}
    for operation in graph.operations:
        inputs, theirs = ([of[name] for name in operation.inputs] for of in (values, errors))
        errors[operation.output] = _error(operation, inputs, theirs)
    return output, errors[graph.output]


def _summing(n: int) -> float:
    """What a sum of `n` terms may add, times the sum of their absolute values, in any order."""
    return OFTEN + n * ONCE


def _error(operation: Operation, x: list[Values], e: list[Values]) -> Values:
    """That of the output, where the inputs are `x` and have the errors `e`."""
    if operation.kind in MOVING:
        return kind_of(operation).run(operation, e)
    if operation.kind == "embedding":
        return np.zeros(kind_of(operation).run(operation, x).shape)
    if operation.kind == "multiply":
        a, b = np.abs(x[0]), np.abs(x[1])
        return OFTEN * a * b + a * e[1] + e[0] * (b + e[1])
    if operation.kind == "activation":
        return _of_activation(operation, x[0], e[0])
    if operation.kind == "softmax":
        return _of_softmax(operation, x[0], e[0])
    if operation.kind == "norm":
        return _of_norm(operation, x[0], e[0])
    if operation.kind == "attention":
        return _of_attention(operation, x, e)
    return _of_sums(operation, x, e)


def _of_sums(operation: Operation, x: list[Values], e: list[Values]) -> Values:
    """Layers, means, sums: the same of absolute values, and of the errors without what is added."""
    sizes = {name: np.abs(tensor) for name, tensor in operation.tensors.items()}
    factors = {name: size * (name not in SUMMANDS) for name, size in sizes.items()}
    terms = kind_of(operation).run(replace(operation, tensors=sizes), [np.abs(v) for v in x])
    spread = kind_of(operation).run(replace(operation, tensors=factors), e)
    return _summing(_length(operation, x[0])) * terms + spread


def _length(operation: Operation, x: Values) -> int:
    """How many terms its longest sum has, beside a constant or two."""
    if operation.is_layer:
        weight = operation.tensors["weight"]
        return int(np.count_nonzero(weight.reshape(len(weight), -1), axis=1).max())
    if operation.kind == "avg_pool":
        return math.prod(operation.attributes["kernel"])
    return x[0, 0].size if operation.kind in {"adaptive_avg_pool", "mean"} else 1


def _of_activation(operation: Operation, x: Values, e: Values) -> Values:
    kind, slope = operation.attributes["kind"], abs(operation.attributes.get("slope", 1.0))
    rounding = 0.0 if kind in CLAMPING else OFTEN * (1 + np.abs(x))
    return max(slope, STEEPEST.get(kind, 1.0)) * e + rounding


def _of_softmax(operation: Operation, x: Values, e: Values) -> Values:
    e = e + OFTEN * np.abs(x)
    if not operation.attributes["log"]:
        return _of_probabilities(x, e, axis=1)[1]
    largest = x.max(axis=1, keepdims=True)
    return e + _of_total(_probabilities(x, 1), e, 1) + OFTEN * np.abs(largest)


def _probabilities(scores: Values, axis: int) -> Values:
    weights = np.exp(scores - scores.max(axis=axis, keepdims=True))
    return weights / weights.sum(axis=axis, keepdims=True)


def _of_total(probabilities: Values, e: Values, axis: int) -> Values:
    """Of the logarithm of a sum of exponentials."""
    spread = np.log1p((probabilities * _expm1(e)).sum(axis=axis, keepdims=True))
    return spread + _summing(e.shape[axis])


def _of_probabilities(scores: Values, e: Values, axis: int) -> tuple[Values, Values]:
    """What scores with errors `e` become, and the errors of that."""
    p = _probabilities(scores, axis)
    distance = scores.max(axis=axis, keepdims=True) - scores
    away = np.minimum(distance, 100)  # infinitely, if hidden
    return p, np.minimum(p * _expm1(e + _of_total(p, e, axis) + OFTEN * (1 + away)) + TINY, 1)


def _expm1(e: Values) -> Values:
    return np.expm1(np.minimum(e, 700))


def _of_norm(operation: Operation, x: Values, e: Values) -> Values:
    """By the triangle inequality: the root of the mean square of values with errors is at most as
    much larger or smaller as that of their errors."""
    epsilon, tensors = operation.attributes["epsilon"], operation.tensors
    e = e + _summing(x.shape[1]) * np.abs(x)
    if operation.attributes["centred"]:
        e = e + e.mean(axis=1, keepdims=True)
        x = x - x.mean(axis=1, keepdims=True)
    spread, error = (_root_mean_square(v) for v in (x, e))
    divisor = np.sqrt(spread**2 + epsilon)
    least = np.maximum(divisor - error, np.sqrt(epsilon))
    y = x / divisor
    error = (e + np.abs(y) * error) / least + _summing(x.shape[1]) * np.abs(y)
    affine = Operation("affine", ("x",), "y", {}, tensors)
    return _of_sums(affine, [y], [error])


def _root_mean_square(x: Values) -> Values:
    return np.sqrt(np.square(x).mean(axis=1, keepdims=True))


def _of_attention(operation: Operation, x: list[Values], e: list[Values]) -> Values:
    heads, causal, scale = (operation.attributes[name] for name in ("heads", "causal", "scale"))

    def split(values: list[Values]) -> list[Values]:
        return [v.reshape(len(v), heads, -1, v.shape[2]) for v in values[:3]]

    (query, key, value), (dq, dk, dv) = split(x), split(e)
    turned, dt = key.swapaxes(2, 3), dk.swapaxes(2, 3)
    scores = turned @ query * scale
    rounding = _summing(query.shape[2]) * np.abs(turned)
    errors = abs(scale) * ((rounding + dt) @ np.abs(query) + (np.abs(turned) + dt) @ dq)
    if len(x) == 4:
        mask, dm = (v[3][:, :, :, None] for v in (x, e))
        scores = scores + mask
        errors = errors + OFTEN * np.abs(mask) + dm
    if causal:
        hidden = np.arange(key.shape[3])[:, None] > np.arange(query.shape[3])
        scores = np.where(hidden, -np.inf, scores)
    p, dp = _of_probabilities(scores, errors, axis=2)
    rounding = _summing(value.shape[3]) * np.abs(value)
    total = (np.abs(value) + dv) @ dp + (rounding + dv) @ p
    return total.reshape(len(total), -1, query.shape[3])
