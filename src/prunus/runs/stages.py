"""What each command does, as stages that are not repeated once they are done."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any

from torch import nn

from prunus.errors import SettingError
from prunus.gates import gated_parameters, plain_tensors
from prunus.masks import Mask
from prunus.methods import Method
from prunus.randomness import seed_for
from prunus.runs.execution import Execution
from prunus.runs.method_settings import MethodSettings
from prunus.runs.results import RunResults, StageResult, named_values, read_results
from prunus.runs.settings import (
    PruneSettings,
    RetrainSettings,
    RunSettings,
    SearchSettings,
    TrainSettings,
)
from prunus.tasks import Recipe, Task
from prunus.tickets.controls import control_of
from prunus.tickets.ticket import Manifest, Ticket
from prunus.tickets.transfer import transfer
from prunus.training import Stage

_CONTROL = 1 << 32
"""Tells the seeds of controls from others made of a run's seed."""


def execute(settings: RunSettings, task: Task, *, quiet: bool = False) -> RunResults:
    """Do what the settings say, or resume it; returns the content of `results.json`.

    `quiet`: print nothing, because somebody else shows what many runs do.
    """
    done = read_results(settings.folder)
    if done and done.finished:
        return done
    return _COMMANDS[type(settings)](Execution(settings, task, quiet=quiet))


def _train(execution: Execution) -> RunResults:
    stage = Stage(0, "training")
    return _train_once(execution, execution.network(), stage, execution.settings.recipe)


def _search(execution: Execution) -> RunResults:
    settings = execution.settings
    assert isinstance(settings, SearchSettings)
    recipe = settings.recipe
    if settings.rewind_epoch > recipe.epochs:
        raise SettingError(
            f"rewind_epoch={settings.rewind_epoch:g} lies after the {recipe.epochs} epochs of a "
            "round: choose an earlier one, or 0 for the initial weights"
        )
    chosen, model = settings.make_method(), execution.network()
    method = _attached(execution, chosen, model, recipe.epochs, settings.rewind_epoch)
    method.check_rounds(settings.rounds)
    with execution.resumed(model, method, epochs=settings.rounds * recipe.epochs) as first:
        for number in range(first, settings.rounds):
            stage = Stage(number, f"round {number + 1}")
            execution.train(
                stage,
                model,
                recipe,
                first_epoch=number * recipe.epochs,
                method=method,
                group_options=chosen.group_options,
            )
            method.commit(execution.judge(model))
            # Measured before the next round resets weights and scores.
            result = execution.evaluate(stage, recipe.epochs, model)
            method.end_round()
            execution.record(result, _early_ticket(settings, method, result))
        return execution.finish()


def _prune(execution: Execution) -> RunResults:
    settings = execution.settings
    assert isinstance(settings, PruneSettings)
    searching, fine_tuning = settings.recipe.searching(), settings.recipe.fine_tuning()
    search, tune = Stage(0, "search"), Stage(1, "fine-tuning")
    chosen, model = settings.make_method(), execution.network()
    method = _attached(execution, chosen, model, searching.epochs, settings.rewind_epoch)
    method.check_rounds(1)
    options = chosen.group_options
    with execution.resumed(model, method, epochs=settings.recipe.epochs) as first:
        if first == search.number:
            execution.train(search, model, searching, method=method, group_options=options)
            method.harden(execution.judge(model))
            result = execution.evaluate(search, searching.epochs, model)
            has_early = settings.rewind_epoch is not None
            early = _early_ticket(settings, method, result) if has_early else None
            execution.record(result, early)
        execution.train(
            tune,
            model,
            fine_tuning,
            first_epoch=searching.epochs,
            method=method,
            group_options=options,
        )
        result = execution.evaluate(tune, fine_tuning.epochs, model)
        ticket = method.ticket(
            "current", task=settings.task, seed=settings.seed, metrics=_values(result)
        )
        execution.record(result, ticket)
        return execution.finish()


def _attached(
    execution: Execution,
    chosen: MethodSettings,
    model: nn.Module,
    epochs: int,
    rewind_epoch: float | None,
) -> Method:
    """The method at work on the model, for rounds of so many epochs."""
    steps = execution.steps_per_epoch
    method = chosen.attach(
        model,
        steps=epochs * steps,
        rewind_step=None if rewind_epoch is None else round(rewind_epoch * steps),
        seed=execution.settings.seed,
    )
    execution.check(method)
    return method


def _early_ticket(
    settings: SearchSettings | PruneSettings, method: Method, result: StageResult
) -> Ticket:
    """The mask with the weights `w^(k)`."""
    return method.ticket(
        task=settings.task,
        seed=settings.seed,
        metrics=_values(result),
        whole=settings.whole_tickets,
    )


def _retrain(execution: Execution) -> RunResults:
    settings = execution.settings
    assert isinstance(settings, RetrainSettings)
    ticket = Ticket.load(settings.ticket)
    about: dict[str, Any] = {}
    if settings.control is not None:
        # Another seed than any run has, and so than the one that the ticket was found with.
        seed = seed_for(settings.seed, _CONTROL)
        fresh = execution.network(seed)
        ticket = control_of(ticket, settings.control, seed=seed, fresh=fresh)
        about["control"] = settings.control
    model = execution.network()
    if ticket.manifest.task in (settings.task, ""):  # without a task, it has to fit
        ticket.apply(model)
    else:
        about["not_transferred"] = transfer(ticket, model).new
    before = 0 if settings.full else _epochs_before(ticket, execution)
    about["epochs_before"] = before
    execution.results = execution.results.model_copy(update=about)
    stage, recipe = Stage(0, "re-training"), settings.recipe.after(before)
    return _train_once(execution, model, stage, recipe, first_epoch=before)


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
    execution: Execution, model: nn.Module, stage: Stage, recipe: Recipe, first_epoch: int = 0
) -> RunResults:
    settings = execution.settings
    with execution.resumed(model, epochs=recipe.epochs):
        execution.train(stage, model, recipe, first_epoch=first_epoch)
        result = execution.evaluate(stage, recipe.epochs, model)
        manifest = Manifest(
            task=settings.task,
            method=settings.command,
            seed=settings.seed,
            metrics=_values(result),
        )
        mask = Mask.of(model) if gated_parameters(model) else Mask({})
        trained = Ticket(mask, plain_tensors(model), manifest)
        execution.record(result, trained)
        return execution.finish()


def _values(result: StageResult) -> dict[str, float]:
    return named_values(validation=result.validation, test=result.test)


_COMMANDS: dict[type[RunSettings], Callable[[Execution], RunResults]] = {
    TrainSettings: _train,
    SearchSettings: _search,
    PruneSettings: _prune,
    RetrainSettings: _retrain,
}
