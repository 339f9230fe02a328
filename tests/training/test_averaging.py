"""The moving average of weights: by hand, with masks, and across an interruption."""

import pytest
import torch
from torch import nn

import prunus
from prunus.training.averaging import WeightAverage


def test_the_average_by_hand():
    model = nn.Linear(1, 1, bias=False)
    weight = model.weight.data
    weight.fill_(1.0)
    average = WeightAverage(model, decay=0.5)
    weight.fill_(3.0)
    average.update(1)  # (1 + 1) / (10 + 1) is less than the decay
    first = 2 / 11 * 1 + 9 / 11 * 3
    with average.applied():
        assert float(weight) == pytest.approx(first)
    assert float(weight) == 3.0
    weight.fill_(0.0)
    average.update(100)
    average.apply()
    assert float(weight) == pytest.approx(first / 2)


def test_buffers_are_averaged_and_counters_left_alone():
    model = nn.BatchNorm1d(2)
    average = WeightAverage(model, decay=0.9)
    model.running_mean.fill_(1.0)
    model.num_batches_tracked.fill_(7)
    average.update(1000)
    average.apply()
    assert model.running_mean.tolist() == pytest.approx([0.1, 0.1])
    assert int(model.num_batches_tracked) == 7


def test_a_stage_ends_with_the_average(make):
    plain, averaged = make(method=False), make(method=False, recipe={"ema": 0.8})
    losses = [[float(loss) for loss in trainer.steps()] for trainer in (plain, averaged)]
    assert losses[0] == losses[1], "training itself is the same"
    ours, theirs = averaged.model[0].weight, plain.model[0].weight
    assert not torch.equal(ours, theirs)
    torch.testing.assert_close(ours, averaged.average.state_dict()["0.weight"])


def test_removed_weights_stay_zero(make):
    trainer = make(recipe={"ema": 0.9})
    list(trainer.steps())
    mask = trainer.method.harden()
    tuning = type(trainer)(
        trainer.engine, trainer.model, trainer.loader, trainer.recipe, method=trainer.method
    )
    scores = {name: gate.score.clone() for name, gate in trainer.method.gates.items()}
    list(tuning.steps())
    assert trainer.method.mask() == mask and 0 < mask.density < 1
    weight, kept = trainer.model[2].weight, mask["2.weight"]
    assert not weight[~kept].any() and weight[kept].all()
    assert all(torch.equal(g.score, scores[n]) for n, g in trainer.method.gates.items())
    stripped = prunus.strip(trainer.model)
    assert not stripped[2].weight[~kept].any()


@pytest.mark.parametrize("at", [4, 7, 10])
def test_resuming_with_an_average_is_exact(make, at):
    whole, half, other = (make(recipe={"ema": 0.9}) for _ in range(3))
    list(whole.steps())
    state = None
    for _ in half.steps():
        if half.step == at:
            state = [
                {n: t.clone() for n, t in half.model.state_dict().items()},
                half.method.state_dict(),
                half.state_dict(),
            ]
            break
    other.model.load_state_dict(state[0])
    other.method.load_state_dict(state[1])
    other.load_state_dict(state[2])
    list(other.steps())
    for ours, theirs in zip(other.model.parameters(), whole.model.parameters(), strict=True):
        assert torch.equal(ours, theirs)
