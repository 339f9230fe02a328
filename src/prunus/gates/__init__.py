"""Parametrizations of one weight tensor, and how they get on and off a model."""

from prunus.gates.attach import (
    attach,
    check_attachable,
    freeze,
    gated_parameters,
    hard,
    is_attached,
    plain_tensors,
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
from prunus.gates.sharded import fill, is_sharded, local, whole
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
    "ScalingGate",
    "SigmoidGate",
    "SoftThresholdGate",
    "TopKGate",
    "attach",
    "check_attachable",
    "fill",
    "freeze",
    "gated_parameters",
    "hard",
    "is_attached",
    "is_sharded",
    "layout",
    "local",
    "parse_pattern",
    "pattern_for",
    "plain_tensors",
    "remove",
    "strip",
    "unfreeze",
    "whole",
]
