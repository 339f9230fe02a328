"""Every method of the paper against Continuous Sparsification, on one network, data and budget.

The cpu protocol (`protocol.py`): each method gets 8 epochs of search for each of five densities.
Methods that prune in rounds spend them in one sequence of five rounds, so that their sparsest
subnetwork has had 40 epochs; methods whose search does not depend on the density share one search.
Every subnetwork is judged by its hard mask on the test images: as found, after fine-tuning, and
re-trained from `w^(k)`.

    python benchmarks/methods_cpu.py --data DIR [--seeds 2] [--methods cs,imp] [--workers 2]

Whatever is finished is kept in `runs/methods-cpu` and not done again. `results/methods-cpu.json` is
written from what is there, also when interrupted.
"""

from __future__ import annotations

import argparse
import hashlib
import inspect
import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Literal

import torch
from rich.progress import Progress
from torch import nn

from budget_designs import DESIGNS
from protocol import Protocol, Scale
from prunus import Ticket
from prunus.methods import METHODS, Method
from prunus_runtime.atomic import write_atomically

FOLDER = Path("runs/methods-cpu")
RESULTS = Path("results/methods-cpu.json")
TARGETS = (0.5, 0.2, 0.1, 0.05, 0.02)
STEPWISE = [1 - low / high for high, low in zip((1.0, *TARGETS), TARGETS, strict=False)]
"""Fraction of what remains that leaves in each of five rounds."""


@dataclass(frozen=True)
class Row:
    """A line of the table: a method, and how it gets to each density."""

    method: str
    search: Literal["each", "shared", "rounds"] = "each"
    settings: dict[str, Any] = field(default_factory=dict)
    by_target: dict[float, dict[str, Any]] = field(default_factory=dict)
    """What differs between densities; by default `target_density`."""
    groups: dict[str, Any] = field(default_factory=dict)
    """Keywords of `param_groups`."""
    targets: tuple[float, ...] = TARGETS
    retrain: bool = True

    def own(self, target: float) -> dict[str, Any]:
        """The settings that say how much to keep; methods of several rounds have them already."""
        by_default = {} if self.search == "rounds" else {"target_density": target}
        return self.by_target.get(target, by_default)

    def make(self, model: nn.Module, protocol: Protocol, target: float, seed: int) -> Method:
        kind = (METHODS | DESIGNS)[self.method]
        draws = "seed" in inspect.signature(kind.__init__).parameters
        return kind(
            model,
            **({"seed": seed} if draws else {}),
            steps=protocol.round_steps,
            rewind_step=protocol.steps(protocol.scale.rewind_epoch),
            **self.settings,
            **self.own(target),
        )


FEW = (0.1, 0.02)


def tuned(name: str, values: tuple[float, ...]) -> dict[float, dict[str, Any]]:
    """A setting for each of the densities, where a method has no target of its own."""
    return {target: {name: value} for target, value in zip(TARGETS, values, strict=True)}


# Methods without a target density were tuned by hand to end near the five; where they do not, the
# table says where they ended.
ROWS: dict[str, Row] = {
    "cs-budget": Row("cs"),
    "cs": Row("cs", by_target=tuned("mask_init", (0.0024, -0.0176, -0.037, -0.08, -0.156))),
    "gmp": Row("gmp"),
    "gmp-layer": Row("gmp", settings={"scope": "layer"}, targets=FEW, retrain=False),
    "dnw": Row("dnw"),
    "str": Row("str", by_target=tuned("threshold_decay", (0.0018, 0.0034, 0.0048, 0.0064, 0.009))),
    "l0": Row("l0", by_target=tuned("penalty", (1.5e-5, 6e-5, 8.5e-5, 1.3e-4, 2.6e-4))),
    "mp": Row("mp", "shared"),
    "netslim": Row("netslim", "shared"),
    "amc": Row("amc", "shared", {"episodes": 60, "min_keep": 0.005}),
    "cs-rounds": Row("cs", "rounds", {"target_density": TARGETS}),
    "imp": Row("imp", "rounds", {"rate": STEPWISE}),
    "imp-c": Row("imp-c", "rounds", {"rate": STEPWISE}),
    "seq-cs": Row("seq-cs", "rounds", {"rate": 0.543}),
    "iss": Row("iss", "rounds"),
    "random": Row("random", targets=FEW, retrain=False),
    "lagrange": Row("lagrange", targets=(0.1,), retrain=False),
    "quadratic": Row("quadratic", targets=(0.1,), retrain=False),
    "lagrange-weak": Row("lagrange-weak", targets=(0.1,), retrain=False),
    "quadratic-weak": Row("quadratic-weak", targets=(0.1,), retrain=False),
}


