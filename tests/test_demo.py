"""The demo, small: what it computes, that it resumes, and what it shows."""

import json
import os
import sys
from dataclasses import replace
from multiprocessing import active_children
from pathlib import Path

import pytest

import prunus
from processes import SECONDS, started, wait_until
from prunus.cli import main
from prunus.demo import experiment
from prunus.demo.experiment import Result
from prunus.demo.output import demo_page, demo_table, verdict
from prunus.demo.settings import Settings
from prunus.demo.workers import run_seeds
from prunus.report.summary import summarise

TINY = Settings(seeds=(0, 1), mask_inits=(0.0, -0.05), rounds=2, epochs=3)
FLAGS = ["--seeds", "0", "--mask-inits", "0.0", "--rounds", "1", "--epochs", "2"]


def run(folder: Path, settings: Settings = TINY) -> tuple[list[Result], int]:
    """The results, and how many epochs the progress bar was told of."""
    told: list[int] = []
    results = run_seeds(folder, settings, lambda _, epochs: told.append(epochs))
    return results, sum(told)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Result]]:
    folder = tmp_path_factory.mktemp("demo")
    results, epochs = run(folder)
    assert epochs == TINY.total_epochs
    return folder, results


def test_controls_have_the_density_of_cs(finished: tuple[Path, list[Result]]) -> None:
    _, results = finished
    assert len(results) == 2 * (1 + 2 * 3)
    for cs, imp, random in zip(*[[r for r in results if r.method == m] for m in ("cs", "imp", "random")], strict=True):  # fmt: skip  # noqa: E501
        assert (
            (cs.seed, cs.mask_init) == (imp.seed, imp.mask_init) == (random.seed, random.mask_init)
        )
        assert random.density == cs.density and random.layers == cs.layers
        assert imp.density == pytest.approx(cs.density, abs=2e-4)  # rounded to whole weights
        assert cs.epochs == imp.epochs == 8 and random.epochs == 2
        assert 0 < cs.density < 1


def test_tickets_and_curves(finished: tuple[Path, list[Result]]) -> None:
    folder, results = finished
    for result in results:
        assert result.ticket is not None
        ticket = prunus.Ticket.load(folder / result.ticket)
        assert ticket.mask.density == result.density
        assert ticket.manifest.seed == result.seed
        assert len(result.curve) == 3 - (result.method != "dense")
        assert result.curve[-1] == result.accuracy
        if result.method in ("cs", "imp"):
            assert len(result.search_curve) == 6
            assert result.search_curve[-1] == result.density
            assert ticket.manifest.metrics == {"accuracy": result.search_accuracy}


def test_the_random_control_starts_from_the_dense_weights(
    finished: tuple[Path, list[Result]],
) -> None:
    folder, results = finished
    dense, imp, random = (
        prunus.Ticket.load(folder / str(next(r.ticket for r in results if r.method == m)))
        for m in ("dense", "imp", "random")
    )
    for ticket in (imp, random):
        for name, kept in ticket.mask.items():
            assert (ticket.weights[name][kept] == dense.weights[name][kept]).all()


