"""`results.json` and `metrics.jsonl`: what is written is read, and so are older files."""

import json

import pytest

from prunus import SettingError
from prunus.runs import rates_of
from prunus.runs.results import (
    EpochMetrics,
    RunResults,
    StageResult,
    named_values,
    parse_epoch,
    read_epochs,
    read_results,
    ticket_path,
    write_results,
)
from prunus.tasks import MetricInfo

NATS = MetricInfo("loss", higher_is_better=False, unit="nats")


def results(**values):
    return RunResults(command="search", task="text/gpt-char", label="cs-search", seed=0, **values)


def test_what_is_written_is_read(tmp_path):
    stage = StageResult(stage="round 1", epochs=2, density=0.5, validation={"loss": 1.5})
    written = results(metrics=(NATS,), stages=(stage,), finished=True)
    write_results(tmp_path, written)
    assert read_results(tmp_path) == written and written.metric == NATS
    content = json.loads((tmp_path / "results.json").read_text())
    assert content["version"] == 2
    assert content["metrics"] == [{"name": "loss", "higher_is_better": False, "unit": "nats"}]
    assert read_results(tmp_path / "nowhere") is None


def test_a_stage_of_the_same_name_is_replaced():
    one, two, again = (
        StageResult(stage=name, epochs=1, density=density)
        for name, density in (("round 1", 0.5), ("round 2", 0.4), ("round 2", 0.3))
    )
    found = results().with_stage(one).with_stage(two).with_stage(again)
    assert found.stages == (one, again)
    assert str(ticket_path("round 2")) == "tickets/round-2.safetensors"


def test_test_values_are_reported_if_there_are_any():
    both = StageResult(stage="s", epochs=1, density=1, validation={"a": 1.0}, test={"a": 2.0})
    assert both.reported("a") == 2.0
    assert both.model_copy(update={"test": {}}).reported("a") == 1.0
    assert both.reported("b") is None


def test_an_older_file(tmp_path):
    """As written by versions that only knew classification."""
    stage = {
        "stage": "round 1",
        "epochs": 12,
        "density": 0.1956,
        "validation_accuracy": 0.985,
        "test_accuracy": 0.9925,
        "layers": {"0.weight": 0.5},
        "ticket": "tickets/round-1.safetensors",
    }
    content = {
        "command": "search",
        "task": "digits/digits_convnet",
        "label": "cs-search",
        "seed": 0,
        "finished": True,
        "stages": [stage],
    }
    (tmp_path / "results.json").write_text(json.dumps(content))
    line = {
        "phase": "round 1",
        "epoch": 1,
        "step": 32,
        "lr": 0.1,
        "loss": 1.1069,
        "density": 0.0023,
        "validation_accuracy": 0.13,
        "soft_density": 0.4,
        "in_transition": 1.0,
    }
    (tmp_path / "metrics.jsonl").write_text(json.dumps(line) + '\n{"phase": "ro')
    found = read_results(tmp_path)
    assert found.metric.name == "accuracy" and found.metric.unit == "%"
    assert found.stages[0].validation == {"accuracy": 0.985}
    assert found.stages[0].test == {"accuracy": 0.9925}
    assert rates_of(tmp_path) == [pytest.approx(1 - 0.1956)]
    [epoch] = read_epochs(tmp_path)
    assert epoch.stage == "round 1" and epoch.validation == {"accuracy": 0.13}


@pytest.mark.parametrize(
    "text",
    [
        *("{", "[]", '{"command": 3}', '{"version": 9}', '{"stages": 3}', '{"stages": [3]}'),
        "[" * 100_000,
        "\xff",
    ],
)
def test_a_damaged_file_is_named(tmp_path, text):
    (tmp_path / "results.json").write_text(text, "latin-1")
    with pytest.raises(
        SettingError, match=r"results\.json is damaged: .*the same command .*--retry"
    ):
        read_results(tmp_path)
    (tmp_path / "metrics.jsonl").write_text(f"{text}\n", "latin-1")
    with pytest.raises(SettingError, match=r"metrics\.jsonl is damaged"):
        read_epochs(tmp_path)


RUN = {"command": "train", "task": "digits/mlp", "label": "train", "seed": 0}


@pytest.mark.parametrize(
    ("changes", "why"), [({"metrics": []}, "metrics="), ({"finished": True}, "has no stages")]
)
def test_results_that_make_no_sense_are_damaged(tmp_path, changes, why):
    (tmp_path / "results.json").write_text(json.dumps({**RUN, **changes}))
    with pytest.raises(SettingError, match=rf"results\.json is damaged: .*{why}"):
        read_results(tmp_path)


def test_a_line_and_its_numbers():
    line = EpochMetrics(
        stage="search", epoch=1, step=4, lr=0.1, loss=2.0, density=1.0, validation={"loss": 1.5}
    )
    assert parse_epoch(json.loads(json.dumps(line.as_line()))) == line
    assert "soft_density" not in line.as_line()
    numbers = {"epoch": 1, "step": 4, "lr": 0.1, "loss": 2.0, "density": 1.0}
    assert line.numbers() == {**numbers, "validation_loss": 1.5}
    assert named_values(validation={"a": 1.0}, test={"a": 2.0}) == {
        "validation_a": 1.0,
        "test_a": 2.0,
    }
