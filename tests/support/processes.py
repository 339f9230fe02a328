"""Programs that tests start. They never wait for ever and leave no process behind."""

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

import prunus

HERE = Path(__file__).parent
PLAIN = str(HERE / "plain")
IMPORTED_FROM = os.pathsep.join([PLAIN, str(Path(prunus.__file__).parents[1]), str(HERE.parent)])
SECONDS = 240
"""The limit for one program: less than the limit of a test, and many times what it needs."""


@contextmanager
def meanwhile(condition: Callable[[], object], act: Callable[[], object]) -> Iterator[None]:
    """Within this context, another thread calls `act()` as soon as `condition()` holds."""
    over = threading.Event()

    def wait() -> None:
        while not condition():
            if over.wait(0.01):
                return
        act()

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(SECONDS)


@contextmanager
def started(*arguments: object, **options: object) -> Iterator[subprocess.Popen[str]]:
    """Python with `arguments`; at the end it is killed, with all processes that it started."""
    environment = {**os.environ, "PYTHONPATH": IMPORTED_FROM, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a group of processes, killed as one
        preexec_fn=hears_ctrl_c,
        **options,
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def hears_ctrl_c() -> None:
    """Even if the tests run in the background, where programs inherit that Ctrl-C is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def run(*arguments: object, **options: object) -> str:
    """What Python with `arguments` prints. It must succeed."""
    with started(*arguments, **options) as process:
        output, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, errors
    return output


def wait_until(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    """Wait until `condition()` holds; `process` must still be running."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert process.poll() is None, process.communicate(timeout=SECONDS)
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def found_by_two(worker: Callable[[int], Any]) -> list[Any]:
    """What `worker(rank)` finds in each of two processes, which know each other.

    They are forked from a process that has loaded what takes seconds to load, and has done no more.
    """
    multiprocessing.set_forkserver_preload(["torch.distributed.fsdp", "prunus.runs"])
    with tempfile.TemporaryDirectory() as folder:
        context = mp.start_processes(
            _one_of_two, (worker, folder), 2, join=False, daemon=True, start_method="forkserver"
        )
        deadline = time.monotonic() + SECONDS
        try:
            while not context.join(timeout=1):
                assert time.monotonic() < deadline, "the processes wait for each other"
        finally:
            for process in context.processes:
                process.kill()
        return [torch.load(f"{folder}/{rank}.pt") for rank in range(2)]


def _one_of_two(rank: int, worker: Callable[[int], Any], folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=SECONDS / 2),  # then it says where it waits
    )
    torch.save(worker(rank), f"{folder}/{rank}.pt")
    dist.barrier()
    # Gloo's threads can wait for Python's lock for ever while Python waits for them to end.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
