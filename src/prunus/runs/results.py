"""What a run found: the one schema of `results.json` and `metrics.jsonl`, and how to read them.

Files from before the schema had a version (then: `phase` for `stage`, `test_accuracy` for
`test.accuracy`) are read as well.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from prunus.errors import SettingError
from prunus.files import parse_json, read_text, write_atomically
from prunus.schema import Schema
from prunus.tables import percent
from prunus.tasks.metrics import ACCURACY, MetricInfo

VERSION: Literal[2] = 2
RESULTS, METRICS = "results.json", "metrics.jsonl"
_LITTLE = 0.5
"""If less than this part of the weights can be removed, a mask says little about the size."""
Values = dict[str, float]
"""Metric -> value, on one split of the data; empty where the task holds out nothing."""


class StageResult(Schema):
    """What one stage found, measured with the binary mask."""

    stage: str
    epochs: int
    density: float
    """The part that is kept of the weights that could be removed."""
    validation: Values = Field(default_factory=dict)
    test: Values = Field(default_factory=dict)
    samples: dict[str, int] = Field(default_factory=dict)
    """Split -> how many samples its accuracy was counted on, for tasks that measure one."""
    network_density: float | None = None
    """The part that is kept of all parameters of the network; older files do not have it."""
    kept_macs: float | None = None
    """The kept fraction of the multiply-adds of the masked layers."""
    effective_density: float | None = None
    """As `density`, but only of weights that are connected to input and output."""
    layers: dict[str, float] = Field(default_factory=dict)
    """The density of each masked parameter."""
    ticket: str | None = None
    """Where the stage's ticket is, below the run's folder."""

    @property
    def removable(self) -> float | None:
        """The part of the network's weights that could be removed; None where nobody knows."""
        if self.network_density is None or self.density == 1:
            return None
        return (1 - self.network_density) / (1 - self.density)

    @property
    def caution(self) -> str | None:
        """What to say where the mask's density says little about the size of the network."""
        if self.removable is None or self.removable >= _LITTLE:
            return None
        return (
            f"Only {percent(self.removable)} of the network's weights could be removed, and what "
            "is kept counts no others: --select all takes them all."
        )

    def reported(self, metric: str) -> float | None:
        """The test value; where there are no test data, the validation value."""
        return self.test.get(metric, self.validation.get(metric))


class RunResults(Schema):
    """The content of `results.json`."""

    version: Literal[2] = 2
    command: str
    task: str
    label: str
    seed: int
    metrics: Annotated[tuple[MetricInfo, ...], Field(min_length=1)] = (ACCURACY,)
    """What was measured; picks and plots use the first."""
    stages: tuple[StageResult, ...] = ()
    finished: bool = False
    control: str | None = None
    """What a re-training replaced in its ticket."""
    epochs_before: int = 0
    """Epochs that the weights of a re-trained ticket had before."""
    not_transferred: dict[str, str] = Field(default_factory=dict)
    """Tensors that a ticket of another task did not set, and why."""

    @model_validator(mode="after")
    def _finished_something(self) -> Self:
        if self.finished and not self.stages:
            raise ValueError("it says that the run is finished, and has no stages")
        return self

    @property
    def metric(self) -> MetricInfo:
        """The first metric, which picks and plots use."""
        return self.metrics[0]

    def with_stage(self, result: StageResult) -> RunResults:
        """These results and one more stage; a stage of the same name is replaced."""
        others = tuple(other for other in self.stages if other.stage != result.stage)
        return self.model_copy(update={"stages": (*others, result)})


