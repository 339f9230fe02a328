"""The recipes that come with Prunus: one for each table and figure of the paper."""

from __future__ import annotations

from pathlib import Path

from prunus.lookup import unknown
from prunus.search.sweep.recipe import SweepRecipe, read_recipe

_PACKAGE = Path(__file__).parents[2]


def recipes_folder() -> Path:
    """In an installed package they lie inside it; in a clone, at its top for all to see."""
    inside = _PACKAGE / "recipes"
    return inside if inside.is_dir() else _PACKAGE.parents[1] / "recipes"


def recipe_names() -> list[str]:
    """Tables first, then figures by their number."""
    names = [path.stem for path in recipes_folder().glob("*.yaml")]
    return sorted(names, key=lambda name: (not name.startswith("table"), len(name), name))


def named_recipe(name: str) -> SweepRecipe:
    """The recipe of that name."""
    if name not in recipe_names():
        raise unknown("recipe", name, recipe_names())
    return read_recipe(recipes_folder() / f"{name}.yaml")
