"""How each ATen operator becomes an operation of the graph: one small function each.

A function gets the walk, which writes operations down, and the operator's arguments by name. Where
these are tensors, they are constants of the model; where they are `Value`s, they come from the input.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from prunus_runtime.graph import Operation, Shape

_LOWEST, _HIGHEST = (float(bound) for bound in (-3.4028234663852886e38, 3.4028234663852886e38))


class Value(str):
    """The name of a value that depends on the network's input."""

    __slots__ = ()


class Unsupported(Exception):  # noqa: N818 (its text goes on a sentence)
    """An operator that is known, used in a way that is not."""


class Walk(Protocol):
    """What the functions need of the walk over the exported program."""

    shapes: dict[str, Shape]
    operations: dict[str, Operation]

    def add(
        self,
        kind: str,
        /,
        *inputs: Value,
        shape: Sequence[int] | None = None,
        tensors: Mapping[str, Tensor | None] | None = None,
        **attributes: Any,
    ) -> Value: ...

    def again(self, operation: Operation, shape: Shape, **changes: Any) -> Value: ...

    def node_shape(self) -> Shape: ...


Arguments = dict[str, Any]
Translate = Callable[[Walk, Arguments], Any]


# Layers with weights


def _conv2d(walk: Walk, a: Arguments) -> Value:
    x, weight, bias = _value(a["input"]), _constant(a["weight"]), a["bias"]
    if a.get("transposed") or weight.ndim != 4:
        raise Unsupported("as anything but a convolution over height and width")
    stride, dilation = _pair(a["stride"]), _pair(a["dilation"])
    padding = a["padding"]
    if isinstance(padding, str):
        around = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
        if padding == "valid":
            around = [0, 0]
        before = [n // 2 for n in around]
        sides = [*before, *(n - b for n, b in zip(around, before, strict=True))]
    else:
        sides = 2 * _pair(padding)
    return walk.add(
        "conv",
        x,
        tensors={"weight": weight, "bias": None if bias is None else _constant(bias)},
        stride=stride,
        padding=sides,
        dilation=dilation,
        groups=a["groups"],
    )


def _linear(walk: Walk, a: Arguments) -> Value:
    return _product(walk, _value(a["input"]), _constant(a["weight"]), a["bias"])


def _addmm(walk: Walk, a: Arguments) -> Value:
    if a["alpha"] != 1 or a["beta"] != 1:
        raise Unsupported("with factors alpha or beta")
    return _product(walk, _value(a["mat1"]), _constant(a["mat2"]).T, a["self"])


def _mm(walk: Walk, a: Arguments) -> Value:
    x, weight = a["self"], a.get("mat2", a.get("other"))
    return _product(walk, _value(x), _constant(weight).T, None)


def _product(walk: Walk, x: Value, weight: Tensor, bias: Any) -> Value:
    if len(walk.shapes[x]) != 1 or weight.ndim != 2:
        raise Unsupported(
            "on values of more dimensions than (n, features); flatten them, or use a 1x1 convolution"
        )
    tensors = {"weight": weight, "bias": None if bias is None else _constant(bias)}
    return walk.add("linear", x, tensors=tensors)


def _batch_norm(walk: Walk, a: Arguments) -> Any:
    mean, variance = a["running_mean"], a["running_var"]
    if a.get("training") or mean is None or variance is None:
        raise Unsupported("with the statistics of the batch; it needs running statistics")
    # In float64, because folding must not add errors of its own.
    scale = (variance.double() + a["eps"]).rsqrt()
    if a["weight"] is not None:
        scale = scale * a["weight"].double()
    shift = -mean.double() * scale
    if a["bias"] is not None:
        shift = shift + a["bias"].double()
    x = _value(a["input"])
    result = walk.add("affine", x, shape=walk.shapes[x], tensors={"scale": scale, "shift": shift})
    return result if "training" in a else (result, None, None)


# Activations


def _activation(kind: str) -> Translate:
    return lambda walk, a: walk.add("activation", _value(a["self"]), kind=kind)


def _clamp(walk: Walk, a: Arguments) -> Value:
    low, high = (a.get(k, a.get(f"{k}_val")) for k in ("min", "max"))
    if any(isinstance(bound, Tensor | Value) for bound in (low, high)):
        raise Unsupported("with bounds that are tensors")
    x = _value(a["self"])
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
    return walk.add("activation", _value(a["self"]), kind="leaky_relu", slope=slope)


def _prelu(walk: Walk, a: Arguments) -> Value:
    weight = _constant(a["weight"])
    if weight.numel() != 1:
        raise Unsupported("with a slope for each channel")
    return walk.add("activation", _value(a["self"]), kind="leaky_relu", slope=float(weight))


def _elu(walk: Walk, a: Arguments) -> Value:
    if a["scale"] != 1 or a["input_scale"] != 1:
        raise Unsupported("with a scale")
    return walk.add("activation", _value(a["self"]), kind="elu", slope=float(a["alpha"]))


def _gelu(walk: Walk, a: Arguments) -> Value:
    kind = "gelu" if a["approximate"] == "none" else "gelu_tanh"
    return walk.add("activation", _value(a["self"]), kind=kind)


def _softmax(*, log: bool) -> Translate:
    def translate(walk: Walk, a: Arguments) -> Value:
        x = _value(a["self"])
        if a["dim"] not in (1, -len(walk.shapes[x])):
            raise Unsupported(f"over dimension {a['dim']}; only channels or features")
        return walk.add("softmax", x, log=log)

    return translate


# Pooling


def _max_pool(walk: Walk, a: Arguments) -> Any:
    x, kernel = _value(a["self"]), _pair(a["kernel_size"])
    stride = _pair(a["stride"]) if a["stride"] else kernel
    dilation = _pair(a["dilation"])
    padding = _pool_padding(walk, x, kernel, stride, _pair(a["padding"]), dilation)
    return walk.add("max_pool", x, kernel=kernel, stride=stride, padding=padding, dilation=dilation)


def _avg_pool(walk: Walk, a: Arguments) -> Value:
    if a["divisor_override"] is not None:
        raise Unsupported("with divisor_override")
    x, kernel, sides = _value(a["self"]), _pair(a["kernel_size"]), _pair(a["padding"])
    stride = _pair(a["stride"]) if a["stride"] else kernel
    return walk.add(
        "avg_pool",
        x,
        kernel=kernel,
        stride=stride,
        padding=_pool_padding(walk, x, kernel, stride, sides, [1, 1]),
        count_padding=2 * sides if a["count_include_pad"] else [0, 0, 0, 0],
    )


def _pool_padding(
    walk: Walk,
    x: Value,
    kernel: list[int],
    stride: list[int],
    sides: list[int],
    dilation: list[int],
) -> list[int]:
    """Padding on four sides, with what `ceil_mode` looks at beyond it at the bottom and right."""
    ends = []
    for axis, out in enumerate(walk.node_shape()[1:]):
        seen = (out - 1) * stride[axis] + dilation[axis] * (kernel[axis] - 1) + 1
        size = walk.shapes[x][1 + axis]
        ends.append(sides[axis] + max(0, seen - (size + 2 * sides[axis])))
    return [*sides, *ends]


def _adaptive_avg_pool(walk: Walk, a: Arguments) -> Value:
    return walk.add("adaptive_avg_pool", _value(a["self"]), size=list(walk.node_shape()[1:]))


def _mean(walk: Walk, a: Arguments) -> Value:
    x = _value(a["self"])
    if len(walk.shapes[x]) != 3 or sorted(d % 4 for d in a["dim"] or ()) != [2, 3]:
        raise Unsupported(f"over the dimensions {a['dim']}; only over height and width")
    channels = walk.shapes[x][0]
    pooled = walk.add("adaptive_avg_pool", x, shape=(channels, 1, 1), size=[1, 1])
    return pooled if a["keepdim"] else walk.add("flatten", pooled)


# Shapes


def _reshape(walk: Walk, a: Arguments) -> Value:
    x, shape = _value(a["self"]), walk.node_shape()
    before = walk.shapes[x]
    if shape == before:
        return x
    if shape == (math.prod(before),):
        return walk.add("flatten", x)
    if len(before) == 1 and shape == (before[0], 1, 1):
        return _unflatten(walk, x)
    raise Unsupported(f"from {before} to {shape}; it may only flatten")


def _unflatten(walk: Walk, x: Value) -> Value:
    """`x` of shape (C,) as (C, 1, 1): the layers back to where it was flattened, done as images."""
    operation = walk.operations.get(x)
    if operation is not None:
        before = Value(operation.inputs[0])
        shape = (*walk.shapes[x], 1, 1)
        if operation.kind == "flatten" and walk.shapes[before] == shape:
            return before
        if operation.kind in ("activation", "affine"):
            return walk.again(operation, shape, inputs=(_unflatten(walk, before),))
        if operation.kind == "linear":
            weight = operation.tensors["weight"]
            pixelwise = {"stride": [1, 1], "padding": [0] * 4, "dilation": [1, 1], "groups": 1}
            return walk.again(
                operation,
                shape,
                kind="conv",
                inputs=(_unflatten(walk, before),),
                attributes=pixelwise,
                tensors={**operation.tensors, "weight": weight[:, :, None, None]},
            )
    raise Unsupported("to make images of features that were none")


def _same(walk: Walk, a: Arguments) -> Value:
    x = _value(a["self"] if "self" in a else a["input"])
    walk.node_shape()
    return x


def _cat(walk: Walk, a: Arguments) -> Value:
    inputs = [_value(x) for x in a["tensors"]]
    if a["dim"] not in (1, -len(walk.shapes[inputs[0]])):
        raise Unsupported(f"over dimension {a['dim']}; only channels or features")
    return inputs[0] if len(inputs) == 1 else walk.add("concatenate", *inputs)


def _pad(walk: Walk, a: Arguments) -> Value:
    x, amounts = _value(a["self"]), [*a["pad"], *[0] * 8]
    if a.get("mode", "constant") != "constant" or a["value"]:
        raise Unsupported("with anything but zeros")
    if len(walk.shapes[x]) != 3 or min(amounts) < 0 or any(amounts[6:]):
        raise Unsupported(f"by {a['pad']}")
    left, right, top, bottom, *channels = amounts[:6]
    return walk.add("pad", x, channels=channels, padding=[top, left, bottom, right])


def _slice(walk: Walk, a: Arguments) -> Value:
    x, dim = _value(a["self"]), a["dim"]
    if walk.node_shape() == walk.shapes[x]:
        return x
    return _sliced(walk, x, dim, slice(a["start"], a["end"], a["step"]))


def _sliced(walk: Walk, x: Value, dim: int, part: slice) -> Value:
    shape = walk.shapes[x]
    axis = dim % (1 + len(shape)) - 1
    start, stop, step = part.indices(shape[axis])
    if axis < 0 or len(shape) != 3 or start >= stop:
        raise Unsupported("on anything but channels, height and width, or for nothing at all")
    bounds = [[0, size, 1] for size in shape]
    bounds[axis] = [start, stop, step]
    starts, stops, steps = (list(bound) for bound in zip(*bounds, strict=True))
    sizes = [len(range(*bound)) for bound in bounds]
    return walk.add("slice", x, shape=sizes, start=starts, stop=stops, step=steps)


def _split(walk: Walk, a: Arguments) -> list[Value]:
    x, dim = _value(a["self"]), a["dim"]
    total = walk.shapes[x][dim % (1 + len(walk.shapes[x])) - 1]
    sizes: Any = (
        -(-total // a["chunks"])
        if "chunks" in a
        else next(a[name] for name in ("split_size", "split_sizes") if name in a)
    )
    if isinstance(sizes, int):
        sizes = [min(sizes, total - start) for start in range(0, total, sizes)]
    ends = torch.tensor(sizes).cumsum(0).tolist()
    return [
        _sliced(walk, x, dim, slice(end - size, end)) for size, end in zip(sizes, ends, strict=True)
    ]


# Arithmetic


def _add(walk: Walk, a: Arguments, sign: float = 1.0) -> Value:
    left, right, factor = a["self"], a["other"], sign * a.get("alpha", 1)
    if isinstance(left, Value) and isinstance(right, Value):
        if factor != 1:
            right = _affine(walk, right, factor, 0.0)
        return _combine(walk, "add", left, right)
    if isinstance(left, Value):
        return _affine(walk, left, 1.0, _factor(right) * factor)
    return _affine(walk, _value(right), factor, left)


def _sub(walk: Walk, a: Arguments) -> Value:
    return _add(walk, a, -1.0)


def _rsub(walk: Walk, a: Arguments) -> Value:
    return _add(walk, {**a, "self": a["other"], "other": a["self"]}, -1.0)


def _mul(walk: Walk, a: Arguments) -> Value:
    left, right = a["self"], a["other"]
    if isinstance(left, Value) and isinstance(right, Value):
        return _combine(walk, "multiply", left, right)
    return (
        _affine(walk, left, right, 0.0)
        if isinstance(left, Value)
        else _affine(walk, _value(right), left, 0.0)
    )


def _div(walk: Walk, a: Arguments) -> Value:
    if a.get("rounding_mode") is not None or isinstance(a["other"], Value):
        raise Unsupported("other than by a constant, without rounding")
    return _affine(walk, _value(a["self"]), 1.0 / torch.as_tensor(a["other"]).double(), 0.0)


def _neg(walk: Walk, a: Arguments) -> Value:
    return _affine(walk, _value(a["self"]), -1.0, 0.0)


def _combine(walk: Walk, kind: str, left: Value, right: Value) -> Value:
    shape = walk.node_shape()
    if walk.shapes[left] != shape:
        left, right = right, left
    if walk.shapes[left] != shape or walk.shapes[right] not in (shape, (shape[0], 1, 1)):
        raise Unsupported(f"on the shapes {walk.shapes[left]} and {walk.shapes[right]}")
    return walk.add(kind, left, right)


def _affine(walk: Walk, x: Value, scale: Any, shift: Any) -> Value:
    """`scale * x + shift`, each a number or a tensor with at most one value for each channel."""
    shape = walk.shapes[x]
    tensors = {"scale": _per_channel(scale, shape), "shift": _per_channel(shift, shape)}
    return walk.add("affine", x, shape=shape, tensors=tensors)


def _per_channel(factor: Any, shape: Shape) -> Tensor:
    tensor = _factor(factor)
    if tensor.numel() == 1:
        return tensor.reshape(1).expand(shape[0])
    of_channels = (shape[0],) + (1,) * (len(shape) - 1)
    sizes = tuple(tensor.shape)
    while len(sizes) > len(of_channels) and sizes[0] == 1:
        sizes = sizes[1:]
    if sizes != of_channels:
        raise Unsupported(
            f"with a constant of the shape {tuple(tensor.shape)} on values of the shape {shape}: "
            "it must be one number, or one for each channel"
        )
    return tensor.reshape(-1)


def _factor(value: Any) -> Tensor:
    return torch.as_tensor(value).double()


def _value(x: Any) -> Value:
    if not isinstance(x, Value):
        raise Unsupported("where its first operand is a constant")
    return x


def _constant(x: Any) -> Tensor:
    if not isinstance(x, Tensor):
        raise Unsupported("with weights that depend on the input")
    return x


def _pair(value: Any) -> list[int]:
    sizes = [value] if isinstance(value, int) else list(value)
    return sizes * 2 if len(sizes) == 1 else sizes


OPERATORS: dict[str, Translate] = {
    "conv2d": _conv2d,
    "convolution": _conv2d,
    "linear": _linear,
    "addmm": _addmm,
    "mm": _mm,
    "matmul": _mm,
    "batch_norm": _batch_norm,
    "_native_batch_norm_legit_no_training": _batch_norm,
    "relu": _activation("relu"),
    "sigmoid": _activation("sigmoid"),
    "tanh": _activation("tanh"),
    "silu": _activation("silu"),
    "hardswish": _activation("hardswish"),
    "hardsigmoid": _activation("hardsigmoid"),
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
    "max_pool2d": _max_pool,
    "avg_pool2d": _avg_pool,
    "adaptive_avg_pool2d": _adaptive_avg_pool,
    "_adaptive_avg_pool2d": _adaptive_avg_pool,
    "mean": _mean,
    "flatten": _reshape,
    "view": _reshape,
    "_unsafe_view": _reshape,
    "reshape": _reshape,
    "squeeze": _reshape,
    "unsqueeze": _reshape,
    "dropout": _same,
    "clone": _same,
    "contiguous": _same,
    "alias": _same,
    "detach": _same,
    "cat": _cat,
    "concat": _cat,
    "pad": _pad,
    "constant_pad_nd": _pad,
    "slice": _slice,
    "split": _split,
    "split_with_sizes": _split,
    "chunk": _split,
    "add": _add,
    "sub": _sub,
    "rsub": _rsub,
    "mul": _mul,
    "div": _div,
    "neg": _neg,
}
"""Every operator that can be deployed, by its name without overloads."""
