"""Which parameters of a model are sparsified.

`candidates(model)` lists every weight that could be; `choose(model, select, exclude)` picks some of
them by kind, module type, name pattern or predicate. The default of every method depends on the
network (`default_rule`). In a ConvNet it is the paper's choice: all convolutions except the 1x1
shortcuts of residual networks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from prunus.errors import AttachError, SelectionError
from prunus.tables import text_table

CONVOLUTIONS = (
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
)
# Module types by kind; their parameters with two or more dimensions are weights.
KINDS: dict[str, tuple[type[nn.Module], ...]] = {
    "conv": CONVOLUTIONS,
    "linear": (nn.Linear, nn.Bilinear),
    "embedding": (nn.Embedding, nn.EmbeddingBag),
    "attention": (nn.MultiheadAttention,),
    "recurrent": (nn.RNNBase, nn.RNNCellBase),
    "expert": (),  # by name: no two libraries have the same module
}
NORMALISATIONS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
# What residual networks call the projection beside the main path.
SHORTCUT_NAMES = frozenset({"shortcut", "downsample", "skip"})


@dataclass(frozen=True)
class Candidate:
    """One parameter that could be sparsified, with every place that uses it (tied weights)."""

    name: str
    kind: str
    parameter: nn.Parameter
    owners: tuple[tuple[str, nn.Module, str], ...]
    """(parameter name, module, attribute) of each place; the first gives the candidate its name."""
    is_last: bool = False
    """Whether the last layer uses it, in the order in which modules were defined: the classifier,
    as a rule."""

    @property
    def module(self) -> nn.Module:
        """The first module that uses the parameter."""
        return self.owners[0][1]

    @property
    def is_weight(self) -> bool:
        """Whether it has two dimensions or more, and is not the gain of a normalisation."""
        return self.parameter.dim() > 1 and not self.is_normalisation

    @property
    def is_normalisation(self) -> bool:
        """Whether it belongs to a normalisation layer, also to one that torch does not know."""
        named = self.parameter.dim() < 2 and "norm" in type(self.module).__name__.lower()
        return named or isinstance(self.module, NORMALISATIONS)

    @property
    def is_shortcut(self) -> bool:
        """Whether this is the 1x1 projection of a residual network's shortcut."""
        kernel = self.parameter.shape[2:]
        path = set(self.name.split("."))
        return self.kind == "conv" and all(k == 1 for k in kernel) and bool(path & SHORTCUT_NAMES)

    def __str__(self) -> str:
        tied = "".join(f" = {name}" for name, _, _ in self.owners[1:])
        return f"{self.name}{tied}"


Predicate = Callable[[Candidate], bool]
Rule = str | type[nn.Module] | Predicate
Select = Rule | Sequence[Rule]


class Selection(Sequence[Candidate]):
    """The chosen candidates in model order; `print` it to see what was chosen and what was not."""

    def __init__(
        self, chosen: Sequence[Candidate], passed_over: Sequence[Candidate], *, total: int
    ) -> None:
        self._chosen = tuple(chosen)
        self.passed_over = tuple(passed_over)
        self.total = total
        """Parameters of the whole model, biases and all."""

    @property
    def share(self) -> float:
        """The chosen fraction of all parameters."""
        return sum(c.parameter.numel() for c in self) / max(1, self.total)

    def __len__(self) -> int:
        return len(self._chosen)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        return self._chosen[index]

    def __iter__(self) -> Iterator[Candidate]:
        return iter(self._chosen)

    def __str__(self) -> str:
        rows = [_row(c, "yes") for c in self] + [_row(c, "no") for c in self.passed_over]
        chosen = sum(c.parameter.numel() for c in self)
        listed = chosen + sum(c.parameter.numel() for c in self.passed_over)
        title = (
            f"{len(self)} of {len(rows)} weight tensors are sparsified, {chosen:,} weights: "
            f"{self.share:.1%} of all parameters"
        )
        table = text_table(["parameter", "kind", "shape", "weights", "chosen"], rows)
        rest = f"not listed: biases, normalisation and the like, {self.total - listed:,} parameters"
        return "\n".join([title, table, *([rest] if self.total > listed else [])])


