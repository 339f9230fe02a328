"""Where a ranking is cut: the same as by sorting, whatever the sample looked like."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from prunus.methods.common import cuts
from prunus.methods.common.competition import Budget, Competition
from prunus.methods.common.cuts import Cut, Ranked, cost, find_cut, masks

numbers = st.lists(
    st.one_of(st.sampled_from([-1.0, 0.0, 0.5, -math.inf]), st.floats(-2, 2, width=32)),
    min_size=1,
    max_size=60,
)


@st.composite
def rankings(draw):
    parts = draw(st.lists(st.tuples(numbers, st.sampled_from([1, 3, 10])), min_size=1, max_size=4))
    return [Ranked(torch.tensor(values), weight) for values, weight in parts]


def by_sorting(parts, budget):
    """The mask over all numbers: the highest until they cost `budget`, of equal ones the first."""
    values = torch.cat([part.values for part in parts])
    weights = torch.cat([torch.full_like(part.values, part.weight) for part in parts])
    order = values.argsort(descending=True, stable=True)
    order = order[values[order] > -torch.inf]
    reached = torch.cat([torch.zeros(1), weights[order].cumsum(0)])
    kept = torch.zeros(len(values), dtype=torch.bool)
    kept[order[: int((reached - budget).abs().argmin())]] = True
    return kept


@given(rankings(), st.floats(0, 1), st.sampled_from([2, 10, 1 << 17]))
def test_the_same_as_by_sorting(parts, fraction, sample):
    budget = fraction * sum(part.weight * len(part.values) for part in parts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuts, "_SAMPLE", sample)  # so small that it is misleading
        patch.setattr(cuts, "_CHUNK", 7)
        cut = find_cut(parts, budget)
    kept = list(masks(parts, cut))
    assert torch.equal(torch.cat(kept), by_sorting(parts, budget))
    numbers = [int(mask.sum()) for mask in kept]
    assert cost(parts, cut, range(len(parts))) == sum(i * n for i, n in enumerate(numbers))


def test_by_hand():
    a, b = torch.tensor([0.5, 2.0, 1.0]), torch.tensor([1.0, 3.0])
    assert find_cut([Ranked(a), Ranked(b)], 3) == Cut(1.0, ties=1)  # of two that are 1.0, the first
    assert find_cut([Ranked(a), Ranked(b)], 4) == Cut(0.5)
    assert find_cut([Ranked(a), Ranked(b)], 5) == Cut(-math.inf)
    # Keys 0.25, 1, 0.5 and 1, 3; those of the first cost 2 each: 3.0, then 2.0/2 in a's order.
    assert find_cut([Ranked(a, 2, unit=2.0), Ranked(b)], 3) == Cut(1.0, ties=1)
    assert find_cut([Ranked(a, offset=1.0), Ranked(b)], 2) == Cut(1.0, ties=1)


def test_what_is_not_on_a_cpu_is_looked_at_as_tensors(monkeypatch):
    monkeypatch.setattr(Ranked, "chunks", lambda part: iter([part.values.flatten()]))
    values = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    parts = [Ranked(values.view(10, 100))]
    assert find_cut(parts, 100).tau == values.kthvalue(900).values


def test_many_numbers():
    values = torch.randn(400_000, generator=torch.Generator().manual_seed(0))
    values[::7] = 1.5  # a seventh of them are equal
    for kept in (1, 4_000, 40_000, 80_000, 399_999):
        assert find_cut([Ranked(values)], kept).tau == values.kthvalue(400_000 - kept).values


def test_layers_for_themselves():
    a, b = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([10.0, 20.0])
    found = list(Competition([1, 1], scope="layer").cuts([a, b], Budget(0.5)))
    assert [cut for _, cut in found] == [Cut(2.0), Cut(10.0)]
    [(_, cut)] = Competition([1, 1]).cuts([a, b], Budget(0.5))
    assert cut == Cut(3.0)
