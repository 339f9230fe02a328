"""Recipes: the paper's, schedules worked out by hand, and what is left of a recipe."""

import math

import pytest
import torch

from prunus import SettingError
from prunus.tasks.recipes import RECIPES, Recipe, RecipeChanges


def rates(recipe, steps_per_epoch=4, highest=None):
    steps = range(recipe.epochs * steps_per_epoch)
    return [recipe.rate(highest or recipe.lr, step, steps_per_epoch) for step in steps]


def recipe(**values):
    return Recipe(**{"epochs": 2, "batch_size": 1, "lr": 1.0, **values})


def test_the_recipes_of_the_paper():
    tickets, pruning = RECIPES["tickets"], RECIPES["pruning"]
    assert (tickets.epochs, tickets.drops, tickets.batch_size) == (85, (56, 71), 128)
    assert (tickets.lr, tickets.momentum, tickets.weight_decay) == (0.1, 0.9, 1e-4)
    assert RECIPES["tickets-vgg"] == tickets.changed(batch_size=64)
    assert (pruning.epochs, pruning.drops, pruning.commit_epoch) == (200, (80, 120), 160)
    assert (pruning.fine_tuning().epochs, pruning.fine_tuning().lr) == (40, 0.001)
    assert (pruning.searching().epochs, pruning.searching().drops) == (160, (80, 120))
    assert (RECIPES["imagenet"].epochs, RECIPES["imagenet"].batch_size) == (90, 256)
    assert (RECIPES["conv6"].batch_size, RECIPES["conv6"].lr) == (60, 3e-4)


def test_the_identity_of_old_recipes_has_no_added_settings():
    names = "epochs batch_size optimizer lr momentum weight_decay drops drop_factor"
    assert set(RECIPES["tickets"].identity()) == {*names.split(), "commit_epoch", "fine_tune_lr"}
    assert {"nesterov", "schedule", "warmup"} < set(RECIPES["modern"].identity())


@pytest.mark.parametrize(
    ("settings", "kind", "defaults"),
    [
        ({"optimizer": "sgd", "nesterov": True}, "SGD", {"momentum": 0.9, "nesterov": True}),
        ({"optimizer": "adam"}, "Adam", {"lr": 1.0}),
        ({"optimizer": "adamw"}, "AdamW", {"lr": 1.0}),
    ],
)
def test_optimisers(settings, kind, defaults):
    made = recipe(**settings).make_optimizer([{"params": [torch.nn.Parameter(torch.ones(1))]}])
    assert type(made).__name__ == kind
    assert defaults.items() <= made.defaults.items()


def test_drops_are_those_of_multi_step_lr():
    paper = recipe(epochs=4, drops=(0.001, 1, 1.01, 3), lr=0.37, drop_factor=0.3)
    groups = [{"params": [torch.nn.Parameter(torch.ones(1))], "lr": lr} for lr in (0.37, 0.1)]
    optimizer = torch.optim.SGD(groups)
    milestones = [round(drop * 5) for drop in paper.drops]
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones, paper.drop_factor)
    for step in range(20):
        ours = [paper.rate(lr, step, 5) for lr in (0.37, 0.1)]
        assert ours == [group["lr"] for group in optimizer.param_groups]
        optimizer.step()
        scheduler.step()


def test_schedules_by_hand():
    assert rates(recipe(schedule="constant")) == [1.0] * 8
    half = [(1 + math.cos(math.pi * i / 8)) / 2 for i in range(8)]
    assert rates(recipe(schedule="cosine")) == pytest.approx(half)
    assert rates(recipe(schedule="one-cycle", warmup=1)) == [0.25, 0.5, 0.75, 1, 1, 0.75, 0.5, 0.25]
    assert recipe(schedule="one-cycle", epochs=10).rate(1.0, 2, 1) == 1.0, "at 30 %"


def test_warm_up_is_a_straight_line_before_the_rest():
    assert rates(recipe(warmup=0.5, drops=(1,), drop_factor=0.5)) == [0.5, *[1.0] * 3, *[0.5] * 4]
    warm = rates(recipe(warmup=1, schedule="cosine"), highest=2.0)
    rest = [1 + math.cos(math.pi * i / 4) for i in range(4)]
    assert warm == pytest.approx([0.5, 1.0, 1.5, 2.0, *rest])
    assert rates(recipe(warmup=0.1)) == [1.0] * 8, "less than a step"


