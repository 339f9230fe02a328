"""Methods without a target density to a wanted one, by bisection over whole runs."""

import math
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from prunus import SettingError
from prunus.cli.show import show_bisection
from prunus.methods import METHODS, Governed, describe_settings
from prunus.runs.results import read_results
from prunus.sweeps.bisection import Trial, UnreachedError, bisect_runs, find_setting
from prunus.tables import percent

ADDED = Governed("mask_init", few=-0.3, many=0.1)
MULTIPLIED = Governed("penalty", few=1e-2, many=1e-4, logarithmic=True)


def noting(density_of, asked):
    """Densities by a formula; `asked` gets the values of each step."""

    def densities(values):
        asked.append(list(values))
        return [density_of(value) for value in values]

    return densities


def test_a_setting_has_values_at_positions():
    assert [ADDED.value(at) for at in (0, 0.5, 1, 2)] == [-0.3, -0.1, 0.1, 0.5]
    assert [MULTIPLIED.value(at) for at in (-1, 0, 0.5, 1)] == [1.0, 0.01, 0.001, 0.0001]
    assert MULTIPLIED.value(0.25) == 0.003162, "four digits"
    for governed in (ADDED, MULTIPLIED):
        assert governed.position(governed.value(0.3)) == pytest.approx(0.3, abs=1e-3)


def test_interpolates_the_logarithm_of_the_density():
    asked = []
    density_of = noting(lambda penalty: 1e-4 / penalty, asked)  # a line in these coordinates
    found = find_setting(MULTIPLIED, density_of, 0.05)
    assert asked == [[0.01, 0.0001], [0.002]]
    assert found.best == Trial(0.002, 0.05) and found.setting == "penalty"
    assert [trial.value for trial in found.trials] == [0.01, 0.002, 0.0001], "fewest kept first"
    assert found.error == pytest.approx(0) and found.near_enough


def test_goes_outwards_along_the_line_or_to_twice_the_width():
    asked = []
    find_setting(MULTIPLIED, noting(lambda penalty: 1e-4 / penalty, asked), 0.0025)
    assert asked == [[0.01, 0.0001], [0.04]]
    asked.clear()
    # nothing is known of a slope that is not there
    find_setting(ADDED, noting(lambda s0: 0.9 if s0 > -0.7 else 0.1, asked), 0.1)
    assert asked == [[-0.3, 0.1], [-0.7]]


def test_halves_where_the_line_leads_nowhere():
    asked = []
    # of 0.01, 0.6 and then 0.58, the line through the last two meets 0.4 below the first
    density_of = noting({-0.3: 0.01, 0.1: 0.6, 0.06039: 0.58, -0.1198: 0.4}.get, asked)
    found = find_setting(ADDED, density_of, 0.4)
    assert asked == [[-0.3, 0.1], [0.06039], [-0.1198]] and found.best.value == -0.1198


def test_several_at_once_share_out_the_interval():
    asked = []
    find_setting(
        ADDED, noting(lambda s0: 0.5 + s0, asked), 0.45, tolerance=0.001, at_once=3, max_runs=6
    )
    assert asked[0] == pytest.approx([-0.3, -0.1, 0.1])
    assert len(asked[1]) == 3 and all(-0.1 < s0 < 0.1 for s0 in asked[1])
    asked.clear()
    find_setting(ADDED, noting(lambda s0: (2.1 + s0) / 5, asked), 0.3, at_once=3, max_runs=6)
    assert -0.7 in asked[1], "outwards as well"


@given(
    governed=st.sampled_from([ADDED, MULTIPLIED]),
    steepness=st.floats(1, 20),
    middle=st.floats(-1.5, 2.5),
    target=st.floats(0.01, 0.9),
    at_once=st.integers(1, 4),
)
def test_finds_every_target_of_a_growing_density(governed, steepness, middle, target, at_once):
    def densities(values):
        return [1 / (1 + math.exp(-steepness * (governed.position(v) - middle))) for v in values]

    fewest, most = densities([governed.value(-4), governed.value(5)])
    assume(fewest <= target <= most)
    found = find_setting(governed, densities, target, at_once=at_once, max_runs=15 * at_once)
    assert found.near_enough
    assert all(-4.01 < governed.position(trial.value) < 5.01 for trial in found.trials)


@given(st.lists(st.floats(0.0, 1.0), min_size=40, max_size=40), st.integers(1, 3))
def test_ends_whatever_the_runs_do(densities, at_once):
    values = iter(densities)
    try:
        found = find_setting(
            ADDED, lambda asked: [next(values) for _ in asked], 0.3, max_runs=10, at_once=at_once
        )
    except UnreachedError as error:
        assert "no mask_init reaches" in str(error)
    else:
        assert found.near_enough or 2 <= len(found.trials) <= 12