def test_finished_stages_are_not_repeated(
    finished: tuple[Path, list[Result]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, results = finished

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(experiment, "Trainer", fail)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)  # all in this process
    again, epochs = run(folder)
    assert again == results
    assert epochs == TINY.total_epochs
    with pytest.raises(AssertionError, match="trained again"):
        run(folder, replace(TINY, lr=0.01))


@pytest.mark.parametrize(
    "wrong", [{"seeds": ()}, {"epochs": 0}, {"rewind_epoch": 16}, {"lr": -1.0}, {"rounds": 0}]
)
def test_impossible_settings_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(prunus.SettingError, match=next(iter(wrong))):
        replace(Settings(), **wrong)


def test_an_interrupted_pool_leaves_no_process(tmp_path: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = set(active_children())
    with pytest.raises(KeyboardInterrupt):
        run_seeds(tmp_path, TINY, interrupt)
    assert set(active_children()) <= before


def test_an_error_in_a_worker_is_raised_here(tmp_path: Path) -> None:
    before = set(active_children())
    with pytest.raises(prunus.SettingError, match="train_images") as raised:
        run(tmp_path, replace(TINY, train_images=5000))
    assert "In the process of seed" in raised.value.__notes__[0]
    assert set(active_children()) <= before


def test_a_worker_that_dies_is_an_error(tmp_path: Path) -> None:
    before = set(active_children())

    def kill(*_: object) -> None:
        for process in set(active_children()) - before:
            process.kill()

    with pytest.raises(prunus.PrunusError, match=r"process of seed [01] died with exit code -9"):
        run_seeds(tmp_path, TINY, kill)
    assert set(active_children()) <= before


ENDLESS = """
from pathlib import Path
from prunus.demo.settings import Settings
from prunus.demo.workers import run_seeds

if __name__ == "__main__":
    settings = Settings(seeds=(0, 1), epochs=10**6)
    run_seeds(Path("out"), settings, lambda *_: Path("at-work").touch())
"""


def test_workers_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    program = tmp_path / "endless.py"
    program.write_text(ENDLESS)
    with started(program, cwd=tmp_path) as process:
        wait_until((tmp_path / "at-work").exists, process)
        process.kill()
        # The workers have its output too, so this waits for the end of all of them.
        _, errors = process.communicate(timeout=SECONDS)
    assert "Traceback" not in errors


def test_page_is_self_contained(finished: tuple[Path, list[Result]]) -> None:
    page = demo_page(finished[1], TINY)
    body = page.replace("https://vega.github.io/schema", "")  # an identifier, not an address
    assert "<script src" not in body and "<link" not in body and "@import" not in body
    assert page.count('class="chart"') == 4
    groups = summarise(finished[1])
    for row in demo_table(groups).rows:
        assert row[2] in page
    assert verdict(groups) in page


def test_the_command_prints_a_table_and_writes_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["prunus", "demo", "--out", str(tmp_path), *FLAGS])
    monkeypatch.setenv("COLUMNS", "160")
    with pytest.raises(SystemExit) as exit_:
        main()
    assert not exit_.value.code
    out = capsys.readouterr().out
    for text in ("random mask", "re-trained %", "The dense network reaches", "report.html"):
        assert text in out
    content = json.loads((tmp_path / "results.json").read_text())
    assert [r["method"] for r in content["results"]] == ["dense", "cs", "imp", "random"]
    assert (tmp_path / "accuracy.svg").read_text().startswith("<svg")
    ticket = next((tmp_path / "tickets").glob("cs*.safetensors"))
    monkeypatch.setattr(sys, "argv", ["prunus", "inspect", str(ticket)])
    with pytest.raises(SystemExit):
        main()
    out = capsys.readouterr().out
    assert "digits/digits_convnet" in out and "mask_init" in out and "density" in out


def test_a_bad_ticket_is_a_message_and_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bad.safetensors"
    path.write_bytes(b"nonsense")
    monkeypatch.setattr(sys, "argv", ["prunus", "inspect", str(path)])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == 2
    assert "bad.safetensors" in capsys.readouterr().err


def test_killed_and_run_again_equals_uninterrupted(tmp_path: Path) -> None:
    settings = Settings(seeds=(0,), mask_inits=(-0.05,), rounds=2, epochs=3)
    expected, _ = run(tmp_path / "whole", settings)
    flags = ["--seeds", "0", "--mask-inits", "-0.05", "--rounds", "2", "--epochs", "3"]
    done = tmp_path / "cut" / "results" / "cs-0.05-seed0.json"
    with started("-m", "prunus", "demo", "--out", tmp_path / "cut", *flags) as process:
        wait_until(done.exists, process)
        process.kill()
    assert not (tmp_path / "cut" / "results.json").exists()
    resumed, _ = run(tmp_path / "cut", settings)
    assert resumed == expected
