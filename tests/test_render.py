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
