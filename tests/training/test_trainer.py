"""The loop: what it computes with each of its settings, and what it says when things go wrong."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F

import prunus
from prunus import SettingError
from prunus.training import Engine, EngineSettings
from prunus.training.health import DivergedError, unhealthy
from support.small import network, spoil_loss


def run(trainer):
    return [float(loss) for loss in trainer.steps()]


def weights(trainer):
    return {n: p.detach().clone() for n, p in trainer.model.named_parameters()}


def assert_close(ours, theirs, **tolerance):
    assert ours.keys() == theirs.keys()
    for name in ours:
        torch.testing.assert_close(ours[name], theirs[name], **tolerance)


def test_the_loop_equals_the_one_in_the_readme(make):
    trainer = make()
    run(trainer)
    model = network()
    cs = prunus.ContinuousSparsification(model, steps=10, mask_init=0.01, rewind_step=2)
    optimizer = torch.optim.SGD(cs.param_groups(0.05, weight_decay=1e-4), lr=0.05, momentum=0.9)
    for epoch in range(2):
        for number, (x, y) in enumerate(trainer.loader.epoch(epoch)):
            if (epoch, number) == (1, 3):
                for group in optimizer.param_groups:
                    group["lr"] *= 0.1
            loss = F.cross_entropy(model(x), y) + cs.penalty()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            cs.step()
    expected = dict(model.named_parameters())
    assert_close(weights(trainer), expected, rtol=0, atol=1e-7)
    assert trainer.method.mask() == cs.mask()
    assert trainer.method.t == 10


def test_resuming_in_the_middle_is_exact(make):
    whole, half = make(), make()
    losses = run(whole)
    for _ in half.steps():
        if half.step == 7:
            break
    other = make()
    other.model.load_state_dict(half.model.state_dict())
    other.method.load_state_dict(half.method.state_dict())
    other.load_state_dict(half.state_dict())
    assert run(other) == losses[7:]
    assert_close(weights(other), weights(whole), rtol=0, atol=0)
    assert other.mean_loss() == whole.mean_loss()
    assert whole.mean_loss() == pytest.approx(sum(losses[5:]) / 5)


@pytest.mark.parametrize("parts", [2, 3, 8])
def test_accumulation_changes_nothing_but_rounding(make, parts):
    whole, split = make(), make(accumulate=parts)
    assert run(split) == pytest.approx(run(whole), abs=1e-5)
    assert_close(weights(split), weights(whole), rtol=1e-4, atol=1e-5)


def test_clipping(make):
    trainer = make(method=False, clip=1e-3, recipe={"momentum": 0, "weight_decay": 0, "lr": 1.0})
    before = weights(trainer)
    next(trainer.steps())
    moved = torch.cat([(p - before[n]).flatten() for n, p in weights(trainer).items()])
    assert float(moved.norm()) == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize("settings", [{"precision": "bf16"}, {"channels_last": True}], ids=str)
def test_precision_and_layout(make, settings):
    plain, other = make(), make(**settings)
    assert run(other) == pytest.approx(run(plain), abs=0.05)
    assert all(p.dtype == torch.float32 for p in other.model.parameters())
    if "channels_last" in settings:
        assert other.model[2].weight.is_contiguous(memory_format=torch.channels_last)
        images, _ = next(other.loader.epoch(0))
        assert images.is_contiguous(memory_format=torch.channels_last)


def test_compile(make, monkeypatch):
    torch._dynamo.reset()
    # Without inductor, which compiles slowly; tests/methods compiles gates with it.
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    plain, compiled = make(), make(compile=True)
    assert hasattr(compiled.module._forward_module, "_orig_mod")
    assert run(compiled) == pytest.approx(run(plain), abs=1e-3)
    assert list(compiled.model.state_dict()) == list(plain.model.state_dict())
    with compiled.method.hard():
        measured = compiled.engine.measure(compiled.module, compiled.loader)
        assert measured == compiled.engine.measure(compiled.model, compiled.loader)


def test_hardened_scores_do_not_change_in_fine_tuning(make):
    trainer = make()
    run(trainer)
    mask = trainer.method.harden()
    scores = {n: g.score.clone() for n, g in trainer.method.gates.items()}
    recipe = trainer.recipe
    tuning = type(trainer)(
        trainer.engine, trainer.model, trainer.loader, recipe, method=trainer.method
    )
    run(tuning)
    assert trainer.method.mask() == mask
    for name, gate in trainer.method.gates.items():
        assert torch.equal(gate.score, scores[name])
    assert not (trainer.model[2].weight[~mask["2.weight"]]).any()


# Divergence


def test_a_bad_weight_is_named(make):
    trainer = make()
    steps = trainer.steps()
    next(steps)
    with torch.no_grad():
        trainer.model[2].parametrizations.weight.original[0, 0] = torch.nan
    with pytest.raises(DivergedError, match=r"in step 2: of the weights, only 2\.weight is bad\."):
        next(steps)


def test_the_bad_layer_nearest_the_output_is_named(make):
    trainer = make()
    with torch.no_grad():
        for parameter in (trainer.model[0].bias, trainer.model[2].bias):
            parameter.fill_(torch.inf)
    with pytest.raises(
        DivergedError, match=r"2\.bias, 0\.bias are bad; 2\.bias was probably first"
    ):
        next(trainer.steps())


def test_a_bad_score_is_named(make):
    trainer = make()
    gate = trainer.method.gates["2.weight"]
    with torch.no_grad():
        gate.score[0] = -torch.inf
    assert unhealthy(trainer.model) is None
    with torch.no_grad():
        gate.score[1] = torch.nan
    with pytest.raises(DivergedError, match=r"only the score of 2\.weight is bad"):
        next(trainer.steps())


def test_the_first_bad_step_is_remembered_between_meetings(make, monkeypatch):
    trainer = make()
    trainer.engine.meets_after = lambda step: step % 10 == 0
    spoil_loss(trainer, monkeypatch, at_step=7)
    with pytest.raises(
        DivergedError,
        match=r"in step 7, noticed in step 10: .* are bad by now; it is too late",
    ):
        run(trainer)
    assert trainer.step == 9


def test_the_process_with_the_bad_loss_tells_why(make):
    trainer = make()
    trainer.engine.highest = lambda number: max(
        number, -1
    )  # the first step of another process was bad
    trainer.engine.gather = lambda value: [value, "what the other found"]
    with pytest.raises(DivergedError, match="in step 1: what the other found"):
        next(trainer.steps())


def test_a_bad_buffer_is_named():
    model = torch.nn.BatchNorm2d(3)
    model.running_var.fill_(torch.inf)
    assert unhealthy(model) is None
    model.running_var.fill_(torch.nan)
    assert unhealthy(model) == "all weights are finite, but the buffer running_var is NaN"


def test_a_bad_activation_is_named(make):
    trainer = make()
    trainer.model[1].register_forward_hook(lambda *_: torch.full((8, 4, 4, 4), torch.inf))
    with pytest.raises(DivergedError, match=r"all weights are finite.*output is 1 \(ReLU\)"):
        next(trainer.steps())


def test_a_bad_penalty_or_image_is_told_apart(make, monkeypatch):
    trainer = make()
    monkeypatch.setattr(trainer.method, "penalty", lambda: torch.tensor(torch.nan))
    with pytest.raises(DivergedError, match="only the loss or the penalty is not"):
        next(trainer.steps())
    trainer = make()
    monkeypatch.setattr(
        trainer.loader,
        "epoch",
        lambda *_: [(torch.full((8, 1, 6, 6), torch.nan), torch.zeros(8).long())],
    )
    with pytest.raises(DivergedError, match="but the inputs are not"):
        next(trainer.steps())


# Settings


def test_who_trains_on_a_cpu_keeps_the_memory_that_is_freed(monkeypatch):
    kept = []
    monkeypatch.setattr("prunus.training.engine.keep_freed_memory", lambda: kept.append(True))
    Engine(EngineSettings(accelerator="cpu"))
    assert kept == [True]


def test_what_needs_a_gpu_says_so():
    with pytest.raises(SettingError, match="sync_batch_norm works on GPUs only"):
        Engine(EngineSettings(accelerator="cpu", sync_batch_norm=True))
    with pytest.raises(SettingError, match="precision=fp16 needs a GPU"):
        Engine(EngineSettings(accelerator="cpu", precision="fp16"))
