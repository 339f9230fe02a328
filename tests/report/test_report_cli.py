"""`prunus report`, as a person types it."""

import json
import re
import signal
import sys
from pathlib import Path

import pytest
import yaml
from made import Runs

from processes import SECONDS, started, wait_until
from prunus.cli import main
from prunus.report.runs import read_runs
from prunus.search.sweep import SweepRecipe
from prunus.search.sweep.plan import make_plan
from prunus.search.sweep.state import SweepFile, survey


@pytest.fixture
def cli(capsys, monkeypatch):
    """Runs a command in this process; returns status, output and errors."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["prunus", *map(str, arguments)])
        status = 0
        try:
            main()
        except SystemExit as exit:
            status = exit.code or 0
        return status, *capsys.readouterr()

    return run


def test_everything_at_once(cli, folder, tmp_path):
    status, output, _ = cli(
        "report", folder, "--out", tmp_path / "out", "--csv", tmp_path / "t.csv", "--latex",
        tmp_path / "t.tex", "--parquet", tmp_path / "t.parquet", "--png", "--svg", "--pdf",
    )  # fmt: skip
    assert status == 0
    assert "sparsest matching  " in output and "cifar10/resnet20" in output
    names = {path.name for path in (tmp_path / "out").iterdir()}
    plot = "accuracy-cifar10-resnet20"
    assert names == {"report.html", f"{plot}.png", f"{plot}.svg", f"{plot}.pdf"}
    assert (tmp_path / "out" / f"{plot}.pdf").read_bytes().startswith(b"%PDF")
    assert all((tmp_path / f"t.{kind}").stat().st_size for kind in ("csv", "tex", "parquet"))


def test_nothing_to_report(cli, tmp_path):
    status, _, errors = cli("report", tmp_path / "none")
    assert status == 2 and f"there is no folder {tmp_path / 'none'}" in errors
    (tmp_path / "file").touch()
    status, _, errors = cli("report", tmp_path / "file", "--watch")
    assert status == 2 and "file is a file" in errors
    status, _, errors = cli("report", tmp_path)
    assert status == 2 and f"no runs with settings.yaml below {tmp_path}" in errors


def sweep(root, folder, status):
    run = {"id": "a", "row": "cs", "folder": folder.name, "status": status}
    content = {"version": 1, "name": "s", "runs": [run]}
    (root / "sweep.json").write_text(json.dumps(content))


def test_watching_a_sweep_to_its_end(tmp_path):
    root = tmp_path / "runs"
    folder = Runs(root).search("cs", 0, [(0.5, 0.8)])
    sweep(root, folder, "running")
    page = root / "report.html"
    with started("-m", "prunus", "report", root, "--watch") as process:
        wait_until(page.exists, process)
        assert "s: 1 runs, 1 running." in page.read_text() and 'id="live"' in page.read_text()
        sweep(root, folder, "finished")
        output, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, errors
    assert "s: 1 runs, 1 finished." in page.read_text() and 'id="live">' not in page.read_text()
    assert output.count("Page: ") == 2


def test_watching_until_ctrl_c(tmp_path):
    later = tmp_path / "later"  # the sweep has not begun yet
    with started("-m", "prunus", "report", later, "--watch") as process:
        assert "No runs below" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, errors
    assert "No longer watching" in output


def test_the_recipe_in_the_documentation_and_the_state_of_a_real_sweep(tmp_path):
    text = (Path(__file__).parents[2] / "docs/report.md").read_text()
    recipe = yaml.safe_load(re.search(r"```yaml\n(.*?)```", text, re.DOTALL)[1])
    plan = make_plan(SweepRecipe.parse(recipe), tmp_path)
    SweepFile(tmp_path, {"name": "digits"}).write(survey(plan, {}))
    (sweep,) = read_runs(tmp_path).sweeps
    assert sweep.state == "digits: 56 runs, 56 pending." and not sweep.over
