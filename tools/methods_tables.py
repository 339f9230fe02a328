"""The comparison of methods as tables, from `results/methods-cpu.json`."""

from __future__ import annotations

from collections import defaultdict
from statistics import mean
from typing import Any

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
MEASURED = ("density", "searched", "fine_tuned", "retrained", "search_epochs")
NEAR = 0.05
"""A density this near to its target (relatively) is not written into the cell."""

Cells = dict[tuple[str, float], dict[str, float]]
Table = tuple[list[str], list[list[str]]]


def averaged(content: dict[str, Any]) -> Cells:
    """Means over seeds, by row and target."""
    gathered: dict[tuple[str, float], dict[str, list[float]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for cell in content["cells"]:
        cell = {**cell, "free_density": cell.get("settings", {}).get("free_density")}
        for name in (*MEASURED, "free_density"):
            if cell.get(name) is None:
                continue
            gathered[cell["row"], cell["target"]][name].append(cell[name])
    return {key: {n: mean(v) for n, v in values.items()} for key, values in gathered.items()}


def accuracies(content: dict[str, Any], kind: str) -> Table:
    """A line for each method with its accuracy at each density; the best of a group in bold."""
    cells, targets = averaged(content), content["targets"]
    rows = []
    for group in (ONE_ROUND, ROUNDS):
        best = {t: max(_competing(cells.get((r, t)), t, kind) for r in group) for t in targets}
        for row, label in group.items():
            found = [cells.get((row, target), {}) for target in targets]
            if any(kind in cell for cell in found):
                epochs = sorted({round(cell["search_epochs"]) for cell in found if cell})
                cost = str(epochs[0]) if len(epochs) == 1 else f"{epochs[0]} to {epochs[-1]}"
                texts = [_cell(c, t, kind, best[t]) for c, t in zip(found, targets, strict=True)]
                rows.append([label, cost, *texts])
    return ["weights kept", "epochs of search", *(f"{100 * t:g} %" for t in targets)], rows


def _competing(cell: dict[str, float] | None, target: float, kind: str) -> float:
    """Its accuracy, unless it kept more than it should have."""
    kept_too_many = cell is not None and cell["density"] > (1 + NEAR) * target
    return 0.0 if cell is None or kept_too_many else cell.get(kind, 0.0)


def _cell(cell: dict[str, float], target: float, kind: str, best: float) -> str:
    if kind not in cell:
        return "–"
    text = f"{100 * cell[kind]:.1f}"
    if cell[kind] == best:
        text = f"**{text}**"
    off = abs(cell["density"] / target - 1) > NEAR
    return f"{text} (at {100 * cell['density']:.1f} %)" if off else text


def lead(content: dict[str, Any], kind: str) -> Table:
    """The best form of CS beside the best rival that had as many epochs."""
    cells = averaged(content)
    rows = []
    for group, title in ((ONE_ROUND, "one"), (ROUNDS, "five")):
        for target in content["targets"]:
            scores = {r: _competing(cells.get((r, target)), target, kind) for r in group}
            ours = max((r for r in group if r in FORMS_OF_CS), key=lambda r: scores[r])
            rival = max((r for r in group if r not in FORMS_OF_CS), key=lambda r: scores[r])
            if scores[ours] and scores[rival]:
                named = [f"{group[r]} {100 * scores[r]:.1f}" for r in (ours, rival)]
                difference = 100 * (scores[ours] - scores[rival])
                rows.append([title, f"{100 * target:g} %", *named, f"{difference:+.1f}"])
    return ["rounds", "kept", "best form of CS", "best rival", "difference, points"], rows


def short(content: dict[str, Any]) -> Table:
    """Methods of one round at the densities that matter, fine-tuned: for the README."""
    sparse = [target for target in content["targets"] if target <= 0.1]
    header, rows = accuracies({**content, "targets": sparse}, "fine_tuned")
    few = [[row[0], *row[2:]] for row in rows if row[0] in ONE_ROUND.values()]
    return [header[0], *header[2:]], few


def dense(content: dict[str, Any]) -> str:
    """The dense network, in a sentence."""
    cells, epochs = averaged(content), content["scale"]["epochs"]
    once, often = cells["dense", 1.0], cells.get(("dense-rounds", 1.0))
    text = f"The dense network reaches {100 * once['searched']:.1f} % in the same {epochs} epochs"
    text += f", {100 * once['fine_tuned']:.1f} % after the epochs of fine-tuning"
    if often:
        rounds = len(content["targets"])
        text += f", and {100 * often['searched']:.1f} % trained {rounds} times {epochs} epochs"
    return f"{text}."


def designs(content: dict[str, Any]) -> Table:
    """The ways to give CS a budget."""
    cells = averaged(content)
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
            texts.append(f"{100 * cell.get('free_density', cell['density']):.2f} %")
            texts += [f"{100 * cell[kind]:.1f}" for kind in ("searched", "fine_tuned")]
        rows.append([label, *texts])
    return header, rows
