"""Selection rules and spreads, by hand."""

from prunus.demo.experiment import Result
from prunus.report.summary import Spread, sparsest_matching, summarise


def result(method: str, seed: int, init: float | None, density: float, accuracy: float) -> Result:
    return Result(method, seed, init, density, accuracy, None, 1)


RESULTS = [
    result("dense", 0, None, 1.0, 0.90),
    result("dense", 1, None, 1.0, 0.94),
    result("cs", 0, -0.1, 0.10, 0.91),
    result("cs", 1, -0.1, 0.12, 0.93),  # 0.92 on average: matches exactly
    result("cs", 0, -0.2, 0.05, 0.93),
    result("cs", 1, -0.2, 0.05, 0.90),  # 0.915: does not
    result("imp", 0, -0.1, 0.11, 0.80),
    result("imp", 1, -0.1, 0.11, 0.81),
]


def test_spread() -> None:
    assert Spread.of([0.1, 0.3]) == Spread(0.2, 0.02**0.5)
    assert Spread.of([0.5]).deviation == 0
    assert str(Spread(0.12345, 0.001)) == "12.35±0.10"


def test_groups_are_ordered_and_compared_with_the_dense_mean() -> None:
    groups = summarise(RESULTS)
    assert [(g.method, g.mask_init) for g in groups] == [
        ("dense", None), ("cs", -0.1), ("imp", -0.1), ("cs", -0.2),
    ]  # fmt: skip
    assert [g.matching for g in groups] == [True, True, False, False]


def test_sparsest_matching() -> None:
    found = sparsest_matching(summarise(RESULTS), "cs")
    assert found is not None and found.mask_init == -0.1
    assert sparsest_matching(summarise(RESULTS), "imp") is None
