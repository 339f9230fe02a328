"""Plain CS to a density, by bisection over whole runs."""

import math
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunus import SettingError
from prunus.cli.show import show_bisection
from prunus.runs.results import read_results
from prunus.sweeps.bisection import Trial, bisect_runs, find_mask_init
from prunus.tables import percent


def curve(steepness, middle):
    """A density that grows with the mask init."""

    def densities(inits):
        return [1 / (1 + math.exp(-steepness * (s0 - middle))) for s0 in inits]

    return densities


def test_by_hand():
    asked = []

    def densities(inits):
        asked.append(list(inits))
        return [0.5 + s0 for s0 in inits]

    found = find_mask_init(densities, 0.45, low=-0.4, high=0.4, tolerance=0.12)
    # 0.5 is 11 % above 0.45: near enough
    assert asked == [[-0.4, 0.4], [0.0]]
    assert found.best == Trial(0.0, 0.5)
    assert [trial.mask_init for trial in found.trials] == [-0.4, 0.0, 0.4]
    assert found.error == pytest.approx(1 / 9)


def test_several_at_once_divide_the_interval():
    asked = []

    def densities(inits):
        asked.append(list(inits))
        return [0.5 + s0 for s0 in inits]

    find_mask_init(densities, 0.45, low=-0.4, high=0.4, tolerance=0.02, at_once=3)
    assert asked[0] == [-0.4, 0.0, 0.4]
    assert asked[1] == pytest.approx([-0.3, -0.2, -0.1])
    assert asked[2] == pytest.approx([-0.075, -0.05, -0.025])
    assert len(asked) == 3


def test_several_at_once_go_outwards():
    asked = []

    def densities(inits):
        asked.append(list(inits))
        return [(2.1 + s0) / 5 for s0 in inits]

    find_mask_init(densities, 0.3, low=-0.2, high=0.2, tolerance=0.01, at_once=3)
    assert asked[0] == [-0.2, 0.0, 0.2]
    assert asked[1] == pytest.approx([-0.5, -1.0, -2.0])
    assert asked[2] == pytest.approx([-0.875, -0.75, -0.625])


@given(
    steepness=st.floats(3, 60),
    middle=st.floats(-0.5, 0.5),
    target=st.floats(0.02, 0.9),
    at_once=st.integers(1, 4),
)
def test_finds_every_target_of_a_growing_density(steepness, middle, target, at_once):
    found = find_mask_init(curve(steepness, middle), target, at_once=at_once, max_runs=60)
    assert found.error <= 0.05
    assert all(-2 <= trial.mask_init <= 2 for trial in found.trials)


@given(st.lists(st.floats(0.001, 1.0), min_size=40, max_size=40))
def test_ends_whatever_the_runs_do(densities):
    values = iter(densities)
    try:
        found = find_mask_init(lambda inits: [next(values) for _ in inits], 0.3, max_runs=10)
    except SettingError as error:
        assert "no mask init reaches" in str(error)
    else:
        assert found.error <= 0.05 or len(found.trials) >= 10


def test_out_of_reach_is_an_error():
    with pytest.raises(SettingError, match=r"mask_init=-2 still ends at 0.5.*CS with a budget"):
        find_mask_init(lambda inits: [0.5 for _ in inits], 0.1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target_density": 0.0}, "target_density=0.0"),
        ({"target_density": 0.1, "low": 1.0}, "low=1 is not below high=0.3"),
        ({"target_density": 0.1, "at_once": 0}, "at_once=0"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(SettingError, match=message):
        find_mask_init(curve(10, 0), **arguments)


GIVEN = {
    "task": "digits/digits_convnet",
    "recipe": {"epochs": 2, "batch_size": 20},
    "data": {"train_images": 200},
    "rounds": 1,
    "rewind_epoch": 0,
}


def test_runs_are_resumed_and_not_repeated(tmp_path, capsys):
    given_settings = {**GIVEN, "out": str(tmp_path)}
    options = {"low": -0.1, "high": 0.1, "tolerance": 0.3, "max_runs": 5}
    found, settings, results = bisect_runs("search", given_settings, 0.3, **options)
    assert len(list(tmp_path.iterdir())) == len(found.trials)
    assert results.stages[-1].density == found.best.density
    assert results.stages[-1].network_density == found.best.network_density
    show_bisection(found)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["mask", "init", "kept", "of", "network"] in rows
    best = found.best
    shown = [f"{best.mask_init:g}", percent(best.density), percent(best.network_density)]
    assert shown in rows
    assert settings.method["mask_init"] == found.best.mask_init
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("results.json")}
    again, _, _ = bisect_runs("search", given_settings, 0.3, **options)
    assert again == found
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("results.json")}
    assert read_results(settings.folder) == results


def test_runs_side_by_side_find_the_same(tmp_path):
    options = {"low": -0.1, "high": 0.1, "tolerance": 0.3, "max_runs": 5, "at_once": 2}
    alone, _, _ = bisect_runs("search", {**GIVEN, "out": str(tmp_path / "a")}, 0.3, **options)
    told = []
    with ThreadPoolExecutor(2) as executor:
        given_settings = {**GIVEN, "out": str(tmp_path / "b")}
        found, settings, results = bisect_runs(
            "search", given_settings, 0.3, executor=executor, tell=told.append, **options
        )
    assert found == alone
    assert sorted(told, key=lambda trial: trial.mask_init) == list(found.trials)
    assert results.stages[-1].density == found.best.density
    assert settings.method["mask_init"] == found.best.mask_init


@pytest.mark.parametrize(
    ("method", "message"),
    [("imp", "over the mask init of cs"), ({"mask_init": 0.1}, "leave method.mask_init out")],
)
def test_only_plain_cs_can_be_bisected(tmp_path, method, message):
    with pytest.raises(SettingError, match=message):
        bisect_runs("search", {**GIVEN, "out": str(tmp_path), "method": method}, 0.3)
