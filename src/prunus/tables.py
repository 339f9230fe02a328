"""Plain-text tables, for error messages and `print`."""

from __future__ import annotations

from prunus_runtime.printing import printable as printable
from prunus_runtime.printing import text_table as text_table


def percent(fraction: float, digits: int = 2) -> str:
    return f"{100 * fraction:.{digits}f}%"
