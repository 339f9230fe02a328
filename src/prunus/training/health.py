"""What to say when the loss or a weight is not finite."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from prunus.errors import PrunusError
from prunus.gates import gated_parameters, plain_tensors
from prunus.tasks.batch import call, tensors


class DivergedError(PrunusError, ArithmeticError):
    """The loss or the weights became NaN or infinite."""

    status = 1
    """Of the command: it was not refused, it failed."""


def diverged(step: int, first_bad: int | None, finding: str) -> DivergedError:
    """The error, with what was found in `step` and what may help.

    `first_bad` is the first step with a bad loss; None if only the model is bad.
    """
    if first_bad is None:
        what = f"the model holds NaN or infinity after step {step}, though the loss was finite"
    else:
        noticed = f", noticed in step {step}" if first_bad < step else ""
        what = f"the loss is not finite (NaN or infinity) in step {first_bad}{noticed}"
    return DivergedError(
        f"{what}: {finding}. Try a smaller recipe.lr, engine.clip, or engine.precision=fp32"
    )


def diagnose(model: nn.Module, inputs: Any, *, late: bool = False) -> str:
    """Where the problem began, as far as can be known: in the weights, or in the forward pass.

    `late` means that it began some steps ago and has spread since.
    """
    return _bad_weights(model, late) or _bad_activation(model, inputs)


def unhealthy(model: nn.Module, *, late: bool = False) -> str | None:
    """What is wrong with the model's values; None if they may be saved in a checkpoint."""
    # Buffers may contain infinities for good reason, as attention masks do.
    buffers = (name for name, buffer in model.named_buffers() if bool(buffer.isnan().any()))
    bad = next(buffers, None)
    finding = _bad_weights(model, late)
    return finding or (bad and f"all weights are finite, but the buffer {bad} is NaN")


def _bad_weights(model: nn.Module, late: bool) -> str | None:
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
    *others, last = bad
    if not others:
        return f"of the weights, only {last} is bad"
    named = f"{last}, {', '.join(others[:3])}{', ...' if others[3:] else ''}"
    if late:
        return f"{named} are bad by now; it is too late to tell which was first"
    # The backward pass runs from the output to the input, and bad values spread with it.
    return (
        f"{named} are bad; {last} was probably first: it is nearest to the output, where the "
        "backward pass begins"
    )


@torch.no_grad()
def _bad_activation(model: nn.Module, inputs: Any) -> str:
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
        call(model, inputs)
    finally:
        for handle in hooks:
            handle.remove()
    if not all(bool(tensor.isfinite().all()) for tensor in tensors(inputs)):
        return "all weights are finite, but the inputs are not"
    if found:
        return f"all weights are finite, and the first layer with a bad output is {found[0]}"
    return "weights and outputs are finite when computed again; only the loss or the penalty is not"
