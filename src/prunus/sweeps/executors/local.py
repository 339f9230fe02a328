"""Worker processes on this machine, as a `concurrent.futures.Executor`."""

from __future__ import annotations

import atexit
import os
import pickle
import queue
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from prunus.errors import SettingError
from prunus.sweeps.executors.worker import WorkerProcess
from prunus.sweeps.work import RunFailedError

T = TypeVar("T")
ATTEMPTS = 3
"""How often a call may lose its process before it is given up."""
SECONDS_TO_STOP = 60.0
"""For a run to write its checkpoint, before its process is killed."""


@dataclass(frozen=True)
class _Call:
    future: Future[Any]
    content: bytes


class LocalExecutor(Executor):
    """Calls functions in processes that live as long as it does, each with a pipe of its own.

    A process that dies is replaced, and its call made again; `run_one` then resumes from the run's
    last checkpoint. There are as many `workers` as GPUs, or else as fit the cores with that many
    `threads` each; `gpus` are dealt out in turn. What processes print goes to files in `logs`. Left
    by an error, it tells runs to write a checkpoint and stop.
    """

    def __init__(
        self,
        workers: int | None = None,
        *,
        threads: int = 1,
        gpus: list[str] | None = None,
        logs: Path | None = None,
    ) -> None:
        if threads < 1 or (workers is not None and workers < 1):
            raise SettingError(f"workers={workers}, threads={threads}: need at least one of each")
        gpus = visible_gpus() if gpus is None else gpus
        self.workers = workers or len(gpus) or max(1, available_cores() // threads)
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._stopping = self._closed = False
        self._processes: dict[int, WorkerProcess] = {}
        self._threads = []
        for number in range(self.workers):
            environment = {"OMP_NUM_THREADS": str(threads)}
            if gpus:
                environment["CUDA_VISIBLE_DEVICES"] = gpus[number % len(gpus)]
            log = logs / f"worker-{number + 1}.log" if logs else None
            arguments = (number, environment, log)
            # Daemons, because a program that forgets us should end, and its processes with it.
            thread = threading.Thread(target=self._attend, args=arguments, daemon=True)
            self._threads.append(thread)
            thread.start()
        atexit.register(self._kill)

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Call `fn`, which has to be importable in the workers, with arguments that pickle."""
        if self._closed:
            raise RuntimeError("cannot submit a call after shutdown")
        call = _Call(Future(), pickle.dumps((fn, args, kwargs)))
        self._calls.put(call)
        return call.future

    def stop(self) -> None:
        """Forget calls that wait, and tell runs under way to write a checkpoint and end."""
        self._stopping = True
        for process in list(self._processes.values()):
            process.ask_to_stop()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """No more calls. `wait` for those there are; `cancel_futures` forgets those that wait."""
        self._closed = True
        if cancel_futures:
            with suppress(queue.Empty):
                while True:
                    call = self._calls.get_nowait()
                    if call is not None:
                        call.future.cancel()
        for _ in self._threads:
            self._calls.put(None)
        if not wait:
            return
        for thread in self._threads:
            thread.join(SECONDS_TO_STOP if self._stopping else None)
        self._kill()
        atexit.unregister(self._kill)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.stop()
        self.shutdown()

    # In a thread for each worker

    def _attend(self, number: int, environment: dict[str, str], log: Path | None) -> None:
        while (call := self._calls.get()) is not None:
            if self._stopping:
                call.future.cancel()
            if not call.future.set_running_or_notify_cancel():
                continue
            try:
                call.future.set_result(self._make(call, number, environment, log))
            except BaseException as error:  # whatever it is, somebody waits for it
                call.future.set_exception(error)
        if process := self._processes.pop(number, None):
            process.end()

    def _make(self, call: _Call, number: int, environment: dict[str, str], log: Path | None) -> Any:
        """The result of a call, in as many processes as it takes."""
        code = None
        for _ in range(ATTEMPTS):
            process = self._processes.get(number)
            if process is None:
                process = self._processes[number] = WorkerProcess(environment, log)
                if self._stopping:  # since we looked
                    process.ask_to_stop()
            try:
                succeeded, value = process.call(call.content)
            except (EOFError, OSError):
                del self._processes[number]
                code = process.end(dying=True)
                if self._stopping:
                    raise CancelledError from None
                continue
            if not succeeded:
                raise value
            return value
        raise _lost(code, log)

    def _kill(self) -> None:
        for process in list(self._processes.values()):
            process.end()


def _lost(code: int | None, log: Path | None) -> RunFailedError:
    where = f"; what it printed is in {log}" if log else ""
    return RunFailedError(
        f"its process died {ATTEMPTS} times, the last time with exit code {code} (-9: killed, "
        f"often because memory ran out: use fewer workers){where}"
    )


def available_cores() -> int:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def visible_gpus() -> list[str]:
    """The CUDA devices that this process sees, as `CUDA_VISIBLE_DEVICES` names them."""
    import torch

    count = torch.cuda.device_count()
    listed = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    return listed[:count] if listed else [str(number) for number in range(count)]
