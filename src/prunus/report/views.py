"""What the plots have along their horizontal axis: the weights that are kept, or measured speed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import fmean

from prunus.report.model import Comparison, Point
from prunus.report.select import sparsest_matching, verdict
from prunus.report.speeds import batches_of, measured_with, speed_of
from prunus.report.tables import KEPT, number, scaled


@dataclass(frozen=True)
class View:
    """One way to look at the points of a comparison."""

    name: str
    """What the metric is shown against."""
    title: str
    """Of the axis, which is logarithmic."""
    direction: str
    """Where it is better."""
    at: Callable[[Point], float | None]
    """Where a point is; None if it is not shown."""
    ticks: tuple[float, ...] = (1, 2, 5)
    """In each power of ten."""
    format: str = "~g"
    """Of the ticks."""
    winners: Mapping[int, str] = field(default_factory=dict)
    """What to say at the points that stand out, by their `id`."""
    dense_at: float | None = None
    """Where the dense network is."""
    dense_name: str = ""


def by_density(comparison: Comparison) -> View:
    """The kept part of the weights that could be removed."""
    return View(
        name="weights kept",
        title="weights kept (%, logarithmic)",
        direction="left is smaller",
        at=lambda point: scaled(KEPT, point.density.mean),
        winners={
            id(p): f"{p.series.name} matches with {number(KEPT, p.density.mean)} %"
            for p in sparsest_matching(comparison)
        },
    )


def by_speed(comparison: Comparison, batch: int) -> View:
    """Samples a second of the deployed networks, where these were measured."""

    def at(point: Point) -> float | None:
        speed = speed_of(point, batch)
        return speed.mean if speed else None

    known = {id(p): (p, place) for p in comparison.points if (place := at(p)) is not None}
    good = [(place, p) for p, place in known.values() if verdict(comparison, p) == "yes"]
    fastest = max(good, key=lambda pair: pair[0], default=None)
    dense = [speed for p, _ in known.values() for speed in measured_with(p, batch)]
    name = f"images a second, batch of {batch}"
    return View(
        name=name,
        title=f"{name} (deployed, logarithmic)",
        direction="right is faster",
        at=at,
        ticks=(1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9),
        format="~s",
        winners={id(p): f"{p.series.name} matches at {place:,.0f}/s" for place, p in [fastest]}
        if fastest
        else {},
        dense_at=fmean(s.dense for s in dense) if dense else None,
        dense_name=f"dense in {dense[0].engine}" if dense else "",
    )


def views(comparison: Comparison) -> list[View]:
    """By density, and by speed for each batch that was measured."""
    batches = batches_of(comparison.points)
    return [by_density(comparison), *(by_speed(comparison, batch) for batch in batches)]
