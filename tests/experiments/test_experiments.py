"""The experiments of Prunus: they expand at every scale, and say what the paper says."""

import inspect
import json
import re
from importlib import import_module

import pytest

from prunus.errors import SettingError
from prunus.lookup import names_of_code
from prunus.methods import METHODS
from prunus.report.paper import PaperNumber, paper_of
from prunus.runs.method_settings import MethodSettings
from prunus.sweeps import AwaitsRates, Experiment
from prunus.sweeps.experiment import experiment_names, experiments_folder, named_experiment
from prunus.sweeps.plan import outline
from prunus.sweeps.planned import Ready
from prunus.tasks.networks import build_network

NAMES = experiment_names()
OF_THE_PAPER = [name for name in NAMES if named_experiment(name).paper]
SCALES = ("smoke", "short", "paper")
LEARNED = {"table1", "table2", "figure5", "figure11", "figure12"}
"""Those that have a scale `cpu`, in which networks learn."""
OWN_CODE = [f"experiments.budget_designs:{design}" for design in ("Lagrange", "Quadratic")]
SIZES = {"num_classes": 10, "image_size": 8, "channels": 1}


def test_there_is_one_for_every_table_and_figure():
    figures = [3, 4, 5, 6, 7, 8, 9, 11, 12]  # 1 and 2 are tables 1 and 2, and 10 goes with 9
    assert [f"table{n}" for n in (1, 2, 3)] + [f"figure{n}" for n in figures] == OF_THE_PAPER
    assert NAMES[: len(OF_THE_PAPER)] == OF_THE_PAPER, "the others come last"


@pytest.mark.parametrize("name", OF_THE_PAPER)
def test_an_experiment_of_the_paper_expands_at_every_scale(name):
    experiment = named_experiment(name)
    scales = {*SCALES, "cpu"} if name in LEARNED else set(SCALES)
    assert experiment.name == name and set(experiment.scales) == scales
    assert experiment.at_scale("paper").model_dump() == experiment.model_dump()  # as it stands
    epochs = {}
    for scale in scales:
        chosen, paper = experiment.at_scale(scale), paper_of(experiment, scale)
        runs = outline(chosen)
        epochs[scale] = sum(run.epochs for run in runs)
        assert {run.task for run in runs} == set(chosen.tasks)
        rows = {run.row for run in runs}
        for number in paper.numbers:
            assert number.task in chosen.tasks
            assert number.row is None or number.row in rows
    assert epochs["smoke"] <= 40 and epochs["short"] <= 600 and epochs["short"] < epochs["paper"]
    assert epochs.get("cpu", 0) <= 3000


@pytest.mark.parametrize("name", [name for name in NAMES if name not in OF_THE_PAPER])
def test_the_others_expand_too(name, monkeypatch, trust):
    monkeypatch.chdir(experiments_folder().parent)
    trust(*OWN_CODE)
    experiment = named_experiment(name)
    trust(*names_of_code(experiment.model_dump()))
    assert experiment.name == name and "smoke" in experiment.scales
    full, small = (outline(experiment.at_scale(scale)) for scale in (None, "smoke"))
    assert sum(run.epochs for run in small) < sum(run.epochs for run in full)
    assert {run.row for run in small} == {run.row for run in full}


def test_every_method_is_compared():
    """With a short budget those of the paper and its time, with the longer one those since."""
    compared = {
        run.method
        for name in ("short-budget", "comparison")
        for run in outline(named_experiment(name))
    }
    assert compared - {None} == set(METHODS)


@pytest.mark.parametrize("name", NAMES)
def test_the_methods_take_their_settings(name, trust):
    """On any network: settings that only a method at work can refuse."""
    trust(*OWN_CODE)
    given = {}
    experiment = named_experiment(name)
    trust(*names_of_code(experiment.model_dump()))
    for scale in (None, *experiment.scales):
        for run in outline(experiment.at_scale(scale)):
            method = getattr(getattr(run, "settings", None), "method", None)
            if method is not None:
                network = "lenet" if method.get("select") == "all" else "digits_convnet"
                given[json.dumps(method, sort_keys=True), network] = method
    for (_, network), method in given.items():
        own = {key: value for key, value in method.items() if key != "name"}
        model = build_network(network, **SIZES)
        MethodSettings(method["name"], own).attach(model, steps=1000, rewind_step=0, seed=0)


