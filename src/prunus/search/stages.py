"""What each command does, as stages that are not repeated once they are done."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any

from torch import nn

from prunus.errors import SettingError
from prunus.gates import gated_parameters, plain_tensors
from prunus.masks import Mask
from prunus.search.controls import control_of
from prunus.search.execution import Execution, read_results
from prunus.search.settings import (
    PruneSettings,
    RetrainSettings,
    RunSettings,
    SearchSettings,
    TrainSettings,
)
from prunus.search.transfer import transfer
from prunus.tasks import Recipe, Task
from prunus.tasks.data.sharding import seed_for
from prunus.ticket import Manifest, Ticket

_CONTROL = 1 << 32
"""Tells the seeds of controls from others made of a run's seed."""


def execute(settings: RunSettings, task: Task, *, quiet: bool = False) -> dict[str, Any]:
    """Do what the settings say, or go on with it; returns the content of `results.json`.

    `quiet`: print nothing, because somebody else shows what many runs do.
    """
    done = read_results(settings.folder)
    if done and done["finished"]:
        return done
    return _STAGES[type(settings)](Execution(settings, task, quiet=quiet))


def _train(execution: Execution) -> dict[str, Any]:
    return _train_once(execution, execution.network(), "training", execution.settings.recipe)


def _search(execution: Execution) -> dict[str, Any]:
    settings = execution.settings
    assert isinstance(settings, SearchSettings)
    recipe, steps = settings.recipe, execution.steps_per_epoch
    if settings.rewind_epoch > recipe.epochs:
        raise SettingError(
            f"rewind_epoch={settings.rewind_epoch:g} lies after the {recipe.epochs} epochs of a "
            "round: choose an earlier one, or 0 for the initial weights"
        )
    chosen = settings.make_method()
    model = execution.network()
    method = chosen.attach(
        model,
        steps=recipe.epochs * steps,
        rewind_step=round(settings.rewind_epoch * steps),
        seed=settings.seed,
    )
    execution.check_can_judge(method)
    method.check_rounds(settings.rounds)
    with execution.run(settings.rounds * recipe.epochs) as run:
        for phase in range(run.restore(model, method), settings.rounds):
            name = f"round {phase + 1}"
            execution.fit(
                run,
                phase,
                name,
                model,
                recipe,
                first_epoch=phase * recipe.epochs,
                method=method,
                group_options=chosen.group_options,
            )
            method.commit(execution.judge(model))
            numbers = execution.evaluate(model)  # before the next round resets weights and scores
            method.end_round()
            ticket = method.ticket(
                task=settings.task,
                seed=settings.seed,
                metrics=_accuracies(numbers),
                whole=settings.whole_tickets,
            )
            execution.record(name, recipe.epochs, numbers, ticket)
        return execution.finish()


def _prune(execution: Execution) -> dict[str, Any]:
    settings = execution.settings
    assert isinstance(settings, PruneSettings)
    searching, fine_tuning = settings.recipe.searching(), settings.recipe.fine_tuning()
    steps, k = execution.steps_per_epoch, settings.rewind_epoch
    chosen = settings.make_method()
    model = execution.network()
    method = chosen.attach(
        model,
        steps=searching.epochs * steps,
        rewind_step=None if k is None else round(k * steps),
        seed=settings.seed,
    )
    execution.check_can_judge(method)
    method.check_rounds(1)
    options = chosen.group_options
    with execution.run(settings.recipe.epochs) as run:
        if run.restore(model, method) == 0:
            execution.fit(run, 0, "search", model, searching, method=method, group_options=options)
            method.harden(execution.judge(model))
            numbers = execution.evaluate(model)
            found = None
            if k is not None:
                found = method.ticket(
                    task=settings.task, seed=settings.seed, metrics=_accuracies(numbers)
                )
            execution.record("search", searching.epochs, numbers, found)
        execution.fit(
            run,
            1,
            "fine-tuning",
            model,
            fine_tuning,
            first_epoch=searching.epochs,
            method=method,
            group_options=options,
        )
        numbers = execution.evaluate(model)
        ticket = method.ticket(
            "current", task=settings.task, seed=settings.seed, metrics=_accuracies(numbers)
        )
        execution.record("fine-tuning", fine_tuning.epochs, numbers, ticket)
        return execution.finish()


def _retrain(execution: Execution) -> dict[str, Any]:
    settings = execution.settings
    assert isinstance(settings, RetrainSettings)
    ticket = Ticket.load(settings.ticket)
    if settings.control is not None:
        # Another seed than any run has, and so than the one that the ticket was found with.
        seed = seed_for(settings.seed, _CONTROL)
        fresh = execution.network(seed)
        ticket = control_of(ticket, settings.control, seed=seed, fresh=fresh)
        execution.results["control"] = settings.control
    model = execution.network()
    if ticket.manifest.task in (settings.task, ""):  # without a task, it has to fit
        ticket.apply(model)
    else:
        execution.results["not_transferred"] = transfer(ticket, model).new
    before = _epochs_before(ticket, execution)
    execution.results["epochs_before"] = before
    recipe = settings.recipe.after(before)
    return _train_once(execution, model, "re-training", recipe, first_epoch=before)


def _epochs_before(ticket: Ticket, execution: Execution) -> int:
    """How many epochs of this task made the ticket's weights; a begun one counts as a whole."""
    settings, step = execution.settings, ticket.manifest.rewind_point
    if step is None or ticket.manifest.task != settings.task:
        return 0
    before = ceil(step / execution.steps_per_epoch)
    if before >= settings.recipe.epochs:
        raise SettingError(
            f"the ticket's weights are from step {step}, in epoch {before}, and the recipe has "
            f"{settings.recipe.epochs} epochs: nothing is left to re-train; use more --epochs"
        )
    return before


def _train_once(
    execution: Execution, model: nn.Module, name: str, recipe: Recipe, first_epoch: int = 0
) -> dict[str, Any]:
    settings = execution.settings
    with execution.run(recipe.epochs) as run:
        run.restore(model)
        execution.fit(run, 0, name, model, recipe, first_epoch=first_epoch)
        numbers = execution.evaluate(model)
        manifest = Manifest(
            task=settings.task,
            method=settings.command,
            seed=settings.seed,
            metrics=_accuracies(numbers),
        )
        mask = Mask.of(model) if gated_parameters(model) else Mask({})
        trained = Ticket(mask, plain_tensors(model), manifest)
        execution.record(name, recipe.epochs, numbers, trained)
        return execution.finish()


_STAGES: dict[type[RunSettings], Callable[[Execution], dict[str, Any]]] = {
    TrainSettings: _train,
    SearchSettings: _search,
    PruneSettings: _prune,
    RetrainSettings: _retrain,
}


def _accuracies(numbers: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in numbers.items() if name.endswith("_accuracy")}
