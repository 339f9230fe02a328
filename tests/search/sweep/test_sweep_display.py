"""What a person sees of a sweep."""

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console
from sweeps import recipe

from prunus.search.sweep import make_plan
from prunus.search.sweep.display import Display, render
from prunus.search.sweep.state import Progress
from prunus.search.sweep.watch import Doing, View, Watch

VIEW = View(
    total=12,
    finished=3,
    failed=1,
    share=0.25,
    eta=75.2,
    doing=(
        Doing(
            "digits/lenet cs mask_init=-0.1 seed 0",
            5,
            12,
            {"phase": "round 2", "density": 0.0512, "validation_accuracy": 0.98},
        ),
        Doing("digits/lenet dense seed 0", 0, 4, {}),
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
    monkeypatch.setattr("prunus.search.sweep.watch.time.monotonic", lambda: clock[0])
    dense, search, *others = (Progress(planned) for planned in make_plan(recipe(), tmp_path))
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
    metrics.write_text('{"epoch": 1}\n')  # from before
    watch.began(search)
    metrics.write_text('{"epoch": 1}\n' + json.dumps({"phase": "round 1", "density": 0.5}) + "\n")
    view = watch.view()
    assert view.doing[0].epochs == 2 and view.doing[0].of == 4
    assert view.doing[0].line == {"phase": "round 1", "density": 0.5}
    assert view.share == pytest.approx(4 / 30)
    assert view.eta == pytest.approx(10 / 3 * 26), "three epochs in ten seconds"
    metrics.write_text('{"epoch": 1}\n{"pha')
    assert watch.view().doing[0].line == {}
    search.status, search.error = "failed", "no luck"
    watch.ended(search)
    assert watch.line(search) == (
        "[ 2/12] digits/digits_convnet cs mask_init=-0.02 seed 0: failed: no luck"
    )


def test_ended_before_tells_nothing_about_the_speed(tmp_path):
    runs = [Progress(planned) for planned in make_plan(recipe(), tmp_path)]
    watch = Watch(runs)
    for run in runs[:3]:
        run.status = "finished"
        watch.ended(run)
    view = watch.view()
    assert view.eta is None and view.finished == 3
    assert replace(view, share=0) == View(12, 3, 0, 0, None, ())
