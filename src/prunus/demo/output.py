"""What the demo shows: a table, a verdict in words, and a page with plots."""

from __future__ import annotations

from collections.abc import Sequence

from prunus.demo.experiment import Result
from prunus.demo.settings import Settings
from prunus.report import charts
from prunus.report.page import Figure, Table, render
from prunus.report.summary import Group, sparsest_matching, summarise
from prunus.version import __version__


def demo_table(groups: Sequence[Group]) -> Table:
    """One row for each method and mask init; matching subnetworks are marked."""
    header = ["method", "s0", "kept %", "searched %", "re-trained %", "epochs", "matching"]
    rows = [
        [
            charts.LABELS[g.method],
            "" if g.mask_init is None else f"{g.mask_init:g}",
            str(g.density),
            "" if g.search_accuracy is None else str(g.search_accuracy),
            str(g.accuracy),
            str(g.epochs),
            "" if g.method == "dense" else "yes" if g.matching else "no",
        ]
        for g in groups
    ]
    marked = {i for i, g in enumerate(groups) if g.matching and g.method != "dense"}
    return Table(header, rows, frozenset(marked))


def verdict(groups: Sequence[Group]) -> str:
    """What the numbers say, in two or three sentences."""
    dense = next(g for g in groups if g.method == "dense")
    found = {method: sparsest_matching(groups, method) for method in ("cs", "imp", "random")}
    sentences = [f"The dense network reaches {100 * dense.accuracy.mean:.2f} %."]
    for method, group in found.items():
        name = charts.LABELS[method]
        if group is None:
            sentences.append(f"No {name} subnetwork matches it.")
        else:
            sentences.append(
                f"The sparsest {name} subnetwork that matches it keeps "
                f"{100 * group.density.mean:.2f} % of the weights and reaches "
                f"{100 * group.accuracy.mean:.2f} %."
            )
    return " ".join(sentences)


def demo_page(results: Sequence[Result], settings: Settings) -> str:
    """The whole HTML page."""
    groups = summarise(results)
    introduction = (
        f"A small ConvNet on scikit-learn's digits, {len(settings.seeds)} seeds. Each search takes "
        f"{settings.rounds} rounds of {settings.epochs} epochs; each subnetwork is then re-trained "
        f"alone, from the weights after epoch {settings.rewind_epoch} to epoch {settings.epochs}. "
        "IMP and the random masks get the density that CS found, the "
        "random masks layer by layer. Accuracies are on test images, with the binary mask; ± is "
        f"the standard deviation over seeds. {verdict(groups)}"
    )
    figures = [
        Figure(
            "Accuracy against density",
            "Subnetworks re-trained alone. Above the dashed line, the small network inside is at "
            "least as good as the whole.",
            charts.accuracy_against_density(groups),
        ),
        Figure(
            "What each layer keeps",
            "CS and IMP spend the same number of weights differently.",
            charts.layer_densities(results),
        ),
        Figure(
            "Re-training",
            "Test accuracy after each epoch; the dense network trains from scratch.",
            charts.training_curves(results),
        ),
        Figure(
            "Searching",
            "Weights kept by the hard mask. CS begins each round with all gates half open and "
            "closed in sign, so its hard density rises from zero as scores cross it; IMP removes a "
            "fixed fraction at the end of each round.",
            charts.search_curves(results),
        ),
    ]
    return render(
        "The small network inside the big one",
        introduction,
        demo_table(groups),
        figures,
        f"Made by prunus {__version__} demo.",
    )
