"""Rules by which the scores of CS move (`results/score-rates.json`), as tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import mean
from typing import Any, NamedTuple

from cs_tables import Table

RULES = {
    "method": "no rate",
    "optimiser": "paper's way",
    "by hand": "paper's way, rates by hand",
    "gmp": "GMP",
}
SCORE_TASKS = {
    "cifar8": "ResNet-20, CIFAR-10 at 8x8",
    "cifar16": "ResNet-20, CIFAR-10 at 16x16",
    "digits": "digits ConvNet, trained before",
    "char": "GPT on characters",
    "vit": "ViT, digits",
    "encoder": "text encoder, trained before",
}
OPTIMISERS = {"sgd": "SGD", "adamw": "AdamW", "muon": "Muon-like"}


def by_seed(runs: Iterable[dict[str, Any]]) -> str:
    """The hard network of each seed: accuracy in percent, or the loss (and a rate of scores)."""
    ordered = sorted(runs, key=lambda run: (run["seed"], run.get("score_lr") or 0))
    return ", ".join(
        (f"{run['hard']:.2f}" if run["metric"] == "loss" else f"{100 * run['hard']:.1f}")
        + (f" ({run['score_lr']:g})" if run.get("score_lr") else "")
        for run in ordered
    )


def score_rules(runs: Sequence[dict[str, Any]]) -> Table:
    """The rule of Prunus beside the paper's and GMP, in every place where it was tried."""
    places = ("task", "schedule", "optimiser", "steps", "density")
    cells: dict[tuple[Any, ...], dict[str, list[dict[str, Any]]]] = {}
    for run in runs:
        place = tuple(run[name] for name in places)
        rule = "by hand" if run.get("score_lr") else run["rule"]
        cells.setdefault(place, {}).setdefault(rule, []).append(run)
    order = sorted(
        (place for place, found in cells.items() if "method" in found and place[0] in SCORE_TASKS),
        key=lambda place: (list(SCORE_TASKS).index(place[0]), list(cells).index(place)),
    )
    rows = [
        [
            SCORE_TASKS[task] + (", constant rate" if schedule == "constant" else ""),
            OPTIMISERS[optimiser],
            f"{steps:,}",
            f"{density:.0%}",
            *(by_seed(cells[task, schedule, optimiser, steps, density].get(r, [])) for r in RULES),
        ]
        for task, schedule, optimiser, steps, density in order
    ]
    return ["task", "weights' optimiser", "steps", "density", *RULES.values()], rows


MATRIX_TASKS = {
    "small-convnet": "ConvNet, trained before",
    "small-vit": "ViT",
    "small-encoder": "text encoder, trained before",
    "small-gpt": "GPT on characters",
}
DESIGNS = {"optimiser": "optimiser", "sgd": "SGD", "normalised": "normalised"}


class Cell(NamedTuple):
    """What was run in one place: the rule of Prunus, its best rival by hand, GMP."""

    place: tuple[Any, ...]
    runs: Sequence[dict[str, Any]]

    def of(self, rule: str) -> list[dict[str, Any]]:
        return [run for run in self.runs if run["rule"] == rule]

    @property
    def rivals(self) -> list[list[dict[str, Any]]]:
        return [_best_by_hand(self.runs), self.of("gmp")]

    def leads(self) -> list[float | None]:
        """In points or hundredths of a nat, of each rival that there is."""
        return [_lead(self.of("method"), rival) for rival in self.rivals]


def _cells(runs: Sequence[dict[str, Any]]) -> list[Cell]:
    places = ("task", "optimiser", "schedule", "steps")
    cells: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for run in runs:
        if run["task"] in MATRIX_TASKS:
            cells.setdefault(tuple(run[name] for name in places), []).append(run)
    return [Cell(*item) for item in sorted(cells.items(), key=_order)]


def _place(cell: Cell) -> list[str]:
    task, optimiser, schedule, steps = cell.place
    return [MATRIX_TASKS[task], OPTIMISERS[optimiser], schedule, f"{steps:,}"]


def score_matrix(runs: Sequence[dict[str, Any]]) -> Table:
    """The rule of Prunus beside the best rate by hand and GMP; and how far ahead of both it is."""
    rows = []
    for cell in _cells(runs):
        by_hand, gmp = cell.rivals
        if not (cell.of("method") and (by_hand or gmp)):
            continue
        own = [run for run in cell.of("optimiser") if run["score_lr"] is None]
        row = [*_place(cell), by_seed(cell.of("method")), by_seed(own)]
        row += [f"{by_seed(by_hand)} {_design(by_hand[0])}" if by_hand else "", by_seed(gmp)]
        rows.append([*row, *(_shown(lead, cell) for lead in cell.leads())])
    head = ["task", "weights by", "schedule", "steps", "no rate", "paper's way", "rate by hand"]
    return [*head, "GMP", "ahead of by hand", "ahead of GMP"], rows


MARGIN = {"accuracy": 1.0, "loss": 2.0}
"""How far the rule may be behind: a point, or 0.02 nats."""


