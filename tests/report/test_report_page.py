"""What the page holds, the plots, and the exports; no browser needed."""

import base64
import csv
import gzip
import io
import json
import re
import shlex
import sys
from dataclasses import replace

import numpy as np
import PIL.Image
import pytest
import torch

from prunus import PrunusWarning, SettingError
from prunus.cli import app
from prunus.report import panel
from prunus.report.export import latex_escape, write_csv, write_latex, write_parquet
from prunus.report.file import read_report, write_report
from prunus.report.model import comparisons
from prunus.report.page import page_data, report_page
from prunus.report.panel import (
    as_data_url,
    curves,
    describe,
    kept_fractions,
    picture_urls,
    retrain_command,
    shrunk,
)
from prunus.report.records import read_runs
from prunus.report.tables import checklist, points_table, raw_table, selection_table
from prunus.runs.origin import Origin
from prunus.tasks.metrics import ACCURACY
from support.made_runs import NATS, Runs

EVIL = "</script><img src=x onerror=alert(1)>&\"'"


def reports_of(folder):
    return comparisons(read_runs(folder).records)


def test_pictures_by_hand():
    mask = torch.tensor([[[1, 1, 0, 0], [0, 0, 0, 0]], [[1, 1, 1, 1], [0, 0, 0, 1]]]).bool()
    fractions = kept_fractions(mask)
    assert fractions.tolist() == [[0.5, 0.0], [1.0, 0.25]]
    assert shrunk(fractions, 1).tolist() == [[0.4375]]
    assert kept_fractions(torch.tensor([True, False])).tolist() == [[1.0, 0.0]]
    head, _, data = as_data_url(fractions).partition(",")
    assert head == "data:image/png;base64"
    image = PIL.Image.open(io.BytesIO(base64.b64decode(data))).convert("L")
    # Of fifteen: 15 * (1 - sqrt(0.5)) = 4.4, and 7.5 rounds to 8.
    assert np.asarray(image).tolist() == [[4 * 17, 255], [0, 8 * 17]]


def test_pictures_get_smaller_and_then_fewer(folder, monkeypatch):
    tickets = sorted(folder.rglob("round-*.safetensors"))
    assert len(picture_urls(tickets)) == len(tickets)
    monkeypatch.setattr(panel, "PICTURES", 2000)
    some = picture_urls(tickets)
    assert 0 < len(some) < len(tickets) and list(some) == tickets[: len(some)]


def test_a_ticket_in_detail(folder):
    records = read_runs(folder).records
    record = next(r for r in records if r.row == "cs" and r.round == 2)
    found = describe(record)
    facts = dict(found["facts"])
    assert facts["stage"] == "round 2" and facts["epochs of search"] == "8"
    assert facts["re-trained, test"] == f"{100 * record.value('re-trained'):.2f}%"
    assert ["recipe.epochs", "4"] in found["settings"]
    assert [layer["name"] for layer in found["layers"]][:2] == [
        "conv1.weight",
        "layer1.0.conv1.weight",
    ]
    assert [block["name"] for block in found["blocks"]] == ["conv1", "layer1.0", "layer2.0"]
    found = curves(record.folder, record.metric)
    assert len(found) == 12 and (found[4]["stage"], found[4]["at"]) == ("round 2", 5)
    assert found[-1]["value"] == pytest.approx(90.0, abs=2), "as it is shown: in per cent"


def test_without_its_ticket_a_record_still_has_layers(runs):
    folder = runs.search("cs", 0, [(0.5, 0.8)])
    path = folder / "tickets/round-1.safetensors"
    path.write_bytes(b"nothing")
    (record,) = read_runs(runs.root).records
    with pytest.warns(PrunusWarning, match=r"round-1.safetensors"):
        assert describe(record)["layers"][0] == {"name": "conv1.weight", "kept": 50.0}
    path.unlink()
    found = describe(record)
    assert found["layers"] and not found["blocks"] and picture_urls([path]) == {path: {}}


def test_curves_are_thinned_and_survive_damage(runs):
    folder = Runs(runs.root, epochs=200).search("cs", 0, [(0.5, 0.8)])
    found = curves(folder, ACCURACY)
    assert len(found) == 50 and (found[0]["at"], found[-1]["at"]) == (1, 200)
    path = folder / "metrics.jsonl"
    path.write_text(path.read_text() + '{"stage": "rou')
    assert curves(folder, ACCURACY) == found, "the last line is being written"
    path.write_text("oops\n" + path.read_text())
    with pytest.warns(PrunusWarning, match=r"metrics.jsonl"):
        curves(folder, ACCURACY)
    path.unlink()
    assert curves(folder, ACCURACY) == []


