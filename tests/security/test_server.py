"""The server among clients that are many, slow, greedy or hostile."""

from __future__ import annotations

import http.client
import io
import logging
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from prunus_runtime import Deployed, InputError, arrays, images
from prunus_runtime.__main__ import main
from prunus_runtime.serve import Server
from support.graphs import Builder
from support.serving import SECONDS, lost_on_sigterm, served, serving

pytestmark = pytest.mark.filterwarnings("ignore::prunus_runtime.FallbackWarning")


def network() -> Deployed:
    net = Builder((2, 3, 3))
    return Deployed(net.graph(net.linear(net.add("flatten", "x"), 3)), threads=1)


X = arrays.to_npy(np.ones((4, 2, 3, 3), np.float32))
PREDICT = b"POST /predict HTTP/1.1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(X)
HEALTH = b"GET /health HTTP/1.1\r\nConnection: close\r\n\r\n"


def connect(server: Server, start: bytes = b"") -> socket.socket:
    connection = socket.create_connection(server.server_address[:2], timeout=SECONDS)
    connection.sendall(start)
    return connection


def answer(connection: socket.socket) -> bytes:
    """All that comes until the server hangs up."""
    with connection, connection.makefile("rb") as file:
        return file.read()


def asked(server: Server, request: bytes) -> tuple[int, bytes]:
    found = answer(connect(server, request))
    head, _, body = found.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def test_a_burst_of_connections_loses_none() -> None:
    server = Server(network(), port=0, connections=8)
    # All are there before the first is accepted.
    connections = [connect(server, PREDICT + X) for _ in range(200)]
    with serving(server):
        answers = [answer(connection) for connection in connections]
    assert {found.split()[1] for found in answers} == {b"200"}


def test_slow_clients_hold_few_threads_and_not_for_long() -> None:
    before = threading.active_count()
    with serving(Server(network(), port=0, connections=4, seconds=0.3)) as server:
        slow = [connect(server, b"GET /health HT") for _ in range(8)]
        slow += [connect(server, PREDICT + b"x") for _ in range(8)]
        stop, most = threading.Event(), 0

        def drip() -> None:
            while not stop.wait(0.05):
                for connection in slow:
                    try:
                        connection.sendall(b"x")
                    except OSError:
                        continue

        dripping = threading.Thread(target=drip)
        dripping.start()
        for _ in range(3):
            assert asked(server, HEALTH)[0] == 200
            most = max(most, threading.active_count() - before)
        stop.set()
        dripping.join(SECONDS)
        assert most <= 4 + 2  # handlers, the server itself, and the one above
        for connection in slow:
            connection.close()


def test_large_json_is_refused_before_it_is_read() -> None:
    with serving(Server(network(), port=0)) as server:
        head = b"POST /predict HTTP/1.1\r\nContent-Type: application/json\r\n"
        status, body = asked(server, head + b"Content-Length: %d\r\n\r\n" % (2**22 + 1))
    assert status == 413 and b"more than 4194304 bytes" in body


def test_bytes_in_use_are_bounded() -> None:
    with serving(Server(network(), port=0, max_body=10_000, seconds=0.2)) as server:
        with server.room(40_000 - len(X) + 1):
            status, body = asked(server, PREDICT + X)
        assert status == 503 and b"try again later" in body
        assert asked(server, PREDICT + X)[0] == 200


def test_answers_are_bounded() -> None:
    net = Builder((1,))
    net.linear("x", 1000)
    x = arrays.to_npy(np.ones((100, 1), np.float32))
    head = b"POST /predict HTTP/1.1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(x)
    with serving(Server(Deployed(net.graph(), 1), port=0, max_body=50_000)) as server:
        status, body = asked(server, head + x)
    assert status == 400 and b"send fewer images" in body


def test_several_lengths_are_refused() -> None:
    several = PREDICT.replace(b"\r\n\r\n", b"\r\nContent-Length: 5\r\n\r\n")
    with serving(Server(network(), port=0)) as server:
        status, body = asked(server, several + X)
        assert status == 400 and b"several Content-Lengths" in body
        several = HEALTH.replace(b"\r\n\r\n", b"\r\nContent-Length: 0\r\nContent-Length: 9\r\n\r\n")
        assert asked(server, several)[0] == 400
        # A body that nobody asked for is not the next request.
        smuggled = b"GET /health HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (len(HEALTH), HEALTH)
        assert answer(connect(server, smuggled)).count(b"HTTP/1.1 200") == 1