def candidates(model: nn.Module) -> list[Candidate]:
    """Every floating-point parameter of `model`, listed once even if modules share it.

    A model with lazy parameters is refused: they have no shape yet.
    """
    found: dict[int, Candidate] = {}
    last: int | None = None
    for path, module in model.named_modules():
        for attribute, parameter in module.named_parameters(recurse=False):
            if not parameter.is_floating_point():
                continue
            name = f"{path}.{attribute}" if path else attribute
            if isinstance(parameter, nn.parameter.UninitializedParameter):
                raise SelectionError(
                    f"{name} is lazy and has no shape yet: run one batch through the model first"
                )
            owner = (name, module, attribute)
            kind = _kind(path, module, parameter)
            if id(parameter) in found:
                earlier = found[id(parameter)]
                kind = earlier.kind if earlier.kind != "other" else kind
                owners = (*earlier.owners, owner)
                found[id(parameter)] = Candidate(earlier.name, kind, parameter, owners)
            else:
                found[id(parameter)] = Candidate(name, kind, parameter, (owner,))
            if kind != "other":
                last = id(parameter)
    return [replace(c, is_last=key == last) for key, c in found.items()]


def choose(model: nn.Module, select: Select = "auto", exclude: Select | None = None) -> Selection:
    """Pick the parameters of `model` that `select` describes, but none that `exclude` does.

    A rule is one of
    - `"auto"`: the `default_rule` of the model;
    - `"paper"`: convolutions except the 1x1 shortcuts; `"all"`: every weight of a known kind;
      `"body"`: these without embeddings and the last layer;
    - a kind: `"conv"`, `"linear"`, `"embedding"`, `"attention"`, `"recurrent"`, `"expert"` (three
      dimensions, in modules that are named so), or `"other"`: two and more in other modules;
    - a pattern of parameter names: `"encoder.*.weight"` (as in the shell; `*` also matches dots),
      which takes parameters of normalisation layers only by their full name;
    - a module type: `nn.Conv2d`;
    - a predicate: `lambda candidate: candidate.parameter.numel() > 10_000`.
    A sequence of rules stands for what any of them matches; one that matches nothing is an error.
    """
    everything = candidates(model)
    rules = [default_rule(model) if rule == "auto" else rule for rule in _rules(select)]
    exceptions = [] if exclude is None else _rules(exclude)
    if not rules:
        raise SelectionError("select is empty: give a rule, for example 'paper' or 'all'")
    for setting, given in (("select", rules), ("exclude", exceptions)):
        for rule in given:
            if not any(_matches(rule, c) for c in everything):
                raise SelectionError(_nothing_matches(setting, rule, everything))
    wanted = [c for c in everything if any(_matches(rule, c) for rule in rules)]
    chosen = [c for c in wanted if not any(_matches(rule, c) for rule in exceptions)]
    if not chosen:
        raise SelectionError(
            f"exclude leaves nothing of the {len(wanted)} weight tensors that select chooses: "
            f"{', '.join(c.name for c in wanted)}"
        )
    for candidate in chosen:
        check_gateable(candidate)
        if candidate.parameter.is_meta or not bool(torch.isfinite(candidate.parameter).all()):
            raise SelectionError(
                f"{candidate.name} holds NaN or infinite weights, or none (on the device 'meta'): "
                "load or initialise the model first"
            )
    ids = {id(c) for c in chosen}
    passed_over = [c for c in everything if c.is_weight and id(c) not in ids]
    return Selection(chosen, passed_over, total=sum(c.parameter.numel() for c in everything))


def default_rule(model: nn.Module) -> str:
    """What a method sparsifies if nobody says it, by the kind of network.

    `"paper"` if convolutions have at least half of the weights (embeddings do not count), as in
    ConvNets; else `"body"`, as in transformers and perceptrons; `"all"` if that would be nothing.
    """
    layers = [c for c in candidates(model) if c.kind not in ("other", "embedding")]
    convolutions = sum(c.parameter.numel() for c in layers if c.kind == "conv")
    if layers and 2 * convolutions >= sum(c.parameter.numel() for c in layers):
        return "paper"
    return "body" if any(_matches("body", c) for c in layers) else "all"


