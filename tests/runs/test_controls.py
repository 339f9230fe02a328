"""Controls on a found ticket, and the rates of one search in another."""

import pytest
import torch
import yaml

from prunus import Manifest, Mask, SettingError, Ticket, TicketError
from prunus.cli import app
from prunus.runs import execute, rates_of, resolve
from prunus.runs.results import RunResults, StageResult, read_results, write_results
from prunus.tasks.networks import build_network
from prunus.tickets import control_of
from prunus.training import Trainer
from support.interruption import with_plug_pulled

SEARCH = {"method": {"name": "imp", "rate": 0.7}, "rounds": 1, "rewind_epoch": 1}
CONTROLS = ["reinit", "shuffled", "random", "magnitude"]


def network(seed):
    torch.manual_seed(seed)
    return build_network("digits_convnet", num_classes=10, image_size=8, channels=1)


@pytest.fixture
def ticket(perform):
    """The path of a whole ticket with weights from step 4 of 8."""
    results, folder = perform("search", **SEARCH, whole_tickets=True)
    return folder / results.stages[0].ticket


def starts(monkeypatch, settle, **given):
    """The mask and weights that a re-training begins with, and its epochs."""
    seen = []

    def steps(self):
        weights = {n: p.detach().clone() for n, p in self.model.named_parameters()}
        seen.append((Mask.of(self.model), weights, self.recipe.epochs))
        raise InterruptedError

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "steps", steps)
        with pytest.raises(InterruptedError):
            execute(*settle("retrain", **given))
    return seen[0]


def test_what_controls_start_from(settle, ticket, monkeypatch):
    found = Ticket.load(ticket)
    assert found.whole
    begin = {
        control: starts(monkeypatch, settle, ticket=str(ticket), control=control)
        for control in CONTROLS
    }
    original = "3.parametrizations.weight.original"

    mask, weights, epochs = begin["reinit"]
    assert mask == found.mask and epochs == 2, "the whole recipe: these weights are new"
    kept = mask["3.weight"]
    assert not torch.isclose(weights[original][kept], found.weights["3.weight"][kept]).any()
    # nor are they those of the run's own seed, which found the ticket
    assert not torch.isclose(weights[original][kept], network(0)[3].weight[kept]).any()

    for control in ("shuffled", "random", "magnitude"):
        mask, weights, epochs = begin[control]
        assert epochs == 1, "what is left after w^(k)"
        assert torch.equal(weights[original], found.weights["3.weight"])
        assert mask != found.mask and mask.kept == found.mask.kept
    same = [layer.kept for layer in found.mask.layers]
    assert [layer.kept for layer in begin["shuffled"][0].layers] == same
    assert [layer.kept for layer in begin["random"][0].layers] != same
    largest = begin["magnitude"][0]
    assert [layer.kept for layer in largest.layers] == same
    for name, kept in largest.items():
        sizes = found.weights[name].abs()
        assert sizes[kept].min() >= sizes[~kept].max()


def test_a_control_is_a_run_of_its_own(settle, ticket, monkeypatch):
    runs = {c: settle("retrain", ticket=str(ticket), control=c)[0] for c in [None, *CONTROLS]}
    assert len({settings.folder for settings in runs.values()}) == 5
    assert "-retrain-shuffled-" in runs["shuffled"].folder.name
    other = settle("retrain", ticket=str(ticket), control="shuffled", seed=1)[0]
    masks = [
        starts(monkeypatch, settle, ticket=str(ticket), control="shuffled", seed=seed)[0]
        for seed in (0, 0, 1)
    ]
    assert masks[0] == masks[1] != masks[2]
    assert other.folder != runs["shuffled"].folder


@pytest.mark.parametrize("control", CONTROLS)
def test_a_control_is_recorded_and_resumed(settle, ticket, monkeypatch, control):
    given = {"ticket": str(ticket), "control": control, "checkpoint_every": 1}
    settings, task = settle("retrain", **given)
    whole, _ = settle("retrain", **given, out=str(settings.out / "whole"))
    results = execute(whole, task)
    assert results.control == control and results.label == f"retrain-{control}"
    assert results.epochs_before == (0 if control == "reinit" else 1)
    with_plug_pulled(monkeypatch, 3, lambda: execute(settings, task))
    assert execute(settings, task) == results
    paths = [s.folder / results.stages[0].ticket for s in (settings, whole)]
    one, two = (Ticket.load(path) for path in paths)
    assert one.mask == two.mask
    assert all(torch.equal(one.weights[n], two.weights[n]) for n in one.weights)
    written = yaml.safe_load((settings.folder / "settings.yaml").read_text())
    assert written["control"] == control
    assert resolve("retrain", written)[0].folder == settings.folder


def test_random_masks_need_the_weights_that_the_ticket_removes(perform):
    results, folder = perform("search", **SEARCH)
    path = folder / results.stages[0].ticket
    assert not Ticket.load(path).whole
    for control in ("shuffled", "random", "magnitude"):
        with pytest.raises(TicketError, match=f"'{control}'.*--whole-tickets"):
            perform("retrain", ticket=str(path), control=control)
    perform("retrain", ticket=str(path), control="reinit")


def test_controls_of_a_pruned_network(perform, settle, monkeypatch):
    given = {"method": {"name": "gmp", "target_density": 0.2}, "rewind_epoch": 1}
    results, folder = perform("prune", **given, whole_tickets=True)
    found = Ticket.load(folder / results.stages[0].ticket)
    path = str(folder / results.stages[0].ticket)
    mask, _, _ = starts(monkeypatch, settle, ticket=path, control="magnitude")
    assert mask == found.mask.largest(found.weights)
    assert mask.layers == found.mask.layers


