"""Putting gates on a model and taking them off again, in place and without a trace.

PyTorch's parametrizations do the work; this file adds what they leave to the caller: weights that
several modules share, recurrent layers, and copies of a model that must not share a class.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from torch import Tensor, nn
from torch.nn.utils import parametrize

from prunus.errors import AttachError
from prunus.gates.base import Gate
from prunus.gates.places import gate_of, gated, gated_parameters
from prunus.gates.saving import allow_changes, leave_to_the_first
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
        _read_at_once(module, attribute)
        if isinstance(module, nn.RNNBase):
            _adapt_recurrent(module)
    for _, module, attribute in candidate.owners[1:]:
        leave_to_the_first(module, attribute)
    return gate


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


def give_masks(model: nn.Module, copy: nn.Module, *, sizes: bool) -> None:
    """Give the gates of a copy the masks of the model's gates.

    With `sizes`, also what kept weights count as. Leave that out if it has been folded into the
    model's weights since the copy was made, or if these weights are others by now.
    """
    own, twins = gated_parameters(model), gated_parameters(copy)
    shapes = [[weight.shape for _, weight in gated.values()] for gated in (own, twins)]
    if shapes[0] != shapes[1]:
        raise AttachError(
            f"this {type(copy).__name__} is no copy of the model under the method: it has "
            f"{len(twins)} gates, the model {len(own)}, or they are for other weights"
        )
    for (gate, _), (twin, weight) in zip(own.values(), twins.values(), strict=True):
        twin.round_mask = gate.mask().to(weight.device, copy=True)
        if sizes:
            twin.scale_like(gate)


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
        allow_changes(module)
        stop_watching(module)
    written: set[int] = set()
    for _, module, attribute in list(gated(model)):
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


def _read_at_once(module: nn.Module, attribute: str) -> None:
    # The property that PyTorch made goes through two modules and a search for further
    # parametrizations, which costs small layers more than the gate itself.
    cls: Any = type(module)
    general: property = vars(cls)[attribute]

    def read(self: nn.Module) -> Tensor:
        pair: Any = self._modules["parametrizations"]._modules[attribute]  # type: ignore[union-attr]
        if parametrize._cache_enabled or len(pair._modules) > 1:
            return cast(Tensor, cast(Any, general.fget)(self))
        return cast(Tensor, pair._modules["0"](pair._parameters["original"]))

    setattr(cls, attribute, property(read, general.fset))


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
