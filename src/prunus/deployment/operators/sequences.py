"""Operators of transformers: linear layers of tokens, norms, embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from prunus.deployment.axes import BATCH, whole
from prunus.deployment.operators.views import features_at
from prunus.deployment.operators.walk import (
    COMPUTE,
    OPERATORS,
    Arguments,
    Attributes,
    Tensors,
    Unsupported,
    Value,
    constant_of,
    register,
    value_of,
    view_of,
)
from prunus_runtime.ops.layers import PIXELWISE

if TYPE_CHECKING:
    from prunus.deployment.walk import Walk


def product(walk: Walk, x: Value, weight: Tensor, bias: Any) -> Value:
    """`x @ weight.T + bias` over the last axis, wherever the others are."""
    if weight.ndim != 2:
        raise Unsupported("with a weight that is no matrix")
    x = features_at(walk, x, -1)
    tensors = {"weight": weight, "bias": None if bias is None else constant_of(bias)}
    shape = (len(weight), *walk.shapes[x][1:])
    axes = (*walk.axes(x)[:-1], whole(0, len(weight)))
    if len(shape) < 3:
        made = walk.add("linear", x, shape=shape, tensors=tensors)
    else:
        tensors["weight"] = weight[:, :, None, None]
        made = walk.add("conv", x, shape=shape, tensors=tensors, **PIXELWISE)
    return walk.view(made, axes)


@register(OPERATORS, "embedding")
def _embedding(walk: Walk, a: Arguments) -> Value:
    x, table = value_of(a["indices"]), constant_of(a["weight"])
    (positions,), channels = walk.shapes[x], table.shape[1]
    made = walk.add("embedding", x, shape=(channels, positions), tensors={"table": table})
    return walk.view(made, ((BATCH,), whole(1, positions), whole(0, channels)))


@register(OPERATORS, "layer_norm")
def _layer_norm(walk: Walk, a: Arguments) -> Value:
    return _norm(walk, a, a["bias"], a["eps"], centred=True)


@register(OPERATORS, "rms_norm")
def _rms_norm(walk: Walk, a: Arguments) -> Value:
    epsilon = torch.finfo(torch.float32).eps if a["eps"] is None else a["eps"]
    return _norm(walk, a, None, epsilon, centred=False)


def _norm(walk: Walk, a: Arguments, bias: Any, epsilon: float, *, centred: bool) -> Value:
    if len(a["normalized_shape"]) != 1:
        raise Unsupported("over more than the last dimension")
    x = features_at(walk, view_of(a["input"]), -1)
    tensors = {"scale": a["weight"], "shift": bias}
    return walk.like("norm", x, tensors=tensors, epsilon=float(epsilon), centred=centred)


@register(COMPUTE, "embedding")
def _compute_embedding(_: Attributes, t: Tensors, x: Any) -> Any:
    return F.embedding(x.long(), t["table"]).transpose(1, 2)


@register(COMPUTE, "add_plane")
def _compute_add_plane(_: Attributes, t: Tensors, x: Any) -> Any:
    return torch.add(x, t["plane"][..., : x.size(-1)])  # of a shorter sequence the first positions


@register(COMPUTE, "norm")
def _compute_norm(a: Attributes, t: Tensors, x: Any) -> Any:
    if a["centred"]:
        x = x - x.mean(1, keepdim=True)
    x = x * torch.rsqrt(x.square().mean(1, keepdim=True) + a["epsilon"])
    if "scale" in t:
        x = x * t["scale"]
    return x + t["shift"] if "shift" in t else x


@register(COMPUTE, "mean")
def _compute_mean(_: Attributes, __: Tensors, x: Any) -> Any:
    return x.mean(2)


@register(COMPUTE, "reshape")
def _compute_reshape(_: Attributes, __: Tensors, x: Any) -> Any:
    return torch.flatten(x, 2)


@register(COMPUTE, "transpose")
def _compute_transpose(_: Attributes, __: Tensors, x: Any) -> Any:
    return torch.transpose(x, 1, 2)
