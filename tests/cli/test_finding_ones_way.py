"""Help, lists of what there is, results for programs, exit codes, and what to do next."""

from __future__ import annotations

import inspect
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from prunus.cli import app
from prunus.cli.examples import EXAMPLES
from prunus.methods import METHODS
from prunus.tasks import TASKS
from prunus.tasks.data import DATA_SETS
from prunus.tasks.networks import NETWORKS

Command = Callable[..., tuple[int, str, str]]
SMALL = ["--task", "digits/digits_convnet", "--epochs", 2, "--batch-size", 25]
SMALL += ["--set", "data.train_images=50"]
COMMANDS = [name for name in app if not name.startswith("-")]


# Help


def test_every_command_has_two_examples_that_can_be_typed() -> None:
    assert set(EXAMPLES) == set(COMMANDS)
    for command, examples in EXAMPLES.items():
        assert len(examples) == 2
        for typed in examples:
            program, *words = shlex.split(typed)
            assert (program, words[0]) == ("prunus", command)
            called, *_ = app.parse_args(words, exit_on_error=False, print_error=False)
            assert called.__name__ == command


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_them(cli: Command, command: str) -> None:
    status, output, _ = cli(command, "--help")
    assert status == 0
    text = " ".join(output.split())
    assert all(" ".join(typed.split()[:4]) in text for typed in EXAMPLES[command]), output


def test_options_are_in_groups_and_what_is_required_is_marked(cli: Command) -> None:
    output = cli("search", "--help")[1]
    titles = ["What is done", "Which weights go", "How it is trained", "Where it runs", "Files"]
    places = [output.index(title) for title in titles]
    assert places == sorted(places) and "Parameters" not in output
    assert places[0] < output.index("--task") < output.index("Required, unless") < places[1]
    assert "[required]" in cli("retrain", "--help")[1]
    assert "Required: a sweep's folder" in " ".join(cli("report", "--help")[1].split())


def test_commands_have_the_order_of_a_run_and_options_no_odd_relatives(cli: Command) -> None:
    output = cli("--help")[1]
    places = [output.index(f"│ {name} ") for name in COMMANDS]
    assert places == sorted(places)
    for name in COMMANDS:
        assert not re.search("--(no|empty)-", cli(name, "--help")[1]), name


def test_each_line_is_one_line(cli: Command) -> None:
    for command in ("tasks", "methods"):
        for line in cli(command)[1].partition("\nA task is")[0].splitlines():
            assert len(line) <= 112, line


def test_the_shell_can_complete(cli: Command) -> None:
    assert "--install-completion" in cli("--help")[1]
    for shell in ("bash", "zsh", "fish"):
        script = app.generate_completion(shell=shell)
        assert "target-density" in script and "methods" in script


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (
            "sweep demo --only a 'b c'",
            "--only takes one value at a time, so give it once for each: --only a --only 'b c'",
        ),
        ("prune --set a=1 b=2 --seed 1", "once for each: --set a=1 --set b=2"),
        ("search --select conv linear", "once for each: --select conv --select linear"),
        ("prune --seed 1 2", "nothing takes '2' here; prunus prune --help shows what is expected"),
        ("sweep one two", "nothing takes 'two' here"),
        ("retrain", "TICKET is missing: prunus retrain TICKET; prunus retrain --help says more"),
        ("train --epochs", "--epochs needs a value"),
        ("prune --granularity 2:4", "--granularity. Settings without an option of their own"),
        ("prune --taks t", "Did you mean --task?\n"),
        (
            "prune --target-density ten",
            "'ten' is neither a fraction, such as 0.1, nor a percentage",
        ),
    ],
)
def test_what_was_mistyped_is_said_in_words(cli: Command, typed: str, message: str) -> None:
    status, output, errors = cli(*shlex.split(typed))
    assert status == 2 and not output and message in errors


# What there is


