"""Text in files of others: it writes nothing but itself to a terminal, and small stays small."""

from __future__ import annotations

import io
import json
import os
import time
import tracemalloc
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from rich.console import Console

import prunus_runtime
from prunus import Manifest, Mask, PrunusWarning, SettingError, Ticket
from prunus.cli.output import say, show_warning
from prunus.report.records import read_runs
from prunus.runs.results import EpochMetrics
from prunus.runs.settings_file import parse_yaml, read_settings
from prunus.sweeps.display import Activity, Display, View, render
from prunus.sweeps.experiment import read_experiment
from prunus.sweeps.grid import combinations
from prunus.tables import printable, text_table
from prunus.tasks.metrics import MetricInfo
from prunus_runtime.images import Images
from prunus_runtime.measures import LayerMeasures, Measures
from prunus_runtime.printing import LONGEST
from support.made_runs import Runs

Command = Callable[..., tuple[int, str, str]]
EVIL = "\x1b]0;title\x07\x1b[2J\rcontent hash  forged\nprunus: all is well\u202e\u2028"


def harmless(text: str) -> bool:
    """Whether text only writes lines."""
    return all(line.isprintable() for line in text.split("\n"))


def test_what_inspect_shows(cli: Command) -> None:
    weights = {f"{EVIL}.weight": torch.ones(2, 2)}
    mask = Mask({name: torch.ones(2, 2, dtype=torch.bool) for name in weights})
    manifest = Manifest(
        task=EVIL, method=EVIL, settings={EVIL: EVIL}, metrics={EVIL: 1.0}, versions={EVIL: EVIL}
    )
    Ticket(mask, weights, manifest).save("sent.safetensors")
    status, output, errors = cli("inspect", "sent.safetensors")
    assert status == 0 and errors == ""
    assert harmless(output) and r"\x1b]0;title\x07" in output
    values = {"settings": {"x": "x"}, "metrics": {"x": 1.0}, "versions": {"x": "x"}}
    plain = Ticket(mask, weights, Manifest(task="x", method="x", **values)).save("plain")
    assert len(output.splitlines()) == len(cli("inspect", plain)[1].splitlines())


def test_what_errors_and_warnings_show(cli: Command, capsys: pytest.CaptureFixture[str]) -> None:
    weights = {f"{EVIL}.weight": torch.ones(1)}
    manifest = Manifest(task="digits/mlp")
    ticket = Ticket(Mask({}), weights, manifest).save("sent.safetensors")
    status, _, errors = cli("retrain", ticket, "--epochs", 1)
    assert status == 2 and harmless(errors)
    show_warning(PrunusWarning(EVIL), PrunusWarning, "file.py", 1)
    errors = capsys.readouterr().err
    assert harmless(errors)
    # What would be lines of its own is clearly part of a message.
    first, *more = errors.splitlines()
    assert first.startswith("prunus: warning: ") and all(line.startswith("  ") for line in more)
    Path("sent.yaml").write_text(json.dumps({"name": "a", "tasks": [EVIL], "rows": [{}]}))
    status, _, errors = cli("sweep", "sent.yaml", "--dry-run")
    assert status == 2 and harmless(errors)


@pytest.mark.filterwarnings("ignore:left out a damaged line")
def test_what_reports_and_lists_show(cli: Command) -> None:
    metric = MetricInfo(f"m{EVIL}", unit=EVIL)
    runs = Runs(Path("sent"), task=f"digits/{EVIL}", metric=metric)
    runs.train(0, 0.9)
    runs.search(EVIL, 0, [(0.5, 0.9)])
    run = {"id": EVIL, "row": EVIL, "status": "failed", "error": EVIL, "folder": None}
    sweep = {"version": 1, "name": EVIL, "runs": [run]}
    Path("sent/sweep").mkdir()
    Path("sent/sweep/sweep.json").write_text(json.dumps(sweep))
    for command in (["report", "sent"], ["runs", "sent"]):
        status, output, errors = cli(*command)
        assert status == 0 and r"\x1b]0;title\x07" in output
        assert harmless(output) and harmless(errors)


def test_what_a_sweep_shows() -> None:
    console = Console(file=io.StringIO(), width=200, force_terminal=False)
    Display(console).say(EVIL)
    values = {"epoch": 1, "step": 1, "lr": 0.1, "loss": 1.0, "density": 1.0}
    last = EpochMetrics(stage=f"[/no markup]{EVIL}", **values)
    console.print(render(View(1, 0, 0, 0.0, None, (Activity(EVIL, 1, 2, last),))))
    text = console.file.getvalue()
    assert harmless(text) and "[/no markup]" in text