def test_logs_have_no_escape_codes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with serving(Server(network(), port=0)) as server:
        assert asked(server, b"GET /\x1b[31m\x9b HTTP/1.1\r\n\r\n")[0] == 404
        assert asked(server, b"\x1b[31mGET / HTTP/1.1\r\n\r\n")[0] == 501
    assert "x1b[31m" in caplog.text
    assert not any(char in caplog.text for char in "\x1b\x9b\r")


def test_errors_have_no_escape_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "no\x1b[31m\nfile"]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "\x1b" not in error and "x1b[31m" in error


def test_head() -> None:
    with serving(Server(network(), port=0)) as server:
        assert asked(server, HEALTH.replace(b"GET", b"HEAD")) == (200, b"")
        assert asked(server, b"HEAD /elsewhere HTTP/1.1\r\n\r\n") == (404, b"")


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 9223372036854775807, 9)}",
        "{'descr': [('a', '<f4', (1,) * 99)], 'fortran_order': False, 'shape': ()}",
        "{'descr': ('<f4', -1), 'fortran_order': False, 'shape': ()}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (True, 2)}",
        "{'descr': (), 'fortran_order': 0, 'shape': 3}",
        "{'descr': '08', 'fortran_order': False, 'shape': ()}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (",
        "'''",
        "\\",
    ],
)
@pytest.mark.parametrize("version", [1, 2, 9])
def test_bad_npy_headers(header: str, version: int) -> None:
    text = header.encode().ljust(117) + b"\n"
    size = len(text).to_bytes(2 if version == 1 else 4, "little")
    with pytest.raises(InputError):
        network()(arrays.from_npy(b"\x93NUMPY" + bytes([version, 0]) + size + text))


def test_large_images_are_decoded_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("PIL")
    from PIL import Image

    content = io.BytesIO()
    Image.new("RGB", (300, 300)).save(content, "png")
    reader = images.Images(mean=(0.5,) * 3, std=(0.5,) * 3, short_side=8)
    at_work, most = 0, []

    def slowly(_: object, height: int, width: int, *__: int) -> np.ndarray:
        nonlocal at_work
        at_work += 1
        time.sleep(0.05)
        most.append(at_work)
        at_work -= 1
        return np.zeros((height, width, 3), np.uint8)

    monkeypatch.setattr(images, "middle", slowly)
    for large, expected in ((2**30, 4), (300 * 300 - 1, 1)):
        monkeypatch.setattr(images, "LARGE", large)
        most.clear()
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda _: reader.read(content.getvalue(), (3, 8, 8)), range(4)))
        assert max(most) <= expected and (expected == 1 or max(most) > 1)


def test_a_port_that_does_not_exist(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = network().save(tmp_path / "model.prunus")
    assert main(["serve", str(path), "--port", "80800"]) == 1
    assert capsys.readouterr().err == (
        "error: port 80800 does not exist: ports are from 0 to 65535\n"
    )


def test_sigterm_lets_it_answer(tmp_path: Path) -> None:
    model = network().save(tmp_path / "model.prunus")
    with served("prunus_runtime", "serve", model, "--threads", "1") as (process, port):
        idle = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        idle.request("GET", "/health")
        assert idle.getresponse().read() == b'{"status": "ok"}'
        connection = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
        connection.sendall(PREDICT.replace(b"\r\n\r\n", b"\r\nExpect: 100-continue\r\n\r\n"))
        assert b"100 Continue" in connection.recv(1000)  # it has begun
        process.send_signal(signal.SIGTERM)
        with pytest.raises(OSError):
            while True:  # until it listens no more
                socket.create_connection(("127.0.0.1", port), timeout=SECONDS).close()
        connection.sendall(X)
        found = answer(connection)
        assert found.startswith(b"HTTP/1.1 200")
        assert np.load(io.BytesIO(found.partition(b"\r\n\r\n")[2])).shape == (4, 3)
        _, errors = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, errors
        assert "Traceback" not in errors


def test_nothing_is_lost_on_sigterm(tmp_path: Path) -> None:
    model = network().save(tmp_path / "model.prunus")
    with served("prunus_runtime", "serve", model, "--threads", "1") as (process, port):
        idle = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        idle.request("GET", "/health")
        assert idle.getresponse().read()
        assert lost_on_sigterm(process, port, X, clients=32) == []
        idle.request("GET", "/health")  # nobody could know on this connection that it ends
        last = idle.getresponse()
        assert last.read() and last.headers["Connection"] == "close"
        _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 0 and "Traceback" not in errors, errors
