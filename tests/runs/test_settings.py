"""Settings: where they come from, what is refused, and which of them make another run."""

from dataclasses import replace
from pathlib import Path

import PIL.Image
import pytest
import torch

from prunus import Manifest, Mask, SettingError, Ticket
from prunus.runs import resolve
from prunus.runs.settings_file import merge, only_given, overrides, read_settings
from prunus.tasks import RECIPES, load_task
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
        ("train", {"task": "digits"}, "task='digits' is neither"),
        ("train", {"task": "digit/mlp"}, "data set named 'digit'. Did you mean 'digits'"),
        ("train", {"task": "digits/lenett"}, "network named 'lenett'. Did you mean 'lenet'"),
        ("train", {"trackers": ["tensorbord"]}, "trackers.0='tensorbord'"),
        ("search", {"method": {"name": "css"}}, "method named 'css'. Did you mean 'cs'"),
        ("search", {"method": {"maskinit": 0}}, "below 'method'.*Did you mean 'mask_init'"),
        ("search", {"method": {"mask_init": "low"}}, "method.mask_init='low'"),
        ("search", {"rounds": 0}, "rounds=0"),
        (
            "search",
            {"method": {"name": "imp", "rate": "fast"}},
            "method.rate='fast': .*number; or:",
        ),
        ("search", {"method": {"name": "imp", "rate": {"conv": "x"}}}, "method.rate={'conv': 'x'}"),
        ("search", {"method": {"name": "gmp", "scope": "all"}}, "method.scope='all': .*'layer'"),
        ("retrain", {"ticket": "absent", "control": "reinit"}, "cannot read the ticket absent"),
        ("search", {"method": 3}, "method=3 is neither a name nor"),
        ("search", {"method": {"name": 5}}, "method.name=5 is not a name"),
        ("search", {"recipe": {"name": [1]}}, r"recipe.name=\[1\] is not a name"),
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
        {"engine": {"devices": 2}},
        {"engine": {"nodes": 2}},
        {"engine": {"devices": "auto"}},
        {"data": {"train_images": 101}},
        {"method": {"mask_init": -0.1}},
        {"method": {"name": "imp"}},
        {"task": "digits/lenet"},
        {"rounds": 3},
        {"whole_tickets": True},
    ],
    ids=str,
)
def test_what_determines_the_result_makes_another_run(settle, other):
    assert settle("search", **other)[0].folder.name != settle("search")[0].folder.name


@pytest.mark.parametrize(
    "other",
    [
        {"engine": {"accelerator": "cpu", "workers": 1, "compile": True, "channels_last": True}},
        {"trackers": ["tensorboard"]},
        {"checkpoint_every": 7},
        {"data_root": "elsewhere"},
        {"out": "elsewhere"},
        {"method": {"name": "cs", "mask_init": 0}},
        {"whole_tickets": False},
        {"data_fingerprint": "of another run's settings.yaml"},
    ],
    ids=str,
)
def test_what_does_not_determine_the_result_makes_the_same_run(settle, other):
    assert settle("search", **other)[0].folder.name == settle("search")[0].folder.name


def test_what_has_no_effect_is_not_recorded_and_makes_no_other_run(settle):
    """Without a budget the optimiser moves the scores, whatever the setting says."""
    plain, _ = settle("search")
    given, _ = settle("search", method={"scores": "optimiser"})
    budget, _ = settle("search", method={"target_density": 0.1})
    assert "scores" not in plain.method and plain.folder == given.folder
    assert budget.method["scores"] == "method"
    assert plain.identity()["method"]["scores"] == "method", "earlier runs keep their folders"


def test_processes_count_wherever_they_are(settle):
    one_machine, two = {"devices": 4}, {"devices": 2, "nodes": 2}
    assert settle("train", engine=one_machine)[0].folder == settle("train", engine=two)[0].folder


def test_a_tree_of_images_is_part_of_what_determines_the_result(tmp_path):
    image = PIL.Image

    def folder(root):
        given = {"task": "image-folder/resnet50", "data_root": str(root)}
        return resolve("train", given)[0].folder.name

    def write(root, side=8):
        for name in ("ant", "bee"):
            (root / name).mkdir(parents=True)
            for number in range(6):
                image.new("RGB", (side, side)).save(root / name / f"{number}.bmp")
        return root

    tree = write(tmp_path / "one")
    first = folder(tree)
    assert folder(write(tmp_path / "two")) == first, "the same tree in another place"
    assert folder(write(tmp_path / "larger", side=9)) != first
    (tree / "ant" / "0.bmp").rename(tree / "ant" / "9.bmp")
    assert folder(tree) != first
    (tree / "ant" / "9.bmp").rename(tree / "ant" / "0.bmp")
    (tree / "bee").rename(tree / "cat")
    assert folder(tree) != first


def test_a_recipe_is_checked_against_that_of_the_task():
    task = load_task("digits/vgg16")
    pruned = replace(task, name="cifar10/vgg16", recipe=RECIPES["tickets-vgg"])

    def recipe(**changes):
        given = {"task": "cifar10/vgg16", "recipe": changes}
        return resolve("prune", given, load=lambda *_, **__: pruned)[0].recipe

    late = recipe(commit_epoch=150)
    assert (late.epochs, late.commit_epoch, late.batch_size) == (200, 150, 64)
    with pytest.raises(SettingError, match="commit_epoch=200 leaves none of 200 epochs"):
        recipe(commit_epoch=200)


