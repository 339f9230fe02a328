"""What a training loop asks of a method: parameter groups, the penalty, and steps."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from prunus import gates as gating
from prunus.errors import AttachError
from prunus.methods.common.groups import Groups, without
from prunus.methods.hooks import G, Hooks
from prunus.methods.settings import check


class Loop(Hooks[G]):
    """The part of `Method` that is for the training loop."""

    _places: list[gating.Place] = field(init=False)
    _rewind_weights: Mapping[str, Tensor] | None = field(init=False)
    _following: RemovableHandle | None = field(init=False)
    _withheld: list[tuple[nn.Parameter, Tensor | None]] = field(init=False)
    _in_hook = False

    def param_groups(
        self, lr: float, groups: Groups | None = None, **options: Any
    ) -> list[dict[str, Any]]:
        """Parameter groups for any optimiser; `options` are the optimiser's own for the weights.

        `groups` are yours, in any form that optimisers take: their order and options stay, and `lr`
        and `options` are for what a group leaves open. What the gates learn is taken out of them.
        """
        self._check_attached()
        own = {id(p) for gate in self.gates.values() for p in gate.parameters()}
        if groups is None:
            weights = [p for p in self.model.parameters() if p.requires_grad and id(p) not in own]
            return [{**options, "params": weights, "lr": lr}] if weights else []
        return [{"lr": lr, **options, **group} for group in without(own, groups)]

    def gate_group(
        self, lr: float, options: Mapping[str, Any], *, weight_decay: float = 0.0
    ) -> dict[str, Any]:
        """A parameter group of what the gates learn: by default without weight decay."""
        own = [p for gate in self.gates.values() for p in gate.parameters()]
        return {**options, "params": own, "lr": lr, "weight_decay": weight_decay}

    def penalty(self) -> Tensor:
        """What to add to the loss; zero for methods without a penalty."""
        self._check_attached()
        return gating.local(next(self.model.parameters())).new_zeros(())

    def penalised(self) -> list[nn.Parameter]:
        """What the penalty depends on."""
        return [p for gate in self.gates.values() for p in gate.parameters()]

    def regularize(self, scale: float = 1.0) -> None:
        """Instead of adding `penalty()` to the loss, add its gradient to those that are there.

        Call it once for each step of the optimiser, after the last backward pass. `scale` is the
        factor on the loss that these gradients still have, as of a `GradScaler`.
        """
        penalty = self.penalty()
        if penalty.requires_grad:
            learned = self.penalised()
            # Not backward(), which would tell DDP. The graph may be that of a forward pass whose
            # own backward pass is still to come.
            gradients = torch.autograd.grad(scale * penalty, learned, retain_graph=True)
            for parameter, gradient in zip(learned, gradients, strict=True):
                if parameter.grad is None:
                    parameter.grad = gradient
                else:
                    parameter.grad += gradient

    def withhold(self) -> None:
        """Hide from the optimiser, until `step`, the gradients of what `step` itself moves.

        For an optimiser that holds all parameters of the model, because others made it, and not
        those of `param_groups` alone. Call it after the last backward pass.
        """
        handed = {id(p) for group in self.param_groups(lr=1.0) for p in group["params"]}
        own = [p for gate in self.gates.values() for p in gate.parameters()]
        self._withheld = [(p, p.grad) for p in own if id(p) not in handed]
        for parameter, _ in self._withheld:
            parameter.grad = None

    def step(self) -> None:
        """Tell the method that the optimiser made a step. Does nothing once hardened."""
        self._check_attached()
        withheld, self._withheld = self._withheld, []
        for parameter, gradient in withheld:
            parameter.grad = gradient
        if self.hardened:
            return
        if self._follows and not self._in_hook:
            raise AttachError(
                "follow() calls step() after each step of the optimiser already, and this call "
                "would count the step twice: leave it out, or remove() the handle of follow()"
            )
        if self.t == 0 and (wrong := self._lost() or self._frozen()):
            raise AttachError(wrong)
        if self.life.holds_mask:
            self._hold(None)
        self.life.step()
        if self.round == 1 and self.t == self.rewind_step:
            self._rewind_weights = self._snapshot()
        self.on_step()

    def follow(self, optimizer: Optimizer) -> RemovableHandle:
        """From now on, call `step` after each step of `optimizer`: the loop need not.

        Of several optimisers, follow the one that steps last. It ends with `remove()` of the handle
        (or its `with` block), when another optimiser is followed, and with `strip` or `remove`.
        Checkpoints do not hold it: after resuming, follow again.
        """
        self._check_attached()
        check(
            isinstance(optimizer, Optimizer),
            f"follow({type(optimizer).__name__}): give it the torch.optim.Optimizer itself, whose "
            "step() can be followed",
        )
        self._stop_following()
        self._following = optimizer.register_step_post_hook(self._after_optimiser)
        self._clear_with(optimizer, self._following)
        return self._following

    @property
    def hard_in_eval(self) -> bool:
        """Whether the model computes with its binary mask in evaluation mode; set it at any time.

        Not a setting: it changes nothing that is learned, unless you train in evaluation mode.
        """
        return all(gate.hard_in_eval for gate in self.gates.values())

    @hard_in_eval.setter
    def hard_in_eval(self, value: bool) -> None:
        for gate in self.gates.values():
            gate.hard_in_eval = value

    # Details

    def _clear_with(self, optimizer: Optimizer, following: RemovableHandle) -> None:
        """Let the `optimizer` that is followed clear the gradients of gates too, with its own.

        After a step there are none. After one that a GradScaler skipped, they are as bad as those
        of the weights, and would spoil the next step. Optimisers have no hook for this.
        """
        reference, zero_grad = weakref.ref(optimizer), type(optimizer).zero_grad

        def zero_all(set_to_none: bool = True) -> None:
            if (optimizer := reference()) is not None:
                zero_grad(optimizer, set_to_none)
            if self._follows and self._following is following:
                for gate in self.gates.values():
                    gate.zero_grad(set_to_none)

        optimizer.zero_grad = zero_all  # type: ignore[method-assign]

    def _after_optimiser(self, *_: Any) -> None:
        if not self._attached:  # prunus.strip or prunus.remove: nothing is left to do
            return
        self._in_hook = True
        try:
            self.step()
        finally:
            self._in_hook = False

    @property
    def _follows(self) -> bool:
        handle = self._following
        return handle is not None and handle.id in (handle.hooks_dict_ref() or ())

    def _stop_following(self) -> None:
        if self._following is not None:
            self._following.remove()
            self._following = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_following": None}  # an optimiser is followed by one method only

    def _hold(self, mask: Mapping[str, Tensor] | None) -> None:
        for name, weight in self.weights.items():
            held = None if mask is None else mask[name].to(weight.device)
            self.gates[name].round_mask = held

    def _snapshot(self) -> dict[str, Tensor]:
        return {p.name: gating.whole(p.tensor.detach()).clone() for p in self._places}

    def _lost(self) -> str:
        """What is wrong if the model no longer has all gates; empty if it has."""
        modules = set(self.model.modules())
        lost = [name for name, gate in self.gates.items() if gate not in modules]
        if not lost:
            return ""
        return (
            f"{', '.join(lost)}: the module was replaced after attaching (as by "
            "resize_token_embeddings), and its gate is no longer part of the model. Change the "
            "model first, then attach"
        )

    def _frozen(self) -> str:
        """What is wrong if gates cannot learn; empty if they can."""
        gates = self.gates.items()
        frozen = [name for name, g in gates if not all(p.requires_grad for p in g.parameters())]
        if not frozen:
            return ""
        return (
            f"the gates of {', '.join(frozen)} do not require gradients any more (get_peft_model "
            "and the like freeze every parameter): freeze first, then attach, and leave what was "
            'added out, as by exclude="*lora*"'
        )

    @property
    def _attached(self) -> bool:
        first = self.selection[0]
        return gating.is_attached(first, self.gates[first.name])

    def _check_attached(self) -> None:
        if not self._attached:
            raise AttachError("this method has left its model (strip or remove); attach a new one")
