"""Which weights of a masked network lie on a way from its input to its output.

A kept weight is connected if the channel that it reads depends on the network's input and the
channel that it writes to can matter for the output ("effective sparsity", Vysogorets and Kempe
2023). The network is run once on flags in place of numbers: 1 where something arrives, and in the
backward pass 1 from where something goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import deepcopy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from prunus.gates import strip
from prunus.masks import Mask
from prunus.selection import candidates


class _UnknownError(Exception):
    """An operation of which we cannot say what depends on what."""


def effective_density(model: nn.Module, mask: Mask, example: Tensor) -> float | None:
    """The fraction of the weights under `mask` that are kept and connected.

    `example` is a batch that the model takes, of floating-point numbers. None where it cannot be
    known: the model does something else than the operations below. `model` stays as it is.
    """
    if not example.is_floating_point():
        return None
    try:
        found = _connected(model, mask, example[:1])
    except Exception:  # whatever the code of others does with flags in place of numbers
        return None
    return found / mask.total


@torch.enable_grad()
def _connected(model: nn.Module, mask: Mask, example: Tensor) -> int:
    """How many of the weights under `mask` are kept and connected."""
    copy = strip(deepcopy(model)).eval().float()
    weights = {c.name: c.parameter for c in candidates(copy) if c.is_weight}
    with torch.no_grad():
        for tensor in (*copy.parameters(), *copy.buffers()):
            tensor.zero_()  # what does not depend on the input
        for name, weight in weights.items():
            weight.copy_(mask[name] if name in mask else torch.ones(()))
            weight.requires_grad_()
    mode = _OnFlags(weights.values())
    source = mode.ours(torch.ones_like(example, dtype=torch.float32))
    with mode:
        output = copy(source)
    mode.check(output)
    found = torch.autograd.grad(output.sum(), [weights[name] for name in mask])
    pairs = zip(found, mask.values(), strict=True)
    return sum(int(((g.to(kept.device) > 0) & kept).sum()) for g, kept in pairs)


class _Flag(torch.autograd.Function):
    """Whether a number is above zero, and whether its gradient is: products of many sums neither
    vanish nor overflow."""

    @staticmethod
    def forward(_: Any, x: Tensor) -> Tensor:
        return (x > 0).float()

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        return (gradient > 0).float()


class _OnFlags(TorchFunctionMode):
    """Replaces what a model computes by what depends on what; refuses what it does not know."""

    def __init__(self, weights: Iterable[nn.Parameter]) -> None:
        super().__init__()
        self._weights = {id(weight) for weight in weights}
        self._ours: dict[int, Tensor] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs, name = kwargs or {}, getattr(func, "__name__", "").strip("_")
        if name in _ABOUT:
            return func(*args, **kwargs)
        if name in _OF_WEIGHTS:
            self.check(args[0])
            made, weights = _OF_WEIGHTS[name](func, *args, **kwargs)
            if not {id(weight) for weight in weights} <= self._weights:
                raise _UnknownError(name)
            return self.ours(made)
        if name in _REPLACED:
            self.check(args[0])
            return self.ours(_REPLACED[name](*args, **kwargs))
        if name in _OF_SEVERAL:
            listed = args[0] if isinstance(args[0], list | tuple) else args
            tensors = [operand for operand in listed if isinstance(operand, Tensor)]
            if not any(id(tensor) in self._ours for tensor in tensors):
                return func(*args, **kwargs)  # of parameters, which are zero
            either = name in _EITHER
            return self.ours(sum(tensors) if either else func(*args, **kwargs))
        raise _UnknownError(name)

    def check(self, x: Any) -> None:
        """Raise if `x` was not made by us: then nobody knows what it depends on."""
        if id(x) not in self._ours:
            raise _UnknownError("a value of an operation that was not seen")

    def ours(self, made: Any) -> Any:
        """A value that we made, or several, as flags."""
        if made is None:
            return None
        if isinstance(made, list | tuple):
            return type(made)(self.ours(one) for one in made)
        flags = _Flag.apply(made)  # type: ignore[no-untyped-call]
        self._ours[id(flags)] = flags
        return flags


# What each number of a result depends on, as sums of flags

Computed = tuple[Any, tuple[Tensor, ...]]
"""What was made, and with which weights."""


def _convolution(func: Any, x: Tensor, weight: Tensor, *args: Any, **kwargs: Any) -> Computed:
    """An output channel depends on the input channels that it has any weight for, anywhere."""
    groups = kwargs.get("groups", args[4] if len(args) > 4 else 1)
    shape = func(x, weight, *args, **kwargs).shape
    channels, kernels = x.flatten(2).sum(2), weight.flatten(2).sum(2)
    parts = zip(channels.chunk(groups, 1), kernels.chunk(groups, 0), strict=True)
    made = torch.cat([part @ kernel.T for part, kernel in parts], 1)
    return made.reshape(*made.shape, *[1] * (len(shape) - 2)).expand(shape), (weight,)


def _linear(_: Any, x: Tensor, weight: Tensor, *__: Any, **___: Any) -> Computed:
    return x @ weight.T, (weight,)


def _attention(_: Any, *args: Any, **__: Any) -> Computed:
    """A vector depends on all values of its channel, and on all queries and keys of its head."""
    heads, weight, last = args[4], args[5], args[11]
    pairs = zip(args[:3], weight.chunk(3), strict=True)
    query, key, value = ((x @ part.T).unflatten(-1, (heads, -1)) for x, part in pairs)
    scores = query.sum(-1, keepdim=True) + key.sum((0, -1), keepdim=True)
    mixed = (scores + value.sum(0, keepdim=True)).flatten(-2)
    return (mixed @ last.T, None), (weight, last)


def _same(x: Tensor, *_: Any, **__: Any) -> Tensor:
    """Each number depends on itself alone."""
    return x


def _over_last(x: Tensor, over: Any, *_: Any, **__: Any) -> Tensor:
    """Each number depends on all that is normalised with it."""
    axes = tuple(range(-len(over), 0))
    return x.sum(axes, keepdim=True).expand(x.shape)


def _over_axis(x: Tensor, dim: Any = None, *_: Any, **__: Any) -> Tensor:
    if dim is None:
        raise _UnknownError("softmax along no axis")
    return x.sum(dim, keepdim=True).expand(x.shape)


def _over_group(x: Tensor, groups: int, *_: Any, **__: Any) -> Tensor:
    parts: Tensor = x.unflatten(1, (groups, -1)).flatten(2)
    return parts.sum(2, keepdim=True).expand(parts.shape).reshape(x.shape)


def _pooled(
    x: Tensor, size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, **more: Any
) -> Tensor:
    """The largest number depends on all that it is chosen from."""
    if {dilation} - {1, (1, 1)} or more.pop("return_indices", False):
        raise _UnknownError("max_pool2d with dilation or indices")
    pooled: Tensor = F.avg_pool2d(x, size, stride, padding, more.get("ceil_mode", False))
    return pooled


def _padded(x: Tensor, pad: Any, *_: Any, **__: Any) -> Tensor:
    """Padding depends on nothing, or in other modes only on what is there already."""
    return F.pad(x, pad)


_ABOUT = {"get", "size", "dim", "ndimension", "numel", "is_floating_point", "is_contiguous"}
"""Questions about a tensor, such as its shape."""
_OF_WEIGHTS: dict[str, Callable[..., Computed]] = {
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _convolution),
    "linear": _linear,
    "multi_head_attention_forward": _attention,
}
_ELEMENTWISE = (
    *("relu", "relu6", "leaky_relu", "elu", "selu", "celu", "gelu", "silu", "mish", "sigmoid"),
    *("tanh", "softplus", "hardswish", "hardsigmoid", "hardtanh", "clamp", "neg", "contiguous"),
    *("dropout", "dropout1d", "dropout2d", "batch_norm"),
)
_REPLACED: dict[str, Callable[..., Tensor]] = {
    **dict.fromkeys(_ELEMENTWISE, _same),
    "layer_norm": _over_last,
    "rms_norm": _over_last,
    "group_norm": _over_group,
    "softmax": _over_axis,
    "max_pool2d": _pooled,
    "pad": _padded,
}
_EITHER = {
    *("add", "radd", "iadd", "sub", "rsub", "isub", "mul", "rmul", "imul", "div", "truediv"),
}
"""Each number on both operands."""
_OF_SEVERAL = {
    *_EITHER,
    *("cat", "concat", "stack", "flatten", "unflatten", "view", "reshape", "permute", "transpose"),
    *("movedim", "squeeze", "unsqueeze", "expand", "getitem", "chunk", "split", "unbind"),
    *("select", "narrow", "mean", "sum"),
    *("avg_pool1d", "avg_pool2d", "adaptive_avg_pool1d", "adaptive_avg_pool2d"),
}
"""What already computes each number from all that it depends on, and without a minus."""
