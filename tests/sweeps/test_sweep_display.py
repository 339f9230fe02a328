"""What a person sees of a sweep."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from prunus.runs.results import EpochMetrics, RunResults, StageResult, write_results
from prunus.sweeps import RunState, make_plan
from prunus.sweeps.display import Activity, Display, View, Watch, render
from prunus.tasks.metrics import MetricInfo
from support.sweeping import experiment

EPOCH = {"stage": "round 2", "epoch": 1, "step": 4, "lr": 0.1, "loss": 1.5, "density": 0.0512}
VIEW = View(
    total=12,
    finished=3,
    failed=1,
    share=0.25,
    eta=75.2,
    running=(
        Activity(
            "digits/lenet cs mask_init=-0.1 seed 0",
            5,
            12,
            EpochMetrics(**EPOCH, validation={"accuracy": 0.98}),
        ),
        Activity("digits/lenet dense seed 0", 0, 4, None),
        Activity("text/gpt dense seed 0", 1, 4, EpochMetrics(**EPOCH, validation={"loss": 1.25})),
    ),
)


def terminal(**options):
    return Console(file=io.StringIO(), width=110, **options)


def test_live():
    console = terminal()
    console.print(render(VIEW))
    lines = [line.split() for line in console.file.getvalue().splitlines()]
    assert lines[0][-9:] == ["25%", "3", "of", "12", "runs,", "1", "failed", "ETA", "0:01:15"]
    assert lines[1] == ["run", "stage", "epoch", "kept", "validation"]
    assert lines[2][-5:] == ["round", "2", "5/12", "5.12%", "98.00%"]
    assert lines[3][-2:] == ["starting", "0/4"]
    assert lines[4][-2:] == ["5.12%", "1.2500"], "only accuracies are known to be fractions"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_lines(is_terminal):
    console = terminal(force_terminal=is_terminal)
    with Display(console) as display:
        display.say("one")
        display.show(VIEW)
        display.say("two [bold]")
    output = console.file.getvalue()
    assert "two [bold]" in output
    assert ("round 2" in output) == is_terminal
    assert ("two [bold]  ETA 0:01:15" in output) == (not is_terminal)


def test_watch_counts_epochs(tmp_path, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("prunus.sweeps.display.time.monotonic", lambda: clock[0])
    dense, search, *others = (RunState(planned) for planned in make_plan(experiment(), tmp_path))
    runs = [dense, search, *others]  # 2 + 3 * (4 + 2 + 2) + 2 * 2 epochs
    watch = Watch(runs)
    assert watch.view() == View(12, 0, 0, 0.0, None, ())
    dense.status = "finished"
    watch.ended(dense, now=True)
    clock[0] += 10
    search.settings, search.status = search.planned.settings, "running"
    folder = search.folder
    folder.mkdir()
    metrics = folder / "metrics.jsonl"
    line = json.dumps(EPOCH) + "\n"
    metrics.write_text(line)  # from before
    watch.began(search)
    metrics.write_text(2 * line)
    view = watch.view()
    assert view.running[0].epochs == 2 and view.running[0].of == 4
    assert view.running[0].last == EpochMetrics(**EPOCH)
    assert view.share == pytest.approx(4 / 30)
    assert view.eta == pytest.approx(10 / 3 * 26), "three epochs in ten seconds"
    metrics.write_text(line + '{"sta')
    assert watch.view().running[0].epochs == 1, "the other is being written"
    metrics.write_text(line + "damaged\n")
    assert watch.view().running[0].last is None
    search.status, search.error = "failed", "no luck"
    watch.ended(search)
    assert watch.line(search) == (
        "[ 2/12] digits/digits_convnet cs mask_init=-0.02 seed 0: failed: no luck"
    )


def test_ended_before_tells_nothing_about_the_speed(tmp_path):
    runs = [RunState(planned) for planned in make_plan(experiment(), tmp_path)]
    watch = Watch(runs)
    for run in runs[:3]:
        run.status = "finished"
        watch.ended(run)
    view = watch.view()
    assert view.eta is None and view.finished == 3
    assert replace(view, share=0) == View(12, 3, 0, 0, None, ())


def test_a_line_has_the_metric_of_the_task(tmp_path):
    [run] = [RunState(planned) for planned in make_plan(experiment(), tmp_path)][:1]
    run.settings, run.status = run.planned.settings, "finished"
    watch = Watch([run])
    watch.ended(run)
    nats = MetricInfo("loss", higher_is_better=False, unit="nats")
    stage = StageResult(stage="training", epochs=2, density=1.0, test={"loss": 1.5})
    results = RunResults(
        command="train", task="t", label="train", seed=0, metrics=(nats,), stages=(stage,)
    )
    write_results(run.folder, results)
    assert watch.line(run).endswith("dense seed 0: kept 100.00%, test 1.5000 nats")
