"""Designs of moving scores, in every combination of task, optimiser, schedule and steps.

    nice python experiments/score_matrix.py

Runs are added to `results/score-rates.json`; those that are there are not made again, so it can be
stopped at any time. Rates by hand are tried in every cell of 500 steps with a cosine, and the best
of them is taken to the others. Where CS is behind by more than is allowed, it and its rivals get
two more seeds. All are measured on the test split, by which rates by hand are chosen as well: that
favours them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from itertools import chain, product
from typing import Any, NamedTuple

import torch
from score_rules import PLACES, Run, record, recorded, result

TASKS = {"small-convnet": 500, "small-vit": 0, "small-encoder": 1500, "small-gpt": 0}
"""With the steps of dense training before."""

PAPER_STEPS = 33_235

MARGIN = {"accuracy": 0.01, "loss": 0.02}
"""How far the default may be behind: a point, or 0.02 nats."""


class Design(NamedTuple):
    """A rule, and its rate; that of `optimiser` counts in the rates it would take itself."""

    rule: str
    rate: float | None = None


BY_HAND = [Design("optimiser", 4.0), Design("sgd", 1.0), Design("normalised", 0.1)]

Phase = tuple[int, list[str], list[str], list[str]]

PHASES: list[Phase] = [
    (500, ["adamw", "sgd", "muon"], ["cosine", "constant"], list(TASKS)),
    (5_000, ["adamw"], ["cosine"], list(TASKS)),
    (20_000, ["adamw"], ["cosine"], ["small-convnet", "small-vit"]),
    (5_000, ["sgd", "muon"], ["cosine"], list(TASKS)),
    (5_000, ["adamw"], ["constant"], list(TASKS)),
    (20_000, ["adamw"], ["cosine"], ["small-encoder", "small-gpt"]),
]
"""Steps, optimisers, schedules and tasks, in the order of their importance."""


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


def best_by_hand(results: Results, cell: Run) -> Design:
    """Of 500 steps with a cosine; the paper's way with its own rate is among those tried."""
    short = replace(cell, steps=500, schedule="cosine")
    tried = [*BY_HAND, Design("optimiser")]
    return min(tried, key=lambda design: results.loss(run_of(short, design)))


def _key(line: dict[str, Any]) -> str:
    return " ".join(f"{name}={line.get(name)}" for name in asdict(Run()))


def compare(results: Results, phases: list[Phase]) -> None:
    """All cells of these phases, then more seeds where CS is behind."""
    behind: list[tuple[float, Run, list[Design]]] = []
    for cell in chain.from_iterable(cells(*phase) for phase in phases):
        rivals = [Design("gmp"), best_by_hand(results, cell)]
        ours = results.loss(run_of(cell, Design("method")))
        lead = max(ours - results.loss(run_of(cell, rival)) for rival in rivals)
        if lead > 1:
            behind.append((lead, cell, rivals))
    behind.sort(key=lambda found: -found[0])
    for (_, cell, rivals), seed in product(behind, (1, 2)):
        for design in (Design("method"), *rivals):
            results.loss(replace(run_of(cell, design), seed=seed))


def main() -> None:
    torch.set_num_threads(1)
    results = Results()
    compare(results, PHASES[:1])
    for cell in cells(500, ["adamw", "sgd", "muon"], ["cosine"], ["small-encoder", "small-vit"]):
        results.loss(run_of(cell, Design("unscaled")))
    compare(results, PHASES[1:])


if __name__ == "__main__":
    main()
