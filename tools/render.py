"""Writes the tables of README.md and docs/ from the results files: no figure is typed.

A table stands between `<!-- results: NAME -->` and `<!-- end -->`. After a file in results/ has
changed, run `python tools/render.py`. With `--check` it changes nothing, and fails if a table is
out of date.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import cs_tables
import integrations_tables as integrations
import methods_tables as methods
import outputs

from prunus.files import write_atomically
from prunus.report.charts import metric_against_density, series_order
from prunus.report.file import read_report
from prunus.report.findings import details, finding
from prunus.report.model import Comparison, comparisons
from prunus.report.paper import pairs_table
from prunus.report.tables import Strong, density_table, points_table, raw_table

ROOT = Path(__file__).parent.parent
REGION = re.compile(r"(<!-- results: ([a-z0-9-]+) -->\n).*?(<!-- end -->)", re.DOTALL)

PICTURES = ("headline", "demo")
"""Results files whose accuracy against density is drawn, as docs/images/NAME.svg."""


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rows = [[f"**{c}**" if isinstance(c, Strong) else c for c in row] for row in rows]
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def read(name: str) -> Any:
    return json.loads((ROOT / "results" / f"{name}.json").read_text())


def compared_in(name: str) -> Comparison:
    """What a results file of one task compares."""
    [comparison] = comparisons(read_report(ROOT / "results" / f"{name}.json").data.records)
    return comparison


def demo() -> str:
    comparison = compared_in("demo")
    table, says = points_table(comparison), " ".join([finding(comparison), *details(comparison)])
    return f"{markdown(table.header, table.rows)}\n\n{says}"


def demo_finding() -> str:
    return finding(compared_in("demo"))


def gate_overhead() -> str:
    def cell(parts: Mapping[str, Any], part: str, variant: str, name: str, digits: int) -> str:
        found = parts.get(part, {}).get(variant)
        return f"{found[name]:.{digits}f}" if found else ""

    rows = [
        [
            network,
            variant,
            cell(parts, "eager", variant, "ms", 2),
            cell(parts, "eager", variant, "ratio", 3),
            cell(parts, "compiled", variant, "ms", 2),
            cell(parts, "compiled", variant, "ratio", 3),
            cell(parts, "memory", variant, "peak MiB", 0),
        ]
        for network, parts in read("gate_overhead")["results"].items()
        for variant in parts["eager"]
    ]
    header = ["network", "variant", "ms a step", "ratio to dense", "compiled, ms", "ratio to dense"]
    return markdown([*header, "peak MiB"], rows)


def score_lr() -> str:
    rows = read("score-lr")
    return markdown(list(rows[0]), [[str(value) for value in row.values()] for row in rows])


def throughput() -> str:
    results = read("throughput")
    rows = [[n, *(f"{v:,.2f}" for v in list(r.values())[:2])] for n, r in results.items()]
    table = markdown(["", "images a second", "against the usual way"], rows)
    ratio = results["input alone"]["against what the network consumes"]
    return f"{table}\n\nThe input alone is {ratio:,.0f} times as fast as the fastest training."


def cifar_curve() -> str:
    content = read("cifar_curve")
    rows = [
        [str(m["epoch"]), f"{m['loss']:.3f}", f"{100 * m['validation_accuracy']:.2f} %"]
        for m in content["metrics"]
    ]
    table = markdown(["epoch", "training loss", "validation accuracy"], rows)
    return f"{table}\n\nTest accuracy at the end: {100 * content['test_accuracy']:.2f} %."


def sweeps() -> str:
    rows = [
        [part, name, f"{value:.2f}" if isinstance(value, float) else str(value)]
        for part, numbers in read("sweeps").items()
        for name, value in numbers.items()
    ]
    return markdown(["part", "what", "measured"], rows)


def reliability() -> str:
    parts = read("reliability")
    rows = [
        [
            title,
            *(str(p[name]) for name in ("interruptions", "runs", "files")),
            str(len(p["problems"])),
            f"{p['seconds']:.0f}",
            p["commit"][:10],
        ]
        for title, p in parts.items()
    ]
    header = ["what", "times", "runs compared", "files compared", "differences", "seconds"]
    made = dict.fromkeys(f"{p['machine']}, seed {p['seed']}" for p in parts.values())
    return f"{markdown([*header, 'commit'], rows)}\n\n{'; '.join(made)}."


def reproduced(name: str) -> str:
    """What `prunus reproduce` found: ours beside the paper's, and the plots."""
    content = read(name)
    table = pairs_table(content["pairs"])
    dense = [f"{100 * d['accuracy']:.2f} % ({d['task']})" for d in content["dense"]]
    parts = [markdown(table.header, table.rows), f"Dense networks: {', '.join(dense)}."]
    for task in dict.fromkeys(point["task"] for point in content["points"]):
        plain = re.sub(r"[^\w.-]+", "-", task)
        parts.append(f"![Accuracy against density, {task}](images/{name}-{plain}.svg)")
    return "\n\n".join(parts)


