import pytest

from support.made_runs import Runs, paper_like


@pytest.fixture
def runs(tmp_path):
    """Writes run folders below a temporary folder."""
    return Runs(tmp_path / "runs")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Runs like those of the paper's figure 1, but few."""
    root = tmp_path_factory.mktemp("paper") / "runs"
    paper_like(root, seeds=(0, 1), inits=(0.0, -0.2), rounds=3, imp_rounds=3)
    return root
