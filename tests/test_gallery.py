"""The gallery: pages that are executed as notebooks when the site is built."""

from base64 import b64decode
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted(set((ROOT / "docs" / "gallery").glob("*.md")) - {ROOT / "docs/gallery/index.md"})

PAGE = r"""# A title

What it shows,
in two lines.

## A part

```python
import os

print("first", os.environ["OMP_NUM_THREADS"])
```

More text.

```python
from IPython.display import Image

Image(b"\x89PNG\r\n\x1a\n")
```

The end.
"""


@pytest.fixture
def gallery(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import docs_gallery

    return docs_gallery


def test_a_page_shows_what_its_cells_print_and_draw(gallery):
    notebook = gallery.executed(PAGE)
    kinds = [cell.cell_type for cell in notebook.cells]
    assert kinds == ["markdown", "code", "markdown", "code", "markdown"]
    assert b64decode(gallery.result(notebook)).startswith(b"\x89PNG")
    text, picture = gallery.shown(notebook.cells[1]), gallery.shown(notebook.cells[3])
    assert text.endswith("```\n\n```text\nfirst 1\n```\n")
    assert (
        picture.startswith("```python\nfrom IPython") and "\n![](data:image/png;base64," in picture
    )


def test_every_notebook_is_in_the_list_and_in_the_navigation():
    listed = (ROOT / "docs" / "gallery" / "index.md").read_text()
    navigation = (ROOT / "mkdocs.yml").read_text()
    assert len(NOTEBOOKS) == 5
    for path in NOTEBOOKS:
        assert f"]({path.name})\n" in listed and f"gallery/{path.name}\n" in navigation


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_notebook_opens_with_its_result(path, gallery):
    text = path.read_text()
    assert gallery.is_notebook(f"gallery/{path.name}") and gallery.OPENING.match(text)
    assert "alt.Chart(" in gallery.CELL.findall(text)[-1]


def test_a_cell_that_fails_fails_the_build(gallery):
    with pytest.raises(Exception, match="ZeroDivisionError"):
        gallery.executed("# A title\n\nText.\n\n```python\n1 / 0\n```\n")