def budget_growth() -> str:
    """What a budget costs as networks grow."""
    content = read("budget_growth")
    names = ("shift", "shift by sorting", "spread", "spread by sorting", "cut", "cut by sorting")
    rows = [
        [
            f"{int(weights):,}",
            *(f"{r[name]:.2f}" if name in r else "" for name in names),
            f"{max(r['shift MiB'], r['cut MiB']):.0f}",
        ]
        for weights, r in content["results"].items()
    ]
    machine = content["machine"]
    about = f"{machine['threads']} threads; load of the machine at the end: {machine['load']:.0f}."
    return f"{markdown(['weights', *(f'{n}, s' for n in names), 'MiB'], rows)}\n\n{about}"


def penalty_cost() -> str:
    rows = [
        [
            f"{run['penalty']:g}",
            run["cost"],
            *(f"{100 * run[name]:.2f} %" for name in ("kept_weights", "kept_macs")),
            f"{run['images_per_second']:,.0f}",
            f"{100 * run['test_accuracy']:.2f} %",
        ]
        for run in read("penalty_cost")
    ]
    header = ["penalty", "counted in", "weights kept", "multiply-adds kept", "images/s"]
    return markdown([*header, "test accuracy"], rows)


# Deployed networks


def crossover() -> str:
    lines = [
        [
            row["isa"],
            row["way"],
            f"{row['layers']}",
            f"{row['crossover']:.2f}",
            f"{row['gain']:.2f}",
        ]
        for row in read("crossover")["medians"]
    ]
    return markdown(["instructions", "vectors", "layers", "crossover", "gain when dense"], lines)