def score_criterion(runs: Sequence[dict[str, Any]]) -> Table:
    """In how many cells the rule is no further behind than the margin."""
    counts: dict[tuple[int, str], list[list[bool]]] = {}
    for cell in _cells(runs):
        for n, lead in enumerate(cell.leads()):
            if lead is not None:
                where = counts.setdefault((cell.place[3], cell.place[1]), [[], []])
                where[n].append(lead >= -MARGIN[cell.runs[0]["metric"]])
    rows = [
        [f"{steps:,}", rival, *(_count(counts.get((steps, name)), n) for name in OPTIMISERS)]
        for steps in sorted({steps for steps, _ in counts})
        for n, rival in enumerate(("rate by hand", "GMP"))
    ]
    return ["steps", "no more than the margin behind", *OPTIMISERS.values()], rows


def _count(where: list[list[bool]] | None, n: int) -> str:
    return f"{sum(where[n])} of {len(where[n])}" if where and where[n] else ""


FACTORS = {
    "method": "learned, from 1 to 2",
    "divided": "divided",
    "fixed": "stays at 2",
    "settling": "settles at 1",
    "folding": "weights halve",
    "unscaled": "is 1",
    "gmp": "GMP",
}


def score_factors(runs: Sequence[dict[str, Any]]) -> Table:
    """What becomes of the factor on the mask, wherever more than one answer was tried."""
    rows = [
        [*_place(cell)[:3], *(by_seed(cell.of(rule)) for rule in FACTORS)]
        for cell in _cells(runs)
        if cell.place[3] == 500 and cell.of("fixed") and cell.of("settling")
    ]
    return ["task", "weights by", "schedule", *FACTORS.values()], rows


def _order(cell: tuple[tuple[Any, ...], Any]) -> tuple[Any, ...]:
    task, optimiser, schedule, steps = cell[0]
    optimisers = list(OPTIMISERS)
    return steps, list(MATRIX_TASKS).index(task), optimisers.index(optimiser), schedule != "cosine"


def _loss(run: dict[str, Any]) -> float:
    """In points or hundredths of a nat; lower is better."""
    return float(100 * (run["hard"] if run["metric"] == "loss" else -run["hard"]))


def _best_by_hand(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs of the design and rate whose first seed is the best."""
    tried = [run for run in runs if run["rule"] in DESIGNS]
    if not tried:
        return []
    best = min((run for run in tried if run["seed"] == 0), key=_loss)
    same = ("rule", "score_lr")
    return [run for run in tried if all(run[name] == best[name] for name in same)]


def _design(run: dict[str, Any]) -> str:
    return f"({DESIGNS[run['rule']]})"


def _lead(ours: Sequence[dict[str, Any]], theirs: Sequence[dict[str, Any]]) -> float | None:
    """The mean over the seeds that both have."""
    by_seed = [{run["seed"]: _loss(run) for run in runs} for runs in (ours, theirs)]
    seeds = by_seed[0].keys() & by_seed[1].keys()
    return mean(by_seed[1][seed] - by_seed[0][seed] for seed in seeds) if seeds else None


def _shown(lead: float | None, cell: Cell) -> str:
    if lead is None:
        return ""
    return f"{lead / 100:+.3f}" if cell.runs[0]["metric"] == "loss" else f"{lead:+.1f}"


def score_variants(runs: Sequence[dict[str, Any]]) -> Table:
    """Other temperatures and weights of gradients, where the rule was chosen."""
    cells: dict[tuple[str, str], dict[str, list[dict[str, Any]]]] = {}
    for run in runs:
        place = run["task"], run["density"], run["steps"], run["schedule"]
        if place == ("cifar8", 0.05, 1000, "cosine") and run["rule"] not in ("optimiser", "gmp"):
            found = cells.setdefault((_path(run), _weight(run)), {})
            found.setdefault(run["optimiser"], []).append(run)
    rows = [
        [path, weight, *(by_seed(found.get(name, [])) for name in OPTIMISERS)]
        for (path, weight), found in sorted(cells.items(), key=lambda item: item[0][0])
    ]
    return ["temperature, in units of $z$", "weight of gradients", *OPTIMISERS.values()], rows


def _path(run: dict[str, Any]) -> str:
    if run["rule"] == "method":
        return "the rule above"
    if run["rule"] == "imitated path":
        return "as seen in the paper's way (0.001 to 12)"
    first, rise, last = (run["constants"][name] for name in ("first", "rise", "last"))
    then = f", then to {first * rise * last:g}" if last > 1 else ""
    return f"{first:g} to {first * rise:g}{then}"


def _weight(run: dict[str, Any]) -> str:
    constants = run["constants"] or {"tilt": 200, "falls": True}  # those of the rule
    tilt = "equal" if constants["tilt"] == 1 else f"${constants['tilt']:g}^{{t/T}}$"
    return f"{tilt}, cosine" if constants["falls"] else tilt
