"""`prunus tasks`, `methods`, `runs`, `inspect`: what there is to choose from, and what is there."""

from __future__ import annotations

import inspect as python_inspect
import os
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prunus.cli.output import AsJson, next_step, print_json
from prunus.errors import SettingError
from prunus.lookup import trusting
from prunus.tables import percent, printable, text_table

if TYPE_CHECKING:
    from prunus.report.read import RunFolder


def tasks(*, json: AsJson = False) -> None:
    """List what can be trained: data sets, networks, tasks of other kinds, recipes.

    Parameters
    ----------
    json
        Print it as one JSON document.
    """
    from prunus.tasks import RECIPES, TASKS
    from prunus.tasks.data import DATA_SETS
    from prunus.tasks.networks import NETWORKS

    found = {
        "data sets": {name: _summary(make) for name, make in sorted(DATA_SETS.items())},
        "networks": {name: _summary(make) for name, make in sorted(NETWORKS.items())},
        "tasks of other kinds": {name: _summary(make) for name, make in TASKS.items()},
        "recipes": {
            name: f"{r.optimizer} {r.lr:g}, {r.epochs} epochs, batch {r.batch_size}"
            for name, r in RECIPES.items()
        },
    }
    if json:
        print_json(found)
        return
    for title, entries in found.items():
        print(f"{title.capitalize()}\n{_indented(entries)}\n")
    print(
        "A task is DATA/NETWORK, such as cifar10/resnet20; one of the others; or a function of "
        "yours, package.module:function. torchvision/NAME and timm/NAME are networks too."
    )
    next_step("prunus", "train", "--task", "digits/digits_convnet")


def methods(name: str | None = None, *, json: AsJson = False) -> None:
    """List the methods, or the settings of one with their defaults.

    Parameters
    ----------
    name
        One of them, or package.module:Class. Without it, all are listed.
    json
        Print it as one JSON document.
    """
    from prunus.methods import METHODS, find_method
    from prunus.runs.method_settings import settings_of

    if name is None:
        entries = {name: _summary(method) for name, method in sorted(METHODS.items())}
        if json:
            print_json(entries)
            return
        print(_indented(entries))
        next_step("prunus", "methods", "cs")
        return
    with trusting(name):
        method = find_method(name)
    described = {
        setting.name: {"default": setting.default, "help": setting.help}
        for setting in settings_of(method)
    }
    if json:
        print_json({"name": name, "about": _summary(method), "settings": described})
        return
    print(f"{name}: {_summary(method)}\n")
    for setting, about in described.items():
        print(f"  {setting} = {_as_yaml(about['default'])}\n      {about['help']}")
    print("\nOn the command line: --set method.NAME=VALUE.")
    next_step("prunus", "search", "--task", "digits/digits_convnet", "--method", name)


def runs(folder: Path = Path("runs"), *, json: AsJson = False) -> None:
    """List the runs below a folder: what each does, how far it is, how good.

    Parameters
    ----------
    folder
        Any folder with runs below it, such as that of a sweep.
    json
        Print them as one JSON document.
    """
    from prunus.report.read import read_folders

    if not folder.is_dir():
        raise SettingError(f"there is no folder {folder}: give one with runs below it")
    found, sweeps = read_folders(folder)
    if json:
        print_json([_plain(run) for run in found])
        return
    for sweep in sweeps:
        print(printable(sweep.state))
    if not found:
        print(f"No runs below {folder} yet.")
        next_step("prunus", "train", "--task", "digits/digits_convnet")
        return
    header = ["run", "seed", "state", "kept", "of network", "validation", "test"]
    print(text_table(header, [_row(run, folder) for run in found], left=(0, 2)))
    next_step("prunus", "report", folder)


def inspect(ticket: Path, *, json: AsJson = False) -> None:
    """Show what a ticket holds: where it came from, and how much of each layer it keeps.

    Parameters
    ----------
    ticket
        A ticket file.
    json
        Print it as one JSON document.
    """
    from prunus.tickets.ticket import Ticket

    content = Ticket.load(ticket)
    mask = content.mask
    about = {**asdict(content.manifest), "content_hash": content.content_hash}
    if json:
        densities = {
            "density": mask.density if mask else 1.0,
            "network_density": content.network_density,
        }
        layers = {layer.name: layer.density for layer in mask.layers}
        print_json({**about, **densities, "layers": layers})
        return
    for name, value in about.items():
        text = _listed(value) if isinstance(value, dict) else value
        if text != "":
            print(f"{name.replace('_', ' '):<14}{printable(str(text))}")
    print(f"\n{mask if mask else 'No mask: a dense network.'}")
    if mask:
        of_all = percent(content.network_density)
        print(f"\nThat is {of_all} of the whole network, buffers included.")
    early = content.manifest.rewind_point is not None
    next_step("prunus", "retrain" if early else "deploy", ticket)


def _summary(thing: Any) -> str:
    """The first sentence of its docstring."""
    unnamed = isinstance(thing, partial) and thing.__doc__ == partial.__doc__
    text = python_inspect.getdoc(thing.func if unnamed else thing) or ""
    return " ".join(text.partition("\n\n")[0].split())


def _indented(entries: Mapping[str, str]) -> str:
    width = max(map(len, entries))
    return "\n".join(f"  {name:<{width}}  {about}" for name, about in entries.items())


def _as_yaml(value: object) -> str:
    """As `--set` takes it."""
    return value if isinstance(value, str) else dumps(value, default=str)


def _listed(values: Mapping[str, object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())


def _row(run: RunFolder, root: Path) -> list[str]:
    results, name = run.results, os.path.relpath(run.path, root)
    if not results.stages:
        return [name, str(run.seed), _state(run), "", "", "", ""]
    stage, metric = results.stages[-1], results.metric
    values = (stage.validation.get(metric.name), stage.test.get(metric.name))
    return [
        name,
        str(run.seed),
        _state(run),
        percent(stage.density),
        "" if stage.network_density is None else percent(stage.network_density),
        *("" if value is None else metric.text(value) for value in values),
    ]


def _state(run: RunFolder) -> str:
    """How far a run is."""
    from prunus.runs.results import read_epochs

    if run.results.finished:
        return "finished"
    if run.sweep_run is not None and run.sweep_run.status == "failed":
        return f"failed: {run.sweep_run.error}"
    try:
        epochs = read_epochs(run.path)
    except SettingError:
        return "damaged"
    return f"{epochs[-1].stage}, epoch {epochs[-1].epoch}" if epochs else "begun"


def _plain(run: RunFolder) -> dict[str, Any]:
    stages = [stage.model_dump(mode="json") for stage in run.results.stages]
    about = {"folder": run.path, "command": run.command, "task": run.task, "method": run.method}
    return {**about, "seed": run.seed, "state": _state(run), "stages": stages}
