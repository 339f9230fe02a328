"""What speaks of wrong use when a search decides its mask: each with the number and the remedy."""

from __future__ import annotations

from collections.abc import Iterator

from prunus.methods.common.statistics import Statistics

_UNDECIDED = 0.05
"""So many gates in transition for each kept weight are worth a warning."""


def no_step(method: str, density: float) -> str:
    """Of a mask that is taken before the first step."""
    return (
        f"step() was never called: this is the mask that {method} began with, and it keeps "
        f"{density:.1%}. Call step() after each optimiser step, or once follow(optimizer)"
    )


def signs_of_misuse(
    stats: Statistics, *, t: int, steps: int, idle: int, at_rest: bool
) -> Iterator[str]:
    """Of a round that ended at step `t` of `steps`.

    In `idle` of them the method had no gradients; `at_rest` are scores that are all equal.
    """
    if t < steps:
        yield (
            f"the mask is decided after {t} of {steps} steps, while gates are soft: call step() "
            "after each optimiser step, and give the true number of steps"
        )
    if idle:
        yield (
            f"in {idle} of {t} steps the scores had no gradient: call step() after backward(), and "
            "before anything clears the gradients of the whole model, such as model.zero_grad()"
        )
    elif t and at_rest:
        yield (
            f"no score has moved in {t} steps: make the optimiser after attaching, from "
            "param_groups(), which hands it the scores"
        )
    empty = [layer.name for layer in stats.layers if layer.weights and not layer.kept]
    if stats.kept and empty:
        yield (
            f"{len(empty)} of {len(stats.layers)} layers keep no weight: {', '.join(empty)}. Keep "
            "more, or leave them out of select"
        )
    if t >= steps and stats.in_transition_per_kept > _UNDECIDED:
        yield (
            f"{stats.in_transition:.2%} of the gates are still in transition, "
            f"{stats.in_transition_per_kept:.0%} as many as weights are kept: the network that was "
            "trained is not the one that is kept. Use more steps or a larger final_temperature"
        )
