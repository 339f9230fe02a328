"""Running the demo's seeds side by side, one process for each core."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import active_children, get_context
from multiprocessing.queues import SimpleQueue
from pathlib import Path

import torch

from prunus.demo.experiment import Advance, Experiment, Result
from prunus.demo.settings import Settings

_told: SimpleQueue[tuple[str, int]]
"""In a worker: where it tells of its progress."""


def run_seeds(folder: Path, settings: Settings, advance: Advance) -> list[Result]:
    """The results of all seeds, in order. `advance` is called in this process only."""
    workers = min(len(settings.seeds), os.cpu_count() or 1)
    if workers == 1:
        experiment = Experiment(folder, settings, advance)
        return [result for seed in settings.seeds for result in experiment.run(seed)]
    context = get_context("spawn")
    told: SimpleQueue[tuple[str, int]] = context.SimpleQueue()
    others = set(active_children())
    with ProcessPoolExecutor(workers, context, _begin, (told,)) as pool:
        try:
            futures = [pool.submit(_run, folder, settings, seed) for seed in settings.seeds]
            while not all(future.done() for future in futures):
                time.sleep(0.05)
                _pass_on(told, advance)
                for future in futures:
                    if future.done():
                        future.result()  # a seed that failed stops the others
            _pass_on(told, advance)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in set(active_children()) - others:
                process.kill()  # nothing is lost: results are written whole or not at all
                process.join()
            raise
        return [result for future in futures for result in future.result()]


def _pass_on(told: SimpleQueue[tuple[str, int]], advance: Advance) -> None:
    while not told.empty():
        advance(*told.get())


def _begin(told: SimpleQueue[tuple[str, int]]) -> None:
    global _told
    _told = told
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that waits for us
    torch.set_num_threads(1)  # the cores are taken by the other workers


def _run(folder: Path, settings: Settings, seed: int) -> list[Result]:
    experiment = Experiment(folder, settings, lambda doing, epochs: _told.put((doing, epochs)))
    return experiment.run(seed)
