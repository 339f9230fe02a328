"""The metadata hook: README as a package index shows it, where relative links lead nowhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)(\[[^\]]*\])\((?![a-z]+:|#)([^)\s]+)\)")
"""A relative link or picture: whether it is a picture, its text, its place."""


class Readme(MetadataHookInterface):
    """Links and pictures lead to the repository, as it was for this version."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = Path(self.root, "README.md").read_text()
        content = absolute(text, metadata["urls"]["Repository"], f"v{metadata['version']}")
        metadata["readme"] = {"content-type": "text/markdown", "text": content}


def absolute(text: str, repository: str, tag: str) -> str:
    """Markdown whose relative links and pictures are those of the repository at a tag."""

    def leading_there(link: re.Match[str]) -> str:
        picture, words, place = link.groups()
        return f"{picture}{words}({repository}/{'raw' if picture else 'blob'}/{tag}/{place})"

    return LINK.sub(leading_there, text)
