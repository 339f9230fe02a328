"""A report as one JSON file: every subnetwork with its raw values, to commit and to show again."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from prunus.errors import SettingError
from prunus.files import parse_json, read_text, write_atomically
from prunus.report.panel import versions_of
from prunus.report.records import Measure, Record, ReportData
from prunus.runs.origin import Origin, here
from prunus.runs.results import StageResult
from prunus.runs.speed import Speed
from prunus.schema import Schema
from prunus.tasks.metrics import ACCURACY, MetricInfo
from prunus.version import __version__

_VERSION: Literal[1] = 1
_PLACES = {"out", "data_root"}
"""Settings that say where things were on one machine."""


class Subnetwork(Schema):
    """A `Record` as plain data; folders by their names."""

    task: str
    row: str
    command: str
    method: str | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)
    seed: int
    folder: str
    stage: str
    round: int | None = None
    density: float
    epochs: int
    measured: dict[Measure, StageResult]
    metrics: Annotated[tuple[MetricInfo, ...], Field(min_length=1)] = (ACCURACY,)
    retraining: str | None = None
    control: str | None = None
    layers: dict[str, float] = Field(default_factory=dict)
    settings: dict[str, Any] = Field(default_factory=dict)
    runs: dict[str, Origin | None] = Field(default_factory=dict)
    speeds: tuple[Speed, ...] = ()
    conditions: dict[str, Any] = Field(default_factory=dict)


class Writer(Schema):
    """What wrote the file."""

    prunus: str
    """The version that wrote the file."""
    commit: str | None = None
    """Of the clone that it was written in."""
    machine: str
    """The machine that wrote it."""
    versions: tuple[dict[str, str], ...] = ()
    """Of the programs that made the runs, as their tickets say."""


class ReportFile(Schema):
    """The content of the file."""

    version: Literal[1] = _VERSION
    name: str
    runs: int
    origin: Writer
    subnetworks: tuple[Subnetwork, ...]

    @property
    def finished(self) -> frozenset[str]:
        """The keys of the runs whose results are here, for a sweep to leave out."""
        return frozenset(key for one in self.subnetworks for key in one.runs)

    @property
    def data(self) -> ReportData:
        """What a report shows, without the tickets and training curves of the run folders."""
        return ReportData([_record(one) for one in self.subnetworks], [], self.runs)


def write_report(path: Path, name: str, data: ReportData) -> Path:
    """Write everything that a report knows, a line for each subnetwork."""
    return write_atomically(path, report_text(name, data))


def report_text(name: str, data: ReportData) -> str:
    """The content of the file."""
    versions = {json.dumps(v, sort_keys=True): v for r in data.records if (v := versions_of(r))}
    file = ReportFile(
        name=name,
        runs=data.runs,
        origin=Writer(
            prunus=__version__,
            commit=here().commit,
            machine=here().machine,
            versions=tuple(versions.values()),
        ),
        subnetworks=tuple(map(_subnetwork, data.records)),
    )
    dump = partial(json.dumps, separators=(",", ":"))
    head = file.model_dump(mode="json", exclude={"subnetworks"})
    lines = ",\n".join(dump(one.model_dump(mode="json", exclude_defaults=True))
                       for one in file.subnetworks)  # fmt: skip
    text = json.dumps(head, indent=1).removesuffix("\n}")
    return f'{text},\n "subnetworks": [\n{lines}\n ]\n}}\n'


def read_report(path: Path) -> ReportFile:
    """Read the file again; anything wrong with it is a `SettingError` that names it."""
    try:
        content = parse_json(read_text(path))
    except OSError as error:
        why = error.strerror or error
        raise SettingError(f"cannot read the report {path}: {why}") from error
    except ValueError as error:
        raise SettingError(
            f"cannot read the report {path}: it is not a file of prunus report --json, or it is "
            f"damaged ({error})"
        ) from error
    if not isinstance(content, dict) or "subnetworks" not in content:
        raise SettingError(f"{path} is not a file of prunus report --json")
    if content.get("version", _VERSION) != _VERSION:
        raise SettingError(
            f"{path}: version={content['version']!r:.60} is of another Prunus, and this one reads "
            f"version {_VERSION}: use the Prunus that wrote it"
        )
    try:
        return ReportFile.parse(content)
    except SettingError as error:
        raise SettingError(f"{path}: {error}") from error


def _subnetwork(record: Record) -> Subnetwork:
    fields = {name: getattr(record, name) for name in Subnetwork.model_fields}
    # Layers are those of the record, and tickets stay in their folders.
    measured = {
        measure: stage.model_copy(update={"layers": {}, "ticket": None})
        for measure, stage in record.measured.items()
    }
    return Subnetwork(
        **{
            **fields,
            "folder": record.folder.name,
            "retraining": record.retraining.name if record.retraining else None,
            "measured": measured,
            "settings": {n: v for n, v in record.settings.items() if n not in _PLACES},
        }
    )


def _record(one: Subnetwork) -> Record:
    fields: dict[str, Any] = {name: getattr(one, name) for name in Subnetwork.model_fields}
    again = Path(one.retraining) if one.retraining else None
    return Record(**{**fields, "folder": Path(one.folder), "retraining": again})
