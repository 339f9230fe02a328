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
import deploy_tables as deployed
import integrations_tables as integrations
import methods_tables as methods
import outputs
import score_tables

from prunus.files import write_atomically
from prunus.report.charts import WIDTH, series_order
from prunus.report.competition import competitions
from prunus.report.file import read_report
from prunus.report.findings import details, finding
from prunus.report.model import Comparison, comparisons
from prunus.report.paper import pairs_table
from prunus.report.pictures import pictures
from prunus.report.tables import Strong, density_table, points_table, raw_table

ROOT = Path(__file__).parent.parent
REGION = re.compile(r"(<!-- results: ([a-z0-9-]+) -->\n).*?(<!-- end -->)", re.DOTALL)

PICTURES = ("headline", "demo", "comparison")
"""Results files whose first plot is drawn, as docs/images/NAME.svg."""


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


def throughput() -> str:
    results = read("throughput")
    rows = [[n, *(f"{v:,.2f}" for v in list(r.values())[:2])] for n, r in results.items()]
    table = markdown(["", "images a second", "against the usual way"], rows)
    ratio = results["input alone"]["against what the network consumes"]
    return f"{table}\n\nThe input alone is {ratio:,.0f} times as fast as the fastest training."


def kept_memory() -> str:
    header = [
        "network",
        "pixels",
        "given back, ms",
        "kept, ms",
        "times as fast",
        "pages",
        "pages, kept",
    ]
    rows = [
        [
            r["network"],
            str(r["pixels"]),
            *(f"{r[way]['milliseconds']:.1f}" for way in ("given back", "kept")),
            f"{r['ratio']:.2f}",
            *(f"{r[way]['pages']:,.0f}" for way in ("given back", "kept")),
        ]
        for r in read("kept-memory")["results"]
    ]
    return markdown(header, rows)


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


def serving() -> str:
    found = read("serving")
    first = found["servers"][0]["rate"]
    rows = [
        [
            row["way"],
            f"{row['rate']:,.0f}",
            f"{row['rate'] / first:.1f}",
            *(f"{1e3 * row[name]:.0f}" for name in ("p50", "p99")),
            f"{1e6 * row['processor_seconds']:.0f}",
            f"{row['growth_mib']:.1f}",
            f"{row['refused'] + row['lost']:.0f}",
            f"{row['lost_at_the_end']:.0f}",
        ]
        for row in found["servers"]
    ]
    header = ["server", "requests/s", "times", "median ms", "99 % ms", "processor µs a request"]
    header += ["MiB more", "lost", "lost at SIGTERM"]
    made = (
        f"{found['network']} with {1 - found['sparsity']:.0%} of its weights, {found['clients']} "
        f"callers (`wrk`), one image a request, {found['repeats']} turns of {found['seconds']} "
        f"seconds (medians; what was lost in all of them); {found['machine']}."
    )
    return f"{markdown(header, rows)}\n\n{made}"


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


def deploy_table(table: Callable[[Any], Any], name: str, part: str = "rows") -> Callable[[], str]:
    """What renders one of the tables of deployed networks from a part of a results file."""
    return lambda: markdown(*table(read(name)[part]))


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


def differences(name: str) -> str:
    """By how much CS is ahead of each other method, at each density, in points."""
    rows = []
    held = competitions(compared_in(name))
    several = len({own.measure for own in held}) > 1
    for own in held:
        ours = own.competing["CS"].point.value
        for other, entry in own.competing.items():
            theirs = entry.point.value
            seeds = len(ours.values.keys() & theirs.values.keys())
            if other != "CS" and seeds > 1:
                ahead = ours.minus(theirs)
                shown = f"{100 * ahead.mean:+.2f}±{100 * ahead.error:.2f}"
                kept = f"{100 * own.target:g} %{f', {own.measure}' if several else ''}"
                rows.append([kept, other, str(seeds), shown])
    return markdown(["kept", "CS against", "seeds", "points ahead"], rows)


def trials() -> str:
    """Every tuning trial, with what it was chosen by."""
    table = raw_table([compared_in("tuning")])
    shown = ("method", "settings", "kept %", "validation", "test")
    columns = [table.header.index(column) for column in shown]
    rows = [[row[c] for c in columns] for row in table.rows]
    return markdown([table.header[c] for c in columns], rows)


def by_method(name: str) -> str:
    """Every subnetwork: what it keeps of weights and of work, and how good that is."""
    table = points_table(compared_in(name), sizes=True)
    return markdown(table.header, table.rows)


def output(name: str) -> Callable[[], str]:
    """A command and what it printed."""

    def block() -> str:
        shown = read("outputs")[name]
        return f"```text\n$ prunus {shown['command']}\n{shown['output']}\n```"

    return block


TABLES: dict[str, Callable[[], str]] = {
    "demo": demo,
    "demo-finding": lambda: finding(compared_in("demo")),
    "comparison-finding": lambda: finding(compared_in("comparison")),
    "gate-overhead": gate_overhead,
    "mask-scale": measured(cs_tables.mask_scale, "mask-scale"),
    "score-lr": measured(cs_tables.score_lr, "score-lr"),
    "headline": lambda: by_density("headline"),
    "headline-sizes": lambda: by_method("headline"),
    "headline-differences": lambda: differences("headline"),
    "comparison-differences": lambda: differences("comparison"),
    "tuning": trials,
    "comparison": lambda: by_density("comparison"),
    "comparison-sizes": lambda: by_method("comparison"),
    "score-rules": lambda: markdown(*score_tables.score_rules(read("score-rates"))),
    "cost-powers": lambda: markdown(*cs_tables.cost_powers(read("cost-powers"))),
    "settling": lambda: markdown(*cs_tables.settling(read("settling"))),
    "score-matrix": lambda: markdown(*score_tables.score_matrix(read("score-rates"))),
    "score-criterion": lambda: markdown(*score_tables.score_criterion(read("score-rates"))),
    "score-factors": lambda: markdown(*score_tables.score_factors(read("score-rates"))),
    "score-variants": lambda: markdown(*score_tables.score_variants(read("score-rates"))),
    "budget-rounds": measured(cs_tables.budget_rounds, "budget-rounds"),
    "throughput": throughput,
    "kept-memory": kept_memory,
    "sweeps": sweeps,
    "reliability": reliability,
    "budget-growth": budget_growth,
    "crossover": crossover,
    "deploy-speed": deploy_table(deployed.speed, "deploy"),
    "deploy-engines": deploy_table(deployed.engines, "deploy"),
    "transformers-speed": deploy_table(deployed.speed, "deploy-transformers"),
    "transformers-engines": deploy_table(deployed.engines, "deploy-transformers"),
    "transformers-exact": lambda: deployed.exact(read("deploy-transformers")["rows"]),
    "resnet20-speed": deploy_table(deployed.speed, "deploy-resnet20"),
    "resnet20-learned": deploy_table(deployed.learned, "deploy-resnet20"),
    "int8-layers": deploy_table(deployed.int8_layers, "int8", "layers"),
    "int8-networks": deploy_table(deployed.int8_networks, "int8", "networks"),
    "int8-runs": deploy_table(deployed.int8_runs, "int8", "runs"),
    "serving": serving,
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
    "table1-short": lambda: reproduced("table1-short"),
    "table2-short": lambda: reproduced("table2-short"),
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
            chart = pictures(comparison)[0].chart(series_order([comparison]), WIDTH)
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
