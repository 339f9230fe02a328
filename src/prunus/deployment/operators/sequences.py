"""Operators of transformers: linear layers of tokens, norms, attention, embeddings."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from prunus.deployment.axes import BATCH, Atom, merged, whole
from prunus.deployment.operators.views import as_sequence, features_at
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
    from prunus.deployment.capture import Walk


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


@register(OPERATORS, "scaled_dot_product_attention")
def _attention(walk: Walk, a: Arguments) -> Value:
    if a["enable_gqa"]:
        raise Unsupported("with fewer heads of keys than of queries")
    (query, heads), (key, _), (value, _) = (
        _of_heads(walk, a[k]) for k in ("query", "key", "value")
    )
    causal = bool(a["is_causal"]) or _is_causal(a["attn_mask"])
    depth, width = walk.shapes[query][0] // heads, walk.shapes[value][0] // heads
    scale = 1 / math.sqrt(depth) if a["scale"] is None else float(a["scale"])
    positions = walk.shapes[query][1]
    made = walk.add(
        *("attention", query, key, value),
        shape=(heads * width, positions),
        heads=heads,
        scale=scale,
        causal=causal,
    )
    head = (Atom(0, heads, width),) if heads > 1 else ()
    return walk.view(made, ((BATCH,), head, whole(1, positions), whole(0, width)))


def _of_heads(walk: Walk, x: Any) -> tuple[Value, int]:
    """Queries, keys or values (batch, heads, positions, channels) as a sequence; and the heads."""
    x = as_sequence(walk, view_of(x))
    axes, shape = walk.axes(x), walk.shapes[x]
    if len(axes) != 4 or len(shape) != 2:
        raise Unsupported("on anything but (batch, heads, positions, channels)")
    batch, head, position, channel = axes
    expected = (batch, position) == ((BATCH,), whole(1, shape[1]))
    if not expected or merged((*head, *channel)) != whole(0, shape[0]):
        raise Unsupported("on anything but (batch, heads, positions, channels)")
    return x, shape[0] // math.prod(atom.size for atom in channel)


def _is_causal(mask: Any) -> bool:
    """Whether a mask hides exactly what comes later; it may also hide nothing."""
    if mask is None:
        return False
    if isinstance(mask, Tensor):
        seen = mask if mask.dtype == torch.bool else mask > -1e4
        exact = mask.dtype == torch.bool or not bool(mask[seen].any())
        earlier = torch.ones(mask.shape[-2:], dtype=torch.bool).tril()
        if exact and bool((seen == earlier).all()):
            return True
        if exact and bool(seen.all()):
            return False
    raise Unsupported("with a mask other than a causal one")


@register(COMPUTE, "embedding")
def _compute_embedding(_: Attributes, t: Tensors, x: Any) -> Any:
    return F.embedding(x.long(), t["table"]).transpose(1, 2)


@register(COMPUTE, "add_plane")
def _compute_add_plane(_: Attributes, t: Tensors, x: Any) -> Any:
    return torch.add(x, t["plane"])


@register(COMPUTE, "norm")
def _compute_norm(a: Attributes, t: Tensors, x: Any) -> Any:
    if a["centred"]:
        x = x - x.mean(1, keepdim=True)
    x = x * torch.rsqrt(x.square().mean(1, keepdim=True) + a["epsilon"])
    if "scale" in t:
        x = x * t["scale"]
    return x + t["shift"] if "shift" in t else x


@register(COMPUTE, "attention")
def _compute_attention(a: Attributes, _: Tensors, query: Any, key: Any, value: Any) -> Any:
    q, k, v = (x.unflatten(1, (a["heads"], -1)).transpose(2, 3) for x in (query, key, value))
    y = F.scaled_dot_product_attention(q, k, v, is_causal=a["causal"], scale=a["scale"])
    return y.transpose(2, 3).flatten(1, 2)


@register(COMPUTE, "mean")
def _compute_mean(_: Attributes, __: Tensors, x: Any) -> Any:
    return x.mean(2)


@register(COMPUTE, "reshape")
def _compute_reshape(_: Attributes, __: Tensors, x: Any) -> Any:
    return torch.flatten(x, 2)


@register(COMPUTE, "transpose")
def _compute_transpose(_: Attributes, __: Tensors, x: Any) -> Any:
    return torch.transpose(x, 1, 2)
