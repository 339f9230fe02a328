"""Where the planner puts values: never two that live at the same time in the same place."""

from __future__ import annotations

from itertools import combinations
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prunus_runtime.native.interface import Place
from prunus_runtime.plan import layout

VALUES = st.lists(
    st.tuples(st.integers(1, 300), st.integers(0, 3), st.integers(0, 30), st.integers(0, 12)),
    min_size=1,
    max_size=40,
)
"""Of each value: floats of a plane, cache lines before it, first step, further steps."""


@pytest.mark.parametrize("most_gaps", [1, layout.MOST_GAPS])
@given(values=VALUES)
@settings(max_examples=60)
def test_values_that_live_together_lie_apart(
    most_gaps: int, values: list[tuple[int, int, int, int]]
) -> None:
    places, lives = {}, {}
    for number, (plane, lines, born, longer) in enumerate(values):
        places[str(number)] = Place(0, plane, 1, 16 * lines, 0, 2, 1, 1)
        lives[str(number)] = (born, born + longer)
    with patch.object(layout, "MOST_GAPS", most_gaps):
        placed, size = layout._pack(places, lives)
    spans = {name: (p.offset - p.lead, p.offset - p.lead + p.size) for name, p in placed.items()}
    assert size == max(end for _, end in spans.values()) and placed.keys() == places.keys()
    for (a, one), (b, other) in combinations(lives.items(), 2):
        if one[0] <= other[1] and other[0] <= one[1]:
            assert spans[a][1] <= spans[b][0] or spans[b][1] <= spans[a][0]
    assert all(begin % layout.ALIGN == 0 for begin, _ in spans.values())


def test_what_is_free_again_is_used_again() -> None:
    place = Place(0, 16, 1, 0, 0, 1, 1, 1)
    lives = {"a": (0, 1), "b": (0, 9), "c": (2, 3), "d": (2, 3)}
    placed, size = layout._pack(dict.fromkeys(lives, place), lives)
    assert {name: p.offset for name, p in placed.items()} == {"a": 0, "b": 16, "c": 0, "d": 32}
    assert size == 48
