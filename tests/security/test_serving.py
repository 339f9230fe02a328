"""The batching server: what existing clients ask, and callers that are many, slow or greedy."""

from __future__ import annotations

import http.client
import json
import re
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prunus_runtime import Deployed, arrays
from prunus_runtime.serving.__main__ import main
from prunus_runtime.serving.app import Bounds, Service
from prunus_runtime.serving.run import Server
from support.graphs import Builder
from support.serving import SECONDS, lost_on_sigterm, served

pytestmark = pytest.mark.filterwarnings("ignore::prunus_runtime.FallbackWarning")
X = np.arange(72, dtype=np.float32).reshape(4, 2, 3, 3)
NPY = arrays.to_npy(X)
INFER = "/v2/models/net/infer"


@pytest.fixture(scope="module")
def network() -> Deployed:
    net = Builder((2, 3, 3))
    return Deployed(net.graph(net.linear(net.add("flatten", "x"), 3)), threads=1)


@contextmanager
def serving(network: Any, **bounds: Any) -> Iterator[int]:
    """The port of a server."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        server = Server(Service(network, "net", Bounds(**bounds)))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            yield port
        finally:
            server.should_exit = True
            thread.join(SECONDS)


@pytest.fixture(scope="module")
def port(network: Deployed) -> Iterator[int]:
    with serving(network) as port:
        yield port


def ask(port: int, path: str, body: bytes | str | None = None, **headers: str) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("GET" if body is None else "POST", path, body, named)
    answer = connection.getresponse()
    return answer.status, answer.read()


def send(port: int, content: bytes) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
    connection.sendall(content)
    return connection


def rest(connection: socket.socket) -> bytes:
    """All that comes until the server hangs up."""
    with connection, connection.makefile("rb") as file:
        return file.read()


def error(answer: tuple[int, bytes]) -> tuple[int, str]:
    return answer[0], json.loads(answer[1])["error"]


def infer(x: np.ndarray) -> str:
    tensor = {"name": "input", "shape": x.shape, "datatype": "FP32", "data": x.ravel().tolist()}
    return json.dumps({"inputs": [tensor]})


def test_tensors_as_json_and_binary(network: Deployed, port: int) -> None:
    status, body = ask(port, INFER, infer(X))
    [output] = json.loads(body)["outputs"]
    assert status == 200 and output["data"] == network(X).ravel().tolist()
    tensor = {"name": "input", "shape": X.shape, "datatype": "FP32"}
    tensor["parameters"] = {"binary_data_size": X.nbytes}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    length = {"Inference_Header_Content_Length": str(len(head))}
    status, body = ask(port, INFER, head + X.tobytes(), **length)
    assert status == 200 and body.endswith(network(X).tobytes())


def test_a_client_of_triton(network: Deployed, port: int) -> None:
    triton = pytest.importorskip("tritonclient.http", reason="pip install 'tritonclient[http]'")
    client = triton.InferenceServerClient(f"127.0.0.1:{port}", network_timeout=SECONDS)
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("net")
    assert client.get_server_metadata()["extensions"] == ["binary_tensor_data"]
    [described] = client.get_model_metadata("net")["inputs"]
    assert described == {"name": "input", "datatype": "FP32", "shape": [-1, 2, 3, 3]}
    for binary in (False, True):
        tensor = triton.InferInput("input", X.shape, "FP32")
        tensor.set_data_from_numpy(X, binary_data=binary)
        for outputs in (None, [triton.InferRequestedOutput("output", binary_data=binary)]):
            found = client.infer("net", [tensor], outputs=outputs, request_id="7")
            assert found.get_response()["id"] == "7"
            np.testing.assert_array_equal(found.as_numpy("output"), network(X))
    with pytest.raises(Exception, match="there is no /v2/models/other/infer; the model is 'net'"):
        client.infer("other", [tensor])
    client.close()


def test_the_paths_of_the_small_server(network: Deployed, port: int) -> None:
    assert ask(port, "/health") == (200, b'{"status":"ok"}')
    assert json.loads(ask(port, "/info")[1])["output_shape"] == [3]
    status, body = ask(port, "/predict", NPY)
    assert status == 200
    np.testing.assert_array_equal(arrays.from_npy(body), network(X))
    status, body = ask(port, "/predict", json.dumps(X.tolist()), Content_Type="application/json")
    np.testing.assert_array_equal(json.loads(body), network(X).tolist())
    answer = ask(port, "/predict", b"no image", Content_Type="image/png")
    assert error(answer) == (
        400,
        "the file does not say which classes its outputs are: deploy it again",
    )


def test_errors_are_json(port: int) -> None:
    assert error(ask(port, "/else")) == (404, "there is no /else; the model is 'net'")
    assert error(ask(port, INFER))[0] == 405
    for body in ("{", infer(X[:, :1])):
        assert error(ask(port, INFER, body))[0] == 400
    status, message = error(ask(port, "/predict", arrays.to_npy(np.float32(1))))
    assert status == 400 and message.endswith("its first dimension must be the batch")


def test_metrics(port: int) -> None:
    ask(port, INFER, infer(X))
    lines = ask(port, "/metrics")[1].decode().splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert float(values[f'prunus_requests_total{{path="{INFER}",status="200"}}']) >= 1
    assert float(values["prunus_batch_images_sum"]) >= 4
    assert float(values["prunus_request_seconds_count"]) >= 1
    assert values["prunus_inputs"] == "0.0"


def test_many_callers_get_their_own(network: Deployed, port: int) -> None:
    found: dict[int, bytes] = {}

    def caller(number: int) -> None:
        body = arrays.to_npy(np.full((1, 2, 3, 3), number, np.float32))
        found[number] = ask(port, "/predict", body)[1]

    threads = [threading.Thread(target=caller, args=(number,)) for number in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    for number in range(64):
        alone = network(np.full((1, 2, 3, 3), number, np.float32))
        np.testing.assert_allclose(arrays.from_npy(found[number]), alone, rtol=1e-6)


def test_what_is_too_large_is_refused_before_it_is_read(network: Deployed) -> None:
    head = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n%s\r\n"
    with serving(network, max_body=10_000) as port:
        assert rest(send(port, head % (10_001, b""))).startswith(b"HTTP/1.1 413")
        as_json = b"Content-Type: application/json\r\n"
        assert rest(send(port, head % (626, as_json))).startswith(b"HTTP/1.1 413")
        chunked = b"POST /predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        assert rest(send(port, chunked)).startswith(b"HTTP/1.1 411")
        several = head % (5, b"Content-Length: 6\r\n")
        assert rest(send(port, several + b"12345")).startswith(b"HTTP/1.1 400")
        many = arrays.to_npy(np.ones((0, 2, 3, 3), np.float32))
        assert ask(port, "/predict", many)[0] == 200


def test_headers_that_do_not_end_are_not_kept(port: int) -> None:
    """Neither of a first request, nor of one that comes after another."""
    for before in (b"", b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"):
        connection = send(port, before + b"GET /health HTTP/1.1\r\nHost: x\r\n")
        with connection, pytest.raises(OSError, match=r"reset|Broken pipe"):
            for number in range(10_000):
                connection.sendall(b"X-%d: %s\r\n" % (number, bytes(1000).replace(b"\0", b"x")))


def test_answers_are_bounded() -> None:
    net = Builder((1,))
    net.linear("x", 1000)
    x = arrays.to_npy(np.ones((100, 1), np.float32))
    with serving(Deployed(net.graph(), 1), max_body=50_000) as port:
        status, message = error(ask(port, "/predict", x))
    assert status == 400 and message.endswith("send fewer images")


def test_bytes_in_use_are_bounded(network: Deployed) -> None:
    """While four requests hang with all the memory there is, the next is told to come later."""
    size = len(NPY)
    head = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size
    with serving(network, max_body=size) as port:
        slow = [send(port, head + NPY[:-1]) for _ in range(4)]
        answer = ask(port, "/predict", NPY)
        while answer[0] == 200:  # until all of them are noticed
            answer = ask(port, "/predict", NPY)
        assert error(answer) == (503, "the server has too much to do; try again later")
        for connection in slow:
            connection.close()


class Slow:
    """A network that computes when it is told to."""

    def __init__(self, network: Deployed) -> None:
        self.network, self.go, self.begun = network, threading.Event(), threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.network, name)

    def __call__(self, x: np.ndarray) -> Any:
        self.begun.set()
        assert self.go.wait(SECONDS)
        return self.network(x)


def test_a_caller_that_is_gone_is_no_failure(
    network: Deployed, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(network) as port:
        send(port, b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nx").close()
        gone = b'prunus_requests_total{path="/predict",status="400"} 1.0'
        while gone not in ask(port, "/metrics")[1]:
            pass
    assert "a request failed" not in caplog.text


def test_a_full_queue_answers_503(network: Deployed) -> None:
    slow = Slow(network)
    request = (
        b"POST /predict HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
    )
    content = request % len(NPY) + NPY
    with serving(slow, max_batch=1, max_waiting=2) as port:
        first = send(port, content)
        assert slow.begun.wait(SECONDS)
        others = [send(port, content) for _ in range(8)]
        refused = ask(port, "/predict", NPY)
        assert error(refused) == (503, "the server has too much to do; try again later")
        slow.go.set()
        answers = [rest(connection).split()[1] for connection in (first, *others)]
    assert sorted(answers) == [b"200"] * 3 + [b"503"] * 6


def test_slow_callers_are_hung_up_on(network: Deployed) -> None:
    body = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nx"
    with serving(network, seconds=0.5) as port:
        never = [send(port, b""), send(port, b"GET /health HT")]
        once = send(port, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET /he")
        arriving = send(port, body)
        assert ask(port, "/health")[0] == 200  # nobody else waits for them
        assert rest(arriving).startswith(b"HTTP/1.1 408")
        for connection, answer in (*((it, b"") for it in never), (once, b"HTTP/1.1 200")):
            with connection:
                assert connection.recv(1000).startswith(answer)
                with suppress(ConnectionResetError):  # or a quiet end
                    while connection.recv(1000):
                        pass


def test_options_are_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for option, message in (
        (["--port", "80800"], "port 80800 does not exist: ports are from 0 to 65535"),
        (["--name", "a/b"], "'a/b' is no name for addresses: give one of letters with --name"),
        (["--workers", "0"], "--workers is 0, not 1 or more"),
        (["--max-delay", "-1"], "--max-delay is -1 ms, not from 0 to 1000"),
        ([], f"[Errno 2] No such file or directory: '{tmp_path / 'none'}'"),
    ):
        assert main([str(tmp_path / "none"), *option]) == 1
        assert capsys.readouterr().err == f"error: {message}\n"


def test_without_the_extra_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "prunus_runtime.serving.app", None)
    assert main([str(tmp_path / "none")]) == 1
    assert "pip install 'prunus-runtime[serve]'" in capsys.readouterr().err


@pytest.mark.parametrize("workers", ["1", "2"])
def test_nothing_is_lost_on_sigterm(network: Deployed, tmp_path: Path, workers: str) -> None:
    model = network.save(tmp_path / "net.prunus")
    options = ("--workers", workers, "--threads", "1")
    with served("prunus_runtime.serving", model, *options) as (process, port):
        assert ask(port, "/predict", NPY)[0] == ask(port, "/v2/health/ready")[0] == 200
        of_all = r'prunus_requests_total{path="/predict",status="200"} (\d+)'
        counted = re.search(of_all, ask(port, "/metrics")[1].decode())
        assert counted and int(counted[1]) >= 1
        assert lost_on_sigterm(process, port, NPY) == []
        _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, errors
