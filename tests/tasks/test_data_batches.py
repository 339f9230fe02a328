import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from prunus.errors import SettingError
from prunus.randomness import generator_for, seed_for
from prunus.tasks.data import Batches, Loader, LoaderOptions
from prunus.tasks.data.batches import Normalise, crop, mirror
from prunus.tasks.data.protocol import EpochPlan


def pictures(count: int, channels: int = 3, size: int = 8) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(count)
    images = torch.randint(
        256, (count, channels, size, size), generator=generator, dtype=torch.uint8
    )
    return images, torch.arange(count)


def loader(
    count: int, options: LoaderOptions, *, seed: int | None = 0, channels: int = 3
) -> Batches:
    images, labels = pictures(count, channels)
    augment = seed is not None
    return Batches(
        images,
        labels,
        options,
        mean=[0.5] * channels,
        std=[0.25] * channels,
        seed=seed,
        padding=2 if augment else 0,
        flip=augment,
    )


def same(left: list[tuple[Tensor, Tensor]], right: list[tuple[Tensor, Tensor]]) -> bool:
    return len(left) == len(right) and all(
        torch.equal(a, b)
        for one, other in zip(left, right, strict=True)
        for a, b in zip(one, other, strict=True)
    )


def test_normalise_by_hand() -> None:
    images = torch.tensor([0, 51, 255], dtype=torch.uint8).reshape(1, 3, 1, 1)
    result = Normalise((0.5, 0.2, 0.0), (0.5, 0.1, 2.0), LoaderOptions(1))(images)
    assert result.dtype == torch.float32
    assert torch.allclose(result.flatten(), torch.tensor([-1.0, 0.0, 0.5]))


def test_crop_by_hand() -> None:
    image = torch.tensor([[1, 2], [3, 4]], dtype=torch.uint8).reshape(1, 1, 2, 2)
    images = image.expand(3, 1, 2, 2)
    top, left = torch.tensor([1, 0, 2]), torch.tensor([1, 0, 1])
    result = crop(images, 1, top, left)
    assert result[:, 0].tolist() == [[[1, 2], [3, 4]], [[0, 0], [0, 1]], [[3, 4], [0, 0]]]


def test_mirror_by_hand() -> None:
    images = (
        torch.tensor([[1, 2], [3, 4]], dtype=torch.uint8).reshape(1, 1, 2, 2).repeat(2, 1, 1, 1)
    )
    result = mirror(images, torch.tensor([True, False]))
    assert result[:, 0].tolist() == [[[2, 1], [4, 3]], [[1, 2], [3, 4]]]


@given(
    count=st.integers(0, 5),
    channels=st.sampled_from([1, 3]),
    size=st.integers(1, 6),
    padding=st.integers(1, 3),
    data=st.data(),
)
@settings(max_examples=50)
def test_crop_and_mirror_equal_one_image_at_a_time(
    count: int, channels: int, size: int, padding: int, data: st.DataObject
) -> None:
    images, _ = pictures(count, channels, size)
    places = st.lists(st.integers(0, 2 * padding), min_size=count, max_size=count)
    top, left = data.draw(places), data.draw(places)
    mirrored = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    result = crop(images, padding, torch.tensor(top).long(), torch.tensor(left).long())
    result = mirror(result, torch.tensor(mirrored).bool())
    assert result.shape == images.shape
    for number in range(count):
        canvas = torch.zeros(channels, size + 2 * padding, size + 2 * padding, dtype=torch.uint8)
        canvas[:, padding : padding + size, padding : padding + size] = images[number]
        y, x = top[number], left[number]
        expected = canvas[:, y : y + size, x : x + size]
        if mirrored[number]:
            expected = expected.flip(-1)
        assert torch.equal(result[number], expected)


def test_an_epoch_holds_whole_batches_of_different_images() -> None:
    batches = loader(10, LoaderOptions(4))
    assert len(batches) == 2
    labels = torch.cat([y for _, y in batches.epoch(0)]).tolist()
    assert len(labels) == len(set(labels)) == 8


def test_epochs_and_seeds_differ_but_repeat() -> None:
    batches = loader(32, LoaderOptions(16))
    first = list(batches.epoch(0))
    assert same(first, list(batches.epoch(0)))
    assert not same(first, list(batches.epoch(1)))
    assert not same(first, list(loader(32, LoaderOptions(16), seed=1).epoch(0)))


