"""The Open Inference Protocol: requests and answers, worked out by hand."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prunus_runtime import InputError
from prunus_runtime.serving.tensors import Request, read_request, write_answer

TOP = ("id", "outputs", "inputs")
"""What is not of the tensor."""


def request(*, binary: bytes = b"", **changes: Any) -> tuple[bytes, str | None]:
    """A request for two inputs of two numbers, with some of it changed."""
    tensor = {"name": "input", "shape": [2, 2], "datatype": "FP32", "data": [1, 2, 3, 4]}
    entry: dict[str, Any] = {"inputs": [tensor], **{k: changes.pop(k) for k in TOP if k in changes}}
    tensor.update(changes)
    head = json.dumps(entry).encode()
    return head + binary, str(len(head)) if binary else None


def test_numbers_flat_nested_and_binary() -> None:
    wanted = np.array([[1, 2], [3, 4]], np.float32)
    for data in ([1, 2, 3, 4], [[1, 2], [3, 4]], [1.0, 2, 3.0, 4]):
        np.testing.assert_array_equal(read_request(*request(data=data)).x, wanted)
    binary = {"data": None, "parameters": {"binary_data_size": 16}}
    found = read_request(*request(binary=wanted.tobytes(), **binary))
    np.testing.assert_array_equal(found.x, wanted)
    assert found.x.dtype == np.float32


def test_pixels() -> None:
    found = read_request(*request(datatype="UINT8", data=[0, 1, 254, 255]))
    assert found.x.dtype == np.uint8 and found.x.tolist() == [[0, 1], [254, 255]]
    with pytest.raises(InputError, match="numbers that UINT8 cannot hold"):
        read_request(*request(datatype="UINT8", data=[0, 1, 2, 256]))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (request(name="x"), "no input 'x': its input is 'input'"),
        (request(datatype="FP64"), "`datatype` is 'FP64', not one of FP32, UINT8, INT64"),
        (request(shape=[2, -2]), r"`shape` is \[2, -2\], not a list of sizes"),
        (request(shape=[]), "not a list of sizes"),
        (request(shape=[True, 4]), "not a list of sizes"),
        (request(shape=[2, 3]), r"4 numbers, and `shape` is \[2, 3\]"),
        (request(data=[[1], [2, 3], [4]]), "all rows of one length"),
        (request(data=["a"] * 4), "no list of numbers"),
        (request(data=[1, 2, 3, 1e300]), "numbers that FP32 cannot hold"),
        (request(data=[1, 2, 3, 10**400]), "no list of numbers"),
        (request(inputs=[]), "a list of one tensor, called 'input'"),
        (request(id=7), "`id` is 7, not a text"),
        (request(outputs=[{"name": "y"}]), "no output 'y': its output is 'output'"),
        (request(outputs=3), "`outputs` is 3"),
        ((b"[1", None), "the request is no JSON"),
        ((b'{"inputs": NaN}', None), "NaN is not finite"),
        ((b"{}", "9"), "is 9, but the body has 2 bytes"),
        ((b"{}", "-1"), "'-1', not a number of bytes"),
        (request(binary=b"abc", data=None), "are 16 bytes, but `binary_data_size` is None, and 3"),
    ],
)
def test_what_is_wrong_is_said(content: tuple[bytes, str | None], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_request(*content)


@given(st.binary(max_size=60), st.one_of(st.none(), st.text(max_size=3)))
def test_anything_else_is_an_input_error(content: bytes, length: str | None) -> None:
    with pytest.raises(InputError):
        read_request(content, length)


@pytest.mark.parametrize("binary", [False, True])
def test_an_answer(binary: bool) -> None:
    y = np.array([[0.5, 2]], np.float32)
    body, length = write_answer(y, "net", Request(y, "a", binary))
    entry = json.loads(body[:length])
    tensor = {"name": "output", "datatype": "FP32", "shape": [1, 2]}
    tensor |= {"parameters": {"binary_data_size": 8}} if binary else {"data": [0.5, 2.0]}
    assert entry == {"model_name": "net", "id": "a", "outputs": [tensor]}
    assert (body[length:] if length else b"") == (y.tobytes() if binary else b"")


def test_what_json_cannot_say() -> None:
    y = np.array([[np.inf]], np.float32)
    with pytest.raises(InputError, match="ask for binary tensors"):
        write_answer(y, "net", Request(y))
    assert write_answer(y, "net", Request(y, wants_binary=True))[0].endswith(y.tobytes())


def test_who_asks_for_binary() -> None:
    asked = {"inputs": [{"name": "input", "shape": [1], "datatype": "FP32", "data": [1]}]}
    all_binary = {"parameters": {"binary_data_output": True}}
    not_this = {"outputs": [{"name": "output", "parameters": {"binary_data": False}}]}
    for more, wanted in (
        ({}, False),
        (all_binary, True),
        ({"outputs": [{"name": "output", "parameters": {"binary_data": True}}]}, True),
        (not_this | all_binary, False),
        ({"outputs": [{"name": "output"}]} | all_binary, True),
    ):
        assert read_request(json.dumps(asked | more).encode()).wants_binary is wanted
