"""`prunus report`, as a person types it."""

import json
import re
import signal
from pathlib import Path

import yaml

from prunus.report.records import read_runs
from prunus.sweeps import Experiment
from prunus.sweeps.plan import make_plan
from prunus.sweeps.state import SweepFile, survey
from support.made_runs import Runs
from support.processes import SECONDS, meanwhile, started


def test_everything_at_once(prunus_command, folder, tmp_path):
    status, output, _ = prunus_command(
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


def test_json_and_the_same_from_it(prunus_command, folder, tmp_path):
    tables = prunus_command("report", folder, "--out", tmp_path / "a")[1]
    _, output, _ = prunus_command(
        "report", folder, "--out", tmp_path / "a", "--json", tmp_path / "a.json"
    )
    assert f"Results: {tmp_path / 'a.json'}" in output
    status, output, _ = prunus_command("report", tmp_path / "a.json", "--svg")
    assert status == 0 and output.startswith(tables[: tables.index("Page: ")])
    assert (tmp_path / "report.html").exists()
    assert (tmp_path / "accuracy-cifar10-resnet20.svg").exists()


def test_the_margin_is_a_setting_and_printed(prunus_command, folder, tmp_path):
    command = ("report", folder, "--out", tmp_path)
    output = prunus_command(*command)[1]
    assert "imp needs 51.20 %" in output and "is above -0.5 points on validation data" in output
    output = prunus_command(*command, "--margin", "0.01")[1]  # that one is 0.02 points behind
    assert "imp needs 64.00 %" in output and "is above -0.01 points on " in output
    status, _, errors = prunus_command(*command, "--margin", "-1")
    assert status == 2 and "margin=-1 is negative: it says how much worse" in errors
    status, _, errors = prunus_command(*command, "--margin", "nan")
    assert status == 2 and "margin=nan is not a number of points" in errors


def test_nothing_to_report(prunus_command, tmp_path):
    status, _, errors = prunus_command("report", tmp_path / "none")
    assert status == 2 and f"there is no folder {tmp_path / 'none'}" in errors
    (tmp_path / "file").touch()
    status, _, errors = prunus_command("report", tmp_path / "file", "--watch")
    assert status == 2 and "--watch is for one folder" in errors
    status, _, errors = prunus_command("report", tmp_path / "file")
    assert status == 2 and "cannot read the report" in errors
    status, _, errors = prunus_command("sweep", "demo", "--known", tmp_path, "--dry-run")
    assert status == 2 and errors == f"prunus: cannot read the report {tmp_path}: Is a directory\n"
    status, _, errors = prunus_command("report", tmp_path)
    assert status == 2 and f"no runs with settings.yaml below {tmp_path}" in errors


def sweep(root, folder, status):
    run = {"id": "a", "row": "cs", "folder": folder.name, "status": status}
    content = {"version": 1, "name": "s", "runs": [run]}
    (root / "sweep.json").write_text(json.dumps(content))


def test_watching_a_sweep_to_its_end(prunus_command, tmp_path):
    root, seen = tmp_path / "runs", []
    folder = Runs(root).search("cs", 0, [(0.5, 0.8)])
    sweep(root, folder, "running")
    page = root / "report.html"

    def end():
        seen.append(page.read_text())
        sweep(root, folder, "finished")

    with meanwhile(page.exists, end):
        status, output, errors = prunus_command("report", root, "--watch")
    assert status == 0, errors
    assert "s: 1 runs, 1 running." in seen[0] and 'id="live"' in seen[0]
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


def test_the_experiment_in_the_documentation_and_the_state_of_a_real_sweep(tmp_path):
    text = (Path(__file__).parents[2] / "docs/report.md").read_text()
    content = yaml.safe_load(re.search(r"```yaml\n(.*?)```", text, re.DOTALL)[1])
    plan = make_plan(Experiment.parse(content), tmp_path)
    SweepFile(tmp_path, {"name": "digits"}).write(survey(plan, {}))
    (sweep,) = read_runs(tmp_path).sweeps
    assert sweep.state == "digits: 56 runs, 56 pending." and not sweep.over