@pytest.mark.parametrize("manifest", [{"task": "digits/digits_convnet"}, {"rewind_point": 4}])
def test_where_a_ticket_came_from_makes_another_run(settle, tmp_path, manifest):
    weights = {"weight": torch.ones(2)}

    def folder(**origin):
        path = Ticket(Mask({}), weights, Manifest(**origin)).save(tmp_path / "ticket")
        return settle("retrain", ticket=str(path))[0].folder

    assert folder(**manifest) != folder()
    assert folder(seed=3) == folder()


def test_the_folder_names_task_and_method(settle):
    settings, _ = settle("search", out="here", task="digits/digits_convnet")
    assert settings.folder.parent == Path("here")
    assert settings.folder.name.startswith("digits-digits_convnet-cs-search-")
    assert settle("train")[0].folder.name.startswith("digits-digits_convnet-train-")


def test_automatic_devices(settle):
    assert settle("train", engine={"devices": "auto"})[0].engine.devices == "auto"


def test_recipes_are_chosen_by_task():
    assert recipe_for("cifar10", "vgg16").batch_size == 64
    assert recipe_for("cifar10", "resnet20").batch_size == 128
    assert recipe_for("cifar10", "conv6").optimizer == "adam"
    assert recipe_for("image-folder", "resnet50").epochs == 90


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cifar10/vgg16", RECIPES["pruning"].changed(batch_size=64)),
        ("cifar100/resnet20", RECIPES["pruning"]),
        ("digits/lenet", RECIPES["digits"]),
        ("imagenet/resnet50", RECIPES["imagenet"].changed(commit_epoch=72, fine_tune_lr=0.001)),
        ("cifar10/conv6", RECIPES["conv6"].changed(commit_epoch=32, fine_tune_lr=3e-4 / 100)),
        ("mnist/lenet", RECIPES["tickets"].changed(commit_epoch=68, fine_tune_lr=0.001)),
    ],
)
def test_pruning_recipes_follow_the_task(name, expected):
    task = replace(load_task("digits/mlp"), name=name, recipe=recipe_for(*name.split("/")))
    assert task.pruning_recipe == expected


# Text


def test_overrides_are_nested_and_typed():
    given = overrides(["recipe.epochs=8", "recipe.drops=[2, 3.5]", "seed=1", "method.rewind=true"])
    assert given == {
        "recipe": {"epochs": 8, "drops": [2, 3.5]},
        "seed": 1,
        "method": {"rewind": True},
    }


def test_a_pattern_is_text_and_no_number_in_base_sixty(tmp_path):
    assert overrides(["method.granularity=2:4"]) == {"method": {"granularity": "2:4"}}
    (tmp_path / "own.yaml").write_text("granularity: 1:2\nseed: 12\nlr: 1.5\nother: 1:30.5\n")
    own = {"granularity": "1:2", "seed": 12, "lr": 1.5, "other": "1:30.5"}
    assert read_settings(tmp_path / "own.yaml") == own


@pytest.mark.parametrize("text", ["recipe.epochs", "=8", "recipe..epochs=1", "seed=[1"])
def test_bad_overrides(text):
    with pytest.raises(SettingError, match="--set"):
        overrides([text])


def test_later_layers_win():
    assert merge({"a": {"b": 1, "c": 2}, "d": 3}, {"a": {"b": None, "c": 4}}, {"d": None}) == {
        "a": {"b": None, "c": 4},
        "d": None,
    }
    assert merge({"a": 1}, {"a": {"b": 2}}) == {"a": {"b": 2}}
    assert merge({"a": "tickets"}, {"a": {"b": 2}}) == {"a": {"name": "tickets", "b": 2}}


def test_flags_left_out_set_nothing():
    flags = {"a": {"b": None, "c": 4}, "d": None, "e": {"f": None}, "g": 0, "h": []}
    assert only_given(flags) == {"a": {"c": 4}, "g": 0, "h": []}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a: [", "is not a YAML file"),
        ("- 1", "must hold 'name: value' lines"),
        (None, "cannot"),
        ("a: 1\nb:\n  - {c: 1,\n     c: 2}", "run.yaml: 'c' is given twice .* in line 4"),
    ],
)
def test_bad_files(tmp_path, content, message):
    path = tmp_path / "run.yaml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SettingError, match=message):
        read_settings(path)


# Tasks of the user


def test_tasks_as_functions(tmp_path, monkeypatch, trust):
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
        trust(name)
        with pytest.raises(SettingError, match=message):
            resolve("train", {"task": name})


def test_networks_as_functions(settle, tmp_path, monkeypatch, trust):
    (tmp_path / "my_networks.py").write_text(
        "from torch import nn\n"
        "def linear(*, num_classes, image_size, channels):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(channels*image_size**2, num_classes))\n"
    )
    monkeypatch.chdir(tmp_path)
    trust("digits/my_networks:linear")
    _, task = settle("train", task="digits/my_networks:linear")
    assert task.build()[1].in_features == 64


@pytest.mark.parametrize("engine", [{"devices": 100_000}, {"workers": 100_000}])
def test_a_file_starts_no_thousands_of_processes(engine):
    with pytest.raises(SettingError, match=r"engine.*=100000.*less than or equal to"):
        resolve("train", {"task": "digits/mlp", "engine": engine})