DEEP = {"text": "[" * 100_000, "data": f'{{"subnetworks": {"[" * 60}1{"]" * 60}}}'}


@pytest.mark.filterwarnings("always::prunus.PrunusWarning")
@pytest.mark.parametrize("content", DEEP.values(), ids=DEEP)
def test_json_that_is_nested_deeply(cli: Command, content: str) -> None:
    folder = Runs(Path("sent")).search("cs", 0, [(0.5, 0.9)])
    for name in ("metrics.jsonl", "origin.json"):
        (folder / name).write_text(f"{content}\n")
    status, _, errors = cli("report", "sent")
    assert status == 0 and "left out a damaged line" in errors
    (folder / "results.json").write_text(content)
    for command in (["report", "sent"], ["deploy", folder], ["report", folder / "results.json"]):
        status, _, errors = cli(*command)
        assert status == 2 and "nested more than 50 deep" in errors


@pytest.mark.filterwarnings("always::prunus.PrunusWarning")
def test_a_folder_of_others_shows_nothing_of_other_folders(cli: Command) -> None:
    own = Runs(Path("own"))
    own.train(0, 0.9)
    ticket = next(own.search("cs", 0, [(0.5, 0.9)]).rglob("*.safetensors"))
    sent = Runs(Path("sent"))
    results = sent.search("cs", 0, [(0.5, 0.8)]) / "results.json"
    content = json.loads(results.read_text())
    content["stages"][0]["ticket"] = str(ticket.resolve())
    results.write_text(json.dumps(content))
    [record] = read_runs(Path("sent")).records
    assert record.ticket is None
    run = {"id": "a", "row": "a", "status": "finished", "folder": "../own/cs-0"}
    (Path("sent") / "sweep.json").write_text(json.dumps({"version": 1, "name": "a", "runs": [run]}))
    status, output, errors = cli("runs", "sent")
    assert status == 0 and "No runs below sent yet" in output
    assert "left out '../own/cs-0' of sent/sweep.json: it is in another folder" in errors


def test_tables_and_text() -> None:
    assert text_table(["a"], [["\x1b[1m\n"]]) == "a\n\\x1b[1m\\n"
    assert printable("häßlich 網路 \\ 'x'") == "häßlich 網路 \\ 'x'"
    assert printable("\x9b\ud800\U000e0041") == r"\x9b\ud800\U000e0041"


ALIASES = "\n".join(
    ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
)
MERGES = "\n".join(
    ["a0: &a0 {x: 1}"]
    + [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 10)]
)
BOMBS = {
    "aliases": (ALIASES, "more than 100,000 values"),
    "merges": (MERGES, "more than 100,000 values"),
    "itself": ("a: &a [*a]", "more than 100,000 values"),
    "depth": ("a: " + "[" * 20_000, "nested too deeply"),
    "digits": (f"a: {'1' * 5_000}", "a number of more than 100 characters"),
    "hexadecimal": (f"a: [0x{'f' * 5_000}]", "a number of more than 100 characters"),
    "sexagesimal": (f"a: !!int 1{':59' * 100_000}", "a number of more than 100 characters"),
    "date": ("a: 2026-13-45", "month must be in"),
}


@pytest.mark.parametrize(
    "text",
    ["a: [1", "a: {b", "\x00", "!!timestamp x", "!!bool 7", "!!int ''", "a: *b", "- a\nb: 1"],
)
def test_yaml_that_is_none_is_told_in_one_line(cli: Command, text: str) -> None:
    Path("sent.yaml").write_text(text)
    for arguments in (["sweep", "sent.yaml"], ["train", "--config", "sent.yaml"]):
        status, _, errors = cli(*arguments)
        assert status == 2 and errors.count("\n") == 1, errors
        assert errors.startswith("prunus: sent.yaml is not a YAML file: ")