def test_the_command_that_re_trains(runs, monkeypatch):
    folder = runs.search("cs", 3, [(0.5, 0.8), (0.2, 0.7)])
    again = runs.retrain(folder, 2, 0.9)
    first, second = read_runs(runs.root).records
    ticket = str(folder / "tickets/round-1.safetensors")
    words = shlex.split(retrain_command(first))
    assert words == ["prunus", "retrain", ticket, "--seed", "3", "--set",
                     "recipe={batch_size: 128, epochs: 4}"]  # fmt: skip
    assert shlex.split(retrain_command(second))[3:] == [
        "--config", str(again / "settings.yaml"), "--out", str(again.parent)
    ]  # fmt: skip
    given = as_the_command_line_takes_it(first, monkeypatch)
    assert given["recipe"] == {"batch_size": 128, "epochs": 4}
    assert (given["seed"], given["ticket"]) == (3, ticket)


def test_the_command_of_a_run_that_has_folders_elsewhere(runs, monkeypatch):
    folder = runs.search("cs", 0, [(0.5, 0.8)])
    again = runs.retrain(folder, 1, 0.9)
    for path in (folder / "settings.yaml", again / "settings.yaml"):  # as in a sweep
        path.write_text(f"{path.read_text()}out: {runs.root}\ndata_root: /srv/data\n")
    (record,) = read_runs(runs.root).records
    given = as_the_command_line_takes_it(record, monkeypatch)
    assert (given["data_root"], given["out"]) == ("/srv/data", str(runs.root))
    given = as_the_command_line_takes_it(replace(record, retraining=None), monkeypatch)
    assert given["data_root"] == "/srv/data"


def as_the_command_line_takes_it(record, monkeypatch):
    """The settings that its command stands for, up to where it would run."""
    given = {}

    def resolve(_, settings, **__):
        given.update(settings)
        raise SettingError("enough")

    monkeypatch.setattr("prunus.runs.resolve", resolve)
    with pytest.raises(SettingError, match="enough"):
        app(shlex.split(retrain_command(record))[1:])
    return given


def test_page_escapes_what_files_say(tmp_path):
    runs = Runs(tmp_path / "runs", task=EVIL, shapes={f"{EVIL}.weight": (4, 4)})
    runs.train(0, 0.9)
    for init in (EVIL, "b"):
        folder = runs.search("cs", 0, [(0.5, 0.8)], mask_init=init.replace("/", ""))
        runs.retrain(folder, 1, 0.9)
    found = read_runs(runs.root)
    page = report_page(EVIL, found, comparisons(found.records))
    assert "<img src=x" not in page and page.count("&lt;img src=x") > 3
    assert page.count("</script>") == 2, "its own"


def test_page_is_whole_and_small(folder):
    found = read_runs(folder)
    page = report_page("runs", found, comparisons(found.records))
    assert len(page) < 2_000_000
    assert not re.search(r"<(?:script|img|link)[^>]*(?:src|href)=", page.split("<script")[0])
    assert "connect-src" not in page and "default-src 'none'" in page
    packed = re.search(r'id="data">([^<]*)<', page)[1]
    data = json.loads(gzip.decompress(base64.b64decode(packed)))
    assert data == json.loads(json.dumps(page_data(comparisons(found.records))))
    assert len(data["points"][0]) == 2 * 3 + 3
    assert [len(point["tickets"]) for point in data["points"][0]] == [2] * 9
    assert all(ticket["pictures"] for ticket in data["tickets"])


def test_page_tells_of_a_sweep(runs):
    folder = runs.search("cs", 0, [(0.5, 0.8)])
    run = {"id": "a<b", "row": "cs", "folder": folder.name, "status": "failed", "error": "<oh>"}
    content = {"version": 1, "name": "s", "runs": [run]}
    (runs.root / "sweep.json").write_text(json.dumps(content))
    found = read_runs(runs.root)
    page = report_page("runs", found, comparisons(found.records), live=True)
    assert "s: 1 runs, 1 failed." in page and 'id="live"' in page
    assert "<strong>a&lt;b</strong> failed: &lt;oh&gt;" in page


def test_only_dense_runs_have_a_table(runs):
    runs.train(0, 0.9)
    found = read_runs(runs.root)
    page = report_page("runs", found, comparisons(found.records))
    assert "90.00" in page and 'id="chart-0"' not in page.split("<script")[0]


def test_the_page_begins_with_the_finding_and_ends_with_how_it_was_found(folder):
    data = read_runs(folder)
    page = report_page("runs", data, comparisons(data.records))
    first = re.search(r"<p[^>]*>(.*?)</p>", page)[1]
    assert first == (
        "cs matches the dense network (90.40±1.27 %) with 4.35 % of the weights; imp needs 51.20 %."
    )
    assert "not at 0" in page and "at most 0.5 points worse" in page
    facts = dict(checklist(data, comparisons(data.records)))
    assert facts["hardware"] == "not recorded" and facts["settings tried"] == "cs 2, imp 1"
    assert facts["seeds"] == "0, 1" and facts["chosen by"] == "accuracy on validation data"
    origin = Origin(prunus="1", commit="abc", torch="2.0", processor="P", cores=2, seconds=1800)
    made = [replace(r, runs={r.folder.name: origin}) for r in data.records]
    facts = dict(checklist(replace(data, records=made), comparisons(made)))
    assert facts["hardware"] == "P, 2 cores, torch 2.0" and facts["code"] == "abc"
    assert facts["time"] == "4.00 hours in 8 runs", "two dense networks and six searches"
    raw = raw_table(comparisons(data.records))
    assert len(raw.rows) == len(data.records)
    assert raw.rows[0][1:] == ["dense", "", "training", "0", *["100.00"] * 4, "trained",
                               "89.30", "90.30"]  # fmt: skip


