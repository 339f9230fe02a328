"""Settings: where they come from, what is refused, and which of them make another run."""

from pathlib import Path

import pytest

from prunus import SettingError
from prunus.search import resolve
from prunus.search.settings_file import merge, overrides, read_settings
from prunus.tasks.registry import recipe_for


@pytest.mark.parametrize(
    ("command", "given", "message"),
    [
        ("train", {"sede": 1}, "no setting named 'sede'. Did you mean 'seed'"),
        ("train", {"rounds": 2}, "no setting named 'rounds'"),
        ("train", {"recipe": {"epoch": 1}}, "below 'recipe' named 'epoch'. Did you mean 'epochs'"),
        ("train", {"engine": {"precison": "bf16"}}, "below 'engine'.*Did you mean 'precision'"),
        ("train", {"data": {"imagesize": 8}}, "below 'data'.*Did you mean 'image_size'"),
        ("train", {"engine": {"precision": "fp8"}}, "engine.precision='fp8': Input should be"),
        ("train", {"data": {"image_size": 0}}, "data: image_size must be at least 1"),
        ("train", {"recipe": {"lr": -1}}, "recipe.lr=-1: Input should be greater than 0"),
        ("train", {"recipe": {"lr": "fast"}}, "recipe.lr='fast'"),
        ("train", {"recipe": {"epochs": 4, "commit_epoch": 4}}, "leaves none of 4 epochs"),
        ("train", {"recipe": {"name": "ticket"}}, "recipe named 'ticket'. Did you mean 'tickets'"),
        ("train", {"command": "search"}, "command='search': Input should be 'train'"),
        ("train", {"task": None}, "task=None"),
        ("train", {"task": "digits"}, "task='digits' is neither"),
        ("train", {"task": "digit/mlp"}, "data set named 'digit'. Did you mean 'digits'"),
        ("train", {"task": "digits/lenett"}, "network named 'lenett'. Did you mean 'lenet'"),
        ("train", {"trackers": ["tensorbord"]}, "trackers.0='tensorbord'"),
        ("search", {"method": {"name": "sc"}}, "method named 'sc'. Did you mean 'cs'"),
        ("search", {"method": {"maskinit": 0}}, "below 'method'.*Did you mean 'mask_init'"),
        ("search", {"method": {"mask_init": "low"}}, "method.mask_init='low'"),
        ("search", {"rounds": 0}, "rounds=0"),
        ("search", {"method": 3}, "method=3 is neither a name nor"),
        ("search", {"recipe": [1]}, "neither a name nor"),
        ("train", {"engine": {"devices": "x"}}, "engine.devices='x': .*integer.*; or: .*'auto'"),
        ("train", {"engine": 3}, "engine=3"),
        ("retrain", {"ticket": "absent"}, "cannot read the ticket absent"),
        ("retrain", {}, "the setting 'ticket' is missing"),
    ],
)
def test_bad_settings(settle, command, given, message):
    with pytest.raises(ValueError, match=message):
        settle(command, **given)


def test_recipes_by_name_and_in_proportion(settle):
    def recipe(command="train", **changes):
        return settle(command, recipe=changes)[0].recipe

    assert recipe().epochs == 12
    assert recipe(name="tickets") == settle("train", recipe="tickets")[0].recipe
    assert recipe(name="tickets").drops == (56, 71)
    assert recipe(epochs=24).drops == pytest.approx((24 * 56 / 85, 24 * 71 / 85))
    assert recipe(epochs=24, drops=[1]).drops == (1,)
    assert recipe("prune", name="pruning", epochs=20).commit_epoch == 16
    assert recipe("prune").commit_epoch == 9


