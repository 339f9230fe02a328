"""How many requests a second the two servers answer, with many callers at a time.

    python benchmarks/serving.py --clients 64 --seconds 5 --json results/serving.json

The load comes from `wrk` (apt-get install wrk), which leaves the processors to the servers: each
caller keeps one connection and sends one image after the other. The servers take turns, so that a
busy machine treats them alike. For each: requests a second, latencies, the processor's time for a
request, growth of memory, and how many requests were lost when the server was told to end while
they came.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

import prunus_runtime
from deployed_speed import inputs, masked, network
from prunus.deployment import deploy
from prunus.files import write_atomically
from prunus.runs.origin import here
from prunus.tables import text_table
from prunus_runtime import arrays
from prunus_runtime.serving.tensors import HEADER_LENGTH

NAME = "net"
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


class Post:
    """A request: of the Open Inference Protocol, or of `/predict`."""

    def __init__(self, x: np.ndarray, *, protocol: bool) -> None:
        self.path, self.body = "/predict", arrays.to_npy(x)
        self.headers: dict[str, str] = {}
        if protocol:
            tensor = {"name": "input", "shape": x.shape, "datatype": "FP32"}
            tensor["parameters"] = {"binary_data_size": x.nbytes}
            asked = {"inputs": [tensor], "parameters": {"binary_data_output": True}}
            head = json.dumps(asked).encode()
            self.path, self.body = f"/v2/models/{NAME}/infer", head + x.tobytes()
            self.headers[HEADER_LENGTH] = str(len(head))

    @property
    def content(self) -> bytes:
        """As it is sent."""
        headers = {"Host": "x", "Content-Length": len(self.body), **self.headers}
        lines = [f"POST {self.path} HTTP/1.1", *(f"{name}: {it}" for name, it in headers.items())]
        return "\r\n".join([*lines, "\r\n"]).encode() + self.body

    def script(self, folder: Path) -> Path:
        """For `wrk`; it prints what it found as JSON."""
        (folder / "body").write_bytes(self.body)
        headers = "".join(f'wrk.headers["{name}"] = "{it}"' for name, it in self.headers.items())
        (folder / "post.lua").write_text(
            f"""
            wrk.method = "POST"
            wrk.body = io.open("{folder}/body", "rb"):read("*a")
            {headers}
            function done(summary, latency)
              local wrong = summary.errors
              local form = '{{"requests": %d, "seconds": %f, "p50": %f, "p99": %f, '
                .. '"refused": %d, "lost": %d}}'
              print()
              print(string.format(
                form, summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e6,
                latency:percentile(99) / 1e6, wrong.status,
                wrong.connect + wrong.read + wrong.write + wrong.timeout))
            end
            """
        )
        return folder / "post.lua"


def wrk(port: int, post: Post, clients: int, seconds: int) -> dict[str, float]:
    """What many callers find."""
    with tempfile.TemporaryDirectory() as folder:
        script, url = post.script(Path(folder)), f"http://127.0.0.1:{port}{post.path}"
        command = ["wrk", "-t1", f"-c{clients}", f"-d{seconds}", "-s", str(script), url]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, float] = json.loads(output.splitlines()[-1])
    return found


class Load:
    """Callers that ask until `end`; how many of their requests are not answered."""

    def __init__(self, port: int, content: bytes) -> None:
        self.port, self.content = port, content
        self.answered = self.lost = 0
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
                    writer.write(self.content)
                    closes = await self._answer(reader)
                    self.answered += 1
                    if closes:
                        break
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> bool:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = head.partition(b"\ncontent-length:")[2].split(b"\r\n")[0]
            await reader.readexactly(int(length))
        except (OSError, asyncio.IncompleteReadError):
            self.lost += 1
            raise OSError from None
        return b"connection: close" in head


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


def measured(process: int, port: int, post: Post, options: argparse.Namespace) -> dict[str, float]:
    """One turn of a server, which ends with it."""
    while wrk(port, post, options.clients, 3)["requests"] == 0:
        pass  # workers take their time to begin
    before, worked = memory(process), work(process)
    found = wrk(port, post, options.clients, options.seconds)
    cost, growth = (work(process) - worked) / found["requests"], memory(process) - before
    return {
        "rate": found["requests"] / found["seconds"],
        "p50": found["p50"],
        "p99": found["p99"],
        "processor_seconds": cost,
        "refused": found["refused"],
        "lost": found["lost"],
        "growth_mib": growth,
        "lost_at_the_end": ended(process, port, post.content, options.clients),
    }


def ended(process: int, port: int, content: bytes, clients: int) -> int:
    """How many requests are lost if the server is told to end while they come."""
    load = Load(port, content)

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(load.run(clients, 3))
            await asyncio.sleep(0.7)
            os.kill(process, signal.SIGTERM)

    asyncio.run(run())
    assert load.answered, "no request was answered"
    return load.lost


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path, nargs="?", help="by default a --network")
    parser.add_argument("--network", default="resnet20", help="whose weights are removed at random")
    parser.add_argument("--sparsity", type=float, default=0.98)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = options.model
        if model is None:
            sparse = masked(network(options.network, 0), options.sparsity)
            example = inputs(options.network, 2)
            model = deploy(sparse, None, torch.from_numpy(example)).save(Path(folder, "net.prunus"))
        turns = compare(model, options)
    rows = [summary(way, found) for way, found in turns.items()]
    first = rows[0]["rate"]
    show = [
        [
            row["way"],
            f"{row['rate']:,.0f}",
            f"{row['rate'] / first:.1f}",
            f"{1e3 * row['p50']:.1f}",
            f"{1e3 * row['p99']:.1f}",
            f"{1e6 * row['processor_seconds']:.0f}",
            f"{row['growth_mib']:.1f}",
            f"{row['refused'] + row['lost'] + row['lost_at_the_end']:.0f}",
        ]
        for row in rows
    ]
    header = [
        "server",
        "requests/s",
        "times",
        "p50 ms",
        "p99 ms",
        "processor us",
        "MiB more",
        "lost",
    ]
    print(text_table(header, show))
    if options.json:
        content = {
            "machine": here().machine,
            "network": str(options.model) if options.model else options.network,
            "sparsity": None if options.model else options.sparsity,
            "clients": options.clients,
            "seconds": options.seconds,
            "repeats": options.repeats,
            "servers": rows,
        }
        write_atomically(options.json, (json.dumps(content, indent=2) + "\n").encode())


def compare(model: Path, options: argparse.Namespace) -> dict[str, list[dict[str, float]]]:
    """The turns of each server."""
    shape = prunus_runtime.load(model).input_shape
    x = np.random.default_rng(0).random((1, *shape), np.float32)
    named = ["--name", NAME]
    ways = {
        "standard library": ("standard library", [], False),
        "batching, `.npy`": ("batching", named, False),
        "batching, binary tensors": ("batching", named, True),
        "batching, binary tensors, 2 workers": ("batching", [*named, "--workers", "2"], True),
    }
    turns: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    for _ in range(options.repeats):
        for way, (server, more, protocol) in ways.items():
            with started(model, *SERVERS[server], options=more) as (process, port):
                turns[way].append(measured(process, port, Post(x, protocol=protocol), options))
                print(way, turns[way][-1], flush=True)
    return turns


def summary(way: str, turns: list[dict[str, float]]) -> dict[str, Any]:
    """Medians of the turns; of what should not happen, all."""
    wrong = ("refused", "lost", "lost_at_the_end")
    return {
        "way": way,
        **{
            name: (sum if name in wrong else statistics.median)([turn[name] for turn in turns])
            for name in turns[0]
        },
        "rates": [turn["rate"] for turn in turns],
    }


if __name__ == "__main__":
    main()
