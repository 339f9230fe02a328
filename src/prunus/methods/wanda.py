"""Wanda: pruning by weights and activations, in one shot (Sun et al., 2023)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from prunus.errors import SearchWarning, warn_caller
from prunus.gates import InputWatcher, WatchingGate, input_layout
from prunus.masks import Mask
from prunus.methods.common.families import EndsAtDensity, FixedMaskMethod
from prunus.methods.common.processes import sum_over_processes
from prunus.methods.common.ranking import keep_density, magnitudes
from prunus.methods.hooks import Evaluate
from prunus.methods.settings import Must, setting
from prunus.selection import Candidate


class Wanda(EndsAtDensity[WatchingGate], FixedMaskMethod):
    """Remove, in one cut, the weights that do least: those with the lowest `|w_ij| * ||x_j||_2`.

    `x_j` are the inputs of the layer that `w_ij` meets, in the last `batches` steps of the round
    (forward passes under `hard()` do not count). A trained network needs no training for that: with
    `steps` calls of the model, each followed by `step()`, it is ready for `harden()`.

    With `scope="row"` weights compete with those of the same output, with `"layer"` in their layer;
    never across layers, whose inputs cannot be compared. Of a convolution `x_j` is a channel. A
    layer of another kind (an embedding, attention in one module, a recurrent layer) does not show
    its inputs: there the smallest `|w|` leave. Further rounds train on and keep the mask.
    """

    name = "wanda"
    decides_once = True

    scope: Literal["row", "layer"] = setting(
        "where weights compete: among those of the same output, or in each layer", default="row"
    )
    batches: int = setting(
        "the steps at the end of the round in which inputs are measured",
        default=32,
        must=Must(lambda count: count >= 1, "at least one batch has to be seen"),
    )

    def make_gate(self, candidate: Candidate) -> WatchingGate:
        return WatchingGate(candidate.parameter, input_layout(candidate))

    def on_attach(self) -> None:
        for candidate in self.selection:
            watcher = InputWatcher(self.gates[candidate.name])
            candidate.module.register_forward_pre_hook(watcher)
        self._listen(1)

    def on_step(self) -> None:
        for gate in self.gates.values():
            seen = gate.take()
            if seen is not None:
                gate.energy.add_(sum_over_processes(seen))
        self._listen(self.t + 1)

    def on_commit(self, _: Evaluate | None) -> Mask:
        if self.round > 1:
            return self.mask()
        kept: dict[str, Tensor] = {}
        weights = 0
        for name, score in self._scores().items():
            if self.scope == "row":
                kept[name] = self._keep_rows(name, score, before=weights)
                weights += score.numel()
            else:
                kept |= keep_density({name: score}, None, self.target_density)
        return Mask(kept)

    def on_round_end(self) -> None:
        super().on_round_end()
        self._listen(None)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        super().load_state_dict(state)
        self._listen(self.t + 1)

    def _listen(self, t: int | None) -> None:
        """Let the gates measure inputs if step `t` is one of the last of the first round."""
        for gate in self.gates.values():
            gate.listening = t is not None and self.round == 1 and t > self.steps - self.batches

    @torch.no_grad()
    def _scores(self) -> dict[str, Tensor]:
        """`|w_ij| * ||x_j||_2` of all weights."""
        scores, unseen = magnitudes(self.weights), []
        for name, gate in self.gates.items():
            if gate.layout is not None and gate.energy.any():
                norms = gate.layout.per_weight(gate.energy.sqrt(), scores[name])
                scores[name] = scores[name] * norms
            elif gate.layout is not None:
                unseen.append(name)
        if unseen:
            warn_caller(
                f"no input of {', '.join(unseen)} was seen in the last {self.batches} of "
                f"{self.steps} steps: there the smallest weights are removed. Run the model before "
                "each step(), and give the true number of steps",
                SearchWarning,
            )
        return scores

    def _keep_rows(self, name: str, score: Tensor, *, before: int) -> Tensor:
        """The highest of each row, as many as the density allows after `before` other weights.

        The numbers are rounded so that all rows of all layers together have the density.
        """
        layout = self.gates[name].layout
        places = torch.arange(score.numel(), device=score.device).view(score.shape)
        places = places.view(1, -1) if layout is None else layout.by_output(places)
        rows, length = places.shape
        ends = before + length * torch.arange(rows + 1, dtype=torch.float64, device=score.device)
        counts = (self.target_density * ends).round().diff()
        order = score.flatten()[places].argsort(dim=1, descending=True, stable=True)
        highest = torch.arange(length, device=score.device) < counts[:, None]
        kept = torch.zeros(score.numel(), dtype=torch.bool, device=score.device)
        kept[places.gather(1, order)[highest]] = True
        return kept.view(score.shape)