# One piece of work: a search (with fine-tuning), a re-training, or the dense network


@dataclass(frozen=True)
class Work:
    """What one process does at a time; `targets` are the densities that it serves."""

    stage: Literal["dense", "dense-rounds", "search", "retrain"]
    row: str
    seed: int
    targets: tuple[float, ...]

    def paths(self) -> list[Path]:
        """Where the results go: one file for each density, another one if the settings change."""
        return [
            FOLDER
            / self.stage
            / f"{self.row}-seed{self.seed}-{target:g}-{self._digest(target)}.json"
            for target in self.targets
        ]

    def _digest(self, target: float) -> str:
        row = ROWS.get(self.row)
        settings = row and [row.method, row.search, row.settings, row.own(target), row.groups]
        text = json.dumps([settings, asdict(Scale())])
        return hashlib.sha256(text.encode()).hexdigest()[:8]

    @property
    def done(self) -> bool:
        return all(path.exists() for path in self.paths())


def plan(rows: list[str], seeds: int) -> Iterator[Work]:
    """All there is to do; the densities that matter most come first."""
    for seed in range(seeds):
        yield Work("dense", "dense", seed, (1.0,))
        for name in rows:
            if ROWS[name].search != "each":
                yield Work("search", name, seed, TARGETS)
        for target in (0.1, 0.05, 0.02):
            yield from _searches(rows, seed, target)
        yield from _retrainings(rows, seed, 0.1)
        for target in (0.2, 0.5):
            yield from _searches(rows, seed, target)
        yield Work("dense-rounds", "dense-rounds", seed, (1.0,))
        for target in (0.02, 0.05, 0.2, 0.5):
            yield from _retrainings(rows, seed, target)


def _searches(rows: list[str], seed: int, target: float) -> Iterator[Work]:
    for name in rows:
        if ROWS[name].search == "each" and target in ROWS[name].targets:
            yield Work("search", name, seed, (target,))


def _retrainings(rows: list[str], seed: int, target: float) -> Iterator[Work]:
    for name in rows:
        if ROWS[name].retrain:
            yield Work("retrain", name, seed, (target,))


def execute(work: Work, data: Path, scale: Scale) -> None:
    stages = {
        "dense": _dense,
        "dense-rounds": _dense_rounds,
        "search": _search,
        "retrain": _retrain,
    }
    stages[work.stage](work, _protocol(data, scale))


@cache
def _protocol(data: Path, scale: Scale) -> Protocol:
    return Protocol(data, scale)


def _dense(work: Work, protocol: Protocol) -> None:
    model = protocol.network(work.seed)
    protocol.train(model, protocol.recipe, work.seed)
    found = protocol.accuracy(model)
    protocol.train(model, protocol.fine_tuning, work.seed, first_epoch=protocol.scale.epochs)
    _write(work, 0, density=1.0, searched=found, fine_tuned=protocol.accuracy(model))