class EpochMetrics(Schema):
    """One line of `metrics.jsonl`: the state of a run after an epoch."""

    stage: str
    epoch: int
    """Whole epochs of this stage."""
    step: int
    """Training steps of the whole run."""
    lr: float
    loss: float
    density: float
    validation: Values = Field(default_factory=dict)
    soft_density: float | None = None
    in_transition: float | None = None

    def as_line(self) -> dict[str, Any]:
        """The data of the line."""
        return self.model_dump(mode="json", exclude_defaults=True)

    def numbers(self) -> Values:
        """All numbers on one level, for trackers."""
        content = self.as_line()
        nested = content.pop("validation", {})
        flat = {name: float(value) for name, value in content.items() if name != "stage"}
        return {**flat, **named_values(validation=nested)}


def named_values(**splits: Values) -> Values:
    """Values on one level: `validation={"accuracy": 1.0}` as `validation_accuracy`."""
    return {f"{split}_{name}": v for split, values in splits.items() for name, v in values.items()}


def ticket_path(stage: str) -> PurePosixPath:
    """Where the ticket of a stage is, below the run's folder."""
    return PurePosixPath("tickets") / f"{stage.replace(' ', '-')}.safetensors"


def write_results(folder: Path, results: RunResults) -> Path:
    """Write `results.json`, atomically."""
    content = results.model_dump(mode="json", exclude_defaults=True)
    content = {"version": VERSION, "finished": results.finished, **content}
    content["metrics"] = [vars(metric) for metric in results.metrics]
    return write_atomically(folder / RESULTS, json.dumps(content, indent=2))


def read_results(folder: Path) -> RunResults | None:
    """The results of a run so far; None if there are none. A damaged file is a `SettingError`."""
    path = folder / RESULTS
    try:
        return parse_results(parse_json(read_text(path)))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SettingError(f"cannot read the results {path}: {error.strerror}") from error
    except ValueError as error:  # a `SettingError` is a `ValueError`
        raise SettingError(
            f"{path} is damaged: {error}. Move its folder away, and the same command (of a sweep, "
            "with --retry) does the run again"
        ) from error


def finished_at(folder: Path) -> datetime | None:
    """When the run in a folder was finished; None if it is not."""
    results = read_results(folder)
    if results is None or not results.finished:
        return None
    return datetime.fromtimestamp((folder / RESULTS).stat().st_mtime)


def parse_results(content: Mapping[str, Any]) -> RunResults:
    """The results in the JSON data of a file, of this version or older."""
    if not isinstance(content, Mapping):
        raise SettingError(f"results are 'name: value' data, not {content!r:.60}")
    if "version" not in content:
        stages = content.get("stages", [])
        if not isinstance(stages, list) or not all(isinstance(s, Mapping) for s in stages):
            raise SettingError(f"the stages are not a list of 'name: value' data: {stages!r:.60}")
        content = {**content, "version": VERSION, "stages": [_split_values(s) for s in stages]}
    return RunResults.parse(content)


def read_epochs(folder: Path) -> list[EpochMetrics]:
    """The lines of `metrics.jsonl`; a last line that is still being written is left out."""
    try:
        lines = read_text(folder / METRICS).splitlines(keepends=True)
        return [parse_epoch(parse_json(line)) for line in lines if line.endswith("\n")]
    except OSError:
        return []
    except ValueError as error:
        raise SettingError(f"{folder / METRICS} is damaged: {error}") from error


def parse_epoch(content: Mapping[str, Any]) -> EpochMetrics:
    """One line of `metrics.jsonl`, of this version or older."""
    if not isinstance(content, Mapping):
        raise SettingError(f"a line is 'name: value' data, not {content!r:.60}")
    if "phase" in content:
        content = {("stage" if k == "phase" else k): v for k, v in content.items()}
        content = _split_values(content)
    return EpochMetrics.parse(content)


def _split_values(content: Mapping[str, Any]) -> dict[str, Any]:
    """`{"test_accuracy": 0.9}` of older files as `{"test": {"accuracy": 0.9}}`."""
    own: dict[str, Any] = {}
    for name, value in content.items():
        split, _, metric = name.partition("_")
        if split in ("validation", "test") and metric:
            own.setdefault(split, {})[metric] = value
        else:
            own[name] = value
    return own
