"""What train, search, prune and retrain do and leave behind."""

import signal
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml

import prunus
from prunus import METHODS, Manifest, Mask, SettingError, Ticket, TicketError
from prunus.runs import execute, resolve
from prunus.runs.execution import Execution
from prunus.runs.results import read_epochs, read_results
from prunus.tasks import load_task
from prunus.tasks.networks import build_network
from prunus.tickets import transfer
from prunus.training import Trainer
from prunus.training.checkpoint import CheckpointError, Checkpoints
from prunus.training.folder_lock import BusyError, FolderLock
from prunus.training.health import DivergedError
from support.interruption import with_plug_pulled

TASK = "digits/digits_convnet"
QUICK = {"amc": {"episodes": 4, "warmup": 2}}
"""Settings for methods that would otherwise take long."""
SEARCH = {"method": {"name": "cs", "mask_init": 0.01}, "rounds": 2, "rewind_epoch": 1}


metrics = read_epochs


def test_train(perform):
    results, folder = perform("train")
    [stage] = results.stages
    assert results == read_results(folder)
    assert results.finished and stage.density == 1.0 and stage.epochs == 2
    assert 0 < stage.test["accuracy"] < 1
    lines = metrics(folder)
    assert [(line.epoch, line.step) for line in lines] == [(1, 4), (2, 8)]
    assert lines[-1].validation == stage.validation
    ticket = Ticket.load(folder / stage.ticket)
    assert ticket.mask == Mask({}) and ticket.manifest.task == "digits/digits_convnet"


def test_search_saves_a_ticket_for_every_round(perform):
    results, folder = perform("search", **SEARCH)
    assert [stage.stage for stage in results.stages] == ["round 1", "round 2"]
    assert [line.stage for line in metrics(folder)] == ["round 1"] * 2 + ["round 2"] * 2
    for stage in results.stages:
        ticket = Ticket.load(folder / stage.ticket)
        assert ticket.mask.density == stage.density
        assert stage.layers == {n.name: n.density for n in ticket.mask.layers}
        assert ticket.manifest.rewind_point == 4
        assert ticket.manifest.metrics["test_accuracy"] == stage.test["accuracy"]
        assert ticket.manifest.settings["mask_init"] == 0.01
        assert stage.validation["accuracy"] != stage.test["accuracy"]
    first, second = (Ticket.load(folder / stage.ticket) for stage in results.stages)
    assert second.mask.density < first.mask.density
    kept = (first.mask & second.mask)["3.weight"]
    assert torch.equal(first.weights["3.weight"][kept], second.weights["3.weight"][kept])


def test_a_finished_run_is_not_repeated(perform, monkeypatch):
    results, _ = perform("search", **SEARCH)
    monkeypatch.setattr(Trainer, "__init__", None)
    again, _ = perform("search", **SEARCH)
    assert again == results


def test_another_seed_is_another_run_and_equal_settings_are_the_same(perform):
    one, first = perform("train")
    two, second = perform("train", seed=1)
    assert first != second and one.stages != two.stages
    before = found_in(first)
    assert {"metrics.jsonl", "results.json"} < before.keys()
    assert any(name.endswith(".safetensors") for name in before)
    for file in sorted(first.rglob("*"), reverse=True):
        file.unlink() if file.is_file() else file.rmdir()
    assert perform("train")[0] == one
    assert found_in(first) == before


def found_in(folder: Path) -> dict[str, bytes]:
    """The files with what a run found, which are the same whenever and wherever it is done."""
    kept = [folder / "metrics.jsonl", folder / "results.json", *folder.glob("tickets/*")]
    return {file.name: file.read_bytes() for file in kept}


def test_settings_of_a_run_make_the_same_run_again(settle, perform):
    _, folder = perform("search", **SEARCH)
    written = yaml.safe_load((folder / "settings.yaml").read_text())
    again, _ = resolve("search", written)
    assert again.folder == folder
    assert again == settle("search", **SEARCH)[0]


