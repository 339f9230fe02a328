"""The mask as a value: content, statistics, set algebra, controls, and use on a model."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from prunus import AttachError, Mask, MaskError, PrunusError, SelectionError, strip

torch.set_num_threads(1)

SHAPES = {"a.weight": (2, 3), "b.weight": (4,), "c.weight": (1, 2, 2)}


def bits(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.bool)


@pytest.fixture
def mask() -> Mask:
    return Mask({"a": bits(1, 0, 1, 0).view(2, 2), "b": bits(0, 0, 1)})


@pytest.fixture
def other() -> Mask:
    return Mask({"a": bits(1, 1, 0, 0).view(2, 2), "b": bits(1, 0, 1)})


def random_mask(seed: int, density: float = 0.4) -> Mask:
    generator = torch.Generator().manual_seed(seed)
    return Mask({n: torch.rand(s, generator=generator) < density for n, s in SHAPES.items()})


def masks() -> st.SearchStrategy[Mask]:
    def tensor(shape: tuple[int, ...]) -> st.SearchStrategy[Tensor]:
        size = torch.Size(shape).numel()
        flat = st.lists(st.booleans(), min_size=size, max_size=size)
        return flat.map(lambda values: torch.tensor(values).view(shape))

    return st.fixed_dictionaries({n: tensor(s) for n, s in SHAPES.items()}).map(Mask)


class TestValue:
    def test_mutating_the_input_changes_nothing(self) -> None:
        tensor = bits(1, 0, 1)
        tensors = {"w": tensor}
        mask = Mask(tensors)
        tensor.zero_()
        tensors["v"] = bits(1)
        assert list(mask) == ["w"]
        assert torch.equal(mask["w"], bits(1, 0, 1))

    def test_mutating_the_output_changes_nothing(self, mask: Mask) -> None:
        before = hash(mask)
        mask["a"].zero_()
        for tensor in mask.values():
            tensor.logical_not_()
        dict(mask)["b"].fill_(True)
        assert hash(mask) == before
        assert torch.equal(mask["b"], bits(0, 0, 1))

    def test_cannot_be_assigned_to(self, mask: Mask) -> None:
        with pytest.raises(TypeError):
            mask["a"] = bits(1)  # type: ignore[index]

    @pytest.mark.parametrize("dtype", [torch.float32, torch.uint8, torch.int64])
    def test_only_bool(self, dtype: torch.dtype) -> None:
        with pytest.raises(MaskError, match=r"conv\.weight is torch\.\w+, not torch\.bool"):
            Mask({"conv.weight": torch.ones(2, dtype=dtype)})

    def test_expanded_and_transposed_tensors(self) -> None:
        expanded = bits(1, 0).view(2, 1).expand(2, 3)
        mask = Mask({"expanded": expanded, "transposed": expanded.t()})
        assert mask.kept == 6
        assert torch.equal(mask["transposed"], expanded.t())

    def test_equality_and_hash_ignore_the_order_of_names(self, mask: Mask) -> None:
        reordered = Mask({name: mask[name] for name in reversed(list(mask))})
        assert reordered == mask
        assert hash(reordered) == hash(mask)
        assert len({mask, reordered}) == 1

    @pytest.mark.parametrize(
        "different",
        [
            {"a": bits(1, 0, 1, 0).view(2, 2)},
            {"a": bits(1, 0, 1, 1).view(2, 2), "b": bits(0, 0, 1)},
            {"a": bits(1, 0, 1, 0), "b": bits(0, 0, 1)},
            {"a": bits(1, 0, 1, 0).view(2, 2), "c": bits(0, 0, 1)},
        ],
        ids=["fewer", "bit", "shape", "name"],
    )
    def test_inequality(self, mask: Mask, different: dict[str, Tensor]) -> None:
        assert mask != Mask(different)
        assert hash(mask) != hash(Mask(different))

    def test_is_not_equal_to_other_things(self, mask: Mask) -> None:
        assert mask != "mask"
        assert mask != {"a": 1}

    def test_a_missing_name_is_a_key_error(self, mask: Mask) -> None:
        assert "zzz" not in mask
        with pytest.raises(KeyError):
            mask["zzz"]


class TestStatistics:
    def test_by_hand(self, mask: Mask) -> None:
        assert (mask.kept, mask.total) == (3, 7)
        assert mask.density == pytest.approx(3 / 7)
        assert mask.sparsity == pytest.approx(4 / 7)
        a, b = mask.layers
        assert (a.name, a.shape, a.kept, a.total, a.density) == ("a", (2, 2), 2, 4, 0.5)
        assert (b.name, b.shape, b.kept, b.total) == ("b", (3,), 1, 3)
        assert b.density == pytest.approx(1 / 3)

    @pytest.mark.parametrize("tensors", [{}, {"w": bits()}, {"w": bits().view(0, 3)}])
    def test_of_nothing(self, tensors: dict[str, Tensor]) -> None:
        mask = Mask(tensors)
        assert (mask.kept, mask.total, mask.density) == (0, 0, 0.0)
        assert all(layer.density == 0.0 for layer in mask.layers)

    def test_printed(self, mask: Mask) -> None:
        assert repr(mask) == "<Mask of 2 tensors, keeps 3 of 7 weights>"
        header, a, b, total = str(mask).splitlines()
        assert header.split() == ["parameter", "shape", "kept", "weights", "density"]
        assert a.split() == ["a", "2x2", "2", "4", "50.00%"]
        assert b.split() == ["b", "3", "1", "3", "33.33%"]
        assert total.split() == ["total", "3", "7", "42.86%"]


class TestSetOperations:
    def test_union_by_hand(self, mask: Mask, other: Mask) -> None:
        expected = Mask({"a": bits(1, 1, 1, 0).view(2, 2), "b": bits(1, 0, 1)})
        assert mask.union(other) == mask | other == expected

    def test_intersection_by_hand(self, mask: Mask, other: Mask) -> None:
        expected = Mask({"a": bits(1, 0, 0, 0).view(2, 2), "b": bits(0, 0, 1)})
        assert mask.intersection(other) == mask & other == expected

    def test_difference_by_hand(self, mask: Mask, other: Mask) -> None:
        expected = Mask({"a": bits(0, 0, 1, 0).view(2, 2), "b": bits(0, 0, 0)})
        assert mask.difference(other) == mask - other == expected

    def test_jaccard_by_hand(self, mask: Mask, other: Mask) -> None:
        assert mask.jaccard(other) == pytest.approx(2 / 5)

    def test_jaccard_of_empty_masks_is_one(self, mask: Mask) -> None:
        assert (mask - mask).jaccard(mask - mask) == 1.0
        assert (mask - mask).jaccard(mask) == 0.0

    @settings(max_examples=60)
    @given(masks(), masks(), masks())
    def test_laws(self, a: Mask, b: Mask, c: Mask) -> None:
        assert a | b == b | a
        assert a & b == b & a
        assert (a | b) | c == a | (b | c)
        assert (a & b) & c == a & (b & c)
        assert a & (b | c) == (a & b) | (a & c)
        assert a | (a & b) == a == a & (a | b)
        assert a - (b | c) == (a - b) & (a - c)
        assert (a - b) | (a & b) == a
        assert ((a - b) & b).kept == 0
        assert (a | b).kept == a.kept + b.kept - (a & b).kept
        assert 0 <= a.jaccard(b) == b.jaccard(a) <= 1
        assert a.jaccard(a) == 1
        assert (a.jaccard(b) == 1) == (a == b)

    @pytest.mark.parametrize(
        ("tensors", "message"),
        [
            ({"a": bits(1, 0, 1, 0).view(2, 2)}, "the other mask has no parameter b"),
            ({"a": bits(1, 0), "b": bits(0, 0, 1)}, r"a is \(2, 2\) in this mask but \(2,\)"),
            (
                {"a": bits(1, 0, 1, 0).view(2, 2), "b": bits(0, 0, 1), "c": bits(1)},
                "the other mask has c",
            ),
        ],
        ids=["missing", "shape", "extra"],
    )
    @pytest.mark.parametrize("operation", ["union", "intersection", "difference", "jaccard"])
    def test_masks_that_do_not_fit(
        self, mask: Mask, operation: str, tensors: dict[str, Tensor], message: str
    ) -> None:
        with pytest.raises(MaskError, match=message):
            getattr(mask, operation)(Mask(tensors))


class TestControls:
    @settings(max_examples=60)
    @given(masks(), st.integers(0, 2**32))
    def test_shuffled_keeps_the_count_of_every_layer(self, mask: Mask, seed: int) -> None:
        assert mask.shuffled(seed).layers == mask.layers

    @settings(max_examples=60)
    @given(masks(), st.integers(0, 2**32))
    def test_random_keeps_the_total_count(self, mask: Mask, seed: int) -> None:
        control = mask.random(seed)
        assert control.kept == mask.kept
        assert {n.name: n.shape for n in control.layers} == SHAPES

    def test_largest_by_hand(self) -> None:
        mask = Mask({"a": torch.tensor([[True, True], [False, False]]), "b": torch.tensor([True])})
        weights = {"a": torch.tensor([[1.0, -4.0], [3.0, 2.0]]), "b": torch.tensor([0.1])}
        largest = mask.largest(weights)
        assert largest["a"].tolist() == [[False, True], [True, False]]
        assert largest["b"].tolist() == [True]
        with pytest.raises(MaskError, match="the set of weights has no parameter b"):
            mask.largest({"a": weights["a"]})

    @pytest.mark.parametrize("control", ["shuffled", "random"])
    def test_seeds(self, control: str) -> None:
        mask = Mask({"w": torch.arange(400).view(20, 20) % 3 == 0})
        state = torch.get_rng_state()
        first, again, second = (getattr(mask, control)(seed) for seed in (1, 1, 2))
        assert first == again
        assert first != second
        assert first != mask
        assert torch.equal(torch.get_rng_state(), state), "the global generator was used"

    def test_random_moves_weights_between_layers(self) -> None:
        mask = Mask({"full": torch.ones(500).bool(), "empty": torch.zeros(500).bool()})
        full, empty = mask.random(0).layers
        assert 200 < full.kept < 300
        assert full.kept + empty.kept == 500

    def test_uniform(self) -> None:
        mask = Mask({"w": bits(1, 0, 0, 0)})
        counts = sum(mask.shuffled(seed)["w"].int() for seed in range(400))
        assert int(counts.min()) > 60
        assert int(counts.max()) < 140

    @pytest.mark.parametrize("control", ["shuffled", "random"])
    @pytest.mark.parametrize("tensors", [{}, {"w": bits()}])
    def test_of_nothing(self, control: str, tensors: dict[str, Tensor]) -> None:
        mask = Mask(tensors)
        assert getattr(mask, control)(0) == mask


OPTIMISERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, weight_decay=0.1, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, momentum=0.9, weight_decay=0.1),
}


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))


def half_mask(model: nn.Module) -> Mask:
    generator = torch.Generator().manual_seed(3)
    return Mask(
        {
            name: torch.rand(p.shape, generator=generator) < 0.5
            for name, p in model.named_parameters()
            if p.dim() > 1
        }
    )


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 10) -> None:
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        x = torch.randn(16, 4, generator=generator)
        loss = (model(x) - x[:, :2]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class TestApply:
    @pytest.mark.parametrize("poison", [None, float("nan"), float("inf")])
    @pytest.mark.parametrize("name", OPTIMISERS)
    def test_removed_weights_stay_zero(self, name: str, poison: float | None) -> None:
        model = network()
        mask = half_mask(model)
        # Momentum from dense training must not bring removed weights back either.
        optimizer = OPTIMISERS[name](model.parameters())
        train(model, optimizer, steps=3)
        if poison is not None:
            with torch.no_grad():
                for layer, key in ((model[0], "0.weight"), (model[2], "2.weight")):
                    layer.weight[~mask[key]] = poison
        mask.apply(model)
        start = model[0].weight.detach().clone()
        train(model, optimizer)
        for key, weight in {"0.weight": model[0].weight, "2.weight": model[2].weight}.items():
            assert torch.equal(weight != 0, mask[key])
            assert weight.isfinite().all()
        assert not torch.equal(model[0].weight, start), "kept weights did not train"
        strip(model)
        assert type(model[0]) is nn.Linear
        assert torch.equal(model[0].weight != 0, mask["0.weight"])

    def test_returns_the_model_and_reads_back(self) -> None:
        model = network()
        mask = half_mask(model)
        assert mask.apply(model) is model
        assert Mask.of(model) == mask

    def test_computes_what_zeroed_weights_compute(self) -> None:
        model, expected = network(), network()
        mask = half_mask(model)
        with torch.no_grad():
            expected[0].weight.mul_(mask["0.weight"])
            expected[2].weight.mul_(mask["2.weight"])
        x = torch.randn(5, 4)
        assert torch.equal(mask.apply(model)(x), expected(x))

    def test_the_mask_may_cover_a_part_of_the_model(self) -> None:
        model = network()
        Mask({"2.weight": torch.zeros(2, 6).bool()}).apply(model)
        assert not model[2].weight.any()
        assert type(model[0]) is nn.Linear

    def test_later_changes_to_the_model_do_not_reach_the_mask(self) -> None:
        model = network()
        mask = half_mask(model)
        copy = Mask(mask)
        mask.apply(model)
        for buffer in model.buffers():
            buffer.logical_not_()
        assert mask == copy

    @pytest.mark.parametrize(
        ("tensors", "message"),
        [
            ({"0.weight": bits(1, 0)}, r"0\.weight is \(2,\) in this mask but \(6, 4\)"),
            ({"9.weight": bits(1, 0)}, r"no parameter 9\.weight"),
            (
                {"0.weight": torch.ones(6, 4).bool(), "2.weight": torch.ones(6, 2).bool()},
                r"2\.weight is \(6, 2\) in this mask but \(2, 6\) in the model",
            ),
        ],
        ids=["shape", "name", "second shape"],
    )
    def test_a_mask_for_another_model_changes_nothing(
        self, tensors: dict[str, Tensor], message: str
    ) -> None:
        model = network()
        before = {k: v.clone() for k, v in model.state_dict().items()}
        with pytest.raises(MaskError, match=message):
            Mask(tensors).apply(model)
        after = model.state_dict()
        assert after.keys() == before.keys()
        assert all(torch.equal(after[k], before[k]) for k in before)
        assert type(model[0]) is nn.Linear

    def test_twice_is_an_error(self) -> None:
        model = network()
        mask = half_mask(model)
        mask.apply(model)
        with pytest.raises(AttachError, match=r"0\.weight has a gate"):
            mask.apply(model)

    @pytest.mark.parametrize(
        ("model", "name", "shape", "error"),
        [
            (nn.Embedding(3, 2, sparse=True), "weight", (3, 2), SelectionError),
            (nn.LazyLinear(3), "weight", (3, 2), SelectionError),
            (
                nn.utils.parametrizations.weight_norm(nn.Linear(2, 3)),
                "parametrizations.weight.original1",
                (3, 2),
                AttachError,
            ),
        ],
        ids=["sparse", "lazy", "parametrized"],
    )
    def test_weights_that_cannot_have_a_gate(
        self, model: nn.Module, name: str, shape: tuple[int, ...], error: type[PrunusError]
    ) -> None:
        with pytest.raises(error, match="weight"):
            Mask({name: torch.ones(shape).bool()}).apply(model)

    def test_of_a_plain_model_is_an_error(self) -> None:
        with pytest.raises(MaskError, match="carries no gates"):
            Mask.of(network())
