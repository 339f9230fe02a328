"""What was measured in the Trainers of others, as tables: means and deviations over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean, stdev
from typing import Any

Table = tuple[list[str], list[list[str]]]

TITLES = {"cs": "CS", "gmp": "GMP", "mp": "MP", "wanda": "Wanda", "dense": "dense"}
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
