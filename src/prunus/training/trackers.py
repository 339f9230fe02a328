"""TensorBoard, MLflow and Weights & Biases, as loggers of Lightning Fabric."""

from __future__ import annotations

import importlib
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from lightning_fabric.loggers.logger import Logger
from lightning_fabric.loggers.tensorboard import TensorBoardLogger
from lightning_fabric.utilities.rank_zero import rank_zero_only

from prunus.errors import SettingError, how_to_install

TrackerName = Literal["tensorboard", "mlflow", "wandb"]


def make_trackers(names: Iterable[TrackerName], folder: Path) -> list[Logger]:
    """Loggers by name, for the run in `folder`; a package that is not installed is an error."""
    return [_TRACKERS[name](_import(name), folder) for name in names]


class _Tracker(Logger):
    """Named after its package; its run is named after the folder."""

    def __init__(self, package: Any, folder: Path) -> None:
        self._package, self._folder = package, folder

    @property
    def name(self) -> str:
        return str(self._package.__name__)

    @property
    def version(self) -> str:
        return self._folder.name


class _WandB(_Tracker):
    """One W&B run, which resumes when ours does."""

    _run: Any = None

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self._experiment().log(metrics, step=step)

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *_: Any, **__: Any) -> None:
        self._experiment().config.update(params, allow_val_change=True)

    def _experiment(self) -> Any:
        if self._run is None:
            self._run = self._package.init(
                project="prunus", id=self.version, dir=str(self._folder), resume="allow"
            )
        return self._run


class _MLflow(_Tracker):
    """One MLflow run in the experiment `prunus`; settings become its tags."""

    @rank_zero_only
    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self._start()
        self._package.log_metrics(metrics, step=step)

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *_: Any, **__: Any) -> None:
        self._start()
        self._package.set_tags(params)

    def _start(self) -> None:
        if self._package.active_run() is None:
            self._package.set_experiment("prunus")
            self._package.start_run(run_name=self.version)


def _tensorboard(_: Any, folder: Path) -> Logger:
    return TensorBoardLogger(root_dir=folder, name="tensorboard", version="")


_TRACKERS: dict[str, Any] = {"tensorboard": _tensorboard, "mlflow": _MLflow, "wandb": _WandB}


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise SettingError(
            f"trackers={name}: the package is not installed ({error}); "
            f"pip install {name}, or for all trackers {how_to_install('trackers')}"
        ) from error
