"""Worker processes: results, errors, deaths."""

import os
import signal
import time
from concurrent.futures import CancelledError, wait
from pathlib import Path

import pytest

from prunus import SettingError
from prunus.sweeps import LocalExecutor, RunFailedError
from prunus.sweeps.executors.local import available_cores

SECONDS = 200


class PickyError(Exception):
    """Cannot be unpickled from its message."""

    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def who(value=None):
    return os.getpid(), os.environ.get("CUDA_VISIBLE_DEVICES"), value


def fail(how):
    if how == "picky":
        raise PickyError(1, 2)
    raise ValueError(f"no {how}")


def lock():
    import threading

    return threading.Lock()


def die(folder, times):
    """Kills its process, `times` times."""
    Path(folder, str(time.monotonic_ns())).touch()
    if len(list(Path(folder).iterdir())) <= times:
        os.kill(os.getpid(), signal.SIGKILL)
    return len(list(Path(folder).iterdir()))


def until_told(folder):
    """Works until SIGTERM, then cleans up, as a run does."""
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
    Path(folder, "begun").touch()
    deadline = time.monotonic() + SECONDS
    while not stop and time.monotonic() < deadline:
        time.sleep(0.01)
    Path(folder, "stopped").touch()


def test_calls_errors_and_deaths(tmp_path, monkeypatch):
    """One test, because the processes take seconds to start."""
    monkeypatch.setattr("prunus.sweeps.executors.local.ATTEMPTS", 2)
    with LocalExecutor(2, gpus=["5", "7"], logs=tmp_path / "logs") as executor:
        futures = [executor.submit(who, value=number) for number in range(20)]
        answers = [future.result(SECONDS) for future in futures]
        assert [value for _, _, value in answers] == list(range(20))
        assert {gpu for _, gpu, _ in answers} <= {"5", "7"}
        assert len({pid for pid, _, _ in answers}) <= 2, "processes live on"
        with pytest.raises(ValueError, match="no luck"):
            executor.submit(fail, "luck").result(SECONDS)
        with pytest.raises(RuntimeError, match="PickyError: 1 and 2"):
            executor.submit(fail, "picky").result(SECONDS)
        with pytest.raises(TypeError, match="pickle"):
            executor.submit(lock).result(SECONDS)
        with pytest.raises(Exception, match="pickle"):
            executor.submit(lambda: 1)
        (tmp_path / "once").mkdir()
        (tmp_path / "always").mkdir()
        once = executor.submit(die, tmp_path / "once", 1)
        always = executor.submit(die, tmp_path / "always", 100)
        assert once.result(SECONDS) == 2, "made again in a new process"
        with pytest.raises(RunFailedError, match=r"died 2 times.*exit code -9.*worker-\d.log"):
            always.result(SECONDS)
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(who)


def test_left_by_an_error_it_tells_its_processes_to_stop(tmp_path):
    def use():
        with LocalExecutor(1) as executor:
            futures.append(executor.submit(until_told, tmp_path))
            futures.append(executor.submit(who))
            deadline = time.monotonic() + SECONDS
            while not (tmp_path / "begun").exists():
                assert time.monotonic() < deadline
                time.sleep(0.01)
            raise KeyError("enough")

    futures = []
    with pytest.raises(KeyError, match="enough"):
        use()
    assert (tmp_path / "stopped").exists()
    assert not wait(futures, timeout=SECONDS).not_done
    with pytest.raises(CancelledError):
        futures[1].result()


def test_as_many_workers_as_fit():
    with LocalExecutor(gpus=[]) as executor:  # no process starts before there is a call
        assert executor.workers == available_cores()
    with LocalExecutor(gpus=[], threads=1000) as executor:
        assert executor.workers == 1
    with LocalExecutor(gpus=["0", "1", "2"]) as executor:
        assert executor.workers == 3
    with pytest.raises(SettingError, match="workers=0"):
        LocalExecutor(0)
