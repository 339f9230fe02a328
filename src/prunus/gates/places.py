"""Where the gates and the tensors of a model are, by the names that they have without gates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, cast

from torch import Tensor, nn
from torch.nn.utils import parametrize

from prunus.gates.base import Gate
from prunus.selection import Candidate


def is_attached(candidate: Candidate, gate: Gate) -> bool:
    """Whether `gate` is on the parameter now."""
    _, module, attribute = candidate.owners[0]
    on_it = parametrize.is_parametrized(module, attribute)
    return on_it and gate_of(module, attribute)[0] is gate


def gated_parameters(model: nn.Module) -> dict[str, tuple[Gate, nn.Parameter]]:
    """Gate and trained weight by parameter name (of the plain model), shared ones once."""
    found: dict[str, tuple[Gate, nn.Parameter]] = {}
    seen: set[int] = set()
    for name, module, attribute in gated(model):
        gate, weight = gate_of(module, attribute)
        if id(gate) not in seen:
            seen.add(id(gate))
            found[name] = (gate, weight)
    return found


def count_parameters(model: nn.Module) -> int:
    """How many numbers the plain model trains; what gates learn does not count."""
    own = {id(p) for gate, _ in gated_parameters(model).values() for p in gate.parameters()}
    return sum(p.numel() for p in model.parameters() if id(p) not in own)


def gate_of(module: nn.Module, attribute: str) -> tuple[Gate, nn.Parameter]:
    """The gate on `module.attribute` and the weight under it."""
    # Each step asks, and PyTorch's own way of indexing modules takes ten times as long.
    pair = cast(Any, module._modules["parametrizations"])._modules[attribute]
    return pair._modules["0"], pair._parameters["original"]


class Place(NamedTuple):
    """Where a tensor of a model lives. It stays valid if the module gets another path in the model.

    Wrappers do that: `torch.compile` of a layer, checkpointing, adapters.
    """

    name: str
    """The path, without gates, when the place was found."""
    module: nn.Module
    attribute: str

    @property
    def tensor(self) -> Tensor:
        """The live one: for a gated parameter, the weight that is trained."""
        if parametrize.is_parametrized(self.module, self.attribute):
            return gate_of(self.module, self.attribute)[1]
        return cast(Tensor, getattr(self.module, self.attribute))


def plain_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Every parameter and persistent buffer by the name it has without gates, shared ones once.

    The tensors are the live ones: for a gated parameter, the weight that is trained.
    """
    return {place.name: place.tensor for place in places(model)}


def places(model: nn.Module) -> list[Place]:
    """The places of all `plain_tensors`."""
    found: list[Place] = []
    seen: set[int] = set()
    for path, module in model.named_modules():
        if isinstance(module, Gate) or is_gated(module):
            continue
        own = dict(module.named_parameters(recurse=False))
        transient = module._non_persistent_buffers_set
        own |= {k: b for k, b in module.named_buffers(recurse=False) if k not in transient}
        for attribute, pair in _parametrizations(module):
            if is_gated(pair):
                own[attribute] = cast(Any, pair).original
        for attribute, tensor in own.items():
            if id(tensor) not in seen:
                seen.add(id(tensor))
                name = f"{path}.{attribute}" if path else attribute
                found.append(Place(name, module, attribute))
    return found


def gated(model: nn.Module) -> Iterator[tuple[str, nn.Module, str]]:
    """Name, module and attribute of every gated weight; of a shared one, for each that has it."""
    for path, module in model.named_modules():
        for attribute, pair in _parametrizations(module):
            if is_gated(pair):
                yield f"{path}.{attribute}" if path else attribute, module, attribute


def is_gated(module: nn.Module) -> bool:
    """Whether these are the parametrizations of a weight, and a gate is the first of them."""
    # Lists of other parametrizations (weight norm and the like) are left alone.
    return isinstance(module, parametrize.ParametrizationList) and isinstance(module[0], Gate)


def _parametrizations(module: nn.Module) -> Iterable[tuple[str, nn.Module]]:
    # Wrappers (torch.compile, checkpointing) show the attributes of what they hold as their own.
    return cast(nn.ModuleDict, module._modules.get("parametrizations") or nn.ModuleDict()).items()