def _random_masks() -> dict[tuple[str, int], dict[str, Any]]:
    """Rows by network and batch, then by mask."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for row in read("deploy")["rows"]:
        if row["mask"].endswith("%"):
            found.setdefault((row["network"], row["batch"]), {})[row["mask"]] = row
    return found


def deploy_speed() -> str:
    """Times of dense ONNX Runtime over those of the sparse runtime, by random mask."""
    places = _random_masks()
    masks = list(next(iter(places.values())))
    rows = [
        [*map(str, place), *(f"{here[mask]['speedup']:.1f}" for mask in masks)]
        for place, here in places.items()
    ]
    return markdown(["network", "batch", *masks], rows)


def deploy_engines() -> str:
    """Times of dense ONNX Runtime over those of other engines that ran the dense network."""
    dense = {
        place: next(iter(here.values()))["dense_seconds"] for place, here in _random_masks().items()
    }
    others = [name for name in next(iter(dense.values())) if name != "onnxruntime"]
    rows = [
        [*map(str, place), *(f"{seconds['onnxruntime'] / seconds[name]:.2f}" for name in others)]
        for place, seconds in dense.items()
    ]
    return markdown(["network", "batch", *others], rows)


def deploy_learned() -> str:
    """The same for masks that were learned."""
    rows = [
        [
            row["network"],
            row["mask"],
            f"{100 * row['kept_weights']:.1f} %",
            f"{100 * row['kept_macs']:.1f} %",
            str(row["batch"]),
            f"{row['speedup']:.1f}",
        ]
        for row in read("deploy")["rows"]
        if not row["mask"].endswith("%")
    ]
    header = ["network", "mask", "weights kept", "multiply-adds kept", "batch", "speed"]
    return markdown(header, rows)


def deploy_example() -> str:
    """Each network in four forms: accuracy, speed and size."""
    rows = []
    for found in read("deploy-example"):
        for way, numbers in found["rows"].items():
            form = "deployed" if way.endswith("deployed") else "dense"
            speeds = [f"{value:,.0f}" for value in numbers["images_per_second"].values()]
            accuracy = f"{100 * numbers['accuracy']:.2f} %"
            size = f"{found['bytes'][form] / 1000:,.0f}"
            rows.append([found["network"], way, accuracy, *speeds, size])
    header = ["network", "", "test accuracy", "images/s, batch 1", "images/s, batch 128", "kB"]
    return markdown(header, rows)


_DENSE, _DEPLOYED = "dense, ONNX Runtime", "sparse, deployed"


def deploy_headline() -> str:
    """What deploying gains over the fastest way to run the dense network."""
    rows = []
    for found in read("deploy-example"):
        ways, sizes = found["rows"], found["bytes"]
        dense, small = (ways[way]["images_per_second"] for way in (_DENSE, _DEPLOYED))
        faster = [f"{small[batch] / dense[batch]:.1f} times" for batch in dense]
        smaller = f"{sizes['dense'] / sizes['deployed']:.0f} times"
        accuracies = [f"{100 * ways[way]['accuracy']:.1f} %" for way in (_DENSE, _DEPLOYED)]
        rows.append([found["network"], *accuracies, *faster, smaller])
    header = ["network", "accuracy, dense", "sparse", "faster, batch 1", "batch 128", "smaller"]
    return markdown(header, rows)


def deploy_example_notes() -> str:
    """What was kept, and how exact the deployed networks are."""
    return "\n\n".join(
        f"{found['network']} kept {100 * found['kept_weights']:.1f} % of its weights and "
        f"{100 * found['kept_macs']:.1f} % of its multiply-adds; deployed, it differs from the "
        f"sparse network in PyTorch by at most {found['max_difference']:.1e}."
        for found in read("deploy-example")
    )


def compared(table: Callable[..., methods.Table], *kind: str) -> Callable[[], str]:
    return lambda: markdown(*table(read("methods-cpu"), *kind))


def measured(table: Callable[..., methods.Table], name: str) -> Callable[[], str]:
    file = ROOT / "results" / f"{name}.json"
    return lambda: markdown(*table(read_report(file).data.records))


def by_density(name: str) -> str:
    """A row for each method and a column for each density, and what that says."""
    comparison = compared_in(name)
    table, says = density_table(comparison), " ".join([finding(comparison), *details(comparison)])
    return f"{markdown(table.header, table.rows)}\n\n{says}"


def trials() -> str:
    """Every tuning trial, with what it was chosen by."""
    table = raw_table([compared_in("tuning")])
    columns = [table.header.index(c) for c in ("method", "settings", "validation", "test")]
    rows = [[row[c] for c in columns] for row in table.rows]
    return markdown([table.header[c] for c in columns], rows)


def by_method(name: str) -> str:
    """Every subnetwork: what it keeps of weights and of work, and how good that is."""
    table = points_table(compared_in(name), macs=True)
    return markdown(table.header, table.rows)


def output(name: str) -> Callable[[], str]:
    """A command and what it printed."""

    def block() -> str:
        shown = read("outputs")[name]
        return f"```text\n$ prunus {shown['command']}\n{shown['output']}\n```"

    return block


TABLES: dict[str, Callable[[], str]] = {
    "demo": demo,
    "demo-finding": demo_finding,
    "gate-overhead": gate_overhead,
    "mask-scale": measured(cs_tables.mask_scale, "mask-scale"),
    "score-lr": score_lr,
    "headline": lambda: by_density("headline"),
    "headline-sizes": lambda: by_method("headline"),
    "tuning": trials,
    "comparison": lambda: by_density("comparison"),
    "comparison-sizes": lambda: by_method("comparison"),
    "score-rules": lambda: markdown(*cs_tables.score_rules(read("score-rates"))),
    "settling": lambda: markdown(*cs_tables.settling(read("settling"))),
    "score-variants": lambda: markdown(*cs_tables.score_variants(read("score-rates"))),
    "budget-rounds": measured(cs_tables.budget_rounds, "budget-rounds"),
    "throughput": throughput,
    "cifar-curve": cifar_curve,
    "sweeps": sweeps,
    "reliability": reliability,
    "budget-growth": budget_growth,
    "penalty-cost": penalty_cost,
    "crossover": crossover,
    "deploy-speed": deploy_speed,
    "deploy-engines": deploy_engines,
    "deploy-learned": deploy_learned,
    "deploy-example": deploy_example,
    "deploy-headline": deploy_headline,
    "deploy-example-notes": deploy_example_notes,
    "methods-fine-tuned": compared(methods.accuracies, "fine_tuned"),
    "methods-retrained": compared(methods.accuracies, "retrained"),
    "methods-found": compared(methods.accuracies, "searched"),
    "methods-lead": compared(methods.lead, "fine_tuned"),
    "methods-lead-retrained": compared(methods.lead, "retrained"),
    "methods-dense": lambda: methods.dense(read("methods-cpu")),
    "budget-designs": compared(methods.designs),
    "pretrained": lambda: markdown(*integrations.pretrained(read("pretrained"))),
    "gpt": lambda: markdown(*integrations.gpt(read("gpt"))),
    "gpt-lead": lambda: markdown(*integrations.gpt_lead(read("gpt"))),
    "gpt-tuning": lambda: markdown(*integrations.gpt_tuning(read("gpt"))),
    "table1-cpu": lambda: reproduced("table1-cpu"),
    "table2-cpu": lambda: reproduced("table2-cpu"),
    **{f"output-{name}": output(name) for page in outputs.PAGES.values() for name in page},
}


def rendered(text: str) -> str:
    """The page with every table as its results file has it."""
    return REGION.sub(lambda m: f"{m[1]}{TABLES[m[2]]()}\n{m[3]}", text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = []
    for page in pages():
        before = page.read_text()
        after = rendered(before)
        if after != before:
            stale.append(str(page.relative_to(ROOT)))
            if not check:
                write_atomically(page, after)
    if not check:
        for name in PICTURES:
            comparison = compared_in(name)
            chart = metric_against_density(comparison, series_order([comparison]))
            # A white ground, because readers of the README may have a dark one; and room on the
            # right, because their fonts may be wider than those that the labels are measured with.
            chart = chart.configure(
                background="white", padding={"left": 5, "top": 5, "right": 60, "bottom": 5}
            )
            chart.save(str(ROOT / f"docs/images/{name}.svg"))
    print("out of date:" if check else "changed:", ", ".join(stale) or "none")
    sys.exit(check and bool(stale))


if __name__ == "__main__":
    main()
