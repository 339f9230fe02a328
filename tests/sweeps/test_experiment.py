"""Experiment files: what they may say, grids, scales, and errors that name the place."""

import math
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from prunus import SettingError
from prunus.runs.settings_file import nested
from prunus.sweeps.experiment import Experiment, read_experiment
from prunus.sweeps.grid import combinations, shown

TINY = {"name": "tiny", "tasks": "digits/lenet", "rows": [{"method": "cs"}]}


def test_grid_by_hand():
    assert list(combinations({})) == [{}]
    assert list(combinations({"a": [1, 2], "m.b, c": [[3, 4], [5, 6]]})) == [
        {"a": 1, "m.b": 3, "c": 4},
        {"a": 1, "m.b": 5, "c": 6},
        {"a": 2, "m.b": 3, "c": 4},
        {"a": 2, "m.b": 5, "c": 6},
    ]
    point = {"method.mask_init": 0.1, "method.penalty": 0, "rounds": 3}
    assert nested(point) == {"method": {"mask_init": 0.1, "penalty": 0}, "rounds": 3}
    assert shown(point) == {"mask_init": 0.1, "penalty": 0, "rounds": 3}


@given(st.dictionaries(st.sampled_from("abcd"), st.lists(st.integers(), min_size=1, max_size=4)))
def test_grid_has_every_combination(grid):
    found = list(combinations(grid))
    assert len(found) == math.prod(len(values) for values in grid.values())
    for point in found:
        assert point.keys() == grid.keys()
        assert all(point[name] in grid[name] for name in grid)


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({"method..a": [1]}, "'method..a' is not the name of a setting"),
        ({"a, b": [[1, 2], [3]]}, r"lists of 2 values that go together, not \[3\]"),
        ({"a, b": ["xy"]}, "go together, not 'xy'"),
    ],
)
def test_bad_grids(grid, message):
    with pytest.raises(SettingError, match=message):
        list(combinations(grid))


def test_short_forms():
    experiment = Experiment.parse(
        {
            **TINY,
            "rows": [
                {"method": "cs", "then": "retrain"},
                {"row": "fine", "command": "prune", "method": {"name": "gmp"}},
                {"command": "train", "then": {"retrain": "last", "task": "digits/mlp"}},
            ],
        }
    )
    assert experiment.tasks == {"digits/lenet": {}}
    cs, fine, dense = experiment.rows
    assert (cs.name, cs.then[0].retrain) == ("cs", "all")
    assert (fine.name, fine.method_name) == ("fine", "gmp")
    assert (dense.name, dense.then[0].task) == ("dense", "digits/mlp")


def test_scales_are_merged_over_the_experiment():
    experiment = Experiment.parse(
        {
            **TINY,
            "settings": {"recipe": {"epochs": 85, "lr": 0.1}},
            "rows": [{"method": "cs", "grid": {"method.mask_init": [0, 1, 2], "rounds": [5]}}],
            "scales": {
                "smoke": {
                    "seeds": [7],
                    "settings": {"recipe": {"epochs": 2}},
                    "rows": {"cs": {"grid": {"method.mask_init": [0]}, "then": "retrain"}},
                }
            },
        }
    )
    smoke = experiment.at_scale("smoke")
    assert smoke.settings == {"recipe": {"epochs": 2, "lr": 0.1}}
    assert smoke.seeds == (7,) and smoke.tasks == experiment.tasks
    assert smoke.rows[0].grid == {"method.mask_init": [0], "rounds": [5]}
    assert len(smoke.rows[0].then) == 1
    assert experiment.at_scale(None) is experiment
    with pytest.raises(SettingError, match=r"no scale named 'smok'. Did you mean 'smoke'"):
        experiment.at_scale("smok")
    without = experiment.model_copy(update={"scales": {}})
    with pytest.raises(SettingError, match=r"no scale named 'smoke', nor any other$"):
        without.at_scale("smoke")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"taks": "digits/lenet"}, "no setting named 'taks'. Did you mean 'tasks'"),
        ({"rows": [{"metod": "cs"}]}, "below 'rows.0' named 'metod'. Did you mean 'method'"),
        (
            {"rows": [{"then": [{"retain": "all"}]}]},
            "below 'rows.0.then.0' named 'retain'. Did you mean 'retrain'",
        ),
        ({"rows": [{"command": "retrain"}]}, "rows.0.command='retrain'"),
        ({"rows": [{"then": 5}]}, "rows.0.then=5"),
        ({"tasks": [{"digits/lenet": {}}]}, "tasks="),
        ({"rows": []}, r"rows=\[\]: there has to be at least 1 item"),
        ({"rows": {"cs": {}}}, "rows=.*: this has to be a list"),
        ({"seeds": 3}, "seeds=3: this has to be a list"),
        (
            {"rows": [{"then": "prune"}]},
            "rows.0.then.0='prune': this has to be 'name: value' settin",
        ),
        ({"seeds": [-1]}, "seeds.0=-1"),
        ({"name": "a/b"}, "name='a/b'"),
        ({"scales": {"smoke": {"setting": {}}}}, "below 'scales.smoke' named 'setting'"),
        ({"scales": {"smoke": {"rows": {"sc": {}}}}}, "row .* named 'sc'. Did you mean 'cs'"),
        (
            {"scales": {"smoke": {"rows": {"cs": {"gird": {}}}}}},
            "below 'scales.smoke.rows.cs' named 'gird'. Did you mean 'grid'",
        ),
    ],
)
def test_errors_name_the_file_and_the_place(tmp_path, change, message):
    path = Path(tmp_path / "mine.yaml")
    path.write_text(yaml.safe_dump({**TINY, **change}))
    with pytest.raises(SettingError, match=message) as caught:
        read_experiment(path)
    assert str(path) in str(caught.value)


def test_a_misspelt_name_says_more_than_the_missing_one():
    content = {"name": "tiny", "tasks": "digits/lenet", "row": [{"method": "cs"}]}
    with pytest.raises(SettingError, match=r"no setting named 'row'\. Did you mean 'rows'\?"):
        Experiment.parse(content)
    with pytest.raises(SettingError, match="the setting 'rows' is missing"):
        Experiment.parse({"name": "tiny", "tasks": "digits/lenet"})
