"""Parity with the layer that the authors published, written here anew in the naive way.

Their conventions: the mask is multiplied by `1/sigmoid(s0)`, soft or hard, in the network and in
the penalty; the temperature rises once an epoch and reaches `beta_T` in the last; weights and
scores have SGD with Nesterov momentum, the scores without weight decay. Between rounds their script
sets the temperature to 1 before `s <- min(beta * s, s0)`, where the paper's rule has the final
temperature (ours).
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import prunus

EPOCHS, STEPS, ROUNDS = 4, 5, 2
FINAL_TEMPERATURE, PENALTY, LR, DECAY = 200.0, 1e-3, 0.1, 1e-4


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, bias=False),
        nn.ReLU(),
        nn.Conv2d(4, 3, 3, padding=1, bias=False),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    ).double()


def batches() -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (
            torch.randn(8, 2, 6, 6, generator=generator, dtype=torch.float64),
            torch.randint(3, (8,), generator=generator),
        )
        for _ in range(STEPS)
    ]


def forward(x: Tensor, weights: list[Tensor], masks: list[Tensor]) -> Tensor:
    h = F.relu(F.conv2d(x, weights[0] * masks[0], padding=1))
    return F.conv2d(h, weights[1] * masks[1], padding=1).mean((2, 3))


def published(mask_init: float) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """Weights and scores of the two convolutions after all rounds, and outputs by the hard mask."""
    first, second = (m for m in network() if isinstance(m, nn.Conv2d))
    weights = [first.weight, second.weight]
    scores = [nn.Parameter(torch.full_like(w, mask_init)) for w in weights]
    scaling = 1 / torch.sigmoid(torch.tensor(mask_init, dtype=torch.float64))
    for number in range(ROUNDS):
        optimizers = [
            torch.optim.SGD(weights, LR, momentum=0.9, nesterov=True, weight_decay=DECAY),
            torch.optim.SGD(scores, LR, momentum=0.9, nesterov=True),
        ]
        temperature = 1.0
        for epoch in range(EPOCHS):
            if epoch:
                temperature *= FINAL_TEMPERATURE ** (1 / (EPOCHS - 1))
            for x, y in batches():
                masks = [scaling * torch.sigmoid(temperature * s) for s in scores]
                loss = F.cross_entropy(forward(x, weights, masks), y)
                loss = loss + PENALTY * sum(mask.sum() for mask in masks)
                for optimizer in optimizers:
                    optimizer.zero_grad()
                loss.backward()
                for optimizer in optimizers:
                    optimizer.step()
        if number < ROUNDS - 1:
            with torch.no_grad():
                for s in scores:
                    s.copy_((temperature * s).clamp(max=mask_init))
    weights, scores = [w.detach() for w in weights], [s.detach() for s in scores]
    outputs = forward(batches()[0][0], weights, [scaling * (s > 0) for s in scores])
    return weights, scores, outputs


def ours(mask_init: float) -> tuple[list[Tensor], list[Tensor], Tensor]:
    model = network()
    cs = prunus.ContinuousSparsification(
        model,
        steps=EPOCHS * STEPS,
        mask_init=mask_init,
        penalty=PENALTY / float(torch.sigmoid(torch.tensor(mask_init, dtype=torch.float64))),
        final_temperature=FINAL_TEMPERATURE,
        mask_scale="init",
        anneal_every=STEPS,
    )
    for number in range(ROUNDS):
        optimizer = torch.optim.SGD(
            cs.param_groups(LR, score_lr=LR, weight_decay=DECAY), momentum=0.9, nesterov=True
        )
        for _ in range(EPOCHS):
            for x, y in batches():
                (F.cross_entropy(model(x), y) + cs.penalty()).backward()
                optimizer.step()
                optimizer.zero_grad()
                cs.step()
        if number < ROUNDS - 1:
            cs.end_round()
    trained = [weight.detach() for _, weight in prunus.gates.gated_parameters(model).values()]
    with cs.hard(), torch.no_grad():
        outputs = model(batches()[0][0])
    return trained, [gate.score.detach() for gate in cs.gates.values()], outputs


@pytest.mark.parametrize("mask_init", [0.0, -0.01, 0.05])
def test_weights_and_scores_follow_the_published_layer(mask_init: float) -> None:
    weights, scores, outputs = published(mask_init)
    our_weights, our_scores, our_outputs = ours(mask_init)
    theirs, own = [*weights, *scores, outputs], [*our_weights, *our_scores, our_outputs]
    for expected, found in zip(theirs, own, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-8)
    assert outputs.any(), "the hard mask keeps something"
    assert any(float((s - mask_init).abs().max()) > 1e-3 for s in scores), "the scores moved"
