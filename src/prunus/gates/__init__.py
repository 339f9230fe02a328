"""Parametrizations of one weight tensor, and how they get on and off a model."""

from prunus.gates.attach import (
    Place,
    attach,
    check_attachable,
    freeze,
    gate_of,
    gated_parameters,
    hard,
    is_attached,
    places,
    plain_tensors,
    refuse_changes,
    remove,
    strip,
    unfreeze,
)
from prunus.gates.base import Gate
from prunus.gates.bernoulli import BernoulliGate
from prunus.gates.fixed import FixedGate
from prunus.gates.granularity import (
    Granularity,
    Layout,
    Pattern,
    layout,
    parse_pattern,
    pattern_for,
)
from prunus.gates.growing import GrowingGate
from prunus.gates.hard_concrete import HardConcreteGate
from prunus.gates.scaling import ScalingGate
from prunus.gates.sigmoid import SigmoidGate
from prunus.gates.soft_threshold import SoftThresholdGate
from prunus.gates.top_k import TopKGate

__all__ = [
    "BernoulliGate",
    "FixedGate",
    "Gate",
    "Granularity",
    "GrowingGate",
    "HardConcreteGate",
    "Layout",
    "Pattern",
    "Place",
    "ScalingGate",
    "SigmoidGate",
    "SoftThresholdGate",
    "TopKGate",
    "attach",
    "check_attachable",
    "freeze",
    "gate_of",
    "gated_parameters",
    "hard",
    "is_attached",
    "layout",
    "parse_pattern",
    "pattern_for",
    "places",
    "plain_tensors",
    "refuse_changes",
    "remove",
    "strip",
    "unfreeze",
]
