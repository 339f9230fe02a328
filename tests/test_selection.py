"""Which parameters each kind of rule chooses, and the errors when there are none."""

from __future__ import annotations

import warnings
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import nn

import prunus
from prunus import AttachError, Candidate, Selection, SelectionError, candidates, choose
from prunus.errors import SelectionWarning
from prunus.selection import default_rule
from prunus.tasks.networks import CONVNETS, NETWORKS, build_network


class Block(nn.Module):
    """A residual block with 1x1 convolutions on the main path too, as in ResNet-50."""

    def __init__(self, shortcut: str = "shortcut") -> None:
        super().__init__()
        self.reduce = nn.Conv2d(4, 2, 1)
        self.conv = nn.Conv2d(2, 4, 3)
        self.add_module(shortcut, nn.Sequential(nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)))


class Everything(nn.Module):
    """One module of each kind."""

    def __init__(self) -> None:
        super().__init__()
        self.block = Block()
        self.up = nn.ConvTranspose1d(2, 2, 3)
        self.fc = nn.Linear(3, 2)
        self.bilinear = nn.Bilinear(2, 2, 2)
        self.embed = nn.Embedding(5, 4)
        self.bag = nn.EmbeddingBag(5, 4)
        self.attention = nn.MultiheadAttention(4, 2)
        self.lstm = nn.LSTM(2, 3, num_layers=2, bidirectional=True)
        self.cell = nn.GRUCell(2, 3)
        self.norm = nn.LayerNorm(4)
        self.scale = nn.Parameter(torch.ones(2, 2))


def names(selection: Selection | list[Candidate]) -> list[str]:
    return [c.name for c in selection]


ATTENTION = ["attention.in_proj_weight"]
LSTM = [f"lstm.weight_{a}_l{n}{r}" for n in (0, 1) for r in ("", "_reverse") for a in ("ih", "hh")]
KINDS = {
    "conv": ["block.reduce.weight", "block.conv.weight", "block.shortcut.0.weight", "up.weight"],
    "linear": ["fc.weight", "bilinear.weight", "attention.out_proj.weight"],
    "embedding": ["embed.weight", "bag.weight"],
    "attention": ATTENTION,
    "recurrent": [*LSTM, "cell.weight_ih", "cell.weight_hh"],
}


@pytest.fixture
def model() -> Everything:
    return Everything()