def test_prune_commits_and_fine_tunes(perform):
    results, folder = perform(
        "prune",
        method={"mask_init": 0.01},
        recipe={"epochs": 3, "batch_size": 25, "commit_epoch": 2, "fine_tune_lr": 0.05},
    )
    search, fine_tuning = results.stages
    assert (search.epochs, fine_tuning.epochs) == (2, 1)
    assert search.density == fine_tuning.density < 1
    assert [line.lr for line in metrics(folder)][2] == 0.05
    ticket = Ticket.load(folder / fine_tuning.ticket)
    assert ticket.manifest.rewind_point is None
    for name, kept in ticket.mask.items():
        assert not ticket.weights[name][~kept].any()
        assert ticket.weights[name][kept].all()


def test_prune_needs_two_epochs(perform):
    with pytest.raises(SettingError, match="commit_epoch is not set"):
        perform("prune", recipe={"epochs": 1})


@pytest.mark.parametrize("name", METHODS)
def test_every_method_prunes(perform, name):
    recipe = {"epochs": 3, "batch_size": 25, "commit_epoch": 2}
    results, folder = perform("prune", method={"name": name, **QUICK.get(name, {})}, recipe=recipe)
    search, fine_tuning = results.stages
    assert search.density == fine_tuning.density < 1
    assert Ticket.load(folder / fine_tuning.ticket).mask.density == search.density


def test_accuracies_of_a_round_are_those_of_its_mask(perform):
    results, folder = perform("search", method={"name": "imp", "rate": 0.9}, rounds=1)
    [stage] = results.stages
    assert stage.density == pytest.approx(0.1, abs=1e-3)
    assert metrics(folder)[-1].density == 1.0
    assert stage.validation["accuracy"] != metrics(folder)[-1].validation["accuracy"]


@pytest.mark.parametrize("name", METHODS)
def test_every_method_runs(perform, name):
    results, folder = perform(
        "search", method={"name": name, **QUICK.get(name, {})}, rounds=1, rewind_epoch=0.5
    )
    ticket = Ticket.load(folder / results.stages[0].ticket)
    assert ticket.manifest.method == name and ticket.manifest.rewind_point == 2


def test_retrain_starts_from_the_ticket(perform):
    found, folder = perform("search", **SEARCH)
    path = folder / found.stages[-1].ticket
    results, own = perform("retrain", ticket=str(path))
    [stage] = results.stages
    assert stage.density == found.stages[-1].density
    assert stage.epochs == results.epochs_before == 1, "of 2, after w^(k)"
    assert not results.not_transferred
    trained, ticket = Ticket.load(own / stage.ticket), Ticket.load(path)
    assert trained.mask == ticket.mask
    assert not torch.equal(trained.weights["3.weight"], ticket.weights["3.weight"])
    copy = path.with_name("copy.safetensors")
    copy.write_bytes(path.read_bytes())
    assert perform("retrain", ticket=str(copy))[1] == own, "the file's place makes no difference"


def test_rewind_epoch_after_the_end(perform):
    with pytest.raises(SettingError, match="rewind_epoch=3 lies after the 2 epochs"):
        perform("search", rewind_epoch=3)


def test_retrain_on_another_task_makes_a_new_classifier(perform, tmp_path, monkeypatch, trust):
    found, folder = perform("search", **SEARCH)
    path = folder / found.stages[-1].ticket
    (tmp_path / "odd_digits.py").write_text(
        "from dataclasses import replace\n"
        "from prunus.tasks import load_task\n"
        "def task(root, options):\n"
        "    return replace(load_task('digits/digits_convnet', root, options), name='odd')\n"
    )
    monkeypatch.chdir(tmp_path)
    trust("odd_digits:task")
    results, _ = perform("retrain", ticket=str(path), task="odd_digits:task")
    assert results.not_transferred == {"15.weight": "classifier", "15.bias": "classifier"}
    assert results.stages[0].density == found.stages[-1].density
    assert (results.stages[0].epochs, results.epochs_before) == (2, 0), "the whole recipe"


