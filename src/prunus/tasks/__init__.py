"""Tasks: data, networks, the recipes that train them, their losses and their metrics."""

from prunus.tasks.builtin import TASKS
from prunus.tasks.metrics import Metric, MetricInfo
from prunus.tasks.recipes import RECIPES, Recipe
from prunus.tasks.registry import load_task
from prunus.tasks.task import Task

__all__ = ["RECIPES", "TASKS", "Metric", "MetricInfo", "Recipe", "Task", "load_task"]
