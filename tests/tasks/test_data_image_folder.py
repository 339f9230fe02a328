import sys
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from prunus.errors import SettingError
from prunus.runs import resolve
from prunus.tasks import RECIPES, load_task
from prunus.tasks.data import (
    DamagedDataError,
    DataOptions,
    ImageFolderData,
    LoaderOptions,
    MissingDataError,
    load_data,
)
from prunus.tasks.data.image_transforms import evaluation_view, random_box, training_view

OPTIONS = DataOptions(image_size=32)


def write_class(folder: Path, count: int, *, seed: int = 0, suffix: str = ".JPEG") -> None:
    folder.mkdir(parents=True)
    random = np.random.default_rng(seed)
    for number in range(count):
        pixels = random.integers(0, 256, (40 + number, 50, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number:02}{suffix}")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for part, count in (("train", 10), ("val", 3)):
        for seed, name in enumerate(("ant", "bee")):
            write_class(tmp_path / "imagenet" / part / name, count, seed=seed)
    return tmp_path / "imagenet"


def folder_data(folder: Path, options: DataOptions = OPTIONS) -> ImageFolderData:
    data = load_data("image-folder", folder, options)
    assert isinstance(data, ImageFolderData)
    return data


def sizes(data: ImageFolderData) -> list[int]:
    return [len(part) for part in (data.splits.train, data.splits.validation, data.splits.test)]


def epoch(
    data: ImageFolderData, number: int = 0, start: int = 0, **options: int
) -> list[tuple[Tensor, Tensor]]:
    return list(data.training(LoaderOptions(4, **options), seed=5).epoch(number, start))


def same(left: list[tuple[Tensor, Tensor]], right: list[tuple[Tensor, Tensor]]) -> bool:
    return len(left) == len(right) and all(
        torch.equal(a[0], b[0]) and torch.equal(a[1], b[1])
        for a, b in zip(left, right, strict=True)
    )


def test_layout_of_imagenet(tree: Path) -> None:
    data = load_data("imagenet", tree.parent)
    assert isinstance(data, ImageFolderData)
    assert sizes(data) == [18, 2, 6]
    assert (data.num_classes, data.image_size, data.channels) == (2, 224, 3)
    assert data.splits.classes == ("ant", "bee")
    assert data.splits.test.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert data.splits.test.path(4) == tree / "val/bee/01.JPEG"


def test_the_size_follows_from_the_images(tree: Path) -> None:
    data = folder_data(tree, DataOptions())
    assert data.image_size == 32, "of shorter sides from 40 to 49"
    assert data.fingerprint == f"{folder_data(tree).fingerprint}-32", "which was given there"
    for side, size in ((8, 32), (64, 64), (100, 96), (500, 224)):
        for path in (tree / "train").rglob("*.JPEG"):
            Image.new("RGB", (side, 2 * side)).save(path)
        assert folder_data(tree, DataOptions()).image_size == size
    for path in (tree / "train").rglob("*.JPEG"):
        path.write_bytes(b"damaged")
    assert folder_data(tree, DataOptions()).image_size == 224


def test_the_batch_follows_from_their_number(tree: Path) -> None:
    task = load_task("image-folder/resnet50", tree)
    assert task.recipe.batch_size == 1, "a tenth of 18"
    assert "18 images to train with, 2 for validation and 6 for the test" in task.about
    assert "images of 32 pixels (--set data.image_size=N), 1 in a batch" in task.about
    assert load_task("imagenet/resnet50", tree.parent).recipe.batch_size == 256


def test_the_batch_of_another_recipe_follows_too(tree: Path) -> None:
    chosen = {"task": "image-folder/lenet", "data_root": str(tree), "recipe": {"name": "modern"}}
    settings, _ = resolve("train", chosen)
    assert settings.recipe == RECIPES["modern"].changed(batch_size=1), "a tenth of 18"
    settings, _ = resolve("train", {**chosen, "recipe": {"name": "modern", "batch_size": 6}})
    assert settings.recipe.batch_size == 6


def test_a_tree_with_its_own_validation_set(tree: Path) -> None:
    for name in ("ant", "bee"):
        write_class(tree / "test" / name, 1)
    assert sizes(folder_data(tree)) == [20, 6, 2]
    assert sizes(folder_data(tree, DataOptions(train_images=5))) == [5, 6, 2]
    assert sizes(folder_data(tree, DataOptions(validation_images=7))) == [13, 7, 2]


def test_plain_tree(tree: Path) -> None:
    data = folder_data(tree / "train")
    assert sizes(data) == [17, 1, 2]
    parts = (data.splits.train, data.splits.validation, data.splits.test)
    assert len({part.path(i) for part in parts for i in range(len(part))}) == 20
    other = folder_data(tree / "train", DataOptions(split_seed=3))
    assert other.splits.test.files.tolist() == data.splits.test.files.tolist()


def test_fingerprint(tree: Path) -> None:
    first = folder_data(tree).fingerprint
    assert folder_data(tree).fingerprint == first and len(first) == 16
    moved = tree.rename(tree.with_name("moved"))
    assert folder_data(moved).fingerprint == first
    with (moved / "val" / "bee" / "01.JPEG").open("ab") as file:
        file.write(b"x")
    assert folder_data(moved).fingerprint != first


def test_trees_that_cannot_be_used(tree: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=f"no folder {tmp_path}/no.*image-net.org"):
        folder_data(tmp_path / "no")
    with pytest.raises(MissingDataError, match="ant has 0 class folders"):
        folder_data(tree / "val" / "ant")
    write_class(tree / "val" / "cat", 1)
    with pytest.raises(DamagedDataError, match=r"val has classes .*lacks: cat"):
        folder_data(tree)
    (tree / "train" / "cat").mkdir()
    with pytest.raises(MissingDataError, match="cat holds no images of the class 'cat'"):
        folder_data(tree)


def test_train_without_val(tmp_path: Path) -> None:
    for name in ("ant", "bee"):
        write_class(tmp_path / "train" / name, 1)
    with pytest.raises(MissingDataError, match="'train' but not 'val'"):
        folder_data(tmp_path)


def test_training_batches(tree: Path) -> None:
    data = folder_data(tree)
    first = epoch(data)
    assert len(first) == len(data.training(LoaderOptions(4), seed=5)) == 4
    assert first[0][0].shape == (4, 3, 32, 32)
    assert first[0][0].dtype == torch.float32
    assert same(first, epoch(data))
    assert not same(first, epoch(data, 1))


def test_workers_make_no_difference_even_when_resumed(tree: Path) -> None:
    data = folder_data(tree)
    loader = data.training(LoaderOptions(4, workers=2), seed=5)
    assert same(epoch(data), list(loader.epoch(0)))
    next(loader.epoch(1))  # abandoned in the middle
    assert same(epoch(data, 2)[3:], list(loader.epoch(2, start_batch=3)))
    assert same(epoch(data, 1), list(loader.epoch(1)))


def test_resumed_epoch_equals_a_whole_one(tree: Path) -> None:
    data = folder_data(tree)
    for start in range(5):
        assert same(epoch(data)[start:], epoch(data, start=start))


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_ranks_share_each_batch(tree: Path, split: str) -> None:
    data = folder_data(tree)

    def batches(rank: int, world_size: int) -> list[tuple[Tensor, Tensor]]:
        options = LoaderOptions(4, rank=rank, world_size=world_size)
        if split == "train":
            return list(data.training(options, seed=5).epoch(3))
        return list(data.evaluation(split, options).epoch(0))

    union = [
        (torch.cat([a[0], b[0]]), torch.cat([a[1], b[1]]))
        for a, b in zip(batches(0, 2), batches(1, 2), strict=True)
    ]
    assert same(batches(0, 1), union)


def test_evaluation_yields_every_image_once(tree: Path) -> None:
    data = folder_data(tree)
    batches = list(data.evaluation("test", LoaderOptions(4)).epoch(0))
    assert [y.tolist() for _, y in batches] == [[0, 0, 0, 1], [1, 1]]


def test_the_global_generator_is_left_alone(tree: Path) -> None:
    before = torch.get_rng_state()
    epoch(folder_data(tree))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("workers", [0, 1])
def test_damaged_image_is_named(tree: Path, workers: int) -> None:
    path = tree / "val" / "bee" / "01.JPEG"
    path.write_bytes(path.read_bytes()[:300])
    loader = folder_data(tree).evaluation("test", LoaderOptions(4, workers=workers))
    with pytest.raises(DamagedDataError) as error:
        list(loader.epoch(0))
    assert str(error.value).startswith(f"{path} cannot be read as an image")
    assert "Traceback" not in str(error.value)


def test_vanished_image_is_named(tree: Path) -> None:
    loader = folder_data(tree).evaluation("test", LoaderOptions(4))
    (tree / "val" / "ant" / "00.JPEG").unlink()
    with pytest.raises(DamagedDataError, match=r"00\.JPEG has vanished"):
        list(loader.epoch(0))


def test_without_pillow_the_error_says_what_to_install(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(SettingError, match="pip install pillow"):
        folder_data(tree)


def test_evaluation_view_is_the_middle() -> None:
    pixels = np.zeros((16, 32, 3), dtype=np.uint8)
    pixels[:, 8:24] = 200
    view = evaluation_view(Image.fromarray(pixels), 14)  # short side 16: only cropped
    assert view.shape == (3, 14, 14)
    assert view.unique().tolist() == [200]


def test_training_view_of_an_even_image_is_even() -> None:
    image = Image.new("RGB", (60, 40), (1, 2, 3))
    view = training_view(image, 8, Random(0))
    assert view.dtype == torch.uint8
    assert view.flatten(1).unique(dim=1).flatten().tolist() == [1, 2, 3]


@given(width=st.integers(1, 300), height=st.integers(1, 300), seed=st.integers(0, 999))
def test_random_box_lies_inside_and_has_a_sane_aspect(width: int, height: int, seed: int) -> None:
    left, top, w, h = random_box(width, height, Random(seed))
    assert 0 <= left <= left + w <= width
    assert 0 <= top <= top + h <= height
    assert w >= 1
    assert h >= 1
    if min(width, height) >= 100:
        assert 0.7 < w / h < 1.4
        assert w * h >= 0.07 * width * height * min(1, width / height, height / width)


def test_grey_and_transparent_images_become_colour(tmp_path: Path) -> None:
    for name, mode in (("ant", "L"), ("bee", "RGBA")):
        (tmp_path / name).mkdir()
        for number in range(3):
            Image.new(mode, (40, 40)).save(tmp_path / name / f"{number}.png")
    data = folder_data(tmp_path, DataOptions(image_size=32, validation_images=1))
    ((images, _),) = data.training(LoaderOptions(4), seed=0).epoch(0)
    assert images.shape == (4, 3, 32, 32)


def test_workers_refuse_a_temporary_folder_that_sockets_cannot_use(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = folder_data(tree)
    monkeypatch.setattr("tempfile.tempdir", "/tmp/" + 80 * "x")
    assert len(epoch(data)) == 4  # without workers it works
    with pytest.raises(SettingError, match="set TMPDIR to a shorter one"):
        epoch(data, workers=1)
