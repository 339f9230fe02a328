"""A hook of MkDocs: the pages of the gallery are notebooks, executed when the site is built.

They are kept as Markdown, whose Python blocks are the cells: easy to review, and without outputs
that grow old. A page shows what its cells print and draw. It opens with the picture that its last
cell draws, which is its result, and can be downloaded as an executed notebook.
"""

from __future__ import annotations

import os
import re
from base64 import b64decode
from functools import cache
from pathlib import PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

FOLDER = PurePosixPath("gallery")
LIST = FOLDER / "index.md"
CELL = re.compile(r"^```python\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
OPENING = re.compile(r"\A(# .*\n\n(?:.+\n)+)")  # the title, and what the page is about
ENTRY = re.compile(r"^## \[.*\]\((.*)\.md\)$", re.MULTILINE)
PICTURE = "image/png"
SECONDS = 200
"""For one cell, on a machine that is busy."""


def is_notebook(path: str) -> bool:
    return PurePosixPath(path).match(f"{FOLDER}/*.md") and PurePosixPath(path) != LIST


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Executes the notebooks, and adds to the site what can be downloaded of them."""
    for file in list(files):
        if is_notebook(file.src_uri):
            path, notebook = PurePosixPath(file.src_uri), executed(file.content_string)
            new = {".ipynb": nbformat.writes(notebook), ".png": b64decode(result(notebook))}
            for suffix, content in new.items():
                uri = str(path.with_suffix(suffix))
                files.append(File.generated(config, uri, content=content))


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    path = PurePosixPath(page.file.src_uri)
    if path == LIST:
        return ENTRY.sub(r"\g<0>\n\n![The result](\1.png)", markdown)
    if not is_notebook(page.file.src_uri):
        return markdown
    notebook = executed(page.file.content_string)
    top = f"![The result]({path.stem}.png)\n\n[Download the notebook]({path.stem}.ipynb)\n"
    return OPENING.sub(rf"\1\n{top}", "\n".join(map(shown, notebook.cells)))


@cache
def executed(markdown: str) -> nbformat.NotebookNode:
    """The notebook of a page, run in a folder of its own."""
    parts = CELL.split(markdown)  # text and code in turn
    new = (new_markdown_cell, new_code_cell)
    notebook = new_notebook(cells=[new[n % 2](part.strip()) for n, part in enumerate(parts)])
    with TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook,
            timeout=SECONDS,
            startup_timeout=SECONDS,
            kernel_name="python3",
            extra_arguments=["--log-level=ERROR"],
            resources={"metadata": {"path": folder}},
        )
        client.execute(env={**os.environ, "OMP_NUM_THREADS": "1"})  # as fast, and always the same
    return notebook


def result(notebook: nbformat.NotebookNode) -> str:
    """The picture that the last code cell draws, in base64."""
    last = [cell for cell in notebook.cells if cell.cell_type == "code"][-1]
    picture: str = last.outputs[-1].data[PICTURE]
    return picture


def shown(cell: nbformat.NotebookNode) -> str:
    """A cell with its outputs, as Markdown."""
    if cell.cell_type == "markdown":
        return f"{cell.source}\n"
    parts = [f"```python\n{cell.source}\n```\n"]
    for output in cell.outputs:
        if PICTURE in output.get("data", {}):
            parts.append(f"![](data:{PICTURE};base64,{output.data[PICTURE].strip()})\n")
        else:
            text = output.get("text") or output.data["text/plain"]
            parts.append(f"```text\n{text.rstrip()}\n```\n")
    return "\n".join(parts)
