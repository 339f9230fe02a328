"""Which channels of a network do not depend on its input, and what they hold instead."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from prunus.deployment.compute import evaluate
from prunus_runtime.graph import Graph, Operation

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Known:
    """What is known of a value without the input: `channels` says where `content` is true.

    `content` is float64 and has a batch of one. Other channels hold what the known ones contribute:
    the value if all that is unknown were zero.
    """

    channels: Flags
    content: Tensor


def known_values(graph: Graph) -> dict[str, Known]:
    """What is known of every value, by name."""
    values = {
        graph.input: Known(
            np.zeros(graph.input_shape[0], dtype=bool),
            torch.zeros(1, *graph.input_shape, dtype=torch.float64),
        )
    }
    with torch.no_grad():
        for operation in graph.operations:
            inputs = [_only_known(values[name]) for name in operation.inputs]
            content = evaluate(operation, *(i.content for i in inputs))
            values[operation.output] = Known(_known_channels(operation, inputs), content)
    return values


def _only_known(value: Known) -> Known:
    content = value.content.clone()
    content[:, torch.from_numpy(~value.channels)] = 0.0
    return Known(value.channels, content)


def _known_channels(operation: Operation, inputs: list[Known]) -> Flags:
    first = inputs[0].channels
    kind, a = operation.kind, operation.attributes
    if kind in ("conv", "linear"):
        unknown: Flags = reads(operation) @ ~first
        return ~unknown
    if kind == "affine":
        scale = operation.tensors.get("scale")
        return first if scale is None else first | (scale == 0)
    if kind == "add":
        return first & inputs[1].channels
    if kind == "multiply":
        zero = [i.channels & _zero(i.content) for i in inputs]
        return (first & inputs[1].channels) | zero[0] | zero[1]
    if kind == "concatenate":
        return np.concatenate([i.channels for i in inputs])
    if kind == "flatten":
        return np.repeat(first, inputs[0].content[0, 0].numel())
    if kind == "slice":
        return first[a["start"][0] : a["stop"][0] : a["step"][0]]
    if kind == "pad":
        return np.pad(first, tuple(a["channels"]), constant_values=True)
    if kind == "softmax":
        return np.full_like(first, first.all())
    return first  # pooling and activations are for each channel alone


def reads(layer: Operation) -> Flags:
    """Of a convolution or linear layer: whether output `o` reads channel `i`, as (o, i)."""
    weight, groups = layer.tensors["weight"], layer.attributes.get("groups", 1)
    used: Flags = (weight != 0).reshape(*weight.shape[:2], -1).any(axis=2)
    if groups == 1:
        return used
    filters, channels = used.shape
    whole = np.zeros((filters, channels * groups), dtype=bool)
    for o in range(filters):
        start = o // (filters // groups) * channels
        whole[o, start : start + channels] = used[o]
    return whole


def of_channels(layer: Operation, channels: Flags) -> Flags:
    """Of each weight of `layer`: whether it reads one of `channels`."""
    weight, groups = layer.tensors["weight"], layer.attributes.get("groups", 1)
    per_group = channels.reshape(groups, weight.shape[1])
    chosen = np.repeat(per_group, weight.shape[0] // groups, axis=0)
    shape = (*chosen.shape, *[1] * (weight.ndim - 2))
    return np.broadcast_to(chosen.reshape(shape), weight.shape)


def _zero(content: Tensor) -> Flags:
    flat: Flags = (
        (content[0].flatten(1) == 0).all(1).numpy()
        if content.ndim > 2
        else (content[0] == 0).numpy()
    )
    return flat


def uniform(content: Tensor) -> Flags:
    """Whether each channel holds one number everywhere, but for rounding in float64."""
    if content.ndim == 2:
        return np.ones(content.shape[1], dtype=bool)
    planes = content[0].flatten(1)
    spread = planes.amax(1) - planes.amin(1)
    result: Flags = (spread <= 1e-12 * planes.abs().amax(1).clamp(min=1e-30)).numpy()
    return result
