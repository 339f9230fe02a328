"""Every table in README and docs agrees with the results files."""

from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[1] / "tools"


@pytest.fixture
def render(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(TOOLS))
    import render

    return render


def test_tables_are_up_to_date(render) -> None:
    texts = {page: page.read_text() for page in render.pages()}
    for page, text in texts.items():
        assert render.rendered(text) == text, f"{page}: run python tools/render.py"
    for name in render.TABLES:
        assert any(f"<!-- results: {name} -->" in text for text in texts.values())


def test_a_changed_figure_is_noticed(render) -> None:
    text = "before\n<!-- results: demo -->\n| kept | 12 % |\n<!-- end -->\nafter\n"
    assert "12 %" not in render.rendered(text)
    assert render.rendered(text).startswith("before\n") and "after\n" in render.rendered(text)


def cells(row, density, accuracies):
    return [
        {"row": row, "seed": seed, "target": 0.1, "density": density, "fine_tuned": value,
         "search_epochs": 8}
        for seed, value in enumerate(accuracies)
    ]  # fmt: skip


@pytest.mark.parametrize("density", [0.0969, 0.1031])
def test_the_comparison_of_methods_is_fair(render, density) -> None:
    """Bold are leads beyond the error; who is off the density, to either side, does not compete."""
    found = [
        *cells("cs-budget", 0.1, (0.80, 0.82)),
        *cells("gmp", 0.1029, (0.79, 0.8101)),  # 1 and 0.99 points behind
        *cells("str", density, (0.90, 0.91)),
        *cells("cs-rounds", 0.1, (0.8,)),
        *cells("imp", 0.1, (0.7,)),  # far behind, but there is one seed
    ]
    content = {"targets": [0.1], "cells": found}
    _, rows = render.methods.accuracies(content, "fine_tuned")
    assert {row[0]: row[2] for row in rows} == {
        "CS with a budget": "**81.0**",
        "GMP": "80.0",
        "STR": f"90.5 (at {100 * density:.1f} %)",
        "CS, a budget for each round": "80.0",
        "IMP": "70.0",
    }
    _, rows = render.methods.lead(content, "fine_tuned")
    assert [row[3:] for row in rows] == [["GMP 80.0", "+1.0±0.1"], ["IMP 70.0", "+10.0±1.2"]]


def test_the_table_of_the_gpt(render) -> None:
    """Intervals are of the mean over seeds; leads are paired, so that what seeds share is out."""

    def runs(method, density, losses, kept=None):
        what = {"method": method, "density": density, "kept": kept or density}
        return [{**what, "seed": n, "validation": loss} for n, loss in enumerate(losses)]

    content = {
        "runs": [
            *runs("dense", 1.0, (1.5, 1.7)), *runs("cs", 0.1, (2.0, 2.2)),
            *runs("gmp", 0.1, (2.1, 2.3)), *runs("gmp", 0.2, (2.0,), 0.21),
        ],
        "tuning": [
            {"method": "cs", "rate": 0.1, "tuning": 2.0},
            {"method": "cs", "rate": 0.01, "tuning": 1.9},
        ],
    }  # fmt: skip
    assert render.integrations.gpt(content) == (
        ["", "100 %", "20 %", "10 %"],
        [
            ["dense", "1.600±1.271", "", ""],
            ["CS", "", "", "2.100±1.271"],
            ["GMP", "", "2.000 (at 21.0 %)", "2.200±1.271"],
        ],
    )
    assert render.integrations.gpt_lead(content)[1] == [["GMP", "+0.100±0.000"]]
    table = render.markdown(*render.integrations.gpt_tuning(content))
    assert table.splitlines()[-1] == "| CS | **1.900** | 2.000 |"