def test_exports(folder, tmp_path):
    reports = reports_of(folder)
    rows = list(csv.DictReader(write_csv(tmp_path / "x.csv", reports).open()))
    assert len(rows) == 6 and rows[0]["selection"] == "sparsest matching"
    assert float(rows[0]["dense"]) == pytest.approx(0.904)
    assert float(rows[0]["dense_high"]) == pytest.approx(0.904 + 12.7062 * 0.001, abs=1e-6)
    assert float(rows[2]["gain"]) == pytest.approx(0.013), "0.917 and 0.904"
    assert (rows[0]["picked_by"], rows[0]["margin"]) == ("validation", "0.005")
    from pyarrow import parquet

    table = parquet.read_table(write_parquet(tmp_path / "x.parquet", reports)).to_pylist()
    assert [str(row["density"] or "") for row in table] == [row["density"] for row in rows]
    text = write_latex(tmp_path / "x.tex", reports).read_text()
    assert {row["metric"] for row in rows} == {"accuracy"}
    assert text.count(r"\midrule") == 4 and r"90.40$\pm$1.27" in text
    assert {line.count(" & ") for line in text.splitlines() if line.endswith(r"\\")} == {8}


def test_parquet_without_pyarrow(folder, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(SettingError, match=r"pip install .*\[parquet\]"):
        write_parquet(tmp_path / "x", reports_of(folder))


def test_latex_escapes():
    assert latex_escape(r"a_b 5% {$x^2$} \n ~ # &") == (
        r"a\_b 5\% \{\$x\textasciicircum{}2\$\} \textbackslash{}n \textasciitilde{} \# \&"
    )


def test_page_and_plot_of_a_loss(tmp_path):
    runs = Runs(tmp_path / "runs", task="text/gpt-char", metric=NATS)
    runs.train(0, 1.5)
    runs.retrain(runs.search("cs", 0, [(0.3, 1.6)]), 1, 1.48)
    data = read_runs(runs.root)
    (report,) = comparisons(data.records)
    page = report_page("runs", data, [report])
    assert "Down is better" in page and "at most 0.5 % worse" in page
    assert "loss (nats)" in page and "accuracy" not in page.split("<script")[0]
    content = page_data([report])
    assert content["metrics"][0]["name"] == "loss"
    assert content["metrics"][0]["chart"]["encoding"]["y"]["title"] == "validation loss (nats)"
    text = json.dumps(content["charts"][0])
    assert '"title": "loss (nats)"' in text and "dense network: 1.5000 nats" in text
    assert "keeps 30.00 %, reaches 1.4800 nats" in text
    [ticket] = content["tickets"]
    assert ["re-trained, test", "1.4800 nats"] in [list(fact) for fact in ticket["facts"]]


def test_a_file_shows_the_same_tables_again(folder, tmp_path):
    data = read_runs(folder)
    path = write_report(tmp_path / "it.json", "paper", data)
    file = read_report(path)
    assert (file.version, file.name, file.runs) == (1, "paper", data.runs)
    assert file.origin.versions[0]["torch"] == torch.__version__
    before, after = comparisons(data.records), comparisons(file.data.records)
    for table in (selection_table, points_table):
        assert [table(c) for c in after] == [table(c) for c in before]
    one = next(s for s in file.subnetworks if s.folder == "cs-0.0-0" and s.round == 1)
    assert one.settings["recipe"]["epochs"] == 4
    assert one.measured["re-trained"].test["accuracy"] == pytest.approx(0.916)
    assert one.measured["re-trained"].validation["accuracy"] == pytest.approx(0.906)
    assert one.layers and one.measured["searched"].epochs == 4
    charts = [page_data(made)["charts"] for made in (before, after)]
    assert charts[0] == charts[1]
    assert report_page("paper", file.data, after), "without run folders"
    again = write_report(tmp_path / "again.json", "paper", file.data)
    assert read_report(again).subnetworks == file.subnetworks


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "{",
            "cannot read the report .*: it is not a file of prunus report --json, or it is damaged",
        ),
        ("[]", "is not a file of prunus report --json"),
        (
            '{"version": 9, "subnetworks": []}',
            "version=9 .*this one reads version 1: use the Prunus",
        ),
        ('{"subnetworks": [{"task": 1}]}', "it.json: "),
    ],
)
def test_a_damaged_file_is_an_error_that_names_it(tmp_path, content, message):
    (tmp_path / "it.json").write_text(content)
    with pytest.raises(SettingError, match=message):
        read_report(tmp_path / "it.json")
