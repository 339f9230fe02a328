"""The methods that Prunus brings, two lines each: this is all that registers them."""

from typing import TYPE_CHECKING

CLASSES = {
    "acdc": ("prunus.methods.acdc", "AlternatingCompression"),
    "amc": ("prunus.methods.amc", "AMC"),
    "cs": ("prunus.methods.cs", "ContinuousSparsification"),
    "cts": ("prunus.methods.cts", "ConcreteTicketSearch"),
    "dnw": ("prunus.methods.dnw", "DiscoveringNeuralWirings"),
    "feather": ("prunus.methods.feather", "Feather"),
    "gmp": ("prunus.methods.gmp", "GradualMagnitudePruning"),
    "imp": ("prunus.methods.imp", "IterativeMagnitudePruning"),
    "imp-c": ("prunus.methods.imp", "ContinuedMagnitudePruning"),
    "iss": ("prunus.methods.iss", "IterativeStochasticSparsification"),
    "l0": ("prunus.methods.l0", "L0Regularisation"),
    "mp": ("prunus.methods.mp", "MagnitudePruning"),
    "netslim": ("prunus.methods.netslim", "NetworkSlimming"),
    "pilot": ("prunus.methods.pilot", "PILoT"),
    "random": ("prunus.methods.random", "RandomPruning"),
    "rigl": ("prunus.methods.rigl", "RigL"),
    "seq-cs": ("prunus.methods.seq_cs", "SequentialSparsification"),
    "snip": ("prunus.methods.snip", "SNIP"),
    "str": ("prunus.methods.soft_threshold", "SoftThresholdReparameterisation"),
    "synflow": ("prunus.methods.synflow", "SynFlow"),
    "wanda": ("prunus.methods.wanda", "Wanda"),
}
"""Module and class of each name. A method is imported when it is used: programs use one or two."""

if TYPE_CHECKING:  # the same for type checkers and editors, which see no import by name
    from prunus.methods.acdc import AlternatingCompression as AlternatingCompression
    from prunus.methods.amc import AMC as AMC
    from prunus.methods.cs import ContinuousSparsification as ContinuousSparsification
    from prunus.methods.cts import ConcreteTicketSearch as ConcreteTicketSearch
    from prunus.methods.dnw import DiscoveringNeuralWirings as DiscoveringNeuralWirings
    from prunus.methods.feather import Feather as Feather
    from prunus.methods.gmp import GradualMagnitudePruning as GradualMagnitudePruning
    from prunus.methods.imp import ContinuedMagnitudePruning as ContinuedMagnitudePruning
    from prunus.methods.imp import IterativeMagnitudePruning as IterativeMagnitudePruning
    from prunus.methods.iss import (
        IterativeStochasticSparsification as IterativeStochasticSparsification,
    )
    from prunus.methods.l0 import L0Regularisation as L0Regularisation
    from prunus.methods.mp import MagnitudePruning as MagnitudePruning
    from prunus.methods.netslim import NetworkSlimming as NetworkSlimming
    from prunus.methods.pilot import PILoT as PILoT
    from prunus.methods.random import RandomPruning as RandomPruning
    from prunus.methods.rigl import RigL as RigL
    from prunus.methods.seq_cs import SequentialSparsification as SequentialSparsification
    from prunus.methods.snip import SNIP as SNIP
    from prunus.methods.soft_threshold import (
        SoftThresholdReparameterisation as SoftThresholdReparameterisation,
    )
    from prunus.methods.synflow import SynFlow as SynFlow
    from prunus.methods.wanda import Wanda as Wanda
