"""SynFlow: pruning before training, without data (Tanaka et al., 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._pytree import tree_leaves, tree_map

from prunus.gates import FixedGate, Watcher, stop_watching
from prunus.masks import Mask
from prunus.methods.common.families import EndsAtDensity, FixedMaskMethod
from prunus.methods.common.ranking import keep_density
from prunus.methods.settings import Must, setting


class SynFlow(EndsAtDensity[FixedGate], FixedMaskMethod):
    """Keep the weights through which most can flow: those with the highest `|dR/dw * w|`.

    `R` is the sum of the network's outputs for an input of ones, with the absolute value of every
    parameter and buffer, in evaluation mode. The mask comes in `iterations` cuts, `n` of which
    leave the fraction `target_density ** (n / iterations)` of the network; after each the scores
    are computed anew, so that no layer is cut off.

    Only the shape of an input has to be known, so the mask is decided just before the first forward
    pass, and is final.
    """

    name = "synflow"
    decides_once = True

    iterations: int = setting(
        "how many cuts lead to the density",
        default=100,
        must=Must(lambda count: count >= 1, "at least one cut has to be made"),
    )

    def on_attach(self) -> None:
        self._await_input()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._await_input()

    def _await_input(self) -> None:
        """Have the first forward pass decide the mask, unless that pass is over."""
        stop_watching(self.model, _FirstInput)
        if self.round == 1 and self.t == 0 and not self.hardened:
            self.model.register_forward_pre_hook(_FirstInput(self), with_kwargs=True)

    def decide_for(self, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        """Decide the mask, for inputs of these shapes."""
        device = next(self.model.parameters()).device.type
        training = [module for module in self.model.modules() if module.training]
        self.model.eval()
        grad, autocast = torch.enable_grad(), torch.autocast(device, enabled=False)
        with torch.inference_mode(False), grad, autocast:
            ones, named_ones = tree_map(_one_sample_of_ones, (arguments, keywords))
            self.set_mask({name: torch.ones_like(g.fixed_mask) for name, g in self.gates.items()})
            for n in range(1, self.iterations + 1):
                density = self.target_density ** (n / self.iterations)
                scores = self._scores(ones, named_ones)
                self.set_mask(Mask(keep_density(scores, self.mask(), density)))
        for module in training:
            module.training = True

    def _scores(self, ones: tuple[Any, ...], named_ones: dict[str, Any]) -> dict[str, Tensor]:
        """`|dR/dw * w|`, in float64: a deep network of absolute values has large outputs."""
        state = {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}
        absolute = {name: _absolute(tensor) for name, tensor in state.items()}
        names = {id(parameter): name for name, parameter in self.model.named_parameters()}
        gated = {n: absolute[names[id(w)]] for n, w in self.weights.items()}
        for weight in gated.values():
            weight.requires_grad_()
        output = functional_call(self.model, absolute, ones, named_ones)
        flow = torch.stack([part.sum() for part in tree_leaves(output)]).sum()
        gradients = torch.autograd.grad(flow, list(gated.values()), materialize_grads=True)
        pairs = zip(gated.items(), gradients, strict=True)
        return {name: (gradient * weight.detach()).abs() for (name, weight), gradient in pairs}


def _absolute(tensor: Tensor) -> Tensor:
    return tensor.detach().double().abs() if tensor.is_floating_point() else tensor


def _one_sample_of_ones(value: Any) -> Any:
    """For a tensor, ones in the shape of its first sample; other things stay as they are."""
    if not isinstance(value, Tensor):
        return value
    dtype = torch.float64 if value.is_floating_point() else value.dtype
    return torch.ones_like(value[:1], dtype=dtype)


class _FirstInput(Watcher):
    """Shows the method what the model gets, once."""

    def __init__(self, method: SynFlow) -> None:
        self.method = method

    def __call__(
        self, module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]
    ) -> None:
        stop_watching(module, _FirstInput)
        # Not as a decorator, which would load the compiler whenever prunus is imported.
        torch.compiler.disable(self.method.decide_for)(arguments, keywords)