def test_augmentation_reaches_every_shift_and_mirrors_half() -> None:
    image = torch.zeros(1, 1, 8, 8, dtype=torch.uint8)
    image[..., 3, 2] = 255
    count = 4000
    batches = Batches(
        image.expand(count, 1, 8, 8),
        torch.zeros(count, dtype=torch.int64),
        LoaderOptions(count),
        mean=[0.0],
        std=[1.0],
        seed=3,
        padding=1,
        flip=True,
    )
    ((images, _),) = batches.epoch(0)
    places = torch.nonzero(images[:, 0])[:, 1:]
    found, times = places.unique(dim=0, return_counts=True)
    assert found.tolist() == [list(p) for p in itertools.product((2, 3, 4), (1, 2, 3, 4, 5, 6))]
    assert times.min() > count / 18 * 0.7
    assert abs((places[:, 1] < 3.5).float().mean() - 0.5) < 0.05


def test_evaluation_yields_every_image_once_and_unchanged() -> None:
    images, labels = pictures(10)
    batches = loader(10, LoaderOptions(4), seed=None)
    assert [len(y) for _, y in batches.epoch(5)] == [4, 4, 2]
    x, y = (torch.cat(parts) for parts in zip(*batches.epoch(0), strict=True))
    assert torch.equal(y, labels)
    assert torch.equal(x, Normalise([0.5] * 3, [0.25] * 3, LoaderOptions(1))(images))


def test_channels_last_changes_the_layout_only() -> None:
    (plain, _), *_ = loader(8, LoaderOptions(8)).epoch(0)
    (last, _), *_ = loader(8, LoaderOptions(8, channels_last=True)).epoch(0)
    assert torch.equal(plain, last)
    assert plain.is_contiguous()
    assert last.is_contiguous(memory_format=torch.channels_last)


@given(
    count=st.integers(6, 40),
    per_rank=st.integers(1, 3),
    world_size=st.sampled_from([1, 2]),
    training=st.booleans(),
    epoch=st.integers(0, 3),
    data=st.data(),
)
@settings(max_examples=50)
def test_resumed_and_shared_epochs_equal_a_whole_one(
    count: int, per_rank: int, world_size: int, training: bool, epoch: int, data: st.DataObject
) -> None:
    seed = 7 if training else None
    size = per_rank * world_size
    whole = list(loader(count, LoaderOptions(size), seed=seed).epoch(epoch))
    ranks = []
    for rank in range(world_size):
        part = loader(count, LoaderOptions(size, rank=rank, world_size=world_size), seed=seed)
        assert len(part) == len(whole)
        start = data.draw(st.integers(0, len(part)))
        ranks.append(list(part.epoch(epoch)))
        assert same(ranks[rank][start:], list(part.epoch(epoch, start_batch=start)))
    union = [
        tuple(torch.cat(parts) for parts in zip(*shares, strict=True))
        for shares in zip(*ranks, strict=True)
    ]
    assert same(whole, union)


@given(images=st.integers(1, 200), per_rank=st.integers(1, 9), world_size=st.integers(1, 5))
def test_plan_gives_every_position_to_one_rank(images: int, per_rank: int, world_size: int) -> None:
    plans = [
        EpochPlan(images, LoaderOptions(per_rank * world_size, rank=r, world_size=world_size))
        for r in range(world_size)
    ]
    everything = list(range(images))
    seen = [
        position
        for batch in plans[0].batches_from(0)
        for plan in plans
        for position in everything[plan.positions(batch)]
    ]
    assert seen == everything


def test_the_global_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    list(loader(10, LoaderOptions(4)).epoch(0))
    assert torch.equal(before, torch.get_rng_state())


def test_batches_is_a_loader() -> None:
    accepted: Loader = loader(4, LoaderOptions(2))
    assert len(accepted) == 2


def test_seeds_are_stable_over_machines_and_versions() -> None:
    assert seed_for(0, 1) == 18035787800520607725
    assert seed_for(0, 1) != seed_for(1, 0)
    assert generator_for(0, 1).initial_seed() == seed_for(0, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size must be at least 1, not 0"),
        ({"batch_size": 2, "workers": -1}, "workers must be 0 or more, not -1"),
        ({"batch_size": 2, "rank": 2, "world_size": 2}, "rank must lie between 0 and .* 1, not 2"),
        ({"batch_size": 3, "world_size": 2}, "cannot be shared equally among 2 ranks"),
    ],
)
def test_options_that_cannot_work(options: dict[str, int], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        LoaderOptions(**options)


def test_requests_that_cannot_work() -> None:
    with pytest.raises(SettingError, match="batch of 16 samples is more than the 10"):
        loader(10, LoaderOptions(16))
    with pytest.raises(SettingError, match=r"between 0 and 2 \(the end\), not 3"):
        loader(10, LoaderOptions(4)).epoch(0, start_batch=3)
    assert list(loader(10, LoaderOptions(4)).epoch(0, start_batch=2)) == []
    images, labels = pictures(4)
    with pytest.raises(SettingError, match="need a seed"):
        Batches(images, labels, LoaderOptions(2), mean=[0] * 3, std=[1] * 3, flip=True)
