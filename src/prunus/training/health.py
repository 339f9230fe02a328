"""What to say when the loss is no number any more."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from prunus.errors import PrunusError
from prunus.gates import gated_parameters, plain_tensors


class DivergedError(PrunusError, ArithmeticError):
    """The loss or the weights became NaN or infinite."""


def diverged(when: str, finding: str) -> DivergedError:
    """The error, with what was found and what may help."""
    return DivergedError(
        f"the loss is not finite (NaN or infinity) in {when}: {finding}. Try a smaller recipe.lr, "
        "engine.clip, or engine.precision=fp32"
    )


def diagnose(model: nn.Module, images: Tensor) -> str:
    """Where it began, as far as can be known: in the weights, or else in the forward pass."""
    return _bad_weights(model) or _bad_activation(model, images)


def unhealthy(model: nn.Module) -> str | None:
    """What is wrong with the model's values; None if they may be kept in a checkpoint."""
    # Buffers may hold infinities for good reason, as an attention mask does.
    buffers = (name for name, buffer in model.named_buffers() if bool(buffer.isnan().any()))
    bad = next(buffers, None)
    return _bad_weights(model) or (bad and f"all weights are finite, but the buffer {bad} is NaN")


def _bad_weights(model: nn.Module) -> str | None:
    gates = gated_parameters(model)
    bad: list[str] = []
    for name, tensor in plain_tensors(model).items():
        if isinstance(tensor, nn.Parameter) and not bool(tensor.isfinite().all()):
            bad.append(name)
        if name in gates:
            # A score may be infinite (that gate has decided for good), but not NaN.
            scores = gates[name][0].named_parameters()
            bad += [f"the {what} of {name}" for what, s in scores if bool(s.isnan().any())]
    if not bad:
        return None
    # The backward pass runs from the output to the input, and what is bad spreads along with it.
    others = f", and with it {', '.join(bad[:-1][:3])}{', ...' if len(bad) > 4 else ''}"
    return (
        f"a gradient made {bad[-1]} bad{others if bad[1:] else ''}; of these it is the "
        "nearest to the output, where the backward pass begins"
    )


@torch.no_grad()
def _bad_activation(model: nn.Module, images: Tensor) -> str:
    found: list[str] = []
    hooks = []

    def watch(name: str) -> Any:
        def hook(module: nn.Module, _: Any, output: Any) -> None:
            if isinstance(output, Tensor) and not bool(output.isfinite().all()) and not found:
                found.append(f"{name or 'the model'} ({type(module).__name__})")

        return hook

    for name, module in model.named_modules():
        hooks.append(module.register_forward_hook(watch(name)))
    try:
        model(images)
    finally:
        for handle in hooks:
            handle.remove()
    if not bool(images.isfinite().all()):
        return "all weights are finite, but the images are not"
    if found:
        return f"all weights are finite, and the first layer with a bad output is {found[0]}"
    return "weights and outputs are finite; only the loss or the penalty is not"