class TestRules:
    @pytest.mark.parametrize("kind", KINDS)
    def test_kind(self, model: nn.Module, kind: str) -> None:
        assert names(choose(model, kind)) == KINDS[kind]
        assert {c.kind for c in choose(model, kind)} == {kind}

    def test_all_is_every_kind_and_no_bias_or_norm(self, model: nn.Module) -> None:
        chosen = names(choose(model, "all"))
        assert sorted(chosen) == sorted(name for kind in KINDS.values() for name in kind)

    def test_paper_is_convolutions_without_shortcuts(self, model: nn.Module) -> None:
        expected = ["block.reduce.weight", "block.conv.weight", "up.weight"]
        assert names(choose(model, "paper")) == expected

    def test_body_is_all_without_embeddings_and_the_last_layer(self, model: nn.Module) -> None:
        kinds = [n for kind, found in KINDS.items() if kind != "embedding" for n in found]
        assert sorted(names(choose(model, "body"))) == sorted(set(kinds) - {"cell.weight_hh"})

    @pytest.mark.parametrize("shortcut", ["shortcut", "downsample", "skip"])
    def test_paper_leaves_out_only_the_1x1_shortcuts(self, shortcut: str) -> None:
        selection = choose(Block(shortcut))
        assert names(selection) == ["reduce.weight", "conv.weight"]
        assert names(selection.passed_over) == [f"{shortcut}.0.weight"]

    @pytest.mark.parametrize("name", ["projection", "skipper", "my_shortcut"])
    def test_paper_takes_1x1_convolutions_with_other_names(self, name: str) -> None:
        assert f"{name}.0.weight" in names(choose(Block(name)))

    @pytest.mark.parametrize(
        ("conv", "chosen"),
        [
            (nn.Conv1d(2, 2, 1), False),
            (nn.Conv3d(2, 2, 1), False),
            (nn.ConvTranspose2d(2, 2, 1), False),
            (nn.Conv2d(2, 2, 3), True),
            (nn.Conv2d(2, 2, (1, 3)), True),
        ],
    )
    def test_shortcuts_of_other_shapes(self, conv: nn.Module, chosen: bool) -> None:
        model = nn.ModuleDict({"main": nn.Conv2d(2, 2, 3), "skip": conv})
        assert ("skip.weight" in names(choose(model))) is chosen

    @pytest.mark.parametrize(
        ("pattern", "expected"),
        [
            ("fc.weight", ["fc.weight"]),
            ("block.*.weight", ["block.reduce.weight", "block.conv.weight",
                                "block.shortcut.0.weight"]),
            ("block.shortcut.1.weight", ["block.shortcut.1.weight"]),
            ("lstm.weight_ih_l?", ["lstm.weight_ih_l0", "lstm.weight_ih_l1"]),
            ("*.bias_hh", ["cell.bias_hh"]),
            ("scale", ["scale"]),
        ],
    )  # fmt: skip
    def test_pattern(self, model: nn.Module, pattern: str, expected: list[str]) -> None:
        assert names(choose(model, pattern)) == expected

    @pytest.mark.parametrize(
        ("module_type", "expected"),
        [
            (nn.Conv2d, KINDS["conv"][:3]),
            (nn.ConvTranspose1d, ["up.weight"]),
            (nn.Embedding, ["embed.weight"]),
            (nn.RNNBase, LSTM),
            (Everything, ["scale"]),
        ],
    )
    def test_type(
        self, model: nn.Module, module_type: type[nn.Module], expected: list[str]
    ) -> None:
        assert names(choose(model, module_type)) == expected

    def test_predicate(self, model: nn.Module) -> None:
        large = choose(model, lambda c: c.kind == "conv" and c.parameter.numel() > 50)
        assert names(large) == ["block.conv.weight"]

    @pytest.mark.parametrize("sequence", [list, tuple])
    def test_a_sequence_selects_what_any_rule_does_in_model_order(
        self, model: nn.Module, sequence: type
    ) -> None:
        rules = sequence(["embedding", nn.Linear, "block.conv.w*", "up.weight", "up.*t"])
        assert names(choose(model, rules)) == [
            "block.conv.weight", "up.weight", "fc.weight", "embed.weight", "bag.weight",
            "attention.out_proj.weight",
        ]  # fmt: skip

    def test_integer_parameters_are_not_candidates(self) -> None:
        model = nn.Linear(2, 2)
        model.steps = nn.Parameter(torch.zeros(2, 2, dtype=torch.int64), requires_grad=False)
        assert names(candidates(model)) == ["weight", "bias"]

    def test_a_bare_module_has_bare_names(self) -> None:
        assert names(choose(nn.Conv2d(1, 1, 3))) == ["weight"]


def linear_net(*sizes: int) -> nn.Sequential:
    return nn.Sequential(*(nn.Linear(a, b) for a, b in pairwise(sizes)))


class TestDefault:
    """What is chosen where nobody chooses, by the kind of network."""

    @pytest.mark.parametrize("name", sorted(NETWORKS))
    def test_of_our_own_networks(self, name: str) -> None:
        with torch.device("meta"):
            network = build_network(name, num_classes=10, image_size=32, channels=3)
        assert default_rule(network) == ("paper" if name in CONVNETS else "body")

    @pytest.mark.parametrize(
        ("model", "chosen"),
        [
            (linear_net(4, 4, 4, 2), ["0.weight", "1.weight"]),
            (nn.Sequential(nn.Conv2d(1, 4, 3), nn.Linear(9, 4)), ["0.weight"]),  # 36 and 36
            (nn.Sequential(nn.Conv2d(1, 4, 3), nn.Linear(9, 5)), ["0.weight"]),  # the body
            (
                nn.Sequential(nn.Conv2d(1, 4, 3), nn.Linear(9, 4), nn.Linear(4, 2)),
                ["0.weight", "1.weight"],
            ),
            (nn.Linear(3, 2), ["weight"]),  # the last layer is the only one
            (nn.Embedding(3, 2), ["weight"]),
            (nn.Sequential(nn.Embedding(99, 4), nn.LSTM(4, 4), nn.Linear(4, 2)),
             ["1.weight_ih_l0", "1.weight_hh_l0"]),
            (nn.Sequential(nn.Embedding(99, 4), nn.Conv1d(4, 4, 3), nn.Linear(4, 2)), ["1.weight"]),
        ],
    )  # fmt: skip
    def test_of_others(self, model: nn.Module, chosen: list[str]) -> None:
        assert names(choose(model)) == names(choose(model, "auto")) == chosen

    def test_a_head_that_is_tied_to_the_embedding_is_the_last_layer(self) -> None:
        model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 4), nn.Linear(4, 5, bias=False))
        model[2].weight = model[0].weight
        assert names(choose(model)) == ["1.weight"]

    def test_the_method_records_the_rule(self) -> None:
        cs = prunus.ContinuousSparsification(linear_net(9, 9, 2), steps=1)
        assert cs.settings["select"] == "body"
        cs = prunus.ContinuousSparsification(nn.Conv2d(1, 1, 3), steps=1)
        assert cs.settings["select"] == "paper"

    def test_much_outside_is_worth_a_warning(self) -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 20))  # 16 of 16 + 4 + 80 + 20
        with pytest.warns(SelectionWarning, match=r"'body' takes 13\.3% .*Left out are 1\.weight:"):
            prunus.ContinuousSparsification(model, steps=1)

    @pytest.mark.parametrize("select", ["all", "0.weight", ["0.weight"]])
    def test_but_not_if_the_rule_is_spelt_out(self, select: str) -> None:
        model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 20))
        with warnings.catch_warnings():
            warnings.simplefilter("error", SelectionWarning)
            prunus.ContinuousSparsification(model, steps=1, select=select)


