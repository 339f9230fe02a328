"""One run in a worker, wherever that is."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from prunus.errors import PrunusError, SettingError, in_words
from prunus.lookup import source_hash, trusting
from prunus.runs.results import METRICS, RunResults
from prunus.runs.settings import COMMANDS, RunSettings
from prunus.runs.stages import execute
from prunus.tasks import Task, load_task
from prunus.training.folder_lock import BusyError, FolderLock
from prunus.training.signals import StoppedError

PATIENCE = 300.0
"""Seconds to wait for a run of another process that writes nothing any more."""
_POLL = 0.2

# Random generators belong to a process, so two runs in threads of one would disturb each other.
_ONE_AT_A_TIME = threading.Lock()
_load = lru_cache(maxsize=1)(load_task)  # one run after the other on the same data


class RunFailedError(PrunusError, RuntimeError):
    """A run ended with an error, whose cause is the message. Plain, so that it can travel."""


class RunStoppedError(PrunusError, RuntimeError):
    """A run was told to stop, and wrote a checkpoint."""


def run_one(
    complete: Mapping[str, Any], threads: int = 1, trusted: Iterable[str] = ()
) -> RunResults:
    """Execute the run with these complete settings (plain data), or resume it.

    Any executor may call this in any process that has Prunus and sees the same files. `threads` are
    those of PyTorch: their number changes the last bits of results, so it is the same everywhere.
    `trusted` are the names of code that the run may import: `prunus.lookup.trusted_names()`.
    An error is a `RunFailedError` with its cause in words.
    """
    with _ONE_AT_A_TIME, _torch_threads(threads), trusting(*trusted):
        try:
            settings = COMMANDS[str(complete["command"])].parse(complete)
            return _execute(settings, _task(settings))
        except StoppedError as error:
            raise RunStoppedError(str(error)) from None
        except PrunusError as error:
            raise RunFailedError(str(error)) from None
        except Exception as error:
            raise RunFailedError(_cause(error)) from None


@contextmanager
def _torch_threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _task(settings: RunSettings) -> Task:
    task = _load(settings.task, settings.data_root, settings.data)
    if task.data.fingerprint != settings.data_fingerprint:
        raise SettingError(
            f"the data of {settings.task} in {settings.data_root} are not those that the run was "
            "planned with: give all workers the same data"
        )
    if source_hash(settings.names) != settings.code_fingerprint:
        raise SettingError(
            f"the code of {' and '.join(settings.names)} is not the one that the run was planned "
            "with: give all workers the same code, and start them again after a change"
        )
    return task


def _execute(settings: RunSettings, task: Task) -> RunResults:
    while True:
        _wait_until_free(settings.folder)
        with suppress(BusyError):  # another process was faster
            return execute(settings, task, quiet=True)


def _wait_until_free(folder: Path) -> None:
    """Wait while another process is at work on the run: a killed sweep may leave one behind."""
    lock, before, since = FolderLock(folder), _trace(folder), time.monotonic()
    while True:
        try:
            lock.acquire()
        except BusyError:
            now = _trace(folder)
            if now != before:
                before, since = now, time.monotonic()
            if time.monotonic() - since > PATIENCE:
                raise
            time.sleep(_POLL)
        else:
            lock.release()
            return


def _trace(folder: Path) -> list[tuple[str, int]]:
    """What changes as long as a run is at work."""
    files = [folder / METRICS, *(folder / "checkpoints").glob("*.pt")]
    return sorted((path.name, path.stat().st_mtime_ns) for path in files if path.exists())


def _cause(error: Exception) -> str:
    """An unexpected error in a line: what, and where."""
    if isinstance(error, OSError):
        return in_words(error)
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({where.filename}, line {where.lineno})"