def _dense_rounds(work: Work, protocol: Protocol) -> None:
    """The dense network trained as long as those that are pruned in rounds, and as often anew."""
    model = protocol.network(work.seed)
    for number in range(len(TARGETS)):
        first = number * protocol.scale.epochs
        protocol.train(model, protocol.recipe, work.seed, first_epoch=first)
    _write(work, 0, density=1.0, searched=protocol.accuracy(model))


def _search(work: Work, protocol: Protocol) -> None:
    row = ROWS[work.row]
    model = protocol.network(work.seed)
    method = row.make(model, protocol, work.targets[0], work.seed)
    rounds = len(work.targets) if row.search == "rounds" else 1
    for number in range(rounds):
        protocol.train(
            model,
            protocol.recipe,
            work.seed,
            method=method,
            group_options=row.groups,
            first_epoch=number * protocol.scale.epochs,
        )
        if row.search == "shared":
            for index, target in enumerate(work.targets):
                copy = deepcopy(method)
                copy.target_density = target
                _finish(work, index, protocol, copy)
        else:
            method.commit(protocol.judge(model))
            _finish(work, number, protocol, deepcopy(method))
            if number + 1 < rounds:
                method.end_round()


def _finish(work: Work, index: int, protocol: Protocol, method: Method) -> None:
    """Fix the mask, judge it, keep the ticket, fine-tune."""
    row, model, rounds = ROWS[work.row], method.model, method.round
    method.harden(protocol.judge(model))
    ticket = method.ticket(task="cifar10/resnet20", seed=work.seed)
    path = work.paths()[index]
    ticket.save(path.with_suffix(".safetensors"))
    found = protocol.accuracy(model)
    _write(
        work,
        index,
        density=ticket.mask.density,
        searched=found,
        fine_tuned=protocol.fine_tune(model, method, work.seed),
        search_epochs=protocol.scale.epochs * (rounds if row.search == "rounds" else 1),
        layers={layer.name: layer.density for layer in ticket.mask.layers},
        settings=method.settings,
        groups=row.groups,
    )


def _retrain(work: Work, protocol: Protocol) -> None:
    [source] = Work("search", work.row, work.seed, work.targets).paths()
    ticket = Ticket.load(source.with_suffix(".safetensors"))
    _write(work, 0, retrained=protocol.retrain(ticket, work.seed))


def _write(work: Work, index: int, **numbers: Any) -> None:
    path = work.paths()[index]
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"row": work.row, "seed": work.seed, "target": work.targets[index], **numbers}
    write_atomically(path, json.dumps(content, indent=1))


# All of them


def collect(works: list[Work], scale: Scale) -> dict[str, Any]:
    """What is finished so far, in one piece."""
    cells = []
    paths = [path for work in works if work.stage != "retrain" for path in work.paths()]
    for path in filter(Path.exists, paths):
        cell = json.loads(path.read_text())
        retrained = FOLDER / "retrain" / path.name
        if retrained.exists():
            cell["retrained"] = json.loads(retrained.read_text())["retrained"]
        cells.append(cell)
    return {"scale": asdict(scale), "targets": TARGETS, "cells": cells}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--methods", default=",".join(ROWS))
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    scale = Scale()
    everything = list(plan(list(ROWS), arguments.seeds))
    todo = [w for w in plan(arguments.methods.split(","), arguments.seeds) if not w.done]
    begun = time.monotonic()
    context = get_context("spawn")
    with Progress() as bar, ProcessPoolExecutor(arguments.workers, context) as pool:
        line = bar.add_task("comparing methods", total=len(todo))
        futures = {pool.submit(execute, w, arguments.data.resolve(), scale): w for w in todo}
        for future in as_completed(futures):
            work = futures[future]
            error = future.exception()
            minutes = (time.monotonic() - begun) / 60
            bar.print(
                f"{minutes:6.1f} min  {work.stage} {work.row} {work.targets}: {error or 'ok'}"
            )
            bar.advance(line)
            write_atomically(RESULTS, json.dumps(collect(everything, scale), indent=1) + "\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