@pytest.mark.parametrize(("text", "message"), BOMBS.values(), ids=BOMBS)
def test_yaml_that_is_small_and_becomes_large(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "sent.yaml"
    path.write_text(text)
    began = time.process_time()
    for read in (read_settings, read_experiment):
        with pytest.raises(SettingError, match=message) as error:
            read(path)
        assert len(str(error.value)) < 1_000
    assert time.process_time() - began < 10


def test_a_long_value_is_cut_in_the_error(tmp_path: Path) -> None:
    path = tmp_path / "sent.yaml"
    path.write_text(f"name: {'x' * 100_000}!\ntasks: [{'y, ' * 30_000}]\nrows: 3\n")
    with pytest.raises(SettingError) as error:
        read_experiment(path)
    assert len(str(error.value)) < 1_000


def test_errors_are_short(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"prunus: sent: the index has the entry {'x' * 1_000_000!r}, which is no tensor")
    error = capsys.readouterr().err
    assert error.startswith("prunus: sent: the index") and len(error) <= LONGEST + 1


def test_ordinary_aliases_work() -> None:
    text = "one: &one {a: [1, 2]}\ntwo: *one\nthree: {<<: *one, b: 3}\nfour: {<<: *one, a: 4}"
    one = {"a": [1, 2]}
    three, four = {**one, "b": 3}, {"a": 4}
    assert parse_yaml(text) == {"one": one, "two": one, "three": three, "four": four}
    assert parse_yaml("") is None


def test_pipes_are_not_waited_for(cli: Command) -> None:
    for name in ("sent.yaml", "sent.prunus", "sent.json"):
        os.mkfifo(name)
    run = Path("runs/one")
    run.mkdir(parents=True)
    for name in ("settings.yaml", "results.json", "metrics.jsonl", "origin.json"):
        os.mkfifo(run / name)
    for command in (
        ["sweep", "sent.yaml", "--dry-run"],
        ["train", "--config", "sent.yaml"],
    ):
        status, _, errors = cli(*command)
        assert status == 2 and "not a regular file" in errors
    with pytest.raises(OSError, match="not a regular file"):
        prunus_runtime.load("sent.prunus")
    assert cli("report", "sent.json")[0] == 2
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        _, _, errors = cli("report", "runs")
    assert "settings.yaml, which is damaged: it is not a regular file" in errors


def test_settings_go_fifty_deep() -> None:
    assert parse_yaml("[" * 49 + "1" + "]" * 49)
    with pytest.raises(SettingError, match="nested more than 50 deep"):
        parse_yaml("{a: " * 300 + "1" + "}" * 300)


def test_a_small_grid_of_many_runs() -> None:
    values = list(range(300))
    with pytest.raises(SettingError, match="8,100,000,000 combinations, and 10,000 is the most"):
        list(combinations(dict.fromkeys(("seed", "rounds", "a", "b"), values)))


def small_ticket(names: list[str]) -> Path:
    # Manifests are a small multiple of their file, so that needs numbers that do not deflate.
    weights = {"dense": torch.randn(5000), **{name: torch.zeros(0) for name in names}}
    mask = Mask({name: torch.zeros(0, dtype=torch.bool) for name in names})
    return Ticket(mask, weights, Manifest(task="x" * 100_000)).save("sent.safetensors")


@pytest.mark.parametrize(("names", "kilobytes"), [(1, 25), (5_000, 50)])
def test_a_small_ticket_is_shown_in_little_text(cli: Command, names: int, kilobytes: int) -> None:
    """One long name makes a table wide, and many make it long: together they were gigabytes."""
    file = small_ticket(["y" * 500_000, *(f"{n}" for n in range(names))])
    assert file.stat().st_size < 1000 * kilobytes
    tracemalloc.start()
    try:
        status, output, _ = cli("inspect", file)
        assert tracemalloc.get_traced_memory()[1] < 200 * 2**20
    finally:
        tracemalloc.stop()
    assert status == 0 and len(output) < 200_000
    assert max(map(len, output.splitlines())) < 2 * LONGEST
    if names > 1:
        assert "... and 4,001 more" in output


def test_what_a_deployed_file_says_of_itself_is_short() -> None:
    layers = tuple(
        LayerMeasures(f"{n}{'x' * 1000}", "linear", *(10**12,) * 4) for n in range(20_000)
    )
    text = str(Measures("total", "", *(10**12,) * 4, layers, 10**12))
    assert len(text) < 300_000 and "... and 19,000 more" in text
    images = Images((0.5,), (0.5,), 28, classes=tuple(f"{n}{'x' * 1000}" for n in range(20_000)))
    assert len(str(images)) < 2 * LONGEST and "20000 classes: 0xxx" in str(images)
