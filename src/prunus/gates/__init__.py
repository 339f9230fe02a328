"""Parametrizations of one weight tensor, and how they get on and off a model."""

from prunus.gates.attach import (
    attach,
    check_attachable,
    gated_parameters,
    hard,
    is_attached,
    plain_tensors,
    remove,
    strip,
)
from prunus.gates.base import Gate
from prunus.gates.fixed import FixedGate
from prunus.gates.granularity import Granularity, Layout, layout
from prunus.gates.sigmoid import SigmoidGate

__all__ = [
    "FixedGate",
    "Gate",
    "Granularity",
    "Layout",
    "SigmoidGate",
    "attach",
    "check_attachable",
    "gated_parameters",
    "hard",
    "is_attached",
    "layout",
    "plain_tensors",
    "remove",
    "strip",
]