class TestExclude:
    @pytest.mark.parametrize(
        "exclude", ["1.*", "1.weight", ["1.weight", "2.bias"], lambda c: c.name == "1.weight"]
    )
    def test_by_name_and_predicate(self, exclude: object) -> None:
        chosen = choose(linear_net(2, 3, 4, 5), "all", exclude)  # type: ignore[arg-type]
        assert names(chosen) == ["0.weight", "2.weight"]
        assert names(chosen.passed_over) == ["1.weight"]

    @pytest.mark.parametrize("exclude", ["embedding", nn.Embedding])
    def test_by_kind_and_type(self, model: nn.Module, exclude: object) -> None:
        everything = names(choose(model, "all"))
        kept = [n for n in everything if n not in ("embed.weight", "bag.weight")]
        if exclude is nn.Embedding:
            kept.insert(kept.index("attention.in_proj_weight"), "bag.weight")
        assert names(choose(model, "all", exclude)) == kept  # type: ignore[arg-type]

    def test_what_cannot_have_a_gate_may_be_left_out(self) -> None:
        model = nn.Sequential(nn.utils.spectral_norm(nn.Linear(2, 2)), nn.Linear(2, 2))
        assert names(choose(model, "all", "0.*")) == ["1.weight"]

    @pytest.mark.parametrize(
        ("exclude", "message"),
        [
            ("typo.*", r"exclude='typo\.\*' matches no parameter"),
            ("linear", r"exclude leaves nothing of the 2 weight .*: 0\.weight, 1\.weight"),
        ],
    )
    def test_errors(self, exclude: str, message: str) -> None:
        with pytest.raises(SelectionError, match=message):
            choose(linear_net(2, 2, 2), "all", exclude)

    def test_in_a_method(self) -> None:
        cs = prunus.ContinuousSparsification(
            linear_net(2, 2, 2), steps=1, select="all", exclude="1.*"
        )
        assert list(cs.gates) == ["0.weight"]
        assert (cs.settings["select"], cs.settings["exclude"]) == ("all", "1.*")

    @pytest.mark.parametrize("exclude", [["1.*"], nn.Conv2d, lambda c: c.name == "1.weight"])
    def test_what_is_recorded_is_plain_data(self, exclude: object) -> None:
        model = nn.Sequential(nn.Linear(2, 2), nn.Conv2d(2, 2, 3))
        cs = prunus.ContinuousSparsification(model, steps=1, select="all", exclude=exclude)
        assert (cs.settings["select"], cs.settings["exclude"]) == (["0.weight"], None)