@pytest.mark.parametrize(
    ("rewind_point", "before"), [(None, 0), (0, 0), (1, 1), (4, 1), (5, 2), (8, 2)]
)
def test_retrain_gets_what_the_recipe_has_left(settle, tmp_path, monkeypatch, rewind_point, before):
    found = make_ticket()
    manifest = Manifest(task=TASK, rewind_point=rewind_point)
    path = Ticket(found.mask, found.weights, manifest).save(tmp_path / "ticket")
    recipe = {"epochs": 3, "batch_size": 25, "lr": 0.1, "drops": [2]}
    seen = []
    monkeypatch.setattr(Execution, "train", lambda *args, **kwargs: seen.append((args[3], kwargs)))
    settings, task = settle("retrain", ticket=str(path), recipe=recipe)
    execute(settings, task)
    [(used, options)] = seen
    assert used == settings.recipe.after(before)
    assert used.epochs == 3 - before and options["first_epoch"] == before
    assert used.lr == pytest.approx(0.01 if before == 2 else 0.1)


def test_nothing_left_to_retrain(perform):
    found, folder = perform("search", **{**SEARCH, "rewind_epoch": 2})
    path = folder / found.stages[-1].ticket
    with pytest.raises(SettingError, match=r"step 8, in epoch 2, .*use more --epochs"):
        perform("retrain", ticket=str(path))


@pytest.mark.parametrize("command", ["train", "search", "prune"])
def test_results_are_written_while_the_folder_is_locked(perform, monkeypatch, command):
    evaluate, finish, held = Execution.evaluate, Execution.finish, []

    def locked(self):
        lock = FolderLock(self.folder)
        with pytest.raises(BusyError):
            lock.acquire()
        held.append(signal.getsignal(signal.SIGTERM) != before)

    def evaluate_locked(self, *arguments):
        locked(self)
        return evaluate(self, *arguments)

    def finish_locked(self):
        locked(self)
        return finish(self)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(Execution, "evaluate", evaluate_locked)
    monkeypatch.setattr(Execution, "finish", finish_locked)
    perform(command, **({"rounds": 1} if command == "search" else {}))
    assert len(held) >= 2 and all(held)
    assert signal.getsignal(signal.SIGTERM) == before


def make_ticket():
    torch.manual_seed(0)
    model = build_network("digits_convnet", num_classes=10, image_size=8, channels=1)
    return prunus.IterativeMagnitudePruning(model, steps=1).ticket()


def test_transfer_names_the_parameters_that_are_new():
    ticket = make_ticket()
    torch.manual_seed(1)
    model = build_network("digits_convnet", num_classes=7, image_size=8, channels=3)
    classifier = model[15].weight.clone()
    result = transfer(ticket, model)
    assert result.new == {
        "0.weight": "(16, 1, 3, 3) in the ticket but (16, 3, 3, 3) here",
        "15.weight": "classifier",
        "15.bias": "classifier",
    }
    assert "3.weight" in result.transferred and "1.running_mean" in result.transferred
    assert list(Mask.of(model)) == ["3.weight", "7.weight", "10.weight"]
    assert torch.equal(model[3].weight, ticket.weights["3.weight"])
    assert torch.equal(model[15].weight, classifier)


def test_nothing_to_transfer():
    model = build_network("mlp", num_classes=10, image_size=8, channels=1)
    with pytest.raises(TicketError, match="nothing of this ticket can be transferred"):
        transfer(make_ticket(), model)


def test_no_validation_images(perform):
    results, folder = perform("train", data={"train_images": 100, "validation_images": 0})
    assert not results.stages[0].validation and not metrics(folder)[0].validation
    assert "accuracy" in results.stages[0].test


