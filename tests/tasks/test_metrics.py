"""Metrics, losses and batches of any structure, on tensors worked out by hand."""

import math

import pytest
import torch

from prunus import SettingError
from prunus.tasks import RECIPES, MetricInfo, Task
from prunus.tasks.batch import call, count_samples, model_inputs, split_batch
from prunus.tasks.losses import cross_entropy, mean_squared_error, token_cross_entropy
from prunus.tasks.metrics import accuracy, mean_iou, perplexity, r2, rmse, token_loss


def value(metric, *batches):
    return metric.finish(sum(metric.measure(output, (None, target)) for output, target in batches))


def one_hot(*classes, of=3):
    return torch.nn.functional.one_hot(torch.tensor(classes), of).float()


def test_accuracy_is_the_exact_quotient_over_all_batches():
    batches = [(one_hot(0, 1), torch.tensor([0, 1])), (one_hot(2), torch.tensor([0]))]
    assert value(accuracy, *batches, (torch.zeros(0, 3), torch.zeros(0).long())) == 2 / 3
    pixels = one_hot(0, 1, 1, 2).T.view(1, 3, 2, 2)
    assert value(accuracy, (pixels, torch.tensor([[[0, 1], [2, 2]]]))) == 0.75


def test_mean_iou():
    output = one_hot(0, 0, 1, 1, of=4).T.view(1, 4, 1, 4)
    target = torch.tensor([[[0, 1, 1, 1]]])
    # Class 0: 1 of 2. Class 1: 2 of 3. The others do not occur.
    assert value(mean_iou(4), (output, target)) == pytest.approx((1 / 2 + 2 / 3) / 2)
    two = value(mean_iou(4), (output[..., :2], target[..., :2]), (output[..., 2:], target[..., 2:]))
    assert two == value(mean_iou(4), (output, target)), "the confusion is summed, not the value"


def test_rmse_and_r2():
    batches = [(torch.tensor([[1.0], [2.0]]), torch.tensor([[1.0], [4.0]])),
               (torch.tensor([[5.0]]), torch.tensor([[4.0]]))]  # fmt: skip
    assert value(rmse(), *batches) == pytest.approx(math.sqrt(5 / 3))
    assert value(rmse(10, "points"), *batches) == pytest.approx(10 * math.sqrt(5 / 3))
    assert value(r2, *batches) == pytest.approx(1 - 5 / 6)
    assert value(r2, (torch.ones(2), torch.ones(2))) == 0.0
    assert not rmse().info.higher_is_better and r2.info.higher_is_better


def test_nats_and_perplexity():
    batch = torch.zeros(2, 5, 8), torch.zeros(2, 5).long()
    assert value(token_loss, batch) == pytest.approx(math.log(8))
    assert value(perplexity, batch) == pytest.approx(8)
    assert value(token_loss, batch, (torch.zeros(0, 5, 8), torch.zeros(0, 5).long())) == value(
        token_loss, batch
    )
    assert token_loss.info.text(1.5) == "1.5000 nats" and not token_loss.info.higher_is_better


def test_directions():
    loss, share = MetricInfo("loss", higher_is_better=False, unit="nats"), MetricInfo("a", unit="%")
    assert loss.gain(1.5, over=2.0) == 0.5 and share.gain(0.5, over=0.75) == -0.25
    assert loss.within(2.0) == pytest.approx(2.04) and share.within(0.9) == pytest.approx(0.88)


def test_losses_are_means_over_samples():
    logits, labels = torch.randn(4, 3), torch.tensor([0, 2, 1, 1])
    expected = -logits.log_softmax(1)[range(4), labels].mean()
    torch.testing.assert_close(cross_entropy(logits, (None, labels)), expected)
    tokens = logits.view(2, 2, 3), (None, labels.view(2, 2))
    torch.testing.assert_close(token_cross_entropy(*tokens), expected)
    smooth = cross_entropy(logits, (None, labels), label_smoothing=0.3)
    uniform = -logits.log_softmax(1).mean()
    torch.testing.assert_close(smooth, 0.7 * expected + 0.3 * uniform)
    assert mean_squared_error(torch.tensor([1.0, 3.0]), (None, torch.tensor([0.0, 1.0]))) == 2.5


# Batches

TENSOR = torch.arange(10.0).view(5, 2)
BATCHES = [
    TENSOR,
    (TENSOR, torch.arange(5)),
    {"x": TENSOR, "labels": torch.arange(5), "name": "same for all"},
]


@pytest.mark.parametrize("batch", BATCHES, ids=["tensor", "tuple", "dict"])
def test_parts_are_those_of_chunk(batch):
    assert count_samples(batch) == 5
    for parts in (1, 2, 3, 7):
        found = split_batch(batch, parts)
        inputs = [next(iter(p.values())) if isinstance(p, dict) else p for p in found]
        inputs = [p[0] if isinstance(p, tuple) else p for p in inputs]
        assert [len(p) for p in inputs] == [len(p) for p in TENSOR.chunk(parts)]
        assert torch.equal(torch.cat(inputs), TENSOR)


def test_what_goes_into_the_model():
    assert model_inputs(TENSOR) is TENSOR and model_inputs(BATCHES[1]) is TENSOR
    assert set(model_inputs(BATCHES[2])) == {"x", "name"}
    assert call(lambda x: x, 3) == 3
    assert call(lambda x, y: x - y, (3, 1)) == call(lambda x, y: x - y, {"y": 1, "x": 3}) == 2


# Tasks


def task(**values):
    return Task("mine", None, lambda: None, RECIPES["digits"], **values)


def test_label_smoothing_needs_a_loss_that_takes_it():
    smooth = RECIPES["digits"].changed(label_smoothing=0.1)
    logits, labels = torch.randn(4, 3), torch.tensor([0, 2, 1, 1])
    expected = cross_entropy(logits, (None, labels), label_smoothing=0.1)
    assert task().loss_for(smooth)(logits, (None, labels)) == expected
    assert task().loss_for(RECIPES["digits"]) is cross_entropy
    with pytest.raises(SettingError, match=r"label_smoothing=0\.1: the loss of task 'mine'"):
        task(loss=mean_squared_error).loss_for(smooth)


@pytest.mark.parametrize("metrics", [(), (accuracy, accuracy)])
def test_metrics_need_different_names(metrics):
    with pytest.raises(SettingError, match="one or more metrics, each with its own name"):
        task(metrics=metrics)
