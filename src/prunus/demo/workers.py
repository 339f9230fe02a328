"""Running the demo's seeds side by side, one process for each core."""

from __future__ import annotations

import os
import signal
import traceback
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path

import torch

from prunus.demo.experiment import Advance, Experiment, Result
from prunus.demo.settings import Settings
from prunus.errors import PrunusError


def run_seeds(folder: Path, settings: Settings, advance: Advance) -> list[Result]:
    """The results of all seeds, in order. `advance` is called in this process only.

    The first error in a worker is raised here. However this ends, no worker is left behind.
    """
    at_once = min(len(settings.seeds), os.cpu_count() or 1)
    if at_once == 1:
        experiment = Experiment(folder, settings, advance)
        return [result for seed in settings.seeds for result in experiment.run(seed)]
    results: dict[int, list[Result]] = {}
    waiting = list(settings.seeds)
    running: list[_Worker] = []
    try:
        while waiting or running:
            while waiting and len(running) < at_once:
                running.append(_Worker(folder, settings, waiting.pop(0)))
            # Not for ever, as on Windows Ctrl-C arrives between two waits only.
            wait([worker.pipe for worker in running], timeout=1)
            for worker in [worker for worker in running if worker.pipe.poll()]:
                told = worker.listen()
                if isinstance(told, tuple):
                    advance(*told)
                else:
                    results[worker.seed] = told
                    running.remove(worker)
                    worker.end()
    finally:
        for worker in running:
            worker.end()
    return [result for seed in settings.seeds for result in results[seed]]


class _Worker:
    """A process that runs one seed, and the pipe through which it tells of it."""

    def __init__(self, folder: Path, settings: Settings, seed: int) -> None:
        self.seed = seed
        spawn = get_context("spawn")  # a process that has used torch's threads cannot fork
        self.pipe, tell = spawn.Pipe(duplex=False)
        self.process = spawn.Process(target=_work, args=(tell, folder, settings, seed), daemon=True)
        self.process.start()
        tell.close()  # only the process has it now: when it dies, the pipe ends

    def listen(self) -> tuple[str, int] | list[Result]:
        """What the worker tells next: arguments of `advance`, or in the end its results."""
        try:
            told: tuple[str, int] | list[Result] | Exception = self.pipe.recv()
        except (EOFError, OSError):  # between two messages, and within one
            self.process.join()
            raise PrunusError(
                f"the process of seed {self.seed} died with exit code {self.process.exitcode} "
                "(-9: killed, often because memory ran out); the same command goes on from here"
            ) from None
        if isinstance(told, Exception):
            raise told
        return told

    def end(self) -> None:
        """Kill it: nothing is lost, as results are written whole or not at all."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


def _work(pipe: Connection, folder: Path, settings: Settings, seed: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that waits for us
    torch.set_num_threads(1)  # the cores are taken by the other workers
    told: list[Result] | Exception
    # The pipe breaks when that process is no more: then there is nobody left to work for.
    with suppress(BrokenPipeError):
        try:
            told = Experiment(folder, settings, lambda *done: pipe.send(done)).run(seed)
        except Exception as error:
            error.add_note(f"In the process of seed {seed}:\n{traceback.format_exc()}")
            told = error
        pipe.send(told)