def test_tasks_lists_everything_with_a_line_each(cli: Command) -> None:
    status, output, _ = cli("tasks")
    assert status == 0 and "Next: prunus train --task" in output
    found = json.loads(cli("tasks", "--json")[1])
    assert set(found["data sets"]) == set(DATA_SETS)
    assert set(found["networks"]) == set(NETWORKS)
    assert set(found["tasks of other kinds"]) == set(TASKS)
    for entries in found.values():
        assert all(about and "partial" not in about for about in entries.values()), entries


def test_methods_lists_all_and_the_settings_of_each(cli: Command) -> None:
    found = json.loads(cli("methods", "--json")[1])
    assert set(found) == set(METHODS) and all(found.values())
    assert all(f"  {name} " in cli("methods")[1] for name in METHODS)
    for name in METHODS:
        assert cli("methods", name)[0] == 0
    about = json.loads(cli("methods", "gmp", "--json")[1])
    assert about["settings"]["target_density"]["default"] == 0.1
    output = cli("methods", "cs")[1]
    assert "  mask_init = 0.0\n" in output and "--set method.NAME=VALUE" in output
    assert "score_lr = null" in output, "those of the optimiser too"
    status, _, errors = cli("methods", "gnp")
    assert status == 2 and "Did you mean 'gmp'?" in errors


