"""What goes to a terminal: text of others, and tables."""

from __future__ import annotations

from collections.abc import Container, Sequence

LONGEST = 2000
"""Characters of a line. A kilobyte of a file can stand for a megabyte of text."""
_WIDEST = 500
"""Characters of a cell: a single wide one makes the whole table wide."""


def printable(text: str, longest: int = LONGEST) -> str:
    """`text` on one line, with whatever would move the cursor, colour or hide something spelled
    out, and cut where it is longer than a person reads.

    For what comes from a file: anybody may have written it.
    """
    # Spelled out it gets longer, never shorter.
    text = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[: longest + 1])
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def text_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], left: Container[int] = (0,)
) -> str:
    """Columns as wide as their content, right-aligned except those in `left`."""
    lines = [[printable(cell, _WIDEST) for cell in line] for line in (header, *rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]

    def render(line: Sequence[str]) -> str:
        cells = (
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        return "  ".join(cells).rstrip()

    return "\n".join(map(render, lines))
