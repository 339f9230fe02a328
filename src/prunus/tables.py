"""Plain-text tables, for error messages and `print`."""

from __future__ import annotations

from collections.abc import Container, Sequence

from prunus_runtime.printing import printable as printable

_WIDEST = 500
"""Characters of a cell: one that is wide makes the whole table so."""


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


def percent(fraction: float, digits: int = 2) -> str:
    return f"{100 * fraction:.{digits}f}%"
