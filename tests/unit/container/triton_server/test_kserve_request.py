"""Requests written again for Triton: what it reads is checked, and means what the client sent."""

from __future__ import annotations

import json
import struct

import pytest

from container.server.triton.kserve_request import checked_request
from container.server.types import RequestFault

BINARY = "application/vnd.sagemaker-triton.binary+json"


def tensor(**fields: object) -> dict[str, object]:
    return {"name": "text", "shape": [2, 1], "datatype": "BYTES", "data": ["a", "b"]} | fields


def rewrite(*inputs: dict[str, object], **fields: object) -> dict[str, object]:
    body = json.dumps({"inputs": list(inputs), **fields}).encode()
    checked, kind = checked_request(body, "application/json")
    assert kind == "application/json"
    return json.loads(checked)


def binary(tail: bytes, **fields: object) -> tuple[bytes, str]:
    parameters = {"parameters": {"binary_data_size": len(tail)}}
    record = {"name": "text", "shape": [2, 1], "datatype": "BYTES"} | parameters | fields
    header = json.dumps({"inputs": [record]}).encode()
    return header + tail, f"{BINARY};json-header-size={len(header)}"


def prefixed(*texts: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)


def test_json_request_keeps_all_that_kserve_has_and_nothing_else():
    outputs = {"outputs": [{"name": "embedding", "parameters": {"binary_data": True}}], "id": "7"}
    more = {"parameters": {"timeout": 5}, "unknown": [1]}
    parameters = {"priority": 2}
    assert rewrite(tensor(parameters=parameters, extra=1), **outputs, **more) == {
        "inputs": [tensor(parameters=parameters)],
        **outputs,
        "parameters": {"timeout": 5},
    }


def test_key_that_is_there_twice_is_written_once():
    body = json.dumps({"inputs": [tensor()]}).encode()
    checked, _ = checked_request(b'{"inputs": 5, ' + body[1:], "application/json")
    assert checked.count(b'"inputs"') == 1 and json.loads(checked)["inputs"] == [tensor()]


@pytest.mark.parametrize(
    ("body", "kind"),
    [(b"", ""), (b"", "application/json"), (b"raw", f"{BINARY};json-header-size=0")],
)
def test_raw_input_is_passed_on(body, kind):
    assert checked_request(body, kind) == (body, f"{BINARY};json-header-size=0")


@pytest.mark.parametrize(
    ("tail", "sentence"),
    [
        (prefixed(b"a") + struct.pack("<I", 9) + b"b", "byte 5 announces more bytes"),
        (prefixed(b"a") + b"\0\0", "byte 5 announces more bytes"),
        (prefixed(b"a"), "has shape [2, 1] but 1 values"),
        (prefixed(b"a", b"b", b"c"), "has shape [2, 1] but 3 values"),
        (struct.pack("<I", 2**32 - 1) + b"a", "byte 0 announces more bytes"),
    ],
)
def test_refuses_texts_whose_lengths_lie(tail, sentence):
    with pytest.raises(RequestFault) as fault:
        checked_request(*binary(tail))
    assert sentence in str(fault.value)


@pytest.mark.parametrize(
    "fault",
    [
        {"shape": [-1, 1]},
        {"shape": [2**40]},
        {"shape": [1] * 17},
        {"shape": [True, 2]},
        {"shape": [3, 1]},
        {"shape": None},
        {"datatype": "TEXT"},
        {"datatype": ["BYTES"]},
        {"datatype": "FP32"},
        {"data": ["a", 1]},
        {"data": ["a", ["b"]]},
        {"data": "ab"},
        {"name": 5},
        {"parameters": {"shared_memory_region": "x"}},
        {"parameters": {"nested": {}}},
        {"parameters": 5},
        {"parameters": {"binary_data": 1}},
        {"parameters": {"priority": -1}},
        {"parameters": {"timeout": True}},
    ],
    ids=str,
)
def test_refuses_tensors_that_are_none(fault):
    with pytest.raises(RequestFault):
        rewrite(tensor(**fault))


def test_refuses_an_input_or_an_output_twice():
    with pytest.raises(RequestFault, match="there twice"):
        rewrite(tensor(), tensor())
    with pytest.raises(RequestFault, match="there twice"):
        rewrite(tensor(), outputs=[{"name": "a"}, {"name": "a"}])


BEYOND_INT64 = "'n' holds a number that INT64 cannot"
BEYOND_TABLE = "'n' holds {}, and the network looks its values up in a table of 4 rows"


def numbers(values, datatype="INT64"):
    return tensor(name="n", shape=[len(values)], datatype=datatype, data=values)


@pytest.mark.parametrize(
    ("datatype", "values", "sentence"),
    [
        ("INT64", [2**63], BEYOND_INT64),
        ("INT64", [-(2**63), 2**63 - 1], None),
        ("INT8", [0, -129], "holds a number that INT8 cannot"),
        ("UINT16", [-1], "holds a number that UINT16 cannot"),
        ("FP32", [1, -1e39], "holds a number that FP32 cannot"),
        ("FP32", [1, 3.4e38], None),
        ("BF16", [1e39], None),
        ("BOOL", [True], None),
        ("INT64", [], None),
    ],
)
def test_numbers_are_those_that_their_datatype_holds(datatype, values, sentence):
    if sentence is None:
        assert rewrite(numbers(values, datatype))["inputs"] == [numbers(values, datatype)]
        return
    with pytest.raises(RequestFault, match=sentence):
        rewrite(numbers(values, datatype))


@pytest.mark.parametrize("values", [[-4, 3], [4], [0, 2**40], [-5], []])
@pytest.mark.parametrize("is_binary", [False, True])
def test_refuses_an_index_beyond_a_networks_table(values, is_binary):
    body, kind = json.dumps({"inputs": [numbers(values)]}).encode(), "application/json"
    if is_binary:
        tail = struct.pack(f"<{len(values)}q", *values)
        body, kind = binary(tail, name="n", shape=[len(values)], datatype="INT64")
    wrong = [value for value in values if not -4 <= value < 4]
    if not wrong:
        assert checked_request(body, kind, {"n": 4}) == checked_request(body, kind)
        return
    with pytest.raises(RequestFault, match=BEYOND_TABLE.format(*wrong)):
        checked_request(body, kind, {"n": 4})
    assert checked_request(body, kind, {"other": 4}) == checked_request(body, kind)


def test_refuses_a_raw_body_whose_indexes_nobody_can_check():
    with pytest.raises(RequestFault, match="no header, so nobody can check the values of n;"):
        checked_request(b"raw", f"{BINARY};json-header-size=0", {"n": 4})
