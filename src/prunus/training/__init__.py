"""Training: the loop, the machine it runs on, and runs that survive interruptions."""

from prunus.tasks.recipes import Recipe
from prunus.training.engine import Engine
from prunus.training.run import Run, Stage
from prunus.training.settings import EngineSettings
from prunus.training.trainer import Trainer

__all__ = ["Engine", "EngineSettings", "Recipe", "Run", "Stage", "Trainer"]
