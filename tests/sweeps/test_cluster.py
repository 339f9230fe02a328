"""A Dask cluster on this machine: a scheduler and two workers, each a process of its own."""

import json
import os
import signal
import subprocess
from contextlib import ExitStack, contextmanager

import pytest
from test_sweep_processes import when_under_way

from prunus import SettingError
from prunus.sweeps import dask_executor, run_sweep
from support.processes import started, wait_until
from support.sweeping import Here, content, experiment, long_runs

pytest.importorskip("distributed")


@contextmanager
def cluster(folder, workers, *worker_options, protocol="tcp"):
    """The address of the scheduler; it and its workers end with the context."""
    place = folder / "scheduler.json"
    with ExitStack() as stack:
        scheduler = stack.enter_context(
            started(
                *("-m", "distributed.cli.dask_scheduler", "--protocol", protocol),
                *("--host", "127.0.0.1", "--port", "0", "--no-dashboard"),
                *("--scheduler-file", place),
                cwd=folder,
            )
        )
        wait_until(lambda: place.exists() and place.read_text().endswith("}"), scheduler)
        address = json.loads(place.read_text())["address"]
        for _ in range(workers):
            stack.enter_context(
                started(
                    *("-m", "distributed.cli.dask_worker", address, "--nthreads", "1"),
                    *("--no-nanny", "--no-dashboard", "--local-directory", folder),
                    *worker_options,
                    cwd=folder,
                )
            )
        yield address


def test_a_killed_worker_and_the_same_results(tmp_path):
    sweep = experiment(long_runs(), resources={"RUN": 1})
    run_sweep(sweep, tmp_path / "one", Here())
    killed = []

    def kill(process):
        os.kill(process, signal.SIGKILL)
        killed.append(process)

    with (
        cluster(tmp_path, 2, "--resources", "RUN=1") as address,
        dask_executor(address, sweep.resources) as executor,
    ):
        thread = when_under_way(tmp_path / "two", kill)
        runs = run_sweep(sweep, tmp_path / "two", executor)
        thread.join()
    assert len(killed) == 1
    assert [run.status for run in runs] == ["finished"] * 2
    assert content(tmp_path / "one") == content(tmp_path / "two")


def test_tls(tmp_path, monkeypatch):
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    elliptic = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    subject = ("-days", "1", "-subj", "/CN=prunus")
    subprocess.run(
        ["openssl", "req", "-x509", *elliptic, *subject, "-keyout", key, "-out", certificate],
        check=True,
        capture_output=True,
        timeout=60,
    )
    files = {"CA_FILE": certificate}
    for role in ("CLIENT", "SCHEDULER", "WORKER"):
        files |= {f"{role}__CERT": certificate, f"{role}__KEY": key}
    for name, path in files.items():
        monkeypatch.setenv(f"DASK_DISTRIBUTED__COMM__TLS__{name}", str(path))
    import dask.config

    dask.config.refresh()
    sweep = experiment(long_runs(epochs=1, seeds=[0]))
    try:
        with (
            cluster(tmp_path, 1, protocol="tls") as address,
            dask_executor(address) as executor,
        ):
            assert address.startswith("tls://")
            [run] = run_sweep(sweep, tmp_path / "sweep", executor)
            assert run.status == "finished"
            monkeypatch.setattr("prunus.sweeps.executors.cluster.SECONDS_TO_CONNECT", 1)
            with (
                pytest.raises(SettingError, match="no Dask scheduler answers at tcp://"),
                dask_executor(address.replace("tls://", "tcp://")),
            ):
                pass
    finally:
        monkeypatch.undo()
        dask.config.refresh()


def test_no_scheduler(monkeypatch):
    monkeypatch.setattr("prunus.sweeps.executors.cluster.SECONDS_TO_CONNECT", 0.2)
    for address in ("tcp://127.0.0.1:1", "nonsense"):
        with (
            pytest.raises(SettingError, match=f"no Dask scheduler answers at {address}"),
            dask_executor(address),
        ):
            pass