@pytest.mark.parametrize(
    "other",
    [
        {"seed": 1},
        {"recipe": {"epochs": 3, "batch_size": 25}},
        {"engine": {"precision": "bf16"}},
        {"engine": {"accumulate": 2}},
        {"data": {"train_images": 101}},
        {"method": {"mask_init": -0.1}},
        {"method": {"name": "imp"}},
        {"task": "digits/lenet"},
        {"rounds": 3},
    ],
    ids=str,
)
def test_what_determines_the_result_makes_another_run(settle, other):
    assert settle("search", **other)[0].folder.name != settle("search")[0].folder.name


@pytest.mark.parametrize(
    "other",
    [
        {"engine": {"devices": 2, "accelerator": "cpu", "workers": 1, "compile": True}},
        {"trackers": ["tensorboard"]},
        {"checkpoint_every": 7},
        {"data_root": "elsewhere"},
        {"out": "elsewhere"},
        {"method": {"name": "cs", "mask_init": 0}},
    ],
    ids=str,
)
def test_what_does_not_determine_the_result_makes_the_same_run(settle, other):
    assert settle("search", **other)[0].folder.name == settle("search")[0].folder.name


def test_the_folder_names_task_and_method(settle):
    settings, _ = settle("search", out="here", task="digits/digits_convnet")
    assert settings.folder.parent == Path("here")
    assert settings.folder.name.startswith("digits-digits_convnet-cs-search-")
    assert settle("train")[0].folder.name.startswith("digits-digits_convnet-train-")


def test_automatic_devices(settle):
    assert settle("train", engine={"devices": "auto"})[0].engine.devices == "auto"


def test_recipes_choose_by_task():
    assert recipe_for("cifar10", "vgg16").batch_size == 64
    assert recipe_for("cifar10", "resnet20").batch_size == 128
    assert recipe_for("cifar10", "conv6").optimizer == "adam"
    assert recipe_for("image-folder", "resnet50").epochs == 90


# Text


def test_overrides_are_nested_and_typed():
    given = overrides(["recipe.epochs=8", "recipe.drops=[2, 3.5]", "seed=1", "method.rewind=true"])
    assert given == {
        "recipe": {"epochs": 8, "drops": [2, 3.5]},
        "seed": 1,
        "method": {"rewind": True},
    }


@pytest.mark.parametrize("text", ["recipe.epochs", "=8", "recipe..epochs=1", "seed=[1"])
def test_bad_overrides(text):
    with pytest.raises(SettingError, match="--set"):
        overrides([text])


def test_later_layers_win_and_none_says_nothing():
    assert merge({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": None, "c": 4}, "d": None}) == {
        "a": {"b": 1, "c": 4},
        "d": 3,
    }
    assert merge({"a": 1}, {"a": {"b": 2}}) == {"a": {"b": 2}}


@pytest.mark.parametrize(
    ("content", "message"),
    [("a: [", "is not a YAML file"), ("- 1", "must hold 'name: value' lines"), (None, "cannot")],
)
def test_bad_files(tmp_path, content, message):
    path = tmp_path / "run.yaml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SettingError, match=message):
        read_settings(path)


# Tasks of the user


def test_tasks_by_function(tmp_path, monkeypatch):
    (tmp_path / "mine_for_settings.py").write_text(
        "def nothing(root, options): return 3\ndef strange(x): pass\nnumber = 4\n"
    )
    monkeypatch.chdir(tmp_path)
    for name, message in {
        "mine_for_settings:nothing": "returned a int, not a prunus.tasks.Task",
        "mine_for_settings:strange": "must take the folder of the data",
        "mine_for_settings:number": "no function in module",
        "not_mine:f": "cannot import 'not_mine'",
    }.items():
        with pytest.raises(SettingError, match=message):
            resolve("train", {"task": name})


def test_networks_by_function(settle, tmp_path, monkeypatch):
    (tmp_path / "my_networks.py").write_text(
        "from torch import nn\n"
        "def linear(*, num_classes, image_size, channels):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(channels*image_size**2, num_classes))\n"
    )
    monkeypatch.chdir(tmp_path)
    _, task = settle("train", task="digits/my_networks:linear")
    assert task.build()[1].in_features == 64