def test_what_table_1_of_the_paper_says():
    paper = paper_of(named_experiment("table1"), None)
    numbers = {(n.task, n.pick, n.row): n for n in paper.numbers}
    best = numbers["cifar10/resnet20", "best performing", "cs"]
    assert (best.round, best.accuracy, best.kept) == (5, 91.54, 16.9)
    assert best.density == pytest.approx(0.169)
    sparsest = numbers["cifar10/vgg16", "sparsest matching", "cs"]
    assert (sparsest.round, sparsest.accuracy, sparsest.kept) == (5, 93.35, 1.7)
    assert len(numbers) == 14


def test_what_table_2_of_the_paper_says():
    paper = paper_of(named_experiment("table2"), None)
    found = {n.row: n.sparsity for n in paper.numbers if n.task == "cifar10/resnet20"}
    assert found == {"l0": 13.6, "amc": 50, "mp": 80, "gmp": 86, "netslim": 85, "cs": 94.4}


def test_settings_of_section_5_1():
    runs = [
        run
        for run in outline(named_experiment("table1"))
        if run.row == "cs" and run.command == "search"
    ]
    assert len(runs) == 2 * 3 * 11
    for run in runs:
        recipe = run.settings.recipe
        assert (recipe.epochs, recipe.lr, recipe.momentum) == (85, 0.1, 0.9)
        assert (recipe.drops, recipe.weight_decay) == ((56, 71), 1e-4)
        assert recipe.batch_size == (64 if "vgg" in run.task else 128)
        assert (run.settings.rounds, run.settings.rewind_epoch) == (5, 2)
        method = run.settings.method
        assert (method["penalty"], method["final_temperature"]) == (1e-8, 200)


def test_settings_of_section_5_2():
    for run in outline(named_experiment("table2")):
        recipe = run.settings.recipe
        assert (recipe.epochs, recipe.drops, recipe.commit_epoch) == (200, (80, 120), 160)
        assert (recipe.lr, recipe.fine_tune_lr) == (0.1, 0.001)
        if run.row == "netslim":
            strength = 1e-6 if "vgg" in run.task else 1e-5
            assert run.settings.method["penalty"] == strength
        if run.row == "gmp":  # "zero-out elements for the last time" at epoch 160
            assert run.settings.method["end"] == 1
        if run.row == "amc":
            assert (run.settings.method["episodes"], run.settings.method["warmup"]) == (800, 100)


def test_all_convolutions_of_resnet_50_but_not_the_shortcuts_of_resnet_20():
    experiment = named_experiment("table3")
    for scale, select in [("paper", "conv"), ("short", "paper")]:
        runs = [run for run in outline(experiment.at_scale(scale)) if isinstance(run, Ready)]
        methods = [run.settings.method for run in runs if run.method]
        assert methods and {method["select"] for method in methods} == {select}


def test_settings_of_appendix_c_and_d():
    """Stochastic masks by SGD with momentum; IMP in each layer; CS with rewinding, three seeds."""
    methods = [run.settings.method for run in _runs("figure7", "ss")]
    assert {(method["score_lr"], method["score_momentum"]) for method in methods} == {(100, 0.9)}
    iss = _runs("figure8", "iss")
    assert {run.seed for run in iss} == {0, 1, 2}
    wanted = {"mask_init": 1, "score_lr": 20, "score_momentum": 0.9, "penalty": 1e-8}
    for run in iss:
        assert wanted.items() <= run.settings.method.items()
        assert (run.settings.rounds, run.settings.recipe.epochs) == (30, 40)
    for run in _runs("figure8", "imp"):
        method = run.settings.method
        assert (method["scope"], method["rate"]) == ("layer", {"conv": 0.15, "linear": 0.2})
    inits = {run.settings.method["mask_init"] for run in _runs("figure8", "cs")}
    assert (len(inits), min(inits), max(inits)) == (16, -0.2, 0.1)


def test_single_runs_of_cs_have_the_seeds_of_table_1():
    assert named_experiment("figure9").seeds == named_experiment("table1").seeds == (0, 1, 2)


