"""Text in files of others: it writes nothing but itself to a terminal, and small stays small."""

from __future__ import annotations

import json
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import prunus_runtime
from prunus import Manifest, Mask, PrunusWarning, SettingError, Ticket
from prunus.cli.output import show_warning
from prunus.runs.settings_file import parse_yaml, read_settings
from prunus.sweeps.experiment import read_experiment
from prunus.sweeps.grid import combinations
from prunus.tables import printable, text_table

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
    "digits": (f"a: {'1' * 5_000}", "4300 digits"),
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


def test_ordinary_aliases_work() -> None:
    text = "one: &one {a: [1, 2]}\ntwo: *one\nthree: {<<: *one, b: 3}"
    one = {"a": [1, 2]}
    assert parse_yaml(text) == {"one": one, "two": one, "three": {**one, "b": 3}}
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
