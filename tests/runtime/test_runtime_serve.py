"""The server over a real socket: answers in kind, and clear errors for everything else."""

from __future__ import annotations

import ast
import http.client
import io
import json
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps

from prunus_runtime import Deployed, Graph, arrays, reference
from prunus_runtime.serve import Server
from support.graphs import Builder, batch
from support.serving import SECONDS, served, serving

pytestmark = pytest.mark.filterwarnings("ignore::prunus_runtime.FallbackWarning")


def small_graph() -> Graph:
    net = Builder((2, 3, 3))
    return net.graph(net.linear(net.add("flatten", net.conv("x", 4)), 3))


GRAPH = small_graph()
X = batch(GRAPH, 3)
Y = reference.run(GRAPH, X)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(Server(Deployed(GRAPH, threads=1), port=0, max_body=1_000_000)) as server:
        yield server


def ask(server: Server, method: str, path: str, body=None, headers=()) -> tuple[int, str, bytes]:
    connection = http.client.HTTPConnection(*server.server_address[:2], timeout=20)
    try:
        connection.request(method, path, body, dict(headers))
        response = connection.getresponse()
        return response.status, response.headers.get_content_type(), response.read()
    finally:
        connection.close()


JSON = {"Content-Type": "application/json"}


def npy(array: np.ndarray, **options: bool) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def test_npy_in_npy_out(server):
    status, kind, content = ask(server, "POST", "/predict", npy(X))
    assert (status, kind) == (200, "application/x-npy")
    np.testing.assert_allclose(np.load(io.BytesIO(content)), Y, atol=1e-5)
    fortran = np.asfortranarray(X)
    status, _, content = ask(server, "POST", "/predict", npy(fortran))
    np.testing.assert_allclose(np.load(io.BytesIO(content)), Y, atol=1e-5)


def test_json_in_json_out(server):
    status, kind, content = ask(server, "POST", "/predict", json.dumps(X.tolist()), JSON)
    assert (status, kind) == (200, "application/json")
    np.testing.assert_allclose(json.loads(content), Y, atol=1e-5)
    zeros = np.zeros((1, 2, 3, 3), int).tolist()
    assert ask(server, "POST", "/predict", json.dumps(zeros), JSON)[0] == 200


def test_health_and_info(server):
    assert ask(server, "GET", "/health") == (200, "application/json", b'{"status": "ok"}')
    status, _, content = ask(server, "GET", "/info")
    info = json.loads(content)
    assert status == 200
    assert info["input_shape"] == [2, 3, 3]
    assert info["output_shape"] == [3]
    assert info["weights"] == 72 + 108
    assert info["backend"] == server.deployed.backend


def test_a_connection_serves_many_requests(server):
    connection = http.client.HTTPConnection(*server.server_address[:2], timeout=20)
    for _ in range(3):
        connection.request("POST", "/predict", npy(X))
        response = connection.getresponse()
        assert response.status == 200
        response.read()
    connection.close()


def test_many_at_once(server):
    with ThreadPoolExecutor(8) as pool:
        answers = pool.map(lambda _: ask(server, "POST", "/predict", npy(X)), range(40))
        assert {status for status, _, _ in answers} == {200}


HEADER = b"\x93NUMPY\x01\x00"


def with_header(text: str, content: bytes = b"") -> bytes:
    encoded = text.encode().ljust(117) + b"\n"
    return HEADER + len(encoded).to_bytes(2, "little") + encoded + content


def described(shape: str, kind: str = "<f4") -> str:
    return f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}}}"


