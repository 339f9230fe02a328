"""Budgets for each group of weights (N:M) and for each layer: exact, whatever was learned."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import prunus
from prunus import ContinuousSparsification, SettingError
from prunus.gates import Pattern
from prunus.methods.common.patterns import keep_in_groups, threshold_in_groups
from support.models import seeded

LAYERS = {
    "linear": lambda: nn.Linear(12, 3),
    "conv": lambda: nn.Conv2d(12, 3, 2),
    "grouped": lambda: nn.Conv2d(24, 4, 2, groups=2),
    "transposed": lambda: nn.ConvTranspose2d(24, 4, 2, groups=2),
}


def inputs_last(module, mask):
    """The mask with the inputs of the layer along its last axis."""
    if isinstance(module, nn.ConvTranspose2d):  # (inputs, outputs / groups, ...)
        return mask.movedim(0, -1)
    return mask.movedim(1, -1)


def is_pattern(module, mask, kept, of):
    groups = inputs_last(module, mask).unflatten(-1, (-1, of))
    return bool((groups.sum(-1) == kept).all())


def randomise(cs, seed, ties):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for gate in cs.gates.values():
            noise = torch.randn(gate.score.shape, generator=generator)
            gate.score.add_(noise.round() if ties else noise)


@pytest.mark.parametrize("name", LAYERS)
@given(st.sampled_from([(1, 2), (2, 4), (1, 4), (3, 4), (1, 3), (5, 6)]), st.integers(0, 99))
def test_a_search_ends_exactly_at_the_pattern(name, pattern, seed):
    kept, of = pattern
    model = seeded(LAYERS[name])
    cs = ContinuousSparsification(model, steps=4, select="all", granularity=f"{kept}:{of}")
    assert cs.target_density == kept / of
    masks = []
    for number in range(2):
        for _ in range(4):
            randomise(cs, seed + number, ties=seed % 2 == 0)
            cs.step()
        masks.append(cs.end_round())
    for mask in masks:
        assert is_pattern(model, mask["weight"], kept, of)
    assert masks[0] == masks[1]  # what a round has removed stays removed, and nothing else goes
    assert cs.harden() == masks[1]


@pytest.mark.parametrize("method", ["mp", "gmp", "dnw", "netslim"])
def test_methods_that_rank_weights_keep_the_pattern_too(method):
    model = nn.Sequential(LAYERS["conv"](), LAYERS["linear"]())
    attached = prunus.METHODS[method](model, steps=2, select="all", granularity="2:4")
    for _ in range(2):
        attached.step()
    mask = attached.commit()
    for index in range(2):
        assert is_pattern(model[index], mask[f"{index}.weight"], 2, 4)
    assert attached.settings["target_density"] is None


def test_groups_by_hand():
    pattern = Pattern(2, 4, axis=1)
    ranks = torch.tensor([[1.0, 4.0, 2.0, 3.0, 5.0, 5.0, 5.0, 6.0]])
    assert keep_in_groups(ranks, pattern).int().tolist() == [[0, 1, 0, 1, 1, 0, 0, 1]]


def test_thresholds_by_hand():
    pattern = Pattern(2, 4, axis=1)
    scores = torch.tensor([[1.0, 4.0, 2.0, 3.0]])

    def tau(density):
        return threshold_in_groups(scores, pattern, density)[0, 0].item()

    # None removed: as far below 1 as 2 is above it. One: 1 itself. Between: half of the way.
    assert [tau(d) for d in (1.0, 0.875, 0.75, 0.625, 0.5)] == [0.0, 0.5, 1.0, 1.5, 2.0]


def test_thresholds_where_some_are_removed_for_good():
    pattern = Pattern(2, 4, axis=1)
    scores = torch.tensor([[-torch.inf, 4.0, -torch.inf, 3.0]])
    shifted = scores - threshold_in_groups(scores, pattern, 0.5)
    assert (shifted > 0).tolist() == [[False, True, False, True]]


@pytest.mark.parametrize(
    ("granularity", "more", "message"),
    [
        ("2:5", {}, "groups of 5 do not divide the 12 inputs of weight"),
        ("4:4", {}, "from 1 to M - 1 are kept"),
        ("0:4", {}, "from 1 to M - 1 are kept"),
        ("2:4", {"target_density": 0.1}, "keeps 2 of 4 weights everywhere"),
        ("2:4", {"target_macs": 0.1}, "keeps 2 of 4 weights everywhere"),
        ("2:4", {"mask_init": -0.1}, "give one of them"),
        ("weight", {"scope": "layer"}, "scope='layer' is for a target_density"),
        ("weight", {"scope": "layer", "target_macs": 0.1}, "scope='layer' is for a target_density"),
    ],
)
def test_what_cannot_be_is_refused(granularity, more, message):
    with pytest.raises(SettingError, match=message):
        ContinuousSparsification(
            LAYERS["linear"](), steps=4, select="all", granularity=granularity, **more
        )


def test_methods_that_rank_weights_have_no_coarser_gates():
    with pytest.raises(SettingError, match="mp ranks single weights"):
        prunus.MagnitudePruning(LAYERS["linear"](), steps=4, select="all", granularity="filter")


# Layers


@given(st.floats(0.1, 1.0), st.integers(0, 99))
def test_every_layer_has_the_density(density, seed):
    model = nn.Sequential(nn.Linear(10, 20), nn.Linear(20, 3), nn.Linear(3, 4))
    cs = ContinuousSparsification(
        model, steps=2, select="all", target_density=density, scope="layer"
    )
    for _ in range(2):
        randomise(cs, seed, ties=seed % 2 == 0)
        cs.step()
    for layer in cs.end_round().layers:
        assert layer.kept == round(density * layer.total)


def test_a_layer_that_would_be_empty_is_refused():
    model = nn.Sequential(nn.Linear(100, 20), nn.Linear(20, 2))
    with pytest.raises(SettingError, match=r"of 40 weights of 1\.weight is less than one weight"):
        ContinuousSparsification(model, steps=2, select="all", target_density=0.01, scope="layer")
