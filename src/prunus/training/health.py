"""What to say when the loss is no number any more."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from prunus.errors import PrunusError
from prunus.gates import gated_parameters, plain_tensors


class DivergedError(PrunusError, ArithmeticError):
    """The loss or the weights became NaN or infinite."""

    def __init__(self, when: str, finding: str) -> None:
        super().__init__(
            f"the loss is not finite (NaN or infinity) in {when}: {finding}. Try a smaller "
            "recipe.lr, engine.clip, or engine.precision=fp32"
        )


def diagnose(model: nn.Module, images: Tensor) -> str:
    """Where it began, as far as can be known: in the weights, or else in the forward pass."""
    return bad_weights(model) or _bad_activation(model, images)


def bad_weights(model: nn.Module) -> str | None:
    """The weights, buffers and scores that are not finite; None if all are.

    A score may be infinite (that gate has decided), but not NaN.
    """
    gates = gated_parameters(model)
    total, bad = 0, []
    for name, tensor in plain_tensors(model).items():
        checks = {name: tensor.isfinite()}
        if name in gates:
            own = gates[name][0].named_parameters()
            checks |= {f"the {part} of {name}": ~values.isnan() for part, values in own}
        total += len(checks)
        bad += [what for what, good in checks.items() if not bool(good.all())]
    if not bad:
        return None
    # The backward pass runs from the output to the input, and what is bad spreads along with it.
    return (
        f"{len(bad)} of {total} weight tensors are not finite, and the gradient went bad first at "
        f"{bad[-1]}, which of these is nearest the output"
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