@pytest.mark.parametrize(
    ("status", "body", "headers", "message"),
    [
        (400, b"", {}, "no array in the .npy format"),
        (400, b"hello", {}, "no array in the .npy format"),
        (400, npy(X)[:-1], {}, "bytes of content"),
        (400, npy(X) + b"\0", {}, "bytes of content"),
        (400, npy(X.astype(np.float64)), {}, "of float64; make it float32"),
        (400, npy(X.astype(">f4")), {}, "make it float32"),
        (400, npy(X[:, :1]), {}, "shape (3, 1, 3, 3), not (n, 2, 3, 3)"),
        (400, npy(X[0]), {}, "add the batch"),
        (400, npy(np.array([{}], object), allow_pickle=True), {}, "the input is of object"),
        (400, npy(np.array(["a"])), {}, "the input is of <U1"),
        (400, with_header(described("(10**12,)")), {}, "no array"),
        (400, with_header(described("(1000000000000, 2, 3, 3)")), {}, "0 bytes of content"),
        (400, with_header(described("(-1, 2, 3, 3)"), bytes(72)), {}, "bytes of content"),
        (400, with_header("__import__('os').system('true')"), {}, "no array"),
        (400, HEADER + b"\xff\xff" + b"(" * 65535, {}, "no array"),
        (400, b"PK\x03\x04" + bytes(100), {}, "no array"),
        (400, b"", JSON, "no list of numbers"),
        (400, b"{}", JSON, "no list of numbers"),
        (400, b'"text"', JSON, "no list of numbers"),
        (400, b"[[1, 2], [3]]", JSON, "no list of numbers"),
        (400, b'["1"]', JSON, "no list of numbers"),
        (400, b"[NaN]", JSON, "NaN is not finite"),
        (400, b"[1e39]", JSON, "float32 cannot hold"),
        (400, b"[" * 50_000, JSON, "no list of numbers"),
        (400, b"[1, 2, 3]", JSON, "shape (3,), not (n, 2, 3, 3)"),
        (400, b"1", JSON, "shape (), not"),
        (400, b"\xff", JSON, "no list of numbers"),
        (400, with_header(described(f"({'9,' * 9_999})").ljust(20_000)), {}, "no array"),
        (413, bytes(1_000_001), {}, "more than 1000000 bytes"),
        (413, b"", {"Content-Length": "9" * 5000}, "more than 1000000 bytes"),
        (411, b"", {"Content-Length": "-5"}, "Content-Length"),
        (411, b"", {"Content-Length": "x"}, "Content-Length"),
        (411, b"0\r\n\r\n", {"Transfer-Encoding": "chunked"}, "Content-Length"),
    ],
)
def test_bad_requests_are_told_what_is_wrong(server, status, body, headers, message):
    try:
        got, kind, content = ask(server, "POST", "/predict", body, headers)
    except (ConnectionResetError, BrokenPipeError):
        assert status == 413  # it hung up on a body that it will not read
        return
    assert (got, kind) == (status, "application/json")
    assert message in json.loads(content)["error"]
    assert b"Traceback" not in content
    assert ask(server, "GET", "/health")[0] == 200


@pytest.mark.parametrize(
    ("status", "method", "path"),
    [
        (404, "GET", "/"),
        (404, "GET", "/../../etc/passwd"),
        (404, "POST", "/elsewhere"),
        (405, "GET", "/predict"),
        (405, "POST", "/info"),
        (501, "DELETE", "/predict"),
    ],
)
def test_other_requests(server, status, method, path):
    got, kind, content = ask(server, method, path)
    assert (got, kind) == (status, "application/json")
    assert json.loads(content)["error"]


def test_an_output_that_json_cannot_say(server, monkeypatch):
    monkeypatch.setattr(server, "deployed", lambda x: x * np.inf)
    status, _, content = ask(server, "POST", "/predict", json.dumps(X.tolist()), JSON)
    assert (status, "send .npy instead" in json.loads(content)["error"]) == (400, True)


def test_a_failure_inside_is_not_shown(server, monkeypatch, caplog):
    def fail(_: np.ndarray) -> np.ndarray:
        raise RuntimeError("secret")

    monkeypatch.setattr(server, "deployed", fail)
    status, _, content = ask(server, "POST", "/predict", npy(X))
    assert status == 500
    assert b"secret" not in content
    assert "secret" in caplog.text


def test_clients_that_break_off(server):
    for start in (
        b"",
        b"\0\1\2\r\n\r\n",
        b"POST /predict HTTP/1.1\r\nContent-Length: 50\r\n\r\nabc",
    ):
        with socket.create_connection(server.server_address[:2], timeout=20) as connection:
            connection.sendall(start)
    assert ask(server, "GET", "/health")[0] == 200


def test_arrays_there_and_back():
    np.testing.assert_array_equal(arrays.from_npy(arrays.to_npy(X)), X)
    np.testing.assert_array_equal(arrays.from_json(arrays.to_json(X)), X)


@given(
    nps.arrays(
        nps.integer_dtypes() | nps.unsigned_integer_dtypes() | nps.floating_dtypes(),
        nps.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=4),
    ),
    st.sampled_from("CF"),
    st.sampled_from([(1, 0), (2, 0), (3, 0)]),
)
def test_what_numpy_writes_is_read_as_it_reads_it(array, order, version):
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(array, order=order), version)
    read = arrays.from_npy(file.getvalue())
    assert read.dtype == array.dtype
    np.testing.assert_array_equal(read, array)


def test_headers_are_read_without_the_parser_of_python(monkeypatch):
    """Before Python 3.12 it fails at times while another thread parses: requests were refused."""
    monkeypatch.setattr(ast, "literal_eval", pytest.fail)
    monkeypatch.setattr(ast, "parse", pytest.fail)
    np.testing.assert_array_equal(arrays.from_npy(npy(X)), X)


def test_the_command_serves_until_it_is_interrupted(tmp_path):
    model = Deployed(GRAPH).save(tmp_path / "model.prunus")
    with served("prunus_runtime", "serve", model) as (process, port):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
        connection.request("POST", "/predict", npy(X))
        content = connection.getresponse().read()
        connection.close()
        np.testing.assert_allclose(np.load(io.BytesIO(content)), Y, atol=1e-5)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 130
    assert "Traceback" not in errors