def test_whole_tickets_are_the_same_otherwise(perform, ticket):
    results, folder = perform("search", **SEARCH)
    plain, whole = Ticket.load(folder / results.stages[0].ticket), Ticket.load(ticket)
    assert plain.mask == whole.mask
    for name, kept in plain.mask.items():
        assert torch.equal(plain.weights[name][kept], whole.weights[name][kept])
        assert whole.weights[name][~kept].any()


def test_a_dense_network_has_no_controls():
    dense = Ticket(Mask({}), {"w": torch.ones(2)}, Manifest())
    with pytest.raises(TicketError, match="no mask"):
        control_of(dense, "reinit", seed=0, fresh=network(0))


def test_controls_on_another_task(settle, perform, ticket, tmp_path, monkeypatch, trust):
    (tmp_path / "other_digits.py").write_text(
        "from dataclasses import replace\n"
        "from prunus.tasks import load_task\n"
        "def task(root, options):\n"
        "    return replace(load_task('digits/digits_convnet', root, options), name='other')\n"
    )
    monkeypatch.chdir(tmp_path)
    given = {"ticket": str(ticket), "task": "other_digits:task"}
    trust(given["task"])
    results, _ = perform("retrain", **given, control="reinit")
    assert results.control == "reinit"
    assert set(results.not_transferred) == {"15.weight", "15.bias"}
    mask, weights, epochs = starts(monkeypatch, settle, **given, control="shuffled")
    found = Ticket.load(ticket)
    assert epochs == 2 and mask.kept == found.mask.kept and mask != found.mask
    assert torch.equal(weights["3.parametrizations.weight.original"], found.weights["3.weight"])


# Rates


def write(folder, densities, **changes):
    stages = tuple(
        StageResult(stage=f"round {i}", epochs=1, density=d) for i, d in enumerate(densities, 1)
    )
    content = {"command": "search", "finished": True, "stages": stages, **changes}
    write_results(folder, RunResults(task="t", label="l", seed=0, **content))
    return folder


def test_rates_by_hand(tmp_path):
    assert rates_of(write(tmp_path, [0.5, 0.4, 0.3])) == pytest.approx([0.5, 0.2, 0.25])
    # round 2 keeps more than round 1, which IMP cannot; round 3 counts from round 1
    assert rates_of(write(tmp_path, [0.5, 0.6, 0.25])) == pytest.approx([0.5, 0.0, 0.5])


def test_imp_at_the_rates_of_cs_keeps_as_many_weights(perform):
    cs, folder = perform("search", method={"name": "cs", "mask_init": 0.01}, rounds=3)
    rates = rates_of(folder)
    imp, _ = perform("search", method={"name": "imp", "rate": rates}, rounds=3)
    counts = [
        [Ticket.load(f / stage.ticket).mask.kept for stage in results.stages]
        for results, f in ((cs, folder), (imp, _))
    ]
    fewest = [min(counts[0][: i + 1]) for i in range(3)]
    assert counts[1] == fewest and fewest[-1] < fewest[0]


def test_a_search_without_enough_rates_does_not_begin(perform, monkeypatch):
    monkeypatch.setattr(Trainer, "__init__", None)
    with pytest.raises(SettingError, match=r"round 3 has no rate: .* is for 2 rounds"):
        perform("search", method={"name": "imp", "rate": [0.5, 0.2]}, rounds=3)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"command": "prune"}, "not a finished search .command prune"),
        ({"finished": False}, "finished: False"),
        ({"densities": [0.0]}, r"round 1 of .* keeps no weight"),
    ],
)
def test_runs_without_rates(tmp_path, changes, message):
    with pytest.raises(SettingError, match=message):
        rates_of(write(tmp_path, **{"densities": [0.5], **changes}))


def test_folders_without_results(tmp_path):
    with pytest.raises(SettingError, match=r"no results\.json"):
        rates_of(tmp_path)
    (tmp_path / "results.json").write_text("{")
    with pytest.raises(SettingError, match=r"results\.json is damaged"):
        rates_of(tmp_path)


# The command line

DIGITS = "--task digits/digits_convnet --epochs 2 --batch-size 25 --set data.train_images=100"


def command(line):
    with pytest.raises(SystemExit) as stop:
        app(line.split())
    assert stop.value.code == 0


def only(pattern):
    from pathlib import Path

    [folder] = Path("runs").glob(pattern)
    return folder


def test_from_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    search = f"search {DIGITS} --rewind-epoch 1"
    command(f"{search} --mask-init 0.01 --rounds 2 --whole-tickets")
    cs = only("*-cs-search-*")
    command(f"{search} --method imp --rates-of {cs}")
    imp = only("*-imp-search-*")
    written = yaml.safe_load((imp / "settings.yaml").read_text())
    assert written["method"]["rate"] == rates_of(cs) and written["rounds"] == 2
    command(f"{search} --method imp-c --rounds 1 --set method.rate=[0.5,0.6]")
    results = read_results(only("*-imp-c-search-*"))
    assert results.stages[0].density == pytest.approx(0.5, abs=1e-3)
    kinds = "--set method.rate.conv=0.15 --set method.rate.linear=0.2 --set method.select=all"
    command(f"{search} --method imp --rounds 1 {kinds} --out kinds")
    [kinds] = (tmp_path / "kinds").iterdir()
    layers = read_results(kinds)
    assert layers.stages[0].layers["15.weight"] == pytest.approx(0.8, abs=0.01)
    capsys.readouterr()
    path = cs / "tickets" / "round-2.safetensors"
    command(f"retrain {path} {DIGITS} --control shuffled")
    assert "A control (shuffled)" in capsys.readouterr().out
    assert only("*-retrain-shuffled-*").is_dir()
