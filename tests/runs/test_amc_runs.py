"""Runs with AMC: exact density, and resuming after an interruption."""

import pytest

from prunus import Ticket
from prunus.runs import execute
from support.interruption import with_plug_pulled

GIVEN = {
    "method": {"name": "amc", "target_density": 0.2, "episodes": 5, "warmup": 2},
    "recipe": {"epochs": 3, "batch_size": 25, "commit_epoch": 2},
    "checkpoint_every": 1,
}


def test_prune_to_the_exact_density(perform):
    results, folder = perform("prune", **GIVEN)
    ticket = Ticket.load(folder / results.stages[-1].ticket)
    assert ticket.mask.kept == round(0.2 * ticket.mask.total)
    settings = ticket.manifest.settings
    assert (settings["episodes"], settings["seed"]) == (5, 0)  # of the run


@pytest.mark.parametrize("step", [3, 11], ids=["before the cut", "after the cut"])
def test_an_interrupted_prune_resumes_bit_for_bit(settle, monkeypatch, step):
    settings, task = settle("prune", **GIVEN)
    whole = execute(*settle("prune", **GIVEN, out=str(settings.out / "whole")))
    with_plug_pulled(monkeypatch, step, lambda: execute(settings, task))
    assert execute(settings, task) == whole
    last = whole.stages[-1].ticket
    one, two = (
        Ticket.load(settings.folder / last),
        Ticket.load(settings.out / "whole" / settings.folder.name / last),
    )
    assert one.mask == two.mask
    assert all((one.weights[n] == two.weights[n]).all() for n in one.weights)
