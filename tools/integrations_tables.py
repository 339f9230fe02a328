"""What was measured in the Trainers of others, as tables: means and deviations over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from math import isinf
from statistics import mean, stdev
from typing import Any

from prunus.report.intervals import Estimate, Measured

Table = tuple[list[str], list[list[str]]]

TITLES = {
    "cs": "CS", "gmp": "GMP", "mp": "MP", "wanda": "Wanda", "dense": "dense", "l0": "L0",
    "topk": "TopK", "cs-constant": "CS, constant",
}  # fmt: skip
TRAINERS = {"transformers": "Trainer of transformers", "lightning": "Lightning"}


def spread(values: Sequence[float], digits: int) -> str:
    """Their mean, and their deviation if there are several."""
    middle = f"{mean(values):.{digits}f}"
    return f"{middle}±{stdev(values):.{digits}f}" if len(values) > 1 else middle


def pretrained(content: dict[str, Any]) -> Table:
    """Accuracy before and after, for each network and Trainer, and how far densities were off."""
    cells: dict[tuple[str, str], dict[str, list[dict[str, Any]]]] = {}
    for run in content["runs"]:
        cells.setdefault((run["task"], run["trainer"]), {}).setdefault(run["method"], []).append(
            run
        )
    rows = []
    for (task, trainer), methods in cells.items():
        sparse = [run for name, runs in methods.items() if name != "dense" for run in runs]
        off = max(abs(run["kept"] - content["density"]) for run in sparse)
        before = spread([100 * run["before"] for run in methods["dense"]], 1)
        after = [spread([100 * run["accuracy"] for run in runs], 1) for runs in methods.values()]
        seeds = str(len(methods["dense"]))
        name = {"bert": "BERT", "vit": "ViT"}[task]
        rows.append([name, TRAINERS[trainer], seeds, before, *after, f"{100 * off:.3f}"])
    names = [TITLES[name] for name in next(iter(cells.values()))]
    header = ["network", "in", "seeds", "before", *names, "density off by at most, points"]
    return header, rows


# The GPT of experiments/gpt_trainer.py: losses in nats, lower is better


def gpt_tuning(content: dict[str, Any]) -> Table:
    """The loss on the documents for tuning by method and rate, the best of a method bold."""
    losses: dict[str, dict[float, float]] = {}
    for run in content["tuning"]:
        losses.setdefault(run["method"], {})[run["rate"]] = run["tuning"]
    rates = sorted({run["rate"] for run in content["tuning"]})
    rows = []
    for method, found in losses.items():
        cells = [f"{found[rate]:.3f}" if rate in found else "" for rate in rates]
        best = rates.index(min(found, key=lambda rate: found[rate]))
        cells[best] = f"**{cells[best]}**"
        rows.append([TITLES[method], *cells])
    return ["", *(f"rate {rate:g}" for rate in rates)], rows


def gpt(content: dict[str, Any]) -> Table:
    """The loss by method and density, with the 95 % interval over seeds, and the density if off."""
    found, kept = _by_method(content, "validation"), _by_method(content, "kept")
    densities = sorted({d for cells in found.values() for d in cells}, reverse=True)

    def cell(method: str, density: float) -> str:
        if density not in found[method]:
            return ""
        loss, really = _plus_minus(found[method][density].estimate), kept[method][density].mean
        return loss if abs(really - density) < 0.001 else f"{loss} (at {100 * really:.1f} %)"

    rows = [[TITLES[method], *(cell(method, d) for d in densities)] for method in found]
    return ["", *(f"{100 * density:g} %" for density in densities)], rows


def gpt_lead(content: dict[str, Any]) -> Table:
    """How much higher than that of CS the loss of the others is, with the same seeds."""
    found = _by_method(content, "validation")
    ours = found.pop("cs")
    densities = sorted(ours, reverse=True)
    rows = [
        [
            TITLES[method],
            *(_plus_minus(cells[d].minus(ours[d]), "+") if d in cells else "" for d in densities),
        ]
        for method, cells in found.items()
        if method != "dense"
    ]
    return ["loss above that of CS", *(f"{100 * density:g} %" for density in densities)], rows


def _by_method(content: dict[str, Any], name: str) -> dict[str, dict[float, Measured]]:
    """What the runs have as `name`, by method and density."""
    values: dict[str, dict[float, dict[int, float]]] = {}
    for run in content["runs"]:
        cells = values.setdefault(run["method"], {})
        cells.setdefault(run["density"], {})[run["seed"]] = run[name]
    return {m: {d: Measured(v) for d, v in cells.items()} for m, cells in values.items()}


def _plus_minus(estimate: Estimate, sign: str = "") -> str:
    middle = f"{estimate.mean:{sign}.3f}"
    return middle if isinf(estimate.error) else f"{middle}±{estimate.error:.3f}"
