"""Training: recipes of optimisation, and the loop that follows them."""

from prunus.training.loop import accuracy, train
from prunus.training.recipe import Recipe

__all__ = ["Recipe", "accuracy", "train"]
