"""Activations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from prunus.deployment.operators.walk import (
    Arguments,
    Attributes,
    Compute,
    Tensors,
    Translate,
    Unsupported,
    Value,
    Walk,
    constant_of,
    value_of,
)

_LOWEST, _HIGHEST = torch.finfo(torch.float32).min, torch.finfo(torch.float32).max
_SAME_NAME = ("relu", "sigmoid", "tanh", "silu", "hardswish", "hardsigmoid")
"""Activations without options, that are called the same in ATen."""


def _activation(kind: str) -> Translate:
    return lambda walk, a: walk.add("activation", value_of(a["self"]), kind=kind)


def _clamp(walk: Walk, a: Arguments) -> Value:
    low, high = (a.get(k, a.get(f"{k}_val")) for k in ("min", "max"))
    if any(isinstance(bound, Tensor | Value) for bound in (low, high)):
        raise Unsupported("with bounds that are tensors")
    x = value_of(a["self"])
    if low == 0 and high is None:
        return walk.add("activation", x, kind="relu")
    return walk.add(
        "activation",
        x,
        kind="clamp",
        low=_LOWEST if low is None else float(low),
        high=_HIGHEST if high is None else float(high),
    )


def _relu6(walk: Walk, a: Arguments) -> Value:
    return _clamp(walk, {**a, "min": 0.0, "max": 6.0})


def _leaky_relu(walk: Walk, a: Arguments) -> Value:
    slope = float(a["negative_slope"])
    return walk.add("activation", value_of(a["self"]), kind="leaky_relu", slope=slope)


def _prelu(walk: Walk, a: Arguments) -> Value:
    weight = constant_of(a["weight"])
    if weight.numel() != 1:
        raise Unsupported("with a slope for each channel")
    return walk.add("activation", value_of(a["self"]), kind="leaky_relu", slope=float(weight))


def _elu(walk: Walk, a: Arguments) -> Value:
    if a["scale"] != 1 or a["input_scale"] != 1:
        raise Unsupported("with a scale")
    return walk.add("activation", value_of(a["self"]), kind="elu", slope=float(a["alpha"]))


def _gelu(walk: Walk, a: Arguments) -> Value:
    kind = "gelu" if a["approximate"] == "none" else "gelu_tanh"
    return walk.add("activation", value_of(a["self"]), kind=kind)


def _softmax(*, log: bool) -> Translate:
    def translate(walk: Walk, a: Arguments) -> Value:
        x = value_of(a["self"])
        if a["dim"] not in (1, -len(walk.shapes[x])):
            raise Unsupported(f"over dimension {a['dim']}; only channels or features")
        return walk.add("softmax", x, log=log)

    return translate


OPERATORS: dict[str, Translate] = {
    **{name: _activation(name) for name in _SAME_NAME},
    "relu6": _relu6,
    "hardtanh": _clamp,
    "clamp": _clamp,
    "clamp_min": _clamp,
    "clamp_max": _clamp,
    "leaky_relu": _leaky_relu,
    "prelu": _prelu,
    "elu": _elu,
    "gelu": _gelu,
    "softmax": _softmax(log=False),
    "_softmax": _softmax(log=False),
    "log_softmax": _softmax(log=True),
    "_log_softmax": _softmax(log=True),
}


def _compute_activation(a: Attributes, _: Tensors, x: Any) -> Any:
    return _FUNCTIONS[a["kind"]](x, a)


def _compute_softmax(a: Attributes, _: Tensors, x: Any) -> Any:
    return (F.log_softmax if a["log"] else F.softmax)(x, dim=1)


_FUNCTIONS: dict[str, Callable[[Any, Attributes], Any]] = {
    "relu": lambda x, _: F.relu(x),
    "clamp": lambda x, a: F.hardtanh(x, a["low"], a["high"]),
    "leaky_relu": lambda x, a: F.leaky_relu(x, a["slope"]),
    "elu": lambda x, a: F.elu(x, a["slope"]),
    "sigmoid": lambda x, _: torch.sigmoid(x),
    "tanh": lambda x, _: torch.tanh(x),
    "silu": lambda x, _: F.silu(x),
    "hardswish": lambda x, _: F.hardswish(x),
    "hardsigmoid": lambda x, _: F.hardsigmoid(x),
    "gelu": lambda x, _: F.gelu(x),
    "gelu_tanh": lambda x, _: F.gelu(x, approximate="tanh"),
}

COMPUTE: dict[str, Compute] = {"activation": _compute_activation, "softmax": _compute_softmax}
