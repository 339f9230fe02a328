"""Attention: as one operator, or written out as matrix products with a softmax in between.

What is written out has no operation of its own before the second product: until then it is
`Scores`, which the functions of `ON_SCORES` change.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from prunus.deployment.axes import BATCH, Atom, merged, whole
from prunus.deployment.operators.per_token import PerToken
from prunus.deployment.operators.views import as_sequence
from prunus.deployment.operators.walk import (
    COMPUTE,
    ON_SCORES,
    OPERATORS,
    Arguments,
    Attributes,
    Scores,
    Tensors,
    Unsupported,
    Value,
    register,
    view_of,
)

if TYPE_CHECKING:
    from prunus.deployment.walk import Walk

HIDDEN = -1e4
"""A number that, added to a score or in its place, hides a key; real scores are far above it."""
LOWEST = -6e4
"""What is added to the scores of hidden keys: fp16, as which a file may store it, has it too."""


@register(OPERATORS, "scaled_dot_product_attention")
def _attention(walk: Walk, a: Arguments) -> Value:
    if a["enable_gqa"]:
        raise Unsupported("with fewer heads of keys than of queries")
    query, heads = _of_heads(walk, a["query"])
    depth = walk.shapes[query][0] // heads
    scale = 1 / math.sqrt(depth) if a["scale"] is None else float(a["scale"])
    scores = Scores(query, _of_heads(walk, a["key"])[0], heads, scale, bool(a["is_causal"]))
    if a["attn_mask"] is not None:
        scores = _under(walk, scores, a["attn_mask"])
    return _attended(walk, scores, a["value"])


def scores_of(walk: Walk, query: Value, transposed: Value) -> Scores:
    """What the product of queries and transposed keys is, each (batch, heads, ...)."""
    axes = walk.axes(transposed)
    key = walk.view(transposed, (*axes[:-2], axes[-1], axes[-2]))
    (query, heads), (key, others) = _of_heads(walk, query), _of_heads(walk, key)
    if heads != others or walk.shapes[query][0] != walk.shapes[key][0]:
        raise Unsupported("of two values that are not queries and transposed keys")
    return Scores(query, key, heads)


def _attended(walk: Walk, scores: Scores, values: Any) -> Value:
    """The values, weighted by the softmax of the scores."""
    value, heads = _of_heads(walk, values)
    width, positions = walk.shapes[value][0] // heads, walk.shapes[scores.query][1]
    masks = [] if scores.hidden is None else [_added(walk, scores.hidden)]
    inputs = (scores.query, scores.key, value, *masks)
    made = walk.add(
        "attention",
        *inputs,
        shape=(heads * width, positions),
        heads=heads,
        scale=scores.scale,
        causal=scores.causal,
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


@register(ON_SCORES, "mul")
def _multiplied(_: Walk, a: Arguments) -> Scores:
    scores, factor = _operands(a)
    return replace(scores, scale=scores.scale * _positive(factor))


@register(ON_SCORES, "div")
def _divided(_: Walk, a: Arguments) -> Scores:
    scores = _unfinished(a["self"])
    if a.get("rounding_mode") is not None:
        raise Unsupported("with rounding, on the scores of an attention")
    return replace(scores, scale=scores.scale / _positive(a["other"]))


def _positive(factor: Any) -> float:
    """A number that keeps the order of scores, and hides what a mask has hidden."""
    if not isinstance(factor, Value | Scores | PerToken):
        number = torch.as_tensor(factor).double()
        if number.numel() == 1 and bool(number > 0):
            return float(number)
    raise Unsupported("on the scores of an attention, other than by one positive number")


@register(ON_SCORES, "add")
def _masked(walk: Walk, a: Arguments) -> Scores:
    scores, mask = _operands(a)
    if a["alpha"] != 1:
        raise Unsupported("with a factor, on the scores of an attention")
    return _under(walk, scores, mask)


@register(ON_SCORES, "masked_fill")
def _filled(walk: Walk, a: Arguments) -> Scores:
    return _hiding(walk, a["self"], a["mask"], a["value"], hidden=True)


@register(ON_SCORES, "where")
def _where(walk: Walk, a: Arguments) -> Scores:
    return _hiding(walk, a["self"], a["condition"], a["other"], hidden=False)


def _hiding(walk: Walk, scores: Any, mask: Any, filled: Any, *, hidden: bool) -> Scores:
    """The scores where a mask of flags is not `hidden`, and what hides a key elsewhere."""
    known = isinstance(mask, Tensor | PerToken)
    known &= not isinstance(filled, Value | Scores | PerToken)
    if not known or not bool((torch.as_tensor(filled) <= HIDDEN).all()):
        raise Unsupported("on the scores of an attention, but to hide keys by a constant mask")
    if isinstance(mask, PerToken):
        seen: Any = replace(mask, values=tuple(v.bool() != hidden for v in mask.values))
    else:
        seen = mask.bool() != hidden
    return _under(walk, _unfinished(scores), seen)


def _under(walk: Walk, scores: Scores, mask: Any) -> Scores:
    """The scores with a mask: flags of what is seen, or what is added. It may hide what comes
    later, and tokens wherever they are."""
    if not isinstance(mask, PerToken):
        return replace(scores, causal=_is_causal(mask) or scores.causal)
    keys = torch.arange(walk.shapes[scores.key][1])
    if mask.position.shape[-1:] != keys.shape or not bool((mask.position == keys).all()):
        raise Unsupported("with a mask that depends on other tokens than the keys")
    seen = [bool(_seen(value).any()) for value in mask.values]
    ways = {_is_causal(value) for value, some in zip(mask.values, seen, strict=True) if some}
    if len(ways) > 1:
        raise Unsupported("with a mask that is causal for some tokens only")
    hidden = ~torch.tensor(seen)[mask.classes]
    if scores.hidden is not None:
        hidden = hidden | scores.hidden
    return replace(scores, causal=True in ways or scores.causal, hidden=hidden)


def _added(walk: Walk, hidden: Tensor) -> Value:
    """What is added to the scores of each key, by its token; made once for all layers."""
    table = torch.where(hidden, LOWEST, 0.0)[:, None]
    for operation in walk.operations.values():
        known = operation.tensors.get("table")
        if known is not None and known.shape == table.shape and (known == table.numpy()).all():
            return Value(operation.output)
    shape = (1, *walk.input_shape)
    return walk.add("embedding", walk.source, shape=shape, tensors={"table": table})


@register(ON_SCORES, "softmax", "_softmax")
def _softmax(_: Walk, a: Arguments) -> Scores:
    if a["dim"] not in (-1, 3):
        raise Unsupported("over anything but the keys of an attention")
    return replace(_unfinished(a["self"]), finished=True)


@register(ON_SCORES, "dropout", "clone", "contiguous", "alias", "detach")
def _same(_: Walk, a: Arguments) -> Any:
    return a["self"] if "self" in a else a["input"]


@register(ON_SCORES, "matmul")
def _applied(walk: Walk, a: Arguments) -> Value:
    scores, value = a["self"], a["other"]
    if not isinstance(scores, Scores) or not scores.finished or not isinstance(value, Value):
        raise Unsupported("on the scores of an attention, but to weight values after a softmax")
    if _of_heads(walk, value)[1] != scores.heads:
        raise Unsupported("with another number of heads of values than of keys")
    return _attended(walk, scores, value)


def _operands(a: Arguments) -> tuple[Scores, Any]:
    """Scores, and the constant that they are combined with."""
    left, right = a["self"], a["other"]
    if isinstance(right, Scores):
        left, right = right, left
    if isinstance(right, Value | Scores):
        raise Unsupported("on the scores of an attention and another value")
    return _unfinished(left), right


def _unfinished(scores: Any) -> Scores:
    if not isinstance(scores, Scores) or scores.finished:
        raise Unsupported("on the weights of an attention, after its softmax")
    return scores


def _is_causal(mask: Any) -> bool:
    """Whether a mask hides exactly what comes later; it may also hide nothing."""
    if isinstance(mask, Tensor) and mask.ndim >= 2:
        seen = _seen(mask)
        exact = mask.dtype == torch.bool or not bool(mask[seen].any())
        if exact and bool(seen.all()):
            return False
        earlier = torch.ones(mask.shape[-2:], dtype=torch.bool).tril()
        if exact and mask.shape[-2] == mask.shape[-1] and bool((seen == earlier).all()):
            return True
    raise Unsupported("with a mask other than a causal one")


def _seen(mask: Tensor) -> Tensor:
    """Flags of what a mask does not hide."""
    return mask if mask.dtype == torch.bool else mask > HIDDEN


@register(COMPUTE, "attention")
def _compute_attention(
    a: Attributes, _: Tensors, query: Any, key: Any, value: Any, mask: Any = None
) -> Any:
    q, k, v = (x.unflatten(1, (a["heads"], -1)).transpose(2, 3) for x in (query, key, value))
    if mask is None:
        y = F.scaled_dot_product_attention(q, k, v, is_causal=a["causal"], scale=a["scale"])
    else:
        scores = torch.matmul(q, k.transpose(2, 3)) * a["scale"] + mask.unsqueeze(2)
        if a["causal"]:
            scores = scores + torch.triu(torch.full_like(scores, -math.inf), 1)
        y = torch.matmul(torch.softmax(scores, 3), v)
    return y.transpose(2, 3).flatten(1, 2)
