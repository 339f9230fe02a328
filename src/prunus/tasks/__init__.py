"""Tasks: networks, data sets and the recipes that train them."""

from prunus.tasks.recipes import RECIPES, Recipe
from prunus.tasks.registry import Task, load_task

__all__ = ["RECIPES", "Recipe", "Task", "load_task"]
