"""The comparison of methods as tables and as a plot, from `results/methods-cpu.json`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import mean
from typing import Any

import altair as alt

LABELS = {
    "cs-budget": "CS, budget",
    "cs": "CS",
    "cs-rounds": "CS, budget by round",
    "imp": "IMP",
    "imp-c": "IMP-C",
    "seq-cs": "Sequential CS",
    "iss": "ISS",
    "mp": "MP",
    "gmp": "GMP",
    "gmp-layer": "GMP, per layer",
    "netslim": "NetSlim",
    "l0": "L0",
    "l0-expected": "L0, expected gate",
    "amc": "AMC",
    "str": "STR",
    "dnw": "DNW",
    "random": "random mask",
    "lagrange": "CS, Lagrange multiplier",
    "quadratic": "CS, quadratic penalty",
}
DESIGNS = ("cs-budget", "lagrange", "quadratic", "cs")
ONLY_DESIGNS = ("lagrange", "quadratic")
# Okabe and Ito's colours; more methods than colours, so dashes and shapes tell them apart too.
COLOURS = ["#7b3fa0", "#b07cc6", "#0072b2", "#56b4e9", "#009e73", "#d55e00", "#e69f00", "#333333"]
NEAR = 0.05
"""A density this near to its target (relatively) is not written into the cell."""

Cells = dict[tuple[str, float], dict[str, float]]


def averaged(content: dict[str, Any]) -> tuple[Cells, Cells]:
    """Mean over seeds, and the range between the lowest and the highest, by row and target."""
    gathered: dict[tuple[str, float], dict[str, list[float]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for cell in content["cells"]:
        for name in ("density", "searched", "fine_tuned", "retrained", "search_epochs"):
            if name in cell:
                gathered[cell["row"], cell["target"]][name].append(cell[name])
    means = {key: {n: mean(v) for n, v in values.items()} for key, values in gathered.items()}
    ranges = {key: {n: max(v) - min(v) for n, v in vs.items()} for key, vs in gathered.items()}
    return means, ranges


def accuracies(content: dict[str, Any], kind: str) -> tuple[list[str], list[list[str]]]:
    """One line for each method: accuracy at each density; the best of a column in bold."""
    means, _ = averaged(content)
    targets = content["targets"]
    shown = [row for row in LABELS if row not in ONLY_DESIGNS]
    best = {t: max(means.get((r, t), {}).get(kind, 0) for r in shown) for t in targets}
    rows = []
    for row, label in LABELS.items():
        cells = [means.get((row, target), {}) for target in targets]
        if row in ONLY_DESIGNS or not any(kind in cell for cell in cells):
            continue
        rows.append(
            [label, *(_cell(c, t, kind, best[t]) for c, t in zip(cells, targets, strict=True))]
        )
    return ["kept", *(f"{100 * t:g} %" for t in targets)], rows


def _cell(cell: dict[str, float], target: float, kind: str, best: float) -> str:
    if kind not in cell:
        return "–"
    text = f"{100 * cell[kind]:.1f}"
    if cell[kind] == best:
        text = f"**{text}**"
    off = abs(cell["density"] / target - 1) > NEAR
    return f"{text} (at {100 * cell['density']:.1f} %)" if off else text


def designs(content: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """The ways to give CS a budget, fine-tuned."""
    means, _ = averaged(content)
    targets = [t for t in content["targets"] if ("lagrange", t) in means]
    rows = []
    for row in DESIGNS:
        label = "CS, moving threshold (the product's)" if row == "cs-budget" else LABELS[row]
        label = "CS, mask init found by search" if row == "cs" else label
        cells = [means.get((row, t), {}) for t in targets]
        for_target = [_design_cell(c) for c in cells]
        rows.append([label, *(text for pair in for_target for text in pair)])
    header = ["design"]
    for t in targets:
        header += [f"kept, of {100 * t:g} % wanted", "as found", "fine-tuned"]
    return header, rows


def _design_cell(cell: dict[str, float]) -> list[str]:
    if not cell:
        return ["–", "–", "–"]
    return [f"{100 * cell['density']:.2f} %"] + [
        f"{100 * cell[kind]:.1f}" for kind in ("searched", "fine_tuned")
    ]


def epochs(content: dict[str, Any]) -> str:
    """What each method's search cost, said in one line."""
    means, _ = averaged(content)
    rounds = [LABELS[r] for r in LABELS if means.get((r, 0.02), {}).get("search_epochs", 8) > 8]
    return ", ".join(rounds)


def plot(content: dict[str, Any], kind: str, rows: Sequence[str]) -> alt.LayerChart:
    """Accuracy against density."""
    means, _ = averaged(content)
    points = [
        {"method": LABELS[row], "density": 100 * cell["density"], "accuracy": 100 * cell[kind]}
        for (row, _), cell in means.items()
        if row in rows and kind in cell
    ]
    names = [LABELS[row] for row in LABELS if row in rows]
    dashes = [[1, 0] if n < len(COLOURS) else [5, 3] for n in range(len(names))]
    colours = [COLOURS[n % len(COLOURS)] for n in range(len(names))]
    base = alt.Chart(alt.Data(values=points)).encode(
        x=alt.X(
            "density:Q",
            title="weights kept (%, logarithmic)",
            scale=alt.Scale(type="log", nice=False, padding=16),
            axis=alt.Axis(values=[1, 2, 5, 10, 20, 50], format="~g"),
        ),
        y=alt.Y("accuracy:Q", title="test accuracy (%)", scale=alt.Scale(zero=False)),
        color=alt.Color("method:N", title=None, scale=alt.Scale(domain=names, range=colours)),
    )
    dash = alt.StrokeDash("method:N", title=None, scale=alt.Scale(domain=names, range=dashes))
    dense = means["dense", 1.0]
    level = dense["fine_tuned"] if kind == "fine_tuned" else dense["searched"]
    rule = (
        alt.Chart(alt.Data(values=[{"accuracy": 100 * level}]))
        .mark_rule(strokeDash=[2, 2], color="#6b7280")
        .encode(y="accuracy:Q")
    )
    return alt.layer(
        base.mark_line(strokeWidth=2).encode(strokeDash=dash),
        base.mark_point(size=50, filled=True).encode(
            shape=alt.Shape("method:N", title=None, scale=alt.Scale(domain=names))
        ),
        rule,
    ).properties(width=560, height=380)
