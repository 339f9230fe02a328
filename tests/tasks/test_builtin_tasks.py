"""The built-in tasks that are not image classification: their data, networks and training."""

import math
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F

from prunus import AMC, SettingError, Ticket
from prunus.runs import execute, resolve
from prunus.tasks import TASKS, load_task
from prunus.tasks.data import DataOptions, LoaderOptions, TensorData
from prunus.tasks.data.errors import DamagedDataError, MissingDataError
from prunus.tasks.data.shapes import draw_shapes
from prunus.tasks.data.text import TextBatches, read_text, text_data
from prunus.tasks.networks.gpt import GPT


def perform(tmp_path, command, task, **given):
    settings, loaded = resolve(
        command,
        {"task": task, "engine": {"accelerator": "cpu"}, "out": str(tmp_path / "runs"), **given},
    )
    return execute(settings, loaded), settings, loaded


def test_regression_learns(tmp_path):
    results, _, _ = perform(tmp_path, "train", "diabetes/mlp")
    [stage] = results.stages
    assert [metric.name for metric in results.metrics] == ["RMSE", "R2"]
    assert stage.test["RMSE"] < 62 and stage.test["R2"] > 0.35, "the mean has 77 and 0"


def test_segmentation_learns(tmp_path):
    data = {"train_images": 200, "validation_images": 40, "image_size": 16}
    recipe = {"epochs": 6, "batch_size": 20}
    results, _, _ = perform(tmp_path, "train", "shapes/unet", data=data, recipe=recipe)
    [stage] = results.stages
    assert results.metric.name == "mean IoU"
    assert stage.test["mean IoU"] > 0.35 and stage.test["accuracy"] > 0.7


def test_drawn_shapes():
    images, classes = draw_shapes(50, 24)
    assert images.shape == (50, 1, 24, 24) and classes.shape == (50, 24, 24)
    assert all(classes.eq(c).any(2).any(1).float().mean() > 0.8 for c in range(4))
    assert images[:, 0][classes > 0].mean() > images[:, 0][classes == 0].mean() + 0.5
    assert all(
        torch.equal(a, b) for a, b in zip(draw_shapes(50, 24), (images, classes), strict=True)
    )


# Language

TINY = {
    "data": {"train_images": 60, "validation_images": 10},
    "recipe": {"epochs": 2, "batch_size": 8},
}


def test_the_character_model_equals_that_of_a_plain_loop(tmp_path):
    """A loop as a person would write it, with the same model, batches and schedule."""
    results, settings, task = perform(tmp_path, "train", "text/gpt-char", **TINY)
    recipe = settings.recipe
    torch.manual_seed(settings.seed)
    model = GPT(vocabulary=len(task.data.alphabet), context=64)
    loader = task.data.training(LoaderOptions(recipe.batch_size), seed=settings.seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    step, total, warm = 0, 2 * len(loader), 0.1 * len(loader)
    for epoch in range(2):
        for x, y in loader.epoch(epoch):
            if step < warm:
                rate = 3e-3 * min(1, (step + 1) / warm)
            else:
                rate = 3e-3 * (1 + math.cos(math.pi * (step - warm) / (total - warm))) / 2
            optimizer.param_groups[0]["lr"] = rate
            loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
    model.eval()
    losses = []
    with torch.no_grad():
        for x, y in task.data.evaluation("validation", LoaderOptions(32)).epoch(0):
            losses.append(F.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="none"))
    plain = float(torch.cat(losses).double().mean())
    [stage] = results.stages
    assert stage.validation["loss"] == pytest.approx(plain, abs=1e-6)
    assert stage.validation["perplexity"] == pytest.approx(math.exp(plain))
    assert plain < math.log(len(task.data.alphabet)) - 0.5, "it has learned something"


def test_pruning_reports_nats_and_sparsifies_linear_layers(tmp_path):
    method = {"name": "cs", "target_density": 0.1}
    results, settings, _ = perform(tmp_path, "prune", "text/gpt-char", method=method, **TINY)
    tuned = results.stages[-1]
    assert tuned.density == pytest.approx(0.1, abs=0.001) and settings.method["select"] == "linear"
    assert (results.metric.unit, results.metric.higher_is_better) == ("nats", False)
    ticket = Ticket.load(settings.folder / tuned.ticket)
    assert "blocks.0.attention.query_key_value.weight" in ticket.mask
    assert "tokens.weight" not in ticket.mask
    assert set(ticket.manifest.metrics) == {
        f"{split}_{name}" for split in ("validation", "test") for name in ("loss", "perplexity")
    }
    again, _ = resolve("prune", settings.model_dump(mode="json"))
    assert again.folder == settings.folder


