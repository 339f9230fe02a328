"""Designs of moving scores, in every combination of task, optimiser, schedule and steps.

    nice python experiments/score_matrix.py

Runs are added to `results/score-rates.json`; those that are there are not made again, so it can be
stopped at any time. Rates by hand are tried in every cell of 500 steps with a cosine, and the best
of them is taken to the others (and the next one, where it fails there). Cells of 500 steps have
three seeds, and so do other factors on the mask where they matter; longer ones have one. Where CS
is behind by more than is allowed, a cell gets three, and then eight. All are measured on the test
split, by which rates by hand are chosen as well: that favours them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import product
from statistics import mean
from typing import Any, NamedTuple

import torch
from score_rules import PLACES, Run, record, recorded, result

TASKS = {"small-encoder": 1500, "small-gpt": 0, "small-vit": 0, "small-convnet": 500}
"""With the steps of dense training before."""

PAPER_STEPS = 33_235

MARGIN = {"accuracy": 0.01, "loss": 0.02}
"""How far the default may be behind: a point, or 0.02 nats."""

FAILED = 10
"""A design that is so many margins behind GMP is of no use."""


class Design(NamedTuple):
    """A rule, and its rate; that of `optimiser` counts in the rates it would take itself."""

    rule: str
    rate: float | None = None


BY_HAND = [
    Design("optimiser"),
    Design("optimiser", 4.0),
    Design("sgd", 1.0),
    Design("normalised", 0.1),
]
WITH_ADAM = [Design("optimiser", 30.0), Design("sgd", 30.0), Design("normalised", 1.0)]
"""Tried as well, because Adam's rates are small."""

OPTIMISERS, SCHEDULES = ["sgd", "adamw", "muon"], ["cosine", "constant"]

Phase = tuple[int, list[str], list[str], list[str]]

SHORT: Phase = (500, OPTIMISERS, SCHEDULES, list(TASKS))
"""Steps, optimisers, schedules and tasks."""

LONG: list[Phase] = [
    (5_000, ["sgd", "adamw"], ["cosine"], list(TASKS)),
    (5_000, ["muon"], ["cosine"], list(TASKS)),
    (20_000, ["sgd", "adamw"], ["cosine"], ["small-gpt", "small-convnet"]),
    (5_000, OPTIMISERS, ["constant"], list(TASKS)),
    (20_000, ["sgd", "adamw"], ["cosine"], ["small-vit", "small-encoder"]),
]
"""In the order of their importance."""

DECISIVE = [
    ("small-encoder", "sgd", "cosine"),
    ("small-encoder", "sgd", "constant"),
    ("small-encoder", "muon", "cosine"),
    ("small-encoder", "adamw", "cosine"),
    ("small-vit", "adamw", "cosine"),
    ("small-vit", "sgd", "constant"),
]
"""Where factors on the mask make a difference: three seeds each."""


def cells(
    steps: int, optimisers: list[str], schedules: list[str], tasks: list[str]
) -> Iterator[Run]:
    for schedule, optimiser, task in product(schedules, optimisers, tasks):
        base = Run(task, optimiser, density=0.1, pretrained=TASKS[task])
        yield replace(base, steps=steps, schedule=schedule)


def run_of(cell: Run, design: Design) -> Run:
    rate = design.rate
    if design.rule == "optimiser" and rate is not None:
        own = getattr(PLACES[cell.task], cell.optimiser) * (PAPER_STEPS / cell.steps) ** 0.5
        rate = float(f"{rate * own:.2g}")
    return replace(cell, rule=design.rule, score_lr=rate)


class Results:
    """What is known; what is not is run."""

    def __init__(self) -> None:
        self._known = {_key(line): line for line in recorded()}

    def loss(self, run: Run) -> float:
        """How bad the hard network is, in margins: lower is better."""
        key = _key(asdict(run))
        if key not in self._known:
            line = result(run, "data")
            record(line)
            self._known[key] = line
            print(f"{line['hard']:.4f} {line['seconds']:4} s  {key}", flush=True)
        line = self._known[key]
        sign = 1 if line["metric"] == "loss" else -1
        return sign * float(line["hard"]) / MARGIN[line["metric"]]


def by_hand(results: Results, cell: Run) -> list[Design]:
    """The best design of 500 steps with a cosine; and the next ones, where those before it fail."""
    short = replace(cell, steps=500, schedule="cosine")
    tried = BY_HAND + (WITH_ADAM if cell.optimiser == "adamw" else [])
    ordered = sorted(tried, key=lambda design: results.loss(run_of(short, design)))
    failed = FAILED + results.loss(run_of(cell, Design("gmp")))
    taken = 1
    while taken < len(ordered) and results.loss(run_of(cell, ordered[taken - 1])) > failed:
        taken += 1
    return ordered[:taken]


def _key(line: dict[str, Any]) -> str:
    return " ".join(f"{name}={line.get(name)}" for name in asdict(Run()))


def compare(results: Results, cell: Run, rivals: list[Design]) -> None:
    """Run our default and its rivals, with more seeds while it is behind."""
    runs = [run_of(cell, design) for design in (Design("method"), *rivals)]

    def behind(seeds: int) -> float:
        losses = [[results.loss(replace(run, seed=seed)) for run in runs] for seed in range(seeds)]
        ours, *theirs = map(mean, zip(*losses, strict=True))
        return float(ours - min(theirs))

    if (cell.steps == SHORT[0] or behind(1) > 1) and behind(3) > 1:
        behind(8)


def main() -> None:
    torch.set_num_threads(1)
    results, gmp = Results(), Design("gmp")
    for cell in cells(*SHORT):
        compare(results, cell, [gmp, *by_hand(results, cell)])
    for (task, optimiser, schedule), seed in product(DECISIVE, range(3)):
        [cell] = cells(500, [optimiser], [schedule], [task])
        for rule in ("fixed", "method", "gmp"):
            results.loss(replace(run_of(cell, Design(rule)), seed=seed))
    for phase in LONG:
        for cell in cells(*phase):
            compare(results, cell, [gmp, *by_hand(results, cell)])


if __name__ == "__main__":
    main()
