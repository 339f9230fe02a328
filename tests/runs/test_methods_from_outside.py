"""A method that is not registered: in the library, on the command line and in a sweep."""

import sys
from pathlib import Path

import pytest

import prunus
from prunus.runs import resolve
from prunus.sweeps.experiment import Experiment
from prunus.sweeps.plan import make_plan

MINE = """
from prunus.masks import Mask
from prunus.methods.common.families import FixedMaskMethod
from prunus.methods.common.ranking import magnitudes, remove_lowest
from prunus.methods.settings import setting

class Smallest(FixedMaskMethod):
    share: float = setting("the fraction to remove", default=0.25)

    def on_commit(self, evaluate):
        return Mask(remove_lowest(magnitudes(self.weights), self.mask(), self.share))

number = 3
class Other: ...
"""
TASK = ["--task", "digits/digits_convnet", "--epochs", 2, "--set", "data.train_images=200"]


@pytest.fixture
def mine(cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """The command line in a folder with `mine.py`."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    (tmp_path / "mine.py").write_text(MINE)
    yield cli
    sys.modules.pop("mine", None)


def test_a_search(mine, tmp_path: Path):
    command = ["search", *TASK, "--method", "mine:Smallest", "--set", "method.share=0.5"]
    status, output, errors = mine(*command, "--rounds", 2, "--rewind-epoch", 0)
    assert status == 0, errors
    assert "25.0" in output
    [folder] = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("digits-digits_convnet-mine-Smallest-search-")
    ticket = prunus.Ticket.load(folder / "tickets" / "round-2.safetensors")
    assert ticket.manifest.method == "mine:Smallest"
    assert ticket.manifest.settings["share"] == 0.5
    assert ticket.mask.density == pytest.approx(0.25, abs=1e-3)


@pytest.mark.usefixtures("mine")
def test_a_plan_of_a_sweep(tmp_path: Path, trust):
    trust("mine:Smallest")
    recipe = Experiment.parse(
        {
            "name": "outside",
            "tasks": {"digits/digits_convnet": {}},
            "dense": False,
            "rows": [{"method": "mine:Smallest", "grid": {"method.share": [0.1, 0.5]}}],
        }
    )
    runs = make_plan(recipe, tmp_path / "runs")
    assert [run.settings.method["share"] for run in runs] == [0.1, 0.5]
    assert all(run.method == "mine:Smallest" for run in runs)


@pytest.mark.usefixtures("mine")
def test_in_the_library():
    with prunus.trusting("mine:Smallest"):
        assert prunus.find_method("mine:Smallest").__name__ == "Smallest"
    assert prunus.find_method("cs") is prunus.ContinuousSparsification


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("css", "there is no method named 'css'. Did you mean 'cs'"),
        ("mine:Smalest", "no class in module 'mine' named 'Smalest'. Did you mean 'Smallest'"),
        ("mine:Other", "'mine:Other' is not a class that extends prunus.Method"),
        ("mine:magnitudes", "is not a class that extends prunus.Method"),
        ("mine:number", "no class in module 'mine' named 'number'"),
        ("yours:Method", "cannot import 'yours'"),
        (":Method", "is not of the form 'package.module:class'"),
    ],
)
def test_errors(name, message, trust):
    trust(name)
    with pytest.raises(prunus.SettingError, match=message):
        resolve("search", {"task": "digits/digits_convnet", "method": name})