def _rules(given: Select) -> list[Rule]:
    return [given] if isinstance(given, str) or callable(given) else list(given)


def _kind(path: str, module: nn.Module, parameter: nn.Parameter) -> str:
    if parameter.dim() < 2:
        return "other"
    if is_transposed_linear(module):
        return "linear"
    named = "expert" in f"{path} {type(module).__name__}".lower()
    unknown = "expert" if named and parameter.dim() > 2 else "other"
    return next((kind for kind, types in KINDS.items() if isinstance(module, types)), unknown)


def is_transposed_linear(module: nn.Module) -> bool:
    """Whether it is the `Conv1D` of transformers: a linear layer, its weight stored (in, out)."""
    if type(module).__name__ != "Conv1D":
        return False
    weight = getattr(module, "weight", None)
    return isinstance(weight, Tensor) and weight.dim() == 2


def _matches(rule: Rule, candidate: Candidate) -> bool:
    if isinstance(rule, str):
        if rule == "paper":
            return candidate.kind == "conv" and not candidate.is_shortcut
        if rule == "all":
            return candidate.kind != "other"
        if rule == "body":
            return candidate.kind not in ("other", "embedding") and not candidate.is_last
        if rule == "other":
            return candidate.kind == "other" and candidate.is_weight
        if rule in KINDS:
            return candidate.kind == rule
        names = [name for name, _, _ in candidate.owners]
        if candidate.is_normalisation:
            return rule in names
        return any(fnmatchcase(name, rule) for name in names)
    if isinstance(rule, type):
        is_weight = candidate.parameter.dim() > 1
        return is_weight and any(isinstance(module, rule) for _, module, _ in candidate.owners)
    return bool(rule(candidate))


def check_gateable(candidate: Candidate) -> None:
    """Raise if a module uses the parameter in a way that rules out a gate."""
    for name, module, attribute in candidate.owners:
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, WeightNorm | SpectralNorm) and attribute.startswith(hook.name):
                kind = "weight" if isinstance(hook, WeightNorm) else "spectral"
                raise AttachError(
                    f"{name} is under {kind} norm, which computes the weight from it: call "
                    f"torch.nn.utils.remove_{kind}_norm on the module first, or leave it out of "
                    "the selection"
                )
        if isinstance(module, KINDS["embedding"]) and module.sparse:
            raise SelectionError(
                f"{name} has sparse gradients (sparse=True), which a gate cannot give: "
                "build the embedding with sparse=False"
            )
        if isinstance(module, parametrize.ParametrizationList):
            raise AttachError(
                f"{name} is parametrized already (weight norm, spectral norm or the like): "
                "remove that with torch.nn.utils.parametrize.remove_parametrizations, or leave "
                "this weight out of the selection"
            )


def _nothing_matches(setting: str, rule: Rule, everything: Sequence[Candidate]) -> str:
    name = rule if isinstance(rule, str) else getattr(rule, "__name__", repr(rule))
    weights = [c for c in everything if c.is_weight] or list(everything)
    if not weights:
        return f"{setting}={name!r} matches nothing: the model has no floating-point parameters"
    kinds = sorted({c.kind for c in weights if c.is_weight})
    table = text_table(["parameter", "kind", "shape", "weights"], [_row(c)[:4] for c in weights])
    hint = ", ".join(repr(k) for k in [*(["all"] if set(kinds) - {"other"} else []), *kinds])
    return (
        f"{setting}={name!r} matches no parameter of this model. Named selections that would: "
        f"{hint}; or give a name pattern, a module type or a predicate. Candidates:\n{table}"
    )


def _row(candidate: Candidate, *more: str) -> list[str]:
    shape = "x".join(map(str, candidate.parameter.shape))
    return [str(candidate), candidate.kind, shape, f"{candidate.parameter.numel():,}", *more]
