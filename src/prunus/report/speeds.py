"""The measured speed of what is compared, in samples a second."""

from __future__ import annotations

from collections.abc import Sequence

from prunus.report.intervals import Measured
from prunus.report.model import Point
from prunus.runs.speed import Speed


def batches_of(points: Sequence[Point]) -> list[int]:
    """The batch sizes that anything was measured with."""
    return sorted({s.batch for p in points for r in p.records for s in r.speeds})


def measured_with(point: Point, batch: int) -> list[Speed]:
    """What was measured with batches of that size, seed by seed."""
    return [s for r in point.records for s in r.speeds if s.batch == batch]


def speed_of(point: Point, batch: int) -> Measured | None:
    """Samples a second by seed; None unless those of all seeds were measured."""
    found = measured_with(point, batch)
    if len(found) < len(point.records):
        return None
    seeds = (record.seed for record in point.records)
    return Measured(dict(zip(seeds, (s.deployed for s in found), strict=True)))


def speed_text(point: Point, batch: int) -> str:
    """`12,345 (3.4x, predicted 4.0x)`: the mean, and how many times as fast as the dense network
    that is, and was to be if a speed-up was asked for."""
    speed, found = speed_of(point, batch), measured_with(point, batch)
    if speed is None:
        return ""
    times = sum(s.speedup for s in found) / len(found)
    predicted = [s.predicted for s in found if s.predicted is not None]
    asked = f", predicted {sum(predicted) / len(predicted):.1f}x" if predicted else ""
    return f"{speed.mean:,.0f} ({times:.1f}x{asked})"