def test_figure_5_shares_searches_with_table_1():
    """Where networks learn, and a search costs a quarter of an hour."""
    found = [_runs(name, "cs", "cpu") for name in ("table1", "figure5")]
    [first, second] = [{run.settings.model_dump_json() for run in runs} for runs in found]
    assert len(first & second) == 3


def _runs(name, row, scale=None):
    plan = outline(named_experiment(name).at_scale(scale))
    return [run for run in plan if isinstance(run, Ready) and run.row == row]


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("figure7", "tasks.networks.conv6"),
        ("figure8", "methods.imp"),
        ("figure9", "runs.rates"),
        ("figure11", "methods.seq_cs"),
        ("figure12", "tasks.networks.vgg"),
    ],
)
def test_code_and_experiment_name_the_same_appendix(name, module):
    letter = paper_of(named_experiment(name), None).where.split()[-1]
    source = inspect.getsource(import_module(f"prunus.{module}"))
    named = set("".join(re.findall(r"appendi(?:x|ces) ((?:[A-G]| and )+)", source)))
    assert letter in named


def test_the_mask_scale_is_measured_without_normalisation():
    """After a normalisation any factor on the weights is gone, and both settings are the same."""
    experiment = named_experiment("mask-scale")
    for task in experiment.tasks:
        network = build_network(task.partition("/")[2], **SIZES)
        assert not any("Norm" in type(module).__name__ for module in network.modules())
    runs = _runs("mask-scale", "CS")
    assert {run.settings.method["mask_scale"] for run in runs} == {"init", "constant", "none"}
    assert {run.settings.method["select"] for run in runs} == {"all"}


def test_the_same_rates_for_imp():
    runs = {run.id: run for run in outline(named_experiment("figure9"))}
    copies = [run for run in runs.values() if isinstance(run, AwaitsRates)]
    assert len(copies) == 2 * 11 * 3 and {runs[run.needs].row for run in copies} == {"cs"}


def test_settings_of_one_task_and_stand_ins():
    whole = named_experiment("table2")
    experiment = whole.at_scale("smoke")
    strengths = {
        run.task: run.settings.method["penalty"]
        for run in outline(experiment)
        if run.row == "netslim"
    }
    assert strengths == {"digits/lenet": 1e-6, "digits/digits_convnet": 1e-5}
    assert {n.task for n in paper_of(whole, "smoke").numbers} == set(experiment.tasks)


@pytest.mark.parametrize(
    ("number", "message"),
    [
        ({"row": "cs"}, "the nearest subnetwork needs kept or sparsity"),
        ({"row": "cs", "kept": 5, "sparsity": 95}, "give one of them"),
        ({"kept": 5}, "a number is of a row"),
        ({"row": "cs", "kept": 105}, "less than or equal to 100"),
    ],
)
def test_numbers_are_checked(number, message):
    with pytest.raises(SettingError, match=message):
        PaperNumber.parse({"task": "digits/lenet", **number})


def test_an_experiment_as_the_authors_trained():
    """Nesterov momentum, a temperature that rises once an epoch, re-training in full."""
    content = {
        "name": "published",
        "tasks": "digits/lenet",
        "settings": {"recipe": {"nesterov": True, "epochs": 4, "batch_size": 100}},
        "rows": [
            {
                "method": {"name": "cs", "anneal_every": 8},
                "then": {"retrain": "last", "settings": {"full": True}},
            }
        ],
    }
    dense, search, again = outline(Experiment.parse(content))
    assert dense.settings.recipe.nesterov and search.settings.recipe.nesterov
    assert again.given["full"] is True and again.given["recipe"]["nesterov"] is True
    assert again.epochs == dense.epochs == 4
    content["rows"][0]["then"]["settings"]["full"] = "all"
    with pytest.raises(SettingError, match="row 'cs': full='all' is neither true nor false"):
        outline(Experiment.parse(content))


def test_a_stand_in_for_no_task():
    content = named_experiment("figure6").model_dump()
    content["scales"] = {"smoke": {"stand_ins": {"cifar10/resnet56": "digits/lenet"}}}
    with pytest.raises(
        SettingError, match=r"scales.smoke.stand_ins.*Did you mean 'cifar10/resnet20'"
    ):
        Experiment.parse(content).at_scale("smoke")


def test_the_folder_of_a_clone():
    assert (experiments_folder() / "table1.yaml").is_file()
