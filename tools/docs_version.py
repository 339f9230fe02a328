"""A hook of MkDocs: every page says of which version it speaks."""

from __future__ import annotations

from mkdocs.config.defaults import MkDocsConfig

from prunus_runtime.version import __version__


def on_config(config: MkDocsConfig) -> None:
    config.copyright = f"Prunus {__version__}"
