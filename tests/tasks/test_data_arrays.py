import math
import sys

import pytest
import torch

from prunus.errors import SettingError
from prunus.tasks.data import ArrayData, Data, DataOptions, LoaderOptions, Split, load_data
from prunus.tasks.data.arrays import array_data, pixel_statistics
from prunus.tasks.data.splits import hold_out


def numbered(count: int, size: int = 4, channels: int = 1) -> Split:
    images = torch.zeros(count, channels, size, size, dtype=torch.uint8)
    images += torch.arange(count, dtype=torch.uint8).reshape(-1, 1, 1, 1)
    return Split(images, torch.arange(count))


def test_pixel_statistics_by_hand() -> None:
    images = torch.tensor([[[[0, 255]], [[51, 51]]]], dtype=torch.uint8)
    mean, std = pixel_statistics(images)
    assert mean == pytest.approx((0.5, 0.2))
    assert std == pytest.approx((0.5, 1.0))


def test_pixel_statistics_equal_those_of_float_tensors() -> None:
    images = torch.randint(256, (20, 3, 5, 5), dtype=torch.uint8)
    mean, std = pixel_statistics(images)
    scaled = images.double() / 255
    assert mean == pytest.approx(scaled.mean(dim=(0, 2, 3)).tolist())
    assert std == pytest.approx(scaled.std(dim=(0, 2, 3), correction=0).tolist())


def test_images_become_smaller_by_averaging() -> None:
    images = torch.tensor([[0, 4, 255, 255], [8, 12, 255, 255]] * 2, dtype=torch.uint8)
    split = Split(images.reshape(1, 1, 4, 4), torch.zeros(1, dtype=torch.int64))
    assert split.resized(2).images.tolist() == [[[[6, 255], [6, 255]]]]
    assert split.resized(4) is split
    with pytest.raises(SettingError, match=r"4x4 pixels .* to 3x3; sizes that fit: 1, 2, 4"):
        split.resized(3)
    with pytest.raises(SettingError, match="to 8x8"):
        split.resized(8)


def test_validation_is_held_out_of_the_training_set() -> None:
    data = array_data(numbered(10), numbered(3), DataOptions(), num_classes=10, validation_images=4)
    assert len(data.train) == 6
    assert sorted([*data.train.labels.tolist(), *data.validation.labels.tolist()]) == list(
        range(10)
    )
    assert torch.equal(data.train.images[:, 0, 0, 0].long(), data.train.labels)
    assert data.test.labels.tolist() == [0, 1, 2]
    assert (data.image_size, data.channels, data.padding, data.flip) == (4, 1, 0, False)


def test_a_smaller_training_set_is_the_beginning_of_the_larger() -> None:
    def labels(**options: int) -> list[int]:
        return array_data(
            numbered(20), numbered(1), DataOptions(**options), num_classes=20, validation_images=5
        ).train.labels.tolist()

    assert labels(train_images=4) == labels()[:4]
    assert labels(split_seed=1) != labels()
    assert len(labels(validation_images=0)) == 20


def test_normalisation_does_not_depend_on_the_part_that_is_used() -> None:
    def mean(options: DataOptions) -> tuple[float, ...]:
        return array_data(
            numbered(20), numbered(1), options, num_classes=20, validation_images=5
        ).mean

    assert mean(DataOptions(train_images=3, split_seed=9)) == mean(DataOptions())


@pytest.mark.parametrize("options", [{"train_images": 6}, {"validation_images": 10}])
def test_more_images_than_there_are(options: dict[str, int]) -> None:
    with pytest.raises(SettingError, match="lower train_images or validation_images"):
        hold_out(10, DataOptions(**options), validation_images=5)


@pytest.mark.parametrize(
    "options",
    [{"image_size": 0}, {"train_images": 0}, {"validation_images": -1}, {"split_seed": -1}],
)
def test_options_that_cannot_work(options: dict[str, int]) -> None:
    ((name, value),) = options.items()
    with pytest.raises(SettingError, match=f"{name} must be .*not {value}"):
        DataOptions(**options)


def test_split_checks_its_tensors() -> None:
    with pytest.raises(SettingError, match="images must be uint8 of four dimensions"):
        Split(torch.zeros(1, 1, 2, 2), torch.zeros(1, dtype=torch.int64))
    with pytest.raises(SettingError, match="one int64 for each of 1 images"):
        Split(torch.zeros(1, 1, 2, 2, dtype=torch.uint8), torch.zeros(2, dtype=torch.int64))


def test_digits() -> None:
    data: Data = load_data("digits", "/nowhere")
    assert isinstance(data, ArrayData)
    assert [len(part) for part in (data.train, data.validation, data.test)] == [800, 200, 797]
    assert (data.num_classes, data.image_size, data.channels) == (10, 8, 1)
    assert int(data.train.images.max()) == 255
    assert data.padding == 0
    assert not data.flip
    other = load_data("digits", "/nowhere", DataOptions(split_seed=1))
    assert isinstance(other, ArrayData)
    assert torch.equal(data.test.images, other.test.images)
    assert not torch.equal(data.validation.images, other.validation.images)


def test_digits_loaders() -> None:
    data = load_data("digits", "/nowhere")
    images, _ = next(data.training(LoaderOptions(64), seed=0).epoch(0))
    assert images.shape == (64, 1, 8, 8)
    everything = torch.cat([x for x, _ in data.evaluation("train", LoaderOptions(500)).epoch(0)])
    assert math.isclose(everything.mean().item(), 0, abs_tol=0.02)
    assert math.isclose(everything.std().item(), 1, abs_tol=0.02)
    assert len(data.evaluation("test", LoaderOptions(100))) == 8


def test_digits_without_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(SettingError, match=r"pip install .*\[demo\]"):
        load_data("digits", "/nowhere")


def test_unknown_data_set_gives_the_nearest() -> None:
    with pytest.raises(SettingError, match=r"no data set named 'cifar-10'.* mean 'cifar10'"):
        load_data("cifar-10", "/nowhere")
