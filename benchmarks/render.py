"""Writes tables and plot of README.md and docs/ from the results files: no figure is typed.

A table stands between `<!-- results: NAME -->` and `<!-- end -->`. After a benchmark, run
`python benchmarks/render.py`; with `--check` it changes nothing and fails if one is out of date.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import deploy_table as deployed
import methods_table as methods
from keep_reproduced import picture_name
from prunus.demo.experiment import Result
from prunus.demo.output import demo_table, verdict
from prunus.report import charts
from prunus.report.beside import pairs_table
from prunus.report.summary import Group, summarise
from prunus_runtime.atomic import write_atomically

ROOT = Path(__file__).parent.parent
PAGES = (
    "README.md",
    "docs/benchmarks.md",
    "docs/demo.md",
    "docs/deploy.md",
    "docs/methods/budget.md",
    "docs/methods/comparison.md",
    "docs/sweeps.md",
    "docs/reproduce.md",
)
REGION = re.compile(r"(<!-- results: ([a-z0-9-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def read(name: str) -> Any:
    return json.loads((ROOT / "results" / f"{name}.json").read_text())


def demo_groups() -> list[Group]:
    return summarise([Result(**result) for result in read("demo")["results"]])


def demo() -> str:
    groups = demo_groups()
    table = demo_table(groups)
    rows = [
        [f"**{cell}**" if i in table.marked and cell else cell for cell in row]
        for i, row in enumerate(table.rows)
    ]
    return f"{markdown(table.header, rows)}\n\n{verdict(groups)}"


def gate_overhead() -> str:
    rows = [
        [network, variant, f"{r['ms']:.2f}", f"{r['ratio']:.3f}", f"{r['peak MiB']:.0f}"]
        for network, variants in read("gate_overhead")["results"].items()
        for variant, r in variants.items()
    ]
    return markdown(["network", "variant", "ms a step", "ratio to dense", "peak MiB"], rows)


def cs_defaults() -> str:
    rows = read("cs_defaults")
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


def methods_table(kind: str) -> str:
    return markdown(*methods.accuracies(read("methods-cpu"), kind))


def reproduced(name: str) -> str:
    """A recipe that `keep_reproduced.py` has kept: ours beside the paper's, and the plots."""
    content = read(name)
    table = pairs_table(content["pairs"])
    parts = [markdown(table.header, table.rows)]
    for task in dict.fromkeys(point["task"] for point in content["points"]):
        picture = picture_name(name, task)
        if (ROOT / "docs" / "images" / picture).exists():
            parts.append(f"![Accuracy against density, {task}](images/{picture})")
    return "\n\n".join(parts)


TABLES: dict[str, Callable[[], str]] = {
    "demo": demo,
    "gate-overhead": gate_overhead,
    "cs-defaults": cs_defaults,
    "throughput": throughput,
    "cifar-curve": cifar_curve,
    "sweeps": sweeps,
    "penalty-cost": lambda: markdown(*deployed.penalty_cost(read("penalty_cost"))),
    "deploy-speed": lambda: markdown(*deployed.speed(read("deploy"))),
    "deploy-engines": lambda: markdown(*deployed.engines(read("deploy"))),
    "deploy-learned": lambda: markdown(*deployed.learned(read("deploy"))),
    "deploy-example": lambda: markdown(*deployed.example(read("deploy-example"))),
    "deploy-example-notes": lambda: deployed.example_notes(read("deploy-example")),
    "methods-fine-tuned": lambda: methods_table("fine_tuned"),
    "methods-retrained": lambda: methods_table("retrained"),
    "methods-found": lambda: methods_table("searched"),
    "methods-lead": lambda: markdown(*methods.lead(read("methods-cpu"), "fine_tuned")),
    "methods-lead-retrained": lambda: markdown(*methods.lead(read("methods-cpu"), "retrained")),
    "methods-short": lambda: markdown(*methods.short(read("methods-cpu"))),
    "methods-dense": lambda: methods.dense(read("methods-cpu")),
    "table1-cpu": lambda: reproduced("table1-cpu"),
    "table2-cpu": lambda: reproduced("table2-cpu"),
    "budget-designs": lambda: markdown(*methods.designs(read("methods-cpu"))),
}


def rendered(text: str) -> str:
    """The page with every table as its results file has it."""
    return REGION.sub(lambda m: f"{m[1]}{_table(m[2])}\n{m[3]}", text)


def _table(name: str) -> str:
    try:
        return TABLES[name]()
    except FileNotFoundError:
        return "(Not run yet.)"


def pictures() -> None:
    """The plots of README and docs."""
    comparison = read("methods-cpu")
    plots = {
        "demo": charts.accuracy_against_density(demo_groups()),
        "methods-fine-tuned": methods.plot(comparison, "fine_tuned"),
        "methods-retrained": methods.plot(comparison, "retrained"),
    }
    folder = ROOT / "docs" / "images"
    folder.mkdir(exist_ok=True)
    for name, chart in plots.items():
        # A white ground, because readers of the README may have a dark one.
        chart.configure(background="white").save(str(folder / f"{name}.svg"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    stale = []
    if not check:
        pictures()
    for page in PAGES:
        before = (ROOT / page).read_text()
        after = rendered(before)
        if after != before:
            stale.append(page)
            if not check:
                write_atomically(ROOT / page, after)
    print("changed:" if not check else "out of date:", ", ".join(stale) or "none")
    sys.exit(check and bool(stale))


if __name__ == "__main__":
    main()
