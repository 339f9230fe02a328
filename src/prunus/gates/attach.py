"""Putting gates on a model and taking them off again, in place and without a trace.

PyTorch's parametrizations do the work; this file adds what they leave to the caller: weights that
several modules share, recurrent layers, and copies of a model that must not share a class.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, NoReturn, cast

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from prunus.errors import AttachError
from prunus.gates.base import Gate
from prunus.gates.sharded import is_sharded
from prunus.gates.watching import stop_watching
from prunus.selection import Candidate


def check_attachable(model: nn.Module) -> None:
    """Raise unless `model` is a plain module that no method works on yet."""
    if isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel) or hasattr(
        model, "_orig_mod"
    ):
        raise AttachError(
            f"the model is wrapped already ({type(model).__name__}): attach to the plain model "
            "first, then wrap it in DDP or torch.compile"
        )
    if any(is_sharded(parameter) for parameter in model.parameters()):
        raise AttachError(
            "the model is shared out among processes already: attach first, then call fully_shard"
        )
    attached = gated_parameters(model)
    if attached:
        raise AttachError(
            f"the model is already under a method: {next(iter(attached))} has a gate. Call "
            "prunus.strip(model) to keep the sparse weights, or the method's remove() to go back"
        )


def attach(candidate: Candidate, gate: Gate) -> Gate:
    """Put `gate` on a parameter, in every module that uses it."""
    for _, module, attribute in candidate.owners:
        order = getattr(type(module), "_prunus_order", tuple(module._parameters))
        parametrize.register_parametrization(module, attribute, gate, unsafe=True)
        cast(Any, type(module))._prunus_order = order
        if isinstance(module, nn.RNNBase):
            _adapt_recurrent(module)
    for _, module, attribute in candidate.owners[1:]:
        pair = cast(nn.ModuleDict, module.parametrizations)[attribute]
        pair.register_state_dict_post_hook(_leave_to_the_first)
        pair.register_load_state_dict_pre_hook(_take_from_the_first)
    return gate


def refuse_changes(model: nn.Module, chosen: Iterable[Candidate]) -> None:
    """Let models of transformers refuse what would change gated weights without their gates.

    They look for plain parameters by name, and would stop half-way. Resizing also makes other
    shapes than those of `w^(k)`. `strip` and `remove` undo it.
    """
    owners = [module for candidate in chosen for _, module, _ in candidate.owners]
    ties = any(isinstance(module, nn.Embedding) for module in owners)
    for module in model.modules():
        for name in _CHANGES if ties else _CHANGES[:1]:
            if hasattr(type(module), name):
                setattr(module, name, partial(_refuse, name))


def mark_saved(model: nn.Module, chosen: Iterable[Candidate]) -> None:
    """Let `from_pretrained` refuse what is saved while gates are on the model.

    It takes what it finds by name and starts the rest anew, which would be every gated weight. So
    a state also has each of them by its plain name, with a shape that cannot fit, and says why.
    `strip` and `remove` undo it.
    """
    if any(hasattr(type(module), "from_pretrained") for module in model.modules()):
        for candidate in chosen:
            for _, module, _ in candidate.owners:
                _mark_saved(module)


_CHANGES = ("resize_token_embeddings", "tie_weights")

_SAYS = " (has a gate of Prunus: resume from this checkpoint, or strip() the model before saving)"
"""What the report of `from_pretrained` shows after the name of a weight."""


def _refuse(name: str, *_: Any, **__: Any) -> NoReturn:
    raise AttachError(
        f"{name}() while the model is under a method: call it first, then attach. Weights that "
        "were tied then share one gate, and stay tied"
    )


def is_attached(candidate: Candidate, gate: Gate) -> bool:
    """Whether `gate` is on the parameter now."""
    _, module, attribute = candidate.owners[0]
    on_it = parametrize.is_parametrized(module, attribute)
    return on_it and gate_of(module, attribute)[0] is gate


def gated_parameters(model: nn.Module) -> dict[str, tuple[Gate, nn.Parameter]]:
    """Gate and trained weight by parameter name (of the plain model), shared ones once."""
    found: dict[str, tuple[Gate, nn.Parameter]] = {}
    seen: set[int] = set()
    for name, module, attribute in _gated(model):
        gate, weight = gate_of(module, attribute)
        if id(gate) not in seen:
            seen.add(id(gate))
            found[name] = (gate, weight)
    return found


def count_parameters(model: nn.Module) -> int:
    """Numbers that the plain model trains; what gates learn is not among them."""
    own = {id(p) for gate, _ in gated_parameters(model).values() for p in gate.parameters()}
    return sum(p.numel() for p in model.parameters() if id(p) not in own)


def gate_of(module: nn.Module, attribute: str) -> tuple[Gate, nn.Parameter]:
    """The gate on `module.attribute` and the weight under it."""
    parametrizations = cast(nn.ModuleDict, module.parametrizations)
    pair = cast(Any, parametrizations[attribute])
    return pair[0], pair.original


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
    """Of all `plain_tensors`."""
    found: list[Place] = []
    seen: set[int] = set()
    for path, module in model.named_modules():
        if isinstance(module, Gate) or _is_gated(module):
            continue
        own = dict(module.named_parameters(recurse=False))
        transient = module._non_persistent_buffers_set
        own |= {k: b for k, b in module.named_buffers(recurse=False) if k not in transient}
        if parametrize.is_parametrized(module):
            for attribute, pair in cast(nn.ModuleDict, module.parametrizations).items():
                if _is_gated(pair):
                    own[attribute] = cast(Any, pair).original
        for attribute, tensor in own.items():
            if id(tensor) not in seen:
                seen.add(id(tensor))
                name = f"{path}.{attribute}" if path else attribute
                found.append(Place(name, module, attribute))
    return found


def strip(model: nn.Module) -> nn.Module:
    """Make the masks permanent: plain modules with zeros in place, no trace of Prunus.

    Works in place on any model that carries gates, also on a `deepcopy` of one, and returns it. The
    parameters stay the same objects, so optimisers stay valid; but nothing protects the zeros in
    training any more.
    """
    for gate, _ in gated_parameters(model).values():
        gate.hard = True
    _detach(model, keep_gated=True)
    return model


def remove(model: nn.Module) -> nn.Module:
    """Take the gates off and leave the dense weights under them, in place."""
    _detach(model, keep_gated=False)
    return model


def freeze(model: nn.Module) -> None:
    """Stop the training of everything but the gates; `unfreeze`, `strip` and `remove` undo it."""
    for module in model.modules():
        if not isinstance(module, Gate):
            own = module._parameters.items()
            names = [name for name, p in own if p is not None and p.requires_grad]
            for name in names:
                module._parameters[name].requires_grad_(False)  # type: ignore[union-attr]
            cast(Any, module)._prunus_frozen = names  # of the module, so that copies know it too


def unfreeze(model: nn.Module) -> None:
    """Let everything train again that `freeze` stopped."""
    for module in model.modules():
        for name in module.__dict__.pop("_prunus_frozen", ()):
            module._parameters[name].requires_grad_(True)  # type: ignore[union-attr]


@contextmanager
def hard(model: nn.Module) -> Iterator[nn.Module]:
    """Within this context `model` computes with its binary masks."""
    gates = [gate for gate, _ in gated_parameters(model).values()]
    before = [gate.hard for gate in gates]
    for gate in gates:
        gate.hard = True
    try:
        yield model
    finally:
        for gate, was_hard in zip(gates, before, strict=True):
            gate.hard = was_hard


# A weight and a gate that several modules share are saved once, under the name of the first: files
# of safetensors, and so those of transformers, refuse tensors that share memory.


def _leave_to_the_first(_: nn.Module, state: dict[str, Any], prefix: str, *__: Any) -> None:
    for key in [key for key in state if key.startswith(prefix)]:
        del state[key]


def _take_from_the_first(pair: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    for name, tensor in (*pair.named_parameters(), *pair.named_buffers()):
        state.setdefault(prefix + name, tensor.detach())


def _mark_saved(module: nn.Module) -> None:
    # In the class that the module has while it is parametrized, so that nothing has to be undone.
    cls: Any = type(module)
    if "_save_to_state_dict" in vars(cls):
        return
    save, load = cls._save_to_state_dict, cls._load_from_state_dict

    def save_with_marks(self: nn.Module, state: dict[str, Any], prefix: str, *args: Any) -> None:
        save(self, state, prefix, *args)
        state.update({key: torch.zeros(()) for key in _marks(self, prefix)})

    def load_without_marks(self: nn.Module, state: dict[str, Any], prefix: str, *args: Any) -> None:
        for key in _marks(self, prefix):
            state.pop(key, None)
        load(self, state, prefix, *args)

    cls._save_to_state_dict, cls._load_from_state_dict = save_with_marks, load_without_marks


def _marks(module: nn.Module, prefix: str) -> list[str]:
    pairs = cast(nn.ModuleDict, module.parametrizations).items()
    gated = [attribute for attribute, pair in pairs if _is_gated(pair)]
    return [prefix + attribute + says for attribute in gated for says in ("", _SAYS)]


def _gated(model: nn.Module) -> Iterator[tuple[str, nn.Module, str]]:
    for path, module in model.named_modules():
        if parametrize.is_parametrized(module):
            for attribute, pair in cast(nn.ModuleDict, module.parametrizations).items():
                if _is_gated(pair):
                    yield f"{path}.{attribute}" if path else attribute, module, attribute


def _is_gated(module: nn.Module) -> bool:
    # Lists of other parametrizations (weight norm and the like) are left alone.
    return isinstance(module, parametrize.ParametrizationList) and isinstance(module[0], Gate)


def _detach(model: nn.Module, keep_gated: bool) -> None:
    # With shared weights the first removal writes the gated weight into the shared parameter; the
    # others must then leave it as it is.
    if any(is_sharded(weight) for _, weight in gated_parameters(model).values()):
        raise AttachError(
            "a model under fully_shard cannot be changed back: take ticket('current'), and apply "
            "it to a plain model"
        )
    unfreeze(model)
    for module in model.modules():
        for name in _CHANGES:
            module.__dict__.pop(name, None)
        stop_watching(module)
    written: set[int] = set()
    for _, module, attribute in list(_gated(model)):
        _own_class(module)
        weight = gate_of(module, attribute)[1]
        keep = keep_gated and id(weight) not in written
        order = cast(Any, type(module))._prunus_order
        parametrize.remove_parametrizations(module, attribute, leave_parametrized=keep)
        # Optimisers know parameters by their position, so each goes back to where it was.
        for name in filter(module._parameters.__contains__, order):
            module._parameters[name] = module._parameters.pop(name)
        written.add(id(weight))
        if isinstance(module, nn.RNNBase):
            cast(Any, module)._init_flat_weights()  # the layer's own list of weights


def _own_class(module: nn.Module) -> None:
    # Parametrizing gives a module a class of its own, but its deepcopies share that class, and
    # removing the parametrization of one of them would delete the property under all of them.
    cls = type(module)
    contents = {k: v for k, v in vars(cls).items() if k not in ("__dict__", "__weakref__")}
    module.__class__ = type(cls.__name__, cls.__bases__, contents)


def _adapt_recurrent(module: nn.RNNBase) -> None:
    # Recurrent layers keep a list of their weights, made anew in each forward pass when these
    # change. With gates they always change, and stay in the list as parts of an autograd graph,
    # which cannot be copied: so copies are made without the list. It reads each weight several
    # times, so the gated weights are cached for the duration of a forward pass.
    cls: Any = type(module)
    if "_prunus_adapted" in vars(cls):
        return
    forward, copy = cls.forward, cls.__deepcopy__

    def cached_forward(self: nn.RNNBase, *args: Any, **kwargs: Any) -> Any:
        with parametrize.cached():
            return forward(self, *args, **kwargs)

    def deepcopy_without_list(self: nn.RNNBase, memo: dict[int, Any]) -> Any:
        self._flat_weights = [None] * len(self._flat_weights_names)
        return copy(self, memo)

    cls._prunus_adapted = True
    cls.forward, cls.__deepcopy__ = cached_forward, deepcopy_without_list
