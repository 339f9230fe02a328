"""The small plots of a ticket's panel, into which the page puts the data; and how large text is."""

from __future__ import annotations

from typing import Any

import altair as alt

from prunus.report.colours import OF_METHODS


def curve_chart(field: str, title: str) -> dict[str, Any]:
    """A training curve, into which the page puts its data: `rows` of `part`, `at` and `field`."""
    chart = (
        alt.Chart(alt.NamedData("rows"), width="container", height=150)
        .mark_line(strokeWidth=2, point=alt.OverlayMarkDef(size=14))
        .encode(
            x=alt.X("at:Q", title="epoch", axis=alt.Axis(tickMinStep=1)),
            y=alt.Y(f"{field}:Q", title=title, scale=alt.Scale(zero=field != "value")),
            color=alt.Color(
                "part:N",
                title=None,
                legend=alt.Legend(orient="top"),
                scale=alt.Scale(
                    domain=["search", "re-training"], range=[OF_METHODS["cs"], OF_METHODS["imp"]]
                ),
            ),
            detail="stage:N",
            tooltip=["part:N", "stage:N", alt.Tooltip("at:Q", title="epoch"), f"{field}:Q"],
        )
    )
    return _specification(chart)


def density_chart(title: str) -> dict[str, Any]:
    """Horizontal bars of `rows` with `name` and `kept`; the page sets the height."""
    chart = (
        alt.Chart(alt.NamedData("rows"), width="container")
        .mark_bar(color=OF_METHODS["cs"])
        .encode(
            y=alt.Y("name:N", sort=None, title=None, axis=alt.Axis(labelLimit=160)),
            x=alt.X("kept:Q", title=title),
            tooltip=["name:N", "kept:Q", "weights:N", "shape:N"],
        )
    )
    return _specification(chart)


def _specification(chart: alt.Chart) -> dict[str, Any]:
    specification: dict[str, Any] = readable(chart).to_dict()
    return specification


def readable(chart: Any) -> Any:
    """The chart with text that can be read."""
    size = 12
    return chart.configure_axis(labelFontSize=size, titleFontSize=size).configure_legend(
        labelFontSize=size
    )
