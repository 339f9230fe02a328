import pytest

from support.made_runs import paper_like


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Runs like those of the paper's figure 1, but few."""
    root = tmp_path_factory.mktemp("paper") / "runs"
    paper_like(root, seeds=(0, 1), inits=(0.0, -0.2), rounds=3, imp_rounds=3)
    return root
