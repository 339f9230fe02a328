"""What a model under gates saves and loads, and what it refuses to have done to it."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, NoReturn, cast

import torch
from torch import nn

from prunus.errors import AttachError
from prunus.gates.places import is_gated
from prunus.selection import Candidate

_CHANGES = ("resize_token_embeddings", "tie_weights")

_SAYS = " (has a gate of Prunus: resume from this checkpoint, or strip() the model before saving)"
"""What the report of `from_pretrained` shows after the name of a weight."""


def leave_to_the_first(module: nn.Module, attribute: str) -> None:
    """Have only the first of the modules that share a gated weight save it; this is another one.

    Files of safetensors, and so those of transformers, refuse tensors that share memory.
    """
    pair = cast(nn.ModuleDict, module.parametrizations)[attribute]
    pair.register_state_dict_post_hook(_leave_to_the_first)
    pair.register_load_state_dict_pre_hook(_take_from_the_first)


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


def allow_changes(module: nn.Module) -> None:
    """Undo `refuse_changes`."""
    for name in _CHANGES:
        module.__dict__.pop(name, None)


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


def _leave_to_the_first(_: nn.Module, state: dict[str, Any], prefix: str, *__: Any) -> None:
    for key in [key for key in state if key.startswith(prefix)]:
        del state[key]


def _take_from_the_first(pair: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    for name, tensor in (*pair.named_parameters(), *pair.named_buffers()):
        state.setdefault(prefix + name, tensor.detach())


def _refuse(name: str, *_: Any, **__: Any) -> NoReturn:
    raise AttachError(
        f"{name}() while the model is under a method: call it first, then attach. Weights that "
        "were tied then share one gate, and stay tied"
    )


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
    gated = [attribute for attribute, pair in pairs if is_gated(pair)]
    return [prefix + attribute + says for attribute in gated for says in ("", _SAYS)]