def test_methods_always_see_higher_as_better(tmp_path, monkeypatch):
    on_commit, seen = AMC.on_commit, []

    def looking(amc, evaluate):
        seen.append(evaluate())
        return on_commit(amc, evaluate)

    monkeypatch.setattr(AMC, "on_commit", looking)
    method = {"name": "amc", "target_density": 0.5, "episodes": 3, "warmup": 1}
    results, _, _ = perform(tmp_path, "prune", "diabetes/mlp", method=method, recipe={"epochs": 2})
    assert results.stages[-1].density == pytest.approx(0.5, abs=0.001)
    assert all(value < 0 for value in seen) and len(seen) == 1, "an RMSE, negated"


def test_the_gpt_sees_no_future():
    torch.manual_seed(0)
    model = GPT(vocabulary=7, context=8, width=8, depth=2, heads=2).eval()
    tokens = torch.randint(7, (2, 8))
    other = tokens.clone()
    other[:, 5:] = (other[:, 5:] + 1) % 7
    assert torch.equal(model(tokens)[:, :5], model(other)[:, :5])
    assert not torch.equal(model(tokens)[:, 5:], model(other)[:, 5:])
    with pytest.raises(SettingError, match="9 tokens are more than the context of 8"):
        model(torch.zeros(1, 9).long())
    with pytest.raises(SettingError, match="width=8 cannot be shared equally among 3"):
        GPT(vocabulary=7, context=8, width=8, heads=3)


def test_windows_of_a_text():
    tokens = torch.arange(41)
    [(x, y)] = TextBatches(tokens, 10, LoaderOptions(4)).epoch(0)
    assert x[:, 0].tolist() == [0, 10, 20, 30] and torch.equal(y, x + 1)
    training = TextBatches(tokens, 10, LoaderOptions(3), seed=1)
    starts = [sorted(x[:, 0].tolist()) for e in range(9) for x, _ in training.epoch(e)]
    assert all(b - a == 10 for start in starts for a, b in pairwise(start))
    assert len({start[0] for start in starts}) > 1
    whole = list(TextBatches(tokens, 10, LoaderOptions(1), seed=1).epoch(4))
    rest = list(TextBatches(tokens, 10, LoaderOptions(1), seed=1).epoch(4, 2))
    assert torch.equal(whole[2][0], rest[0][0])
    halves = [
        next(TextBatches(tokens, 10, LoaderOptions(4, rank=rank, world_size=2)).epoch(0))[0]
        for rank in (0, 1)
    ]
    assert torch.equal(
        torch.cat(halves), x.new_tensor(range(0, 40, 10))[:, None] + torch.arange(10)
    )


def test_splits_of_a_text():
    data = text_data("abcde" * 200, DataOptions(), context=10)
    assert data.alphabet == "abcde"
    assert [len(s) for s in (data.train, data.validation, data.test)] == [891, 51, 51]
    with pytest.raises(SettingError, match="99 windows of 10; less 50 for validation"):
        text_data("abcde" * 200, DataOptions(train_images=60, validation_images=50), context=10)


def test_users_texts(tmp_path):
    one = tmp_path / "one.txt"
    one.write_text("first")
    (tmp_path / "two.txt").write_text("second")
    assert read_text(one) == "first" and read_text(tmp_path) == "first\n\nsecond"
    assert len(read_text(tmp_path / "data")) > 100_000, "what comes with Python"
    with pytest.raises(MissingDataError, match=r"no text at .*nowhere"):
        read_text(tmp_path / "nowhere")
    one.write_bytes(b"\xff\xfe\xfa")
    with pytest.raises(DamagedDataError, match="as UTF-8"):
        read_text(one)


# Names and data in memory


def test_tasks_by_name():
    for name in TASKS:
        assert load_task(name).name == name
    with pytest.raises(SettingError, match="one network only: the task 'text/gpt-char'"):
        load_task("text/lenet")


@pytest.mark.parametrize("structure", ["tensor", "tuple", "dict"])
def test_data_in_memory(structure):
    x, y = torch.arange(10), torch.arange(10) * 2
    samples = {"tensor": x, "tuple": (x, y), "dict": {"x": x, "labels": y}}[structure]
    data = TensorData(samples, samples, samples)
    first, second = (
        [next(iter(b.values())) if structure == "dict" else b[0] if structure == "tuple" else b
         for b in data.training(LoaderOptions(4), seed=0).epoch(e)]
        for e in (0, 1)
    )  # fmt: skip
    assert len(first) == 2 and not torch.equal(torch.cat(first), torch.cat(second))
    [last] = data.evaluation("test", LoaderOptions(4)).epoch(0, 2)
    assert isinstance(last, {"tensor": torch.Tensor, "tuple": tuple, "dict": dict}[structure])
    assert data.fingerprint == TensorData(samples, samples, samples).fingerprint != ""


def test_all_tensors_must_have_as_many_samples():
    with pytest.raises(SettingError, match=r"tensors of train must all have the same .*\[2, 3\]"):
        TensorData((torch.ones(2), torch.ones(3)), torch.ones(1), torch.ones(1))