class TestSharing:
    def test_tied_weights_are_listed_once_with_their_aliases(self) -> None:
        model = nn.ModuleDict({"embed": nn.Embedding(7, 4), "head": nn.Linear(4, 7, bias=False)})
        model["head"].weight = model["embed"].weight
        [tied] = choose(model, "all")
        assert tied.name == "embed.weight"
        assert [name for name, _, _ in tied.owners] == ["embed.weight", "head.weight"]
        assert tied.module is model["embed"]
        assert "embed.weight = head.weight" in str(choose(model, "all"))

    @pytest.mark.parametrize("rule", ["head.*", "embed.*", nn.Linear, nn.Embedding])
    def test_a_tied_weight_is_found_through_any_module_that_uses_it(self, rule: str) -> None:
        model = nn.ModuleDict({"embed": nn.Embedding(7, 4), "head": nn.Linear(4, 7, bias=False)})
        model["head"].weight = model["embed"].weight
        assert names(choose(model, rule)) == ["embed.weight"]

    def test_a_weight_registered_by_a_plain_module_first_keeps_its_kind(self) -> None:
        class Tied(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.fc = nn.Linear(2, 2)
                self.shared = self.fc.weight

        [tied] = choose(Tied(), "linear")
        assert (tied.name, tied.kind) == ("shared", "linear")

    def test_a_module_used_twice_is_one_candidate(self) -> None:
        conv = nn.Conv2d(2, 2, 3)
        assert names(choose(nn.Sequential(conv, nn.ReLU(), conv))) == ["0.weight"]


class TestAttention:
    def test_packed_projections(self) -> None:
        assert names(choose(nn.MultiheadAttention(4, 2), "attention")) == ["in_proj_weight"]

    def test_separate_projections(self) -> None:
        attention = nn.MultiheadAttention(4, 2, kdim=3, vdim=5, add_bias_kv=False)
        expected = ["q_proj_weight", "k_proj_weight", "v_proj_weight"]
        assert names(choose(attention, "attention")) == expected

    def test_inside_a_transformer(self) -> None:
        layer = nn.TransformerEncoderLayer(4, 2, dim_feedforward=8)
        assert names(choose(layer, "all")) == [
            "self_attn.in_proj_weight", "self_attn.out_proj.weight", "linear1.weight",
            "linear2.weight",
        ]  # fmt: skip


class Conv1D(nn.Module):
    """As in transformers: a linear layer that stores its weight as (in, out)."""

    def __init__(self, out: int, into: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(into, out))
        self.bias = nn.Parameter(torch.zeros(out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight + self.bias


class Experts(nn.Module):
    """Weights that are parameters of no known module, beside what is no weight."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.ones(4, 3, 2))  # one matrix for each of four experts
        self.router = nn.Parameter(torch.ones(3, 4))
        self.gain = nn.Parameter(torch.ones(3))
        self.norm = nn.LayerNorm((2, 3))


class MyRMSNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))


class TestUnknownModules:
    def test_conv1d_of_transformers_is_linear(self) -> None:
        model = nn.Sequential(Conv1D(6, 2), nn.Embedding(5, 4))
        assert names(choose(model, "linear")) == ["0.weight"]
        assert names(choose(model, "all")) == ["0.weight", "1.weight"]

    def test_a_filter_of_conv1d_is_a_column(self) -> None:
        model = nn.Sequential(Conv1D(6, 2))
        cs = prunus.ContinuousSparsification(
            model, steps=1, select="all", granularity="filter", mask_init=0.1
        )
        gate = cs.gates["0.weight"]
        assert gate.score.shape == (1, 6)
        with torch.no_grad():
            gate.score[0, 4] = -1.0
        assert not cs.mask()["0.weight"][:, 4].any()
        assert cs.mask().kept == 10

    @pytest.mark.parametrize("granularity", ["weight", "filter"])
    def test_its_bias_may_have_a_gate(self, granularity: Any) -> None:
        cs = prunus.ContinuousSparsification(
            Conv1D(6, 2), steps=1, select="*", granularity=granularity
        )
        assert cs.gates["bias"].score.shape == (6,)

    def test_another_module_named_conv1d_is_not(self) -> None:
        model = Conv1D(2, 2)
        model.weight = nn.Parameter(torch.ones(2, 2, 3))
        assert names(choose(model, "other")) == ["weight"]

    def test_experts_are_a_kind_and_other_weights_are_one_that_all_leaves_out(self) -> None:
        model = nn.ModuleDict({"moe": Experts(), "fc": nn.Linear(2, 2)})
        assert names(choose(model, "expert")) == ["moe.up"]
        assert names(choose(model, "other")) == ["moe.router"]
        assert names(choose(model)) == ["moe.up"]  # the body: without the last layer
        everything = choose(model, "all")
        assert names(everything) == ["moe.up", "fc.weight"]
        assert names(everything.passed_over) == ["moe.router"]
        assert everything.total == 24 + 12 + 3 + 12 + 6
        assert "49.1% of all parameters" in str(everything)

    def test_a_module_may_be_named_after_its_experts(self) -> None:
        class Gated(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.down_proj = nn.Parameter(torch.ones(2, 2, 2))

        model = nn.ModuleDict({"mlp_experts": Gated(), "mixer": Gated()})
        assert names(choose(model, "expert")) == ["mlp_experts.down_proj"]
        assert names(choose(model, "other")) == ["mixer.down_proj"]

    @pytest.mark.parametrize("granularity", ["filter", "kernel", (2, 2), "1:2"])
    def test_experts_have_a_gate_for_each_weight(self, granularity: Any) -> None:
        with pytest.raises(prunus.SettingError, match=r"exclude='expert'"):
            prunus.ContinuousSparsification(
                Experts(), steps=1, select="expert", granularity=granularity
            )

    def test_other_weights_get_gates(self) -> None:
        rules = ["expert", "other"]
        cs = prunus.ContinuousSparsification(Experts(), steps=1, select=rules, mask_init=-0.1)
        assert cs.mask().total == 36
        with cs.hard():
            assert not cs.model.up.any()
        assert cs.remove().up.all()

    def test_nothing_of_a_known_kind_names_other(self) -> None:
        model = nn.Module()
        model.table = nn.Parameter(torch.ones(3, 4))
        with pytest.raises(SelectionError, match=r"selections that would: 'other';"):
            choose(model, "all")


class TestNormalisation:
    @pytest.mark.parametrize("norm", [nn.BatchNorm1d(3), nn.LayerNorm((2, 3)), MyRMSNorm()])
    def test_is_taken_by_name_only(self, norm: nn.Module) -> None:
        model = nn.ModuleDict({"fc": nn.Linear(3, 3), "norm": norm})
        assert names(choose(model, "*.weight")) == ["fc.weight"]
        assert names(choose(model, "*")) == ["fc.weight", "fc.bias"]
        assert names(choose(model, ["*.weight", "norm.weight"])) == ["fc.weight", "norm.weight"]
        with pytest.raises(SelectionError, match="matches no parameter"):
            choose(model, "norm.*")


class TestErrors:
    @pytest.mark.parametrize("rule", ["all", "0.*", nn.Conv2d])
    @pytest.mark.parametrize("kind", ["weight", "spectral"])
    def test_the_old_weight_norm_and_spectral_norm(self, kind: str, rule: str) -> None:
        norm = getattr(nn.utils, f"{kind}_norm")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the old weight norm is deprecated, but in use
            model = nn.Sequential(norm(nn.Conv2d(2, 3, 3)), nn.Linear(2, 2))
        with pytest.raises(
            AttachError, match=rf"0\.weight_\w+ is under {kind} norm.*remove_{kind}"
        ):
            choose(model, rule)
        assert names(choose(model, "linear")) == ["1.weight"]
        getattr(nn.utils, f"remove_{kind}_norm")(model[0])
        assert "0.weight" in names(choose(model, rule))

    def test_nothing_matches_lists_the_candidates(self) -> None:
        model = nn.Sequential(nn.Linear(3, 2), nn.Embedding(5, 4))
        with pytest.raises(SelectionError) as raised:
            choose(model, "paper")
        message = str(raised.value)
        assert "select='paper' matches no parameter" in message
        assert "'all', 'embedding', 'linear'" in message
        rows = [line.split() for line in message.splitlines()[1:]]
        assert rows == [
            ["parameter", "kind", "shape", "weights"],
            ["0.weight", "linear", "2x3", "6"],
            ["1.weight", "embedding", "5x4", "20"],
        ]

    @pytest.mark.parametrize(
        ("rule", "shown"),
        [
            ("encoder.*", r"'encoder\.\*'"),
            (nn.LSTM, "'LSTM'"),
            (lambda _: False, "'<lambda>'"),
            (["linear", "typo.*"], r"'typo\.\*'"),
        ],
    )
    def test_the_rule_without_a_match_is_named(self, rule: object, shown: str) -> None:
        with pytest.raises(SelectionError, match=f"select={shown} matches no parameter"):
            choose(nn.Linear(2, 2), rule)  # type: ignore[arg-type]

    def test_a_model_with_parameters_of_no_known_kind(self) -> None:
        with pytest.raises(SelectionError, match=r"weight +other +4 +4"):
            choose(nn.LayerNorm(4), "all")

    def test_a_model_without_parameters(self) -> None:
        with pytest.raises(SelectionError, match="no floating-point parameters"):
            choose(nn.ReLU(), "all")

    @pytest.mark.parametrize("empty", [[], ()])
    def test_no_rules(self, empty: list[str]) -> None:
        with pytest.raises(SelectionError, match="select is empty"):
            choose(nn.Linear(2, 2), empty)

    @pytest.mark.parametrize("select", ["paper", "all", "linear", nn.Linear, "0.weight", "nothing"])
    def test_lazy_modules_are_never_skipped_silently(self, select: str) -> None:
        model = nn.Sequential(nn.Conv2d(1, 1, 3), nn.Flatten(), nn.LazyLinear(3))
        with pytest.raises(SelectionError, match=r"2\.weight is lazy .* run one batch"):
            choose(model, select)
        model(torch.zeros(1, 1, 4, 4))
        assert names(choose(model, "all")) == ["0.weight", "2.weight"]

    @pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
    def test_weights_that_are_not_finite(self, bad: float) -> None:
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
        with torch.no_grad():
            model[1].weight[1, 0] = bad
        with pytest.raises(SelectionError, match=r"1\.weight holds NaN or infinite"):
            choose(model, "linear")
        assert names(choose(model, "0.*t")) == ["0.weight"]

    def test_weights_that_are_not_there_yet(self) -> None:
        with pytest.raises(SelectionError, match=r"0\.weight holds .* \(on the device 'meta'\)"):
            choose(nn.Sequential(nn.Linear(2, 2, device="meta")), "all")

    @pytest.mark.parametrize("embedding", [nn.Embedding, nn.EmbeddingBag])
    def test_sparse_embeddings(self, embedding: type[nn.Embedding]) -> None:
        with pytest.raises(SelectionError, match=r"0\.weight has sparse gradients"):
            choose(nn.Sequential(embedding(5, 4, sparse=True)), "all")

    def test_a_custom_module_may_have_an_attribute_named_sparse(self) -> None:
        class Odd(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.weight = nn.Parameter(torch.ones(2, 2))
                self.sparse = nn.Linear(2, 2)

        assert names(choose(Odd(), "weight")) == ["weight"]

    def test_already_parametrized(self) -> None:
        model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Conv2d(2, 3, 3)))
        with pytest.raises(AttachError, match="parametrized already"):
            choose(model, "*original1")
        with pytest.raises(SelectionError, match=r"0\.parametrizations\.weight\.original0"):
            choose(model, "conv")

    def test_a_refused_selection_changes_nothing(self) -> None:
        model = nn.Sequential(nn.Linear(2, 2), nn.Embedding(3, 2, sparse=True))
        before = list(model.state_dict())
        with pytest.raises(SelectionError):
            choose(model, "all")
        assert list(model.state_dict()) == before
        assert type(model[0]) is nn.Linear


class TestListing:
    def test_printed(self) -> None:
        title, header, *rows, rest = str(choose(Block())).splitlines()
        # Of 114 parameters: 96 of the convolutions, 18 of biases and BatchNorm.
        assert title == (
            "2 of 3 weight tensors are sparsified, 80 weights: 70.2% of all parameters"
        )
        assert rest == "not listed: biases, normalisation and the like, 18 parameters"
        assert header.split() == ["parameter", "kind", "shape", "weights", "chosen"]
        assert [row.split() for row in rows] == [
            ["reduce.weight", "conv", "2x4x1x1", "8", "yes"],
            ["conv.weight", "conv", "4x2x3x3", "72", "yes"],
            ["shortcut.0.weight", "conv", "4x4x1x1", "16", "no"],
        ]

    def test_is_a_sequence(self) -> None:
        selection = choose(Block())
        assert len(selection) == 2
        assert selection[0] in selection
        assert names(selection[::-1]) == ["conv.weight", "reduce.weight"]
        assert [c.is_shortcut for c in (*selection, *selection.passed_over)] == [False, False, True]
