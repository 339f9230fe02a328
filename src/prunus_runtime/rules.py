"""What each kind of operation needs, and the shape of what it makes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from prunus_runtime.checks import MAX_ELEMENTS, integer, integers, number, shown, size
from prunus_runtime.errors import GraphError
from prunus_runtime.graph import Operation, Shape

ACTIVATIONS: dict[str, tuple[str, ...]] = {
    "relu": (),
    "clamp": ("low", "high"),
    "leaky_relu": ("slope",),
    "elu": ("slope",),
    "sigmoid": (),
    "tanh": (),
    "silu": (),
    "hardswish": (),
    "hardsigmoid": (),
    "gelu": (),
    "gelu_tanh": (),
}
"""Kinds of activation, and the attributes of each."""
MAX_POOL_PADDING = 4096


def output_shape(operation: Operation, inputs: Sequence[Shape]) -> Shape:
    """The shape of what `operation` makes of valid `inputs`; `GraphError` if it cannot."""
    if not isinstance(operation.kind, str) or operation.kind not in _KINDS:
        raise GraphError(f"the runtime has no such operation; it has {', '.join(sorted(_KINDS))}")
    count, attributes, required, optional, rule = _KINDS[operation.kind]
    if len(inputs) < abs(count) or (count >= 0 and len(inputs) > count):
        wanted = f"{count}" if count >= 0 else f"{-count} or more"
        raise GraphError(f"it has {len(inputs)} inputs, not {wanted}")
    if operation.kind == "activation":
        attributes = ("kind", *_activation_attributes(operation))
    _check_keys("attributes", set(operation.attributes), set(attributes), set())
    _check_keys("tensors", set(operation.tensors), set(required), set(optional))
    return rule(operation, *inputs)


def _check_keys(what: str, found: set[str], required: set[str], optional: set[str]) -> None:
    if missing := required - found:
        raise GraphError(f"its {what} lack {', '.join(sorted(missing))}")
    if unknown := found - required - optional:
        raise GraphError(f"its {what} have an unknown {shown(min(unknown, key=str))}")


def _check_tensor(operation: Operation, name: str, *expected: Shape) -> Shape:
    tensor = operation.tensors[name]
    if not isinstance(tensor, np.ndarray) or tensor.dtype != np.float32:
        raise GraphError(f"`{name}` is not a numpy array of float32")
    if tensor.size > MAX_ELEMENTS:
        raise GraphError(f"`{name}` has {tensor.size} elements; the limit is {MAX_ELEMENTS}")
    if expected and tensor.shape not in expected:
        raise GraphError(f"`{name}` has shape {tensor.shape}, not {expected[0]}")
    return tensor.shape


def _image(x: Shape) -> tuple[int, int, int]:
    if len(x) != 3:
        raise GraphError(f"its input has shape {x}, not (channels, height, width)")
    return x[0], x[1], x[2]


def _features(x: Shape) -> int:
    if len(x) != 1:
        raise GraphError(f"its input has shape {x}, not (features,)")
    return x[0]


def _windows(x: Shape, operation: Operation, kernel: tuple[int, ...]) -> tuple[int, int]:
    """Height and width of the output of windows that move over a padded image."""
    channels, height, width = _image(x)
    stride = integers(operation, "stride", 2, 1)
    top, left, bottom, right = integers(operation, "padding", 4, 0)
    dilation = (
        integers(operation, "dilation", 2, 1) if "dilation" in operation.attributes else (1, 1)
    )
    padded = size((channels, height + top + bottom, width + left + right), "the padded input")
    reach = [(kernel[axis] - 1) * dilation[axis] + 1 for axis in (0, 1)]
    if reach[0] > padded[1] or reach[1] > padded[2]:
        raise GraphError(
            f"its window of {tuple(reach)} is larger than the padded input {padded[1:]}"
        )
    return (padded[1] - reach[0]) // stride[0] + 1, (padded[2] - reach[1]) // stride[1] + 1


def _conv(operation: Operation, x: Shape) -> Shape:
    weight = _check_tensor(operation, "weight")
    groups = integer(operation, "groups")
    if len(weight) != 4 or min(weight) < 1:
        raise GraphError(f"`weight` has shape {weight}, not (filters, channels, height, width)")
    filters, channels = weight[:2]
    if filters % groups or _image(x)[0] != channels * groups:
        raise GraphError(
            f"`weight` of shape {weight} in {groups} groups does not fit an input of shape {x}"
        )
    output = (filters, *_windows(x, operation, weight[2:]))
    if "bias" in operation.tensors:
        _check_tensor(operation, "bias", (filters,))
    if "plane" in operation.tensors:
        _check_tensor(operation, "plane", output)
    return output


def _linear(operation: Operation, x: Shape) -> Shape:
    weight = _check_tensor(operation, "weight")
    if len(weight) != 2 or weight[1] != _features(x):
        raise GraphError(f"`weight` of shape {weight} does not fit an input of shape {x}")
    if "bias" in operation.tensors:
        _check_tensor(operation, "bias", (weight[0],))
    return (weight[0],)


def _affine(operation: Operation, x: Shape) -> Shape:
    for name in operation.tensors:
        _check_tensor(operation, name, x[:1])
    return x


def _max_pool(operation: Operation, x: Shape) -> Shape:
    kernel = integers(operation, "kernel", 2, 1)
    output = _windows(x, operation, kernel)
    _check_seen(operation, kernel, output, x, (0, 0, 0, 0))
    return (x[0], *output)


def _avg_pool(operation: Operation, x: Shape) -> Shape:
    kernel = integers(operation, "kernel", 2, 1)
    output = _windows(x, operation, kernel)
    counted = integers(operation, "count_padding", 4, 0)
    padding = integers(operation, "padding", 4, 0)
    if any(part > whole for part, whole in zip(counted, padding, strict=True)):
        raise GraphError(f"`count_padding` {counted} is more than `padding` {padding}")
    _check_seen(operation, kernel, output, x, counted)
    return (x[0], *output)


def _check_seen(
    operation: Operation,
    kernel: tuple[int, ...],
    output: tuple[int, ...],
    x: Shape,
    counted: tuple[int, ...],
) -> None:
    """Each window has something to take the maximum or the mean of."""
    stride, padding = operation.attributes["stride"], operation.attributes["padding"]
    dilation = operation.attributes.get("dilation", (1, 1))
    if max(padding) > MAX_POOL_PADDING:
        raise GraphError(f"`padding` is {shown(padding)}; pooling can have {MAX_POOL_PADDING}")
    for axis in (0, 1):
        low, high = -counted[axis], x[1 + axis] + counted[2 + axis]
        last = (output[axis] - 1) * stride[axis] - padding[axis]
        # Of windows that begin before `low`, the first tap after it: theirs, and before `high`?
        start = np.arange(-padding[axis], min(low, last + 1), stride[axis])
        tap = -((start - low) // dilation[axis])
        missed = (tap >= kernel[axis]) | (start + tap * dilation[axis] >= high)
        if last >= high or missed.any():
            raise GraphError("one of its windows sees nothing but padding")


def _adaptive(operation: Operation, x: Shape) -> Shape:
    return (_image(x)[0], *integers(operation, "size", 2, 1))


def _activation_attributes(operation: Operation) -> tuple[str, ...]:
    kind = operation.attributes.get("kind")
    if not isinstance(kind, str) or kind not in ACTIVATIONS:
        raise GraphError(f"`kind` is {shown(kind)}, not one of {', '.join(sorted(ACTIVATIONS))}")
    return ACTIVATIONS[kind]


def _activation(operation: Operation, x: Shape) -> Shape:
    values = {name: number(operation, name) for name in operation.attributes if name != "kind"}
    if "low" in values and values["low"] > values["high"]:
        raise GraphError(f"`low` {values['low']} is more than `high` {values['high']}")
    return x


def _pair(operation: Operation, a: Shape, b: Shape) -> Shape:  # noqa: ARG001 - as all rules
    if a != b and not (len(a) == 3 and b == (a[0], 1, 1)):
        raise GraphError(
            f"its inputs have shapes {a} and {b}: not one shape, nor one value a channel"
        )
    return a


def _concatenate(operation: Operation, *inputs: Shape) -> Shape:  # noqa: ARG001
    if any(shape[1:] != inputs[0][1:] or len(shape) != len(inputs[0]) for shape in inputs):
        raise GraphError(
            f"its inputs have shapes {shown(inputs)}: they must only differ in channels"
        )
    return (sum(shape[0] for shape in inputs), *inputs[0][1:])


def _flatten(operation: Operation, x: Shape) -> Shape:  # noqa: ARG001
    return (math.prod(x),)


def _pad(operation: Operation, x: Shape) -> Shape:
    channels, height, width = _image(x)
    before, after = integers(operation, "channels", 2, 0)
    top, left, bottom, right = integers(operation, "padding", 4, 0)
    return (channels + before + after, height + top + bottom, width + left + right)


def _slice(operation: Operation, x: Shape) -> Shape:
    start = integers(operation, "start", 3, 0)
    stop = integers(operation, "stop", 3, 1)
    step = integers(operation, "step", 3, 1)
    for axis, length in enumerate(_image(x)):
        if not start[axis] < stop[axis] <= length:
            raise GraphError(f"`start` {start} and `stop` {stop} do not fit an input of shape {x}")
    return tuple(len(range(*bounds)) for bounds in zip(start, stop, step, strict=True))


def _softmax(operation: Operation, x: Shape) -> Shape:
    if type(operation.attributes["log"]) is not bool:
        raise GraphError(f"`log` is {shown(operation.attributes['log'])}, not true or false")
    return x


_KINDS: dict[
    str, tuple[int, tuple[str, ...], tuple[str, ...], tuple[str, ...], Callable[..., Shape]]
] = {
    # kind: number of inputs (negative: or more), attributes, tensors, tensors that may be absent
    "conv": (1, ("stride", "padding", "dilation", "groups"), ("weight",), ("bias", "plane"), _conv),
    "linear": (1, (), ("weight",), ("bias",), _linear),
    "affine": (1, (), (), ("scale", "shift"), _affine),
    "max_pool": (1, ("kernel", "stride", "padding", "dilation"), (), (), _max_pool),
    "avg_pool": (1, ("kernel", "stride", "padding", "count_padding"), (), (), _avg_pool),
    "adaptive_avg_pool": (1, ("size",), (), (), _adaptive),
    "activation": (1, (), (), (), _activation),
    "add": (2, (), (), (), _pair),
    "multiply": (2, (), (), (), _pair),
    "concatenate": (-2, (), (), (), _concatenate),
    "flatten": (1, (), (), (), _flatten),
    "pad": (1, ("channels", "padding"), (), (), _pad),
    "slice": (1, ("start", "stop", "step"), (), (), _slice),
    "softmax": (1, ("log",), (), (), _softmax),
}
