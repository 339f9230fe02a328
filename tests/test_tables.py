"""Plain-text tables."""

from __future__ import annotations

import pytest

from prunus.tables import percent, text_table


def test_columns_align() -> None:
    table = text_table(["name", "n"], [["a", "1,000"], ["longer", "2"]])
    assert table == "name        n\na       1,000\nlonger      2"


def test_no_trailing_spaces() -> None:
    assert text_table(["name", "n"], [["long name", ""]]) == "name       n\nlong name"


def test_header_only() -> None:
    assert text_table(["a", "b"], []) == "a  b"


def test_a_row_of_another_length_is_an_error() -> None:
    with pytest.raises((ValueError, IndexError)):
        text_table(["a", "b"], [["1"]])


@pytest.mark.parametrize(
    ("fraction", "digits", "text"),
    [(0, 2, "0.00%"), (1, 2, "100.00%"), (0.0444, 1, "4.4%"), (1 / 3, 0, "33%")],
)
def test_percent(fraction: float, digits: int, text: str) -> None:
    assert percent(fraction, digits) == text