@pytest.mark.filterwarnings("ignore:.* decides its mask in one round")
@pytest.mark.parametrize("name", METHODS)
def test_an_interrupted_search_resumes_its_later_round(settle, monkeypatch, name):
    given = {**SEARCH, "method": {"name": name, **QUICK.get(name, {})}, "checkpoint_every": 3}
    settings, task = settle("search", **given)
    whole = execute(*settle("search", **given, out=str(settings.out / "whole")))
    with_plug_pulled(monkeypatch, 14, lambda: execute(settings, task))
    assert len(read_results(settings.folder).stages) == 1
    assert execute(settings, task) == whole


@pytest.mark.parametrize("step", [3, 11])
@pytest.mark.parametrize("name", METHODS)
def test_an_interrupted_prune_resumes(settle, monkeypatch, name, step):
    given = {
        "method": {"name": name},
        "recipe": {"epochs": 3, "batch_size": 25, "commit_epoch": 2},
        "checkpoint_every": 1,
    }
    settings, task = settle("prune", **given)
    whole = execute(*settle("prune", **given, out=str(settings.out / "whole")))
    with_plug_pulled(monkeypatch, step, lambda: execute(settings, task))
    assert execute(settings, task) == whole


@pytest.mark.parametrize("step", [6, 11])
@pytest.mark.parametrize("name", ["iss", "netslim", "l0", "str", "dnw"])
def test_an_interrupted_prune_resumes_what_its_gates_hold(settle, monkeypatch, name, step):
    given = {
        "method": {"name": name},
        "recipe": {"epochs": 3, "batch_size": 25, "commit_epoch": 2},
        "checkpoint_every": 1,
    }
    settings, task = settle("prune", **given)
    whole, _ = settle("prune", **given, out=str(settings.out / "whole"))
    results = execute(whole, task)
    with_plug_pulled(monkeypatch, step, lambda: execute(settings, task))
    assert execute(settings, task) == results
    assert metrics(settings.folder) == metrics(whole.folder)
    path = results.stages[-1].ticket
    first, second = Ticket.load(settings.folder / path), Ticket.load(whole.folder / path)
    assert first.mask == second.mask
    assert all(torch.equal(w, second.weights[n]) for n, w in first.weights.items())


def test_stochastic_sparsification_finds_a_supermask(perform):
    method = {"name": "iss", "freeze_weights": True, "score_lr": 100.0}
    results, folder = perform("search", method=method, rounds=1)
    [stage] = results.stages
    ticket = Ticket.load(folder / stage.ticket)
    kept = ticket.mask["3.weight"]
    assert 0 < stage.density < 1 and ticket.weights["3.weight"][kept].all()


def test_masks_cannot_be_compared_without_validation_images(perform):
    data = {"train_images": 100, "validation_images": 0}
    with pytest.raises(SettingError, match="method l0 compares masks on validation data"):
        perform("search", method={"name": "l0"}, rounds=1, data=data)
    perform("search", method={"name": "l0", "samples": 1}, rounds=1, data=data)


def test_a_checkpoint_without_the_results_before_it(settle, monkeypatch):
    settings, task = settle("search", **SEARCH, checkpoint_every=1)
    with_plug_pulled(monkeypatch, 11, lambda: execute(settings, task))
    (settings.folder / "results.json").unlink()
    with pytest.raises(SettingError, match=r"results\.json lacks what the first 1 stages"):
        execute(settings, task)


def test_a_checkpoint_of_another_network(settle, monkeypatch):
    settings, task = settle("train", checkpoint_every=1)
    with_plug_pulled(monkeypatch, 3, lambda: execute(settings, task))
    other = load_task("digits/mlp", options=settings.data)
    with pytest.raises(CheckpointError, match="does not fit its network"):
        execute(settings, other)
    checkpoints = Checkpoints(settings.folder / "checkpoints", settings.folder.name)
    content = checkpoints.latest()
    for name, value in (("trainer", {"step": 1}), ("random", [{}])):
        checkpoints.save({**content, name: value}, 9, 9)
        with pytest.raises(CheckpointError, match=r"does not fit its training.*KeyError"):
            execute(settings, task)


