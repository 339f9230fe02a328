"""How many requests a second the two servers answer, with many callers at a time.

    python benchmarks/serving.py model.prunus --clients 64 --seconds 5

Each caller keeps one connection and sends one image after the other. The servers take turns, so
that a busy machine treats them alike. For each: requests a second, latencies, the processor's time
for a request, growth of memory, and how many requests were lost when the server was told to end
while they came.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

import prunus_runtime
from prunus_runtime import arrays
from prunus_runtime.serving.tensors import HEADER_LENGTH

SERVERS = {
    "standard library": ("prunus_runtime", "serve"),
    "batching": ("prunus_runtime.serving",),
}


@contextmanager
def started(model: Path, *module: str, options: list[str]) -> Iterator[tuple[int, int]]:
    """A server, as its process and its port."""
    command = [sys.executable, "-m", *module, str(model), "--port", "0", *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process.pid, int(process.stdout.readline().rsplit(":", 1)[1])
        finally:
            process.terminate()


def request(x: np.ndarray, model: str | None) -> bytes:
    """A request: of the Open Inference Protocol if it names a model, else of `/predict`."""
    if model is None:
        return _post("/predict", arrays.to_npy(x))
    tensor = {"name": "input", "shape": x.shape, "datatype": "FP32"}
    tensor["parameters"] = {"binary_data_size": x.nbytes}
    asked = {"inputs": [tensor], "parameters": {"binary_data_output": True}}
    head = json.dumps(asked).encode()
    return _post(
        f"/v2/models/{model}/infer", head + x.tobytes(), f"{HEADER_LENGTH}: {len(head)}\r\n"
    )


def _post(path: str, body: bytes, headers: str = "") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


class Load:
    """Callers that ask until `end`; what became of their requests."""

    def __init__(self, port: int, content: bytes) -> None:
        self.port, self.content = port, content
        self.latencies: list[float] = []
        self.refused = self.lost = 0
        self.end = False

    async def run(self, clients: int, seconds: float) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(self._caller())
            await asyncio.sleep(seconds)
            self.end = True

    async def _caller(self) -> None:
        while not self.end:
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            except OSError:
                return  # nothing was asked
            with suppress(OSError):
                while not self.end:
                    began = time.perf_counter()
                    writer.write(self.content)
                    status, closes = await self._answer(reader)
                    self.latencies.append(time.perf_counter() - began)
                    self.refused += status != 200
                    if closes:
                        break
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> tuple[int, bool]:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = head.partition(b"\ncontent-length:")[2].split(b"\r\n")[0]
            await reader.readexactly(int(length))
        except (OSError, asyncio.IncompleteReadError):
            self.lost += 1
            raise OSError from None
        return int(head.split()[1]), b"connection: close" in head


def family(process: int) -> list[Path]:
    """A process and its workers, as folders of /proc."""
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [Path("/proc", str(one)) for one in (process, *children)]


def memory(process: int) -> float:
    """Resident MiB."""
    texts = [(one / "status").read_text() for one in family(process)]
    return sum(int(text.partition("VmRSS:")[2].split()[0]) for text in texts) / 1024


def work(process: int) -> float:
    """Seconds of the processor."""
    found = [(one / "stat").read_text().rpartition(")")[2].split() for one in family(process)]
    return sum(int(f[11]) + int(f[12]) for f in found) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    shape = prunus_runtime.load(options.model).input_shape
    x = np.random.default_rng(0).random((1, *shape), np.float32)
    ways = {
        "standard library": ("standard library", [], None),
        "batching, /predict": ("batching", [], None),
        "batching, v2": ("batching", [], options.model.stem),
    }
    if options.workers > 1:
        more = ["--workers", str(options.workers)]
        ways[f"batching, v2, {options.workers} workers"] = ("batching", more, options.model.stem)
    rates: dict[str, list[float]] = {}
    for _ in range(options.repeats):
        for way, (server, more, name) in ways.items():
            with started(options.model, *SERVERS[server], options=more) as (process, port):
                content = request(x, name)
                asyncio.run(Load(port, content).run(options.clients, 1))
                load = Load(port, content)
                before, worked = memory(process), work(process)
                asyncio.run(load.run(options.clients, options.seconds))
                rate = len(load.latencies) / options.seconds
                rates.setdefault(way, []).append(rate)
                cost = 1e6 * (work(process) - worked) / len(load.latencies)
                p50, p99 = np.quantile(load.latencies, [0.5, 0.99]) * 1000
                growth, lost = memory(process) - before, ended(process, port, content)
                print(
                    f"{way:<28}{rate:8,.0f} requests/s{p50:8.1f} ms{p99:8.1f} ms (99 %)"
                    f"{cost:6.0f} us"
                    f"{load.refused:6} refused{load.lost:4} lost{growth:7.1f} MiB more"
                    f"{lost:4} lost at the end",
                    flush=True,
                )
    first = np.median(rates["standard library"])
    for way, found in rates.items():
        print(f"{way:<28}{np.median(found) / first:6.2f} times the standard library's")


def ended(process: int, port: int, content: bytes) -> int:
    """How many requests are lost if the server is told to end while they come."""
    load = Load(port, content)

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(load.run(16, 3))
            await asyncio.sleep(0.7)
            subprocess.run(["kill", f"-{signal.SIGTERM}", str(process)], check=True)

    asyncio.run(run())
    return load.lost


if __name__ == "__main__":
    main()