def test_runs_says_what_is_there_how_far_and_how_good(cli: Command) -> None:
    assert cli("runs")[0] == 2
    Path("runs").mkdir()
    assert "No runs below runs yet" in cli("runs")[1]
    assert json.loads(cli("runs", "--json")[1]) == []
    assert cli("prune", *SMALL, "--method", "gmp", "--target-density", "10%")[0] == 0
    begun = Path("runs/begun")
    begun.mkdir()
    (begun / "settings.yaml").write_text("{command: train, task: digits/mlp, seed: 7}")
    line = {"stage": "training", "epoch": 1, "step": 2, "lr": 0.1, "loss": 1.0, "density": 1.0}
    (begun / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    output = cli("runs")[1]
    assert "training, epoch 1" in output and "Next: prunus report runs" in output
    [whole] = [line for line in output.splitlines() if "gmp-prune" in line]
    assert whole.split()[1:4] == ["0", "finished", "10.00%"] and whole.count("%") == 4
    first, second = json.loads(cli("runs", "--json")[1])
    assert first["state"] == "training, epoch 1" and first["seed"] == 7
    assert second["method"] == "gmp" and second["stages"][-1]["density"] == pytest.approx(0.1, 0.01)


def test_runs_of_others_break_nothing(cli: Command) -> None:
    Path("sent/sweep/bad").mkdir(parents=True)
    Path("sent/sweep/bad/settings.yaml").write_text("{command: train, task: digits/mlp, seed: 7}")
    Path("sent/sweep/bad/metrics.jsonl").write_text("[]\n")
    run = {"id": "a", "row": "a\x1b[2J", "folder": "bad", "status": "running"}
    sweep = {"version": 1, "name": "\x1b[2J", "runs": [run]}
    Path("sent/sweep/sweep.json").write_text(json.dumps(sweep))
    status, output, errors = cli("runs", "sent/sweep")
    assert status == 0 and "damaged" in output and "\x1b" not in output + errors


# Densities


@pytest.mark.parametrize(
    "arguments",
    [
        ["--target-density", "10%"],
        ["--target-density", "0.1"],
        ["--set", "method.target_density=10%"],
        ["--config", "file.yaml"],
    ],
)
def test_ten_per_cent_is_a_density(
    cli: Command, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    found = []

    def execute(settings: object, _: object) -> None:
        found.append(settings)
        raise KeyboardInterrupt

    monkeypatch.setattr("prunus.runs.execute", execute)
    Path("file.yaml").write_text("method: {name: cs, target_density: 10%}")
    assert cli("prune", *SMALL, *arguments)[0] == 130
    assert found[0].method["target_density"] == 0.1
    assert cli("search", *SMALL, "--target-density", "50%", "--target-density", "20 %")[0] == 130
    assert found[1].method["target_density"] == [0.5, 0.2] and found[1].rounds == 2


@pytest.mark.parametrize("wrong", ["ten%", "%", "x", "120%"])
def test_what_is_no_density(cli: Command, wrong: str) -> None:
    for arguments in (["--target-density", wrong], ["--set", f"method.target_density={wrong}"]):
        status, _, errors = cli("prune", *SMALL, *arguments)
        assert status == 2 and errors.startswith("prunus: ") and not Path("runs").exists()


# Results for programs, and the next step


def test_json_is_the_only_thing_on_stdout_and_the_next_command_works(cli: Command) -> None:
    status, output, errors = cli("search", *SMALL, "--rewind-epoch", 1, "--rounds", 1, "--json")
    assert status == 0
    found = json.loads(output)
    assert found["finished"] and found["stages"][0]["density"] > 0
    assert "epoch 1/2" in errors, "messages go to stderr"
    for command in ("retrain", "deploy"):
        *_, last = errors.splitlines() if command == "retrain" else output.splitlines()
        program, *words = shlex.split(last.removeprefix("Next: "))
        assert (program, words[0]) == ("prunus", command)
        assert Path(words[1]).exists()
        if command == "retrain":
            _, inspected, _ = cli("inspect", words[1], "--json")
            assert json.loads(inspected)["task"] == "digits/digits_convnet"
            assert f"Next: prunus retrain {words[1]}" in cli("inspect", words[1])[1]
            status, output, errors = cli(*words, *SMALL[2:])
            assert status == 0, errors


def test_json_of_a_deployed_network(cli: Command) -> None:
    assert cli("train", *SMALL)[0] == 0
    [run] = Path("runs").iterdir()
    status, output, errors = cli("deploy", run, "--threads", 1, "--json")
    assert status == 0, errors
    found = json.loads(output)
    assert found["file"] == "model.prunus" and found["bytes"] == Path("model.prunus").stat().st_size
    assert found["metrics"]["plain"]["test accuracy"] == pytest.approx(
        found["metrics"]["deployed"]["test accuracy"]
    )
    assert "Next: python -m prunus_runtime serve model.prunus" in errors


def test_json_of_a_sweep_and_its_report(cli: Command) -> None:
    Path("file.yaml").write_text(
        "{name: a, tasks: digits/digits_convnet, settings: {recipe: {epochs: 1}, data: "
        "{train_images: 50}, rounds: 1, rewind_epoch: 0}, rows: [{method: random}]}"
    )
    status, output, _ = cli("sweep", "file.yaml", "--dry-run", "--json")
    assert status == 0 and [r["status"] for r in json.loads(output)["runs"]] == ["pending"] * 2
    status, output, errors = cli("sweep", "file.yaml", "--workers", 1, "--json")
    assert status == 0, errors
    found = json.loads(output)
    assert found["sweep"] == "runs/a" and "Next: prunus report runs/a" in errors
    assert all((Path("runs/a") / r["folder"]).is_dir() for r in found["runs"])
    status, output, errors = cli("report", "runs/a", "--json")
    assert status == 0 and "Page: " in errors
    assert len(json.loads(output)["subnetworks"]) == 2


# Exit codes


def test_exit_codes_are_those_of_the_page(cli: Command) -> None:
    for arguments in (["trian"], ["train", "--epoch"], ["retrain"], ["train", "--epochs", "x"]):
        status, output, errors = cli(*arguments)
        assert status == 2 and output == "" and errors.startswith("prunus: "), errors
    diverging = ["--set", "recipe.lr=1e30", "--set", "data.train_images=100"]
    assert cli("train", *SMALL, *diverging)[0] == 1
    Path("nowhere").symlink_to("gone")
    assert cli("train", *SMALL, "--out", "nowhere")[0] == 1


def test_every_command_can_answer_in_json() -> None:
    for name in COMMANDS:
        help_text = app[name].assemble_argument_collection()
        assert any("--json" in argument.names for argument in help_text), name
        assert inspect.getdoc(app[name].default_command)
