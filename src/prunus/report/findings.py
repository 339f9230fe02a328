"""What the numbers say, in sentences that claim no more than their errors allow."""

from __future__ import annotations

from collections.abc import Sequence

from prunus.report.competition import competitions
from prunus.report.model import Comparison, Point
from prunus.report.select import matching, sparsest_matching
from prunus.report.tables import KEPT, margin_text, number, signed, spread_with_unit


def finding(comparison: Comparison) -> str:
    """The finding: who matches the dense network with the fewest weights.

    If nobody does, who leads with equally many comes first.
    """
    metric, dense = comparison.metric, comparison.dense
    if dense is None:
        return "There is no dense network to compare with."
    whole = f"the dense network ({spread_with_unit(metric, dense)})"
    if not comparison.series:
        return f"There is no subnetwork yet to compare with {whole}."
    found = [(series.name, matching(comparison, series)) for series in comparison.series]
    known = sorted(((p, n) for n, p in found if p), key=lambda pair: pair[0].density.mean)
    if not known:
        none = f"No subnetwork was shown to match {whole} within {margin_text(comparison)}."
        return f"{_leads(comparison)} {none}".lstrip()
    least = known[0][0].density.mean
    first = [point.series.name for point in sparsest_matching(comparison)]
    later = [
        f"{name} needs {number(KEPT, point.density.mean)} %"
        for point, name in known
        if name not in first
    ]
    never = [name for name, point in found if point is None]
    if never:
        later.append(f"{_listed(never)} {'was' if len(never) == 1 else 'were'} not shown to")
    verb = "matches" if len(first) == 1 else "match"
    text = f"{_listed(first)} {verb} {whole} with {number(KEPT, least)} % of the weights"
    return f"{text}; {', '.join(later)}." if later else f"{text}."


def details(comparison: Comparison) -> list[str]:
    """What the finding rests on, and what is within the error: a sentence each."""
    none = "With equally many weights, no method leads another." if _compared(comparison) else ""
    sentences = [_evidence(comparison), _leads(comparison) or none, *notes(comparison)]
    said = finding(comparison)
    return [sentence for sentence in sentences if sentence and sentence not in said]


def notes(comparison: Comparison) -> list[str]:
    """What a reader has to know about how it was found."""
    found = []
    if comparison.dense is not None and comparison.series:
        found.append(
            "A subnetwork matches if the 95 % interval of its difference to the dense network, "
            f"paired by seed, is above -{margin_text(comparison)} on {_split(comparison)} data."
        )
    if comparison.split is None:
        found.append(
            "Some results hold no validation values, so picks were made by test values, which "
            "flatters them."
        )
    stages = [r.measured[p.series.measure] for p in comparison.points for r in p.records]
    outside = next(filter(None, (stage.caution for stage in stages)), None)
    if outside is not None:
        found.append(outside)
    if comparison.seeds == 1:
        found.append(
            "There is one seed: errors are binomial ones of a single run where they are known, "
            "and no lead is claimed."
        )
    return found


def _evidence(comparison: Comparison) -> str:
    """The picks on test data, which played no part in picking them."""
    dense, metric = comparison.dense, comparison.metric
    chosen = [p for s in comparison.series if (p := matching(comparison, s)) is not None]
    if dense is None or not chosen:
        return ""
    differences = [
        f"{point.series.name} {_difference(comparison, point)}"
        for point in sorted(chosen, key=lambda p: p.density.mean)
    ]
    unit = "points" if metric.unit == "%" else metric.unit
    return (
        f"Picked on {_split(comparison)} data; on test data the differences to the dense network "
        f"are, in {unit or metric.name}: {', '.join(differences)}."
    )


def _split(comparison: Comparison) -> str:
    return comparison.split or "test"


def _difference(comparison: Comparison, point: Point) -> str:
    assert comparison.dense is not None
    return signed(comparison.metric, comparison.gain(point.value, comparison.dense))


def _leads(comparison: Comparison) -> str:
    """Who is surely ahead of whom with as many weights; empty if nobody is."""
    metric, open_ = comparison.metric, False
    held = competitions(comparison)
    several = len({own.measure for own in held}) > 1
    claims: dict[str, list[str]] = {}
    for own in held:
        competing = own.competing
        name, first = max(
            competing.items(),
            key=lambda pair: (len(pair[1].ahead_of), metric.gain(pair[1].point.value.mean, 0.0)),
        )
        if first.ahead_of:
            equal = [row for row, e in competing.items() if e.ahead_of == first.ahead_of]
            who = f"{_listed(equal)} {'leads' if len(equal) == 1 else 'lead'}"
            every = own.leads(name) and len(first.ahead_of) > 1
            whom = "all others" if every else _listed(first.ahead_of)
            where = f"{100 * own.target:.3g} %{f' ({own.measure})' if several else ''}"
            claims.setdefault(f"{who} {whom}", []).append(where)
        open_ |= len(competing) > 1 and not own.leads(name)
    if not claims:
        return ""
    said = [f"{claim} at {_listed(places)}" for claim, places in claims.items()]
    rest = "; the rest is within the error" if open_ else ""
    return f"With equally many weights, {'; '.join(said)}{rest}."


def _compared(comparison: Comparison) -> bool:
    """Whether there are networks with equally many weights."""
    return any(len(own.competing) > 1 for own in competitions(comparison))


def _listed(names: Sequence[str]) -> str:
    *most, end = names
    return f"{', '.join(most)} and {end}" if most else end