def test_a_jump_ends_at_the_last_digit():
    found = find_setting(
        ADDED, lambda asked: [0.001 if s0 < -0.05 else 0.9 for s0 in asked], 0.3, max_runs=200
    )
    assert not found.near_enough and len(found.trials) < 100


@pytest.mark.parametrize(
    ("governed", "density", "message"),
    [
        (ADDED, 0.5, "no mask_init reaches target_density=0.1: mask_init=-1.9 still ends at 0.5"),
        (MULTIPLIED, 0.0, "no penalty reaches .*=0.1: penalty=1e-12 still ends at 0. Use more"),
    ],
)
def test_out_of_reach_is_an_error(governed, density, message):
    with pytest.raises(UnreachedError, match=message):
        find_setting(governed, lambda values: [density for _ in values], 0.1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target_density": 0.0}, "target_density=0.0"),
        ({"target_density": 0.1, "tolerance": 0}, "tolerance=0: it must be a positive number"),
        ({"target_density": 0.1, "at_once": 0}, "at_once=0"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(SettingError, match=message):
        find_setting(ADDED, lambda values: values, **arguments)


GOVERNED = {name: method.governed for name, method in METHODS.items() if method.governed}


@pytest.mark.parametrize("name", sorted(GOVERNED))
def test_what_governs_is_a_setting_of_the_method(name):
    setting = GOVERNED[name].setting
    assert setting in {declared.name for declared in describe_settings(METHODS[name])}


GIVEN = {
    "task": "digits/digits_convnet",
    "recipe": {"epochs": 3, "commit_epoch": 2, "batch_size": 20, "drops": []},
    "data": {"train_images": 200},
}


@pytest.mark.filterwarnings("ignore::prunus.PrunusWarning")
@pytest.mark.parametrize("name", sorted(GOVERNED))
def test_each_method_gets_to_a_density(tmp_path, name):
    given_settings = {**GIVEN, "out": str(tmp_path), "method": name}
    found, settings, results = bisect_runs("prune", given_settings, 0.3, tolerance=0.1)
    assert found.near_enough and abs(results.stages[-1].density / 0.3 - 1) <= 0.1
    assert settings.method[GOVERNED[name].setting] == found.best.value
    assert len(found.trials) <= 7, found


SEARCH = {**GIVEN, "recipe": {"epochs": 2, "batch_size": 20}, "rounds": 1, "rewind_epoch": 0}


def test_runs_are_resumed_and_not_repeated(tmp_path, capsys):
    given_settings = {**SEARCH, "out": str(tmp_path)}
    options = {"tolerance": 0.3, "max_runs": 5}
    found, settings, results = bisect_runs("search", given_settings, 0.3, **options)
    assert len(list(tmp_path.iterdir())) == len(found.trials)
    assert results.stages[-1].density == found.best.density
    assert results.stages[-1].network_density == found.best.network_density
    show_bisection(found)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["mask_init", "kept", "of", "network"] in rows
    best = found.best
    shown = [f"{best.value:g}", percent(best.density), percent(best.network_density)]
    assert shown in rows
    assert settings.method["mask_init"] == found.best.value
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("results.json")}
    again, _, _ = bisect_runs("search", given_settings, 0.3, **options)
    assert again == found
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("results.json")}
    assert read_results(settings.folder) == results


def test_runs_side_by_side_find_the_same(tmp_path):
    options = {"tolerance": 0.3, "max_runs": 5, "at_once": 2}
    alone, _, _ = bisect_runs("search", {**SEARCH, "out": str(tmp_path / "a")}, 0.3, **options)
    told = {}
    with ThreadPoolExecutor(2) as executor:
        given_settings = {**SEARCH, "out": str(tmp_path / "b")}
        found, settings, results = bisect_runs(
            "search",
            given_settings,
            0.3,
            executor=executor,
            tell=lambda name, trial: told.update({(name, trial.value): trial}),
            **options,
        )
    assert found == alone
    assert told == {("mask_init", trial.value): trial for trial in found.trials}
    assert results.stages[-1].density == found.best.density
    assert settings.method["mask_init"] == found.best.value


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("gmp", "gmp cannot be bisected: it ends at its target_density in one run, without"),
        ("imp", "imp cannot be bisected: no setting of it alone.*can: cs, iss, l0, str$"),
        ("seq-cs", "seq-cs cannot be bisected"),
        ({"mask_init": 0.1}, "leave method.mask_init out"),
        ({"target_density": 0.1}, "leave method.target_density out"),
        ({"name": "l0", "penalty": 1e-5}, "finds penalty by itself: leave method.penalty out"),
        ({"name": "str", "threshold_decay": 0.1}, "leave method.threshold_decay out"),
    ],
)
def test_only_what_governs_a_density_can_be_bisected(tmp_path, method, message):
    with pytest.raises(SettingError, match=message):
        bisect_runs("search", {**SEARCH, "out": str(tmp_path), "method": method}, 0.3)
    assert not list(tmp_path.iterdir())
