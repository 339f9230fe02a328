"""A hook of MkDocs: formulas become MathML, which browsers show by themselves, also offline."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(
    r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL
)  # as pymdownx.arithmatex leaves it


def on_page_content(html: str, **_: Any) -> str:
    return FORMULA.sub(_mathml, html)


def _mathml(formula: re.Match[str]) -> str:
    display = "block" if formula[1] == "div" else "inline"
    return convert(unescape(formula[2]).strip(), display=display)
