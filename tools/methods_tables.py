"""The comparison of methods as tables, from `results/methods-cpu.json`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from prunus.report.intervals import Measured
from prunus.report.select import NEAR

# Methods are compared with those that had as many epochs.
ONE_ROUND = {
    "cs-budget": "CS with a budget",
    "cs": "CS",
    "gmp": "GMP",
    "gmp-layer": "GMP, per layer",
    "str": "STR",
    "dnw": "DNW",
    "l0": "L0",
    "netslim": "NetSlim",
    "mp": "MP",
    "amc": "AMC",
    "random": "random mask",
}
ROUNDS = {
    "cs-rounds": "CS, a budget for each round",
    "seq-cs": "Sequential CS",
    "imp": "IMP",
    "imp-c": "IMP-C",
    "iss": "ISS",
}
DESIGNS = {
    "cs-budget": "moving threshold (what `target_density` does)",
    "lagrange": "Lagrange multiplier, rate 0.1",
    "lagrange-weak": "Lagrange multiplier, rate 0.01",
    "quadratic": "quadratic penalty, strength 1",
    "quadratic-weak": "quadratic penalty, strength 0.01",
    "cs": "plain CS, mask init by search",
}
FORMS_OF_CS = ("cs-budget", "cs", "cs-rounds", "seq-cs")
ACCURACIES = ("searched", "fine_tuned", "retrained")
TEST_IMAGES = 10_000

Cells = dict[tuple[str, float], dict[str, Measured]]
Table = tuple[list[str], list[list[str]]]


def by_seed(content: dict[str, Any]) -> Cells:
    """What was measured of each row at each target."""
    gathered: dict[tuple[str, float], dict[str, dict[int, float]]] = defaultdict(
        lambda: defaultdict(dict)
    )
    for cell in content["cells"]:
        cell = {**cell, "free_density": cell.get("settings", {}).get("free_density")}
        for name in (*ACCURACIES, "density", "free_density", "search_epochs"):
            if cell.get(name) is not None:
                gathered[cell["row"], cell["target"]][name][cell["seed"]] = cell[name]
    return {
        key: {n: Measured(v, TEST_IMAGES if n in ACCURACIES else None) for n, v in cell.items()}
        for key, cell in gathered.items()
    }


def accuracies(content: dict[str, Any], kind: str) -> Table:
    """A line for each method with its accuracy at each density; a lead over its group is bold."""
    cells, targets = by_seed(content), content["targets"]
    rows = []
    for group in (ONE_ROUND, ROUNDS):
        leads = {target: _leader(_competing(cells, group, target, kind)) for target in targets}
        for row, label in group.items():
            found = {target: cells.get((row, target), {}) for target in targets}
            if any(kind in cell for cell in found.values()):
                epochs = sorted({round(c["search_epochs"].mean) for c in found.values() if c})
                cost = str(epochs[0]) if len(epochs) == 1 else f"{epochs[0]} to {epochs[-1]}"
                texts = [_cell(c, t, kind, leads[t] == row) for t, c in found.items()]
                rows.append([label, cost, *texts])
    return ["weights kept", "epochs of search", *(f"{100 * t:g} %" for t in targets)], rows


def _near(cell: dict[str, Measured], target: float) -> bool:
    return abs(cell["density"].mean / target - 1) <= NEAR


def _competing(cells: Cells, group: Iterable[str], target: float, kind: str) -> dict[str, Measured]:
    """Accuracies of those that ended near the target, neither too dense nor too sparse."""
    found = {row: cells.get((row, target), {}) for row in group}
    return {row: c[kind] for row, c in found.items() if kind in c and _near(c, target)}


def _leader(rivals: dict[str, Measured]) -> str | None:
    """The row that is ahead of each other by more than the error, over several seeds."""
    for row, ours in rivals.items():
        others = [other for name, other in rivals.items() if name != row]
        if all(ours.count > 1 and ours.minus(other).above_zero for other in others):
            return row
    return None


def _cell(cell: dict[str, Measured], target: float, kind: str, leads: bool) -> str:
    if kind not in cell:
        return "–"
    text = f"{100 * cell[kind].mean:.1f}"
    if leads:
        text = f"**{text}**"
    return text if _near(cell, target) else f"{text} (at {100 * cell['density'].mean:.1f} %)"


def lead(content: dict[str, Any], kind: str) -> Table:
    """The best form of CS beside the best rival that had as many epochs."""
    cells = by_seed(content)
    rows = []
    for group, title in ((ONE_ROUND, "one"), (ROUNDS, "five")):
        for target in content["targets"]:
            rivals = _competing(cells, group, target, kind)
            best = {
                ours: max((r for r in rivals if (r in FORMS_OF_CS) == ours),
                          key=lambda r: rivals[r].mean, default=None)
                for ours in (True, False)
            }  # fmt: skip
            first, second = best[True], best[False]
            if first and second:
                named = [f"{group[r]} {100 * rivals[r].mean:.1f}" for r in (first, second)]
                found = rivals[first].minus(rivals[second])
                text = f"{100 * found.mean:+.1f}±{100 * found.error:.1f}"
                rows.append([title, f"{100 * target:g} %", *named, text])
    return ["rounds", "kept", "best form of CS", "best rival", "difference, points"], rows


def dense(content: dict[str, Any]) -> str:
    """The dense network, in a sentence."""
    cells, epochs = by_seed(content), content["scale"]["epochs"]
    once, often = cells["dense", 1.0], cells.get(("dense-rounds", 1.0))
    text = f"The dense network reaches {_percent(once['searched'])} in the same {epochs} epochs"
    text += f", {_percent(once['fine_tuned'])} after the epochs of fine-tuning"
    if often:
        rounds = len(content["targets"])
        text += f", and {_percent(often['searched'])} trained {rounds} times {epochs} epochs"
    return f"{text}."


def designs(content: dict[str, Any]) -> Table:
    """The ways to give CS a budget."""
    cells = by_seed(content)
    targets = [t for t in content["targets"] if ("lagrange", t) in cells]
    header = ["design"]
    for target in targets:
        wanted = f"{100 * target:g} %"
        header += [f"{wanted} wanted: ends at", "as found", "fine-tuned"]
    rows = []
    for row, label in DESIGNS.items():
        texts = []
        for target in targets:
            cell = cells[row, target]
            texts.append(_percent(cell.get("free_density", cell["density"]), 2))
            texts += [f"{100 * cell[kind].mean:.1f}" for kind in ("searched", "fine_tuned")]
        rows.append([label, *texts])
    return header, rows


def _percent(value: Measured, digits: int = 1) -> str:
    return f"{100 * value.mean:.{digits}f} %"
