"""The plots, as Altair charts: one specification for the page, PNG and SVG."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from prunus.report.summary import Group

# Okabe and Ito's colours, told apart with any kind of colour vision; shapes say the same again.
COLOURS = {"cs": "#7b3fa0", "imp": "#0072b2", "random": "#e69f00", "dense": "#6b7280"}
SHAPES = {"cs": "circle", "imp": "square", "random": "triangle-up", "dense": "diamond"}
LABELS = {"cs": "CS", "imp": "IMP", "random": "random mask", "dense": "dense"}


def accuracy_against_density(groups: Sequence[Group]) -> alt.LayerChart | alt.FacetChart:
    """Means with error bars over seeds, and the dense network as a line to reach."""
    dense = next(g for g in groups if g.method == "dense")
    rows = [_row(g) for g in groups if g.method != "dense"]
    base = alt.Chart(_data(rows)).encode(
        x=alt.X(
            "density:Q",
            title="weights kept (%, logarithmic)",
            scale=alt.Scale(type="log", nice=False, padding=24),
            axis=alt.Axis(values=[0.5, 1, 2, 5, 10, 20, 50, 100], format="~g"),
        ),
        color=_colour(rows),
    )
    accuracy = alt.Y(
        "accuracy:Q", title="test accuracy, re-trained (%)", scale=alt.Scale(zero=False)
    )
    shown = ["method:N", "mask init:Q", "density:Q", "accuracy:Q", "deviation:Q"]
    baseline = alt.Chart(_data([{"accuracy": 100 * dense.accuracy.mean}])).encode(y="accuracy:Q")
    rule = baseline.mark_rule(strokeDash=[6, 4], color=COLOURS["dense"], strokeWidth=2)
    label = baseline.mark_text(
        text=f"dense network {100 * dense.accuracy.mean:.2f} %",
        align="left", baseline="bottom", dx=4, dy=-3, color=COLOURS["dense"],
    ).encode(x=alt.value(0))  # fmt: skip
    bars = base.mark_errorbar(ticks=True).encode(
        y=alt.Y("low:Q", title=""), y2="high:Q", tooltip=alt.value(None)
    )
    line = base.mark_line(strokeWidth=2).encode(y=accuracy)
    points = base.mark_point(size=90, filled=True, opacity=1).encode(
        y=accuracy, shape=_shape(rows), tooltip=shown
    )
    return alt.layer(bars, line, points, rule, label).properties(width=640, height=360)


def layer_densities(results: Sequence[Any]) -> alt.Chart:
    """How much of each layer CS and IMP keep at the same total density, mean over seeds."""
    rows = [
        {
            "method": LABELS[r.method],
            "layer": layer,
            "kept (%)": 100 * density,
            "mask init": f"s0 = {r.mask_init:g}",
        }
        for r in results
        if r.method in ("cs", "imp")
        for layer, density in r.layers.items()
    ]
    layers = list(dict.fromkeys(row["layer"] for row in rows))
    inits = list(dict.fromkeys(row["mask init"] for row in rows))
    chart: alt.Chart = (
        alt.Chart(_data(rows), width=170, height=240)
        .mark_bar()
        .encode(
            x=alt.X("layer:N", sort=layers, title="layer, input to output"),
            xOffset="method:N",
            y=alt.Y("mean(kept (%)):Q", title="weights kept (%)"),
            color=_colour(rows),
            column=alt.Column("mask init:N", sort=inits, title=None),
            tooltip=["method:N", "layer:N", alt.Tooltip("mean(kept (%)):Q", format=".2f")],
        )
    )
    return chart


def training_curves(results: Sequence[Any]) -> alt.Chart:
    """Test accuracy while each ticket is re-trained alone, mean over seeds."""
    inits = sorted({r.mask_init for r in results if r.mask_init is not None}, reverse=True)
    longest = max(len(r.curve) for r in results)  # tickets begin at the rewind point
    rows = [
        {
            "method": LABELS[r.method],
            "epoch": longest - len(r.curve) + epoch + 1,
            "accuracy": 100 * value,
            "mask init": f"s0 = {init:g}",
        }
        for r in results
        for init in ([r.mask_init] if r.mask_init is not None else inits)
        for epoch, value in enumerate(r.curve)
    ]
    return _curves(rows, "accuracy", "test accuracy (%)", "epoch of training")


def search_curves(results: Sequence[Any]) -> alt.Chart:
    """The density of the hard mask during the search, mean over seeds."""
    rows = [
        {
            "method": LABELS[r.method],
            "epoch": epoch + 1,
            "density": 100 * density,
            "mask init": f"s0 = {r.mask_init:g}",
        }
        for r in results
        for epoch, density in enumerate(r.search_curve)
    ]
    return _curves(rows, "density", "weights kept (%)", "epoch of search")


def _curves(rows: list[dict[str, Any]], field: str, title: str, x_title: str) -> alt.Chart:
    inits = list(dict.fromkeys(row["mask init"] for row in rows))
    mean = f"mean({field}):Q"
    chart: alt.Chart = (
        alt.Chart(_data(rows), width=170, height=240)
        .mark_line(strokeWidth=2, point=alt.OverlayMarkDef(size=14))
        .encode(
            x=alt.X("epoch:Q", title=x_title, axis=alt.Axis(tickMinStep=1)),
            y=alt.Y(mean, title=title, scale=alt.Scale(zero=field == "density")),
            color=_colour(rows),
            strokeDash=alt.StrokeDash("method:N", legend=None),
            column=alt.Column("mask init:N", sort=inits, title=None),
            tooltip=["method:N", "epoch:Q", alt.Tooltip(mean, format=".2f")],
        )
    )
    return chart


def _row(group: Group) -> dict[str, Any]:
    accuracy = group.accuracy
    return {
        "method": LABELS[group.method],
        "mask init": group.mask_init,
        "density": round(100 * group.density.mean, 3),
        "accuracy": round(100 * accuracy.mean, 3),
        "deviation": round(100 * accuracy.deviation, 3),
        "low": 100 * (accuracy.mean - accuracy.deviation),
        "high": 100 * (accuracy.mean + accuracy.deviation),
    }


def _colour(rows: Sequence[dict[str, Any]]) -> alt.Color:
    return alt.Color("method:N", title=None, scale=_scale(rows, COLOURS))


def _shape(rows: Sequence[dict[str, Any]]) -> alt.Shape:
    return alt.Shape("method:N", title=None, scale=_scale(rows, SHAPES))


def _scale(rows: Sequence[dict[str, Any]], values: dict[str, str]) -> alt.Scale:
    present = {row["method"] for row in rows}
    methods = [m for m in LABELS if LABELS[m] in present]
    return alt.Scale(domain=[LABELS[m] for m in methods], range=[values[m] for m in methods])


def _data(rows: list[dict[str, Any]]) -> alt.Data:
    return alt.Data(values=rows)