def test_the_randomness_of_a_network_is_resumed_too(settle, tmp_path, monkeypatch, trust):
    (tmp_path / "dropping.py").write_text(
        "from torch import nn\n"
        "def network(*, num_classes, image_size, channels):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(64, num_classes))\n"
    )
    monkeypatch.chdir(tmp_path)
    given = {"task": "digits/dropping:network", "checkpoint_every": 1}
    trust(given["task"])
    settings, task = settle("train", **given)
    whole, _ = settle("train", **given, out=str(tmp_path / "whole"))
    assert execute(whole, task)
    with_plug_pulled(monkeypatch, 6, lambda: execute(settings, task))
    execute(settings, task)
    assert metrics(settings.folder) == metrics(whole.folder)


MODERN = {"epochs": 3, "batch_size": 25, "schedule": "cosine", "warmup": 0.5, "nesterov": True}


@pytest.mark.parametrize("step", [3, 9, 11])
def test_an_interrupted_run_with_an_average_resumes(settle, monkeypatch, step):
    recipe = {**MODERN, "ema": 0.9, "label_smoothing": 0.1, "commit_epoch": 2}
    given = {"recipe": recipe, "method": {"mask_init": 0.01}, "checkpoint_every": 1}
    settings, task = settle("prune", **given)
    whole, _ = settle("prune", **given, out=str(settings.out / "whole"))
    results = execute(whole, task)
    with_plug_pulled(monkeypatch, step, lambda: execute(settings, task))
    assert execute(settings, task) == results
    assert metrics(settings.folder) == metrics(whole.folder)
    path = results.stages[-1].ticket
    first, second = Ticket.load(settings.folder / path), Ticket.load(whole.folder / path)
    assert first.mask == second.mask and 0 < first.mask.density < 1
    assert all(torch.equal(w, second.weights[n]) for n, w in first.weights.items())
    for name, kept in first.mask.items():
        assert not first.weights[name][~kept].any()


def test_what_is_stored_is_what_was_measured(perform):
    """The line after the last epoch has the average, and so does the stage."""
    results, folder = perform("train", recipe={**MODERN, "ema": 0.9})
    assert metrics(folder)[-1].validation == results.stages[0].validation


def test_a_full_re_training(perform):
    found, folder = perform("search", **SEARCH)
    path = str(folder / found.stages[-1].ticket)
    rest, shorter = perform("retrain", ticket=path)
    results, own = perform("retrain", ticket=path, full=True)
    assert (results.stages[0].epochs, results.epochs_before) == (2, 0)
    assert rest.stages[0].epochs == 1 and own != shorter
    assert perform("retrain", ticket=path, full=False)[1] == shorter


def test_a_loss_that_cannot_be_smoothed(settle):
    with pytest.raises(SettingError, match="the loss of task 'diabetes/mlp' does not take it"):
        settle("train", task="diabetes/mlp", recipe={"label_smoothing": 0.1}, data={})


def test_a_metric_that_is_not_finite_ends_the_run(settle):
    settings, task = settle("train", task="diabetes/mlp", recipe={"epochs": 1}, data={})
    bad = replace(task.metrics[0], finish=lambda _: float("inf"))
    with pytest.raises(DivergedError, match="RMSE on the validation data is inf"):
        execute(settings, replace(task, metrics=(bad,)))


def test_the_selection_of_a_task_is_a_default(settle):
    def select(**method):
        given = {"task": "diabetes/mlp", "data": {}, "method": method}
        return settle("prune", **given)[0].method["select"]

    assert select() == "linear" and select(select="4.weight") == "4.weight"
    assert settle("prune")[0].method["select"] == "paper"
