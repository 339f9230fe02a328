"""Parametrizations of one weight tensor, and how they get on and off a model."""

from prunus.gates.attach import (
    attach,
    check_attachable,
    freeze,
    give_masks,
    hard,
    remove,
    strip,
    unfreeze,
)
from prunus.gates.base import Gate
from prunus.gates.bernoulli import BernoulliGate
from prunus.gates.concrete import ConcreteGate
from prunus.gates.feather import FeatherGate
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
from prunus.gates.inputs import InputLayout, input_layout
from prunus.gates.places import (
    Place,
    count_parameters,
    gate_of,
    gated_parameters,
    is_attached,
    places,
    plain_tensors,
)
from prunus.gates.salient import SalientGate
from prunus.gates.saving import mark_saved, refuse_changes
from prunus.gates.scaling import ScalingGate
from prunus.gates.sharded import fill, is_sharded, local, whole
from prunus.gates.sigmoid import SigmoidGate
from prunus.gates.soft_threshold import SoftThresholdGate
from prunus.gates.together import gate_together
from prunus.gates.top_k import TopKGate
from prunus.gates.watching import InputWatcher, Watcher, WatchingGate, stop_watching

__all__ = [
    "BernoulliGate",
    "ConcreteGate",
    "FeatherGate",
    "FixedGate",
    "Gate",
    "Granularity",
    "GrowingGate",
    "HardConcreteGate",
    "InputLayout",
    "InputWatcher",
    "Layout",
    "Pattern",
    "Place",
    "SalientGate",
    "ScalingGate",
    "SigmoidGate",
    "SoftThresholdGate",
    "TopKGate",
    "Watcher",
    "WatchingGate",
    "attach",
    "check_attachable",
    "count_parameters",
    "fill",
    "freeze",
    "gate_of",
    "gate_together",
    "gated_parameters",
    "give_masks",
    "hard",
    "input_layout",
    "is_attached",
    "is_sharded",
    "layout",
    "local",
    "mark_saved",
    "parse_pattern",
    "pattern_for",
    "places",
    "plain_tensors",
    "refuse_changes",
    "remove",
    "stop_watching",
    "strip",
    "unfreeze",
    "whole",
]