@pytest.mark.parametrize("schedule", ["drops", "cosine", "one-cycle", "constant"])
def test_what_is_left_continues_the_schedule(schedule):
    drops = (0.5, 2.5) if schedule == "drops" else ()
    whole = recipe(epochs=4, schedule=schedule, warmup=1.5, drops=drops)
    for epoch in (0, 1, 2):
        assert rates(whole.after(epoch)) == pytest.approx(rates(whole)[4 * epoch :])
        assert rates(whole.after(epoch).after(1)) == pytest.approx(rates(whole)[4 * epoch + 4 :])


def test_what_is_left_of_the_paper():
    rest = RECIPES["tickets"].after(2)
    assert (rest.epochs, rest.drops, rest.lr) == (83, (54, 69), 0.1)
    late = RECIPES["tickets"].after(60)
    assert (late.epochs, late.drops) == (25, (11,)) and late.lr == pytest.approx(0.01)
    with pytest.raises(SettingError, match="epochs=0"):
        RECIPES["tickets"].after(85)


def test_scaling_keeps_proportions():
    assert RECIPES["pruning"].scaled(10) == RECIPES["pruning"].changed(
        epochs=10, drops=(4, 6), commit_epoch=8
    )
    assert RECIPES["pruning"].scaled(2).commit_epoch == 1
    with pytest.raises(SettingError, match="commit_epoch is not set"):
        RECIPES["pruning"].scaled(1).searching()
    assert RECIPES["modern"].scaled(5).warmup == 0.5


def test_a_search_ends_its_schedule_and_fine_tuning_is_constant():
    modern = RECIPES["modern"].for_pruning()
    search, tuning = modern.searching(), modern.fine_tuning()
    assert (search.epochs, search.warmup, tuning.epochs) == (16, 1.6, 4)
    assert rates(search)[-1] < 0.001 and max(rates(search)) == pytest.approx(0.2, rel=1e-2)
    assert set(rates(tuning)) == {0.002}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schedule": "cosine", "drops": [1]}, "schedule=cosine has no drops"),
        ({"nesterov": True, "optimizer": "adamw"}, "nesterov needs optimizer=sgd"),
        ({"warmup": 85}, "warmup=85 takes all of 85 epochs"),
        ({"commit_epoch": 85}, "leaves none of 85 epochs"),
        ({"ema": 1}, "recipe.ema=1: Input should be less than 1"),
        ({"label_smoothing": -0.1}, "recipe.label_smoothing=-0.1"),
    ],
)
def test_settings_that_do_not_fit_together(changes, message):
    with pytest.raises(SettingError, match=message):
        RECIPES["tickets"].changed(**changes)


def test_changes_are_checked_on_their_own():
    given = RecipeChanges.parse({"epochs": 400, "commit_epoch": None})
    assert given.model_dump(exclude_unset=True) == {"epochs": 400, "commit_epoch": None}
    with pytest.raises(SettingError, match="Did you mean 'epochs'"):
        RecipeChanges.parse({"epoch": 1}, within="recipe")


def test_changing_the_schedule_removes_the_drops():
    assert RECIPES["tickets"].changed(schedule="cosine").drops == ()


def test_fine_tuning_at_the_rates_of_the_epochs_before():
    """As in Renda et al."""
    pruning = recipe(
        epochs=6, schedule="cosine", warmup=1.5, commit_epoch=4, fine_tune_lr="rewound"
    )
    search, tuning = pruning.searching(), pruning.fine_tuning()
    assert (search.epochs, tuning.epochs) == (4, 2)
    assert rates(tuning) == rates(search)[8:] and rates(tuning)[0] > rates(tuning)[-1]
    drops = recipe(epochs=6, drops=(1, 3), commit_epoch=4, fine_tune_lr="rewound")
    assert rates(drops.fine_tuning()) == pytest.approx([0.1] * 4 + [0.01] * 4)
    with pytest.raises(SettingError, match="fewer than the 4 after it"):
        recipe().changed(epochs=6, commit_epoch=2, fine_tune_lr="rewound")
