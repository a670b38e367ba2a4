"""Requests and answers as bytes.

What is written is read back, and nothing malformed gets past as anything but a RequestFault.
"""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from container.server.codecs.envelope import BINARY_TYPE
from container.server.codecs.texts import decode_request
from container.server.types import InferenceRequest, RequestFault
from tests.unit.container.signatures import text_signature

SIGNATURE = text_signature()
TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=6)


def tensor(**changes):
    return {"name": "text", "shape": [2, 1], "datatype": "BYTES", "data": ["a", "b"]} | changes


def body(**changes):
    return json.dumps({"inputs": [tensor()]} | changes).encode()


def binary(texts, *, tail=None, size=None, header_size=None, **changes):
    if tail is None:
        tail = b"".join(struct.pack("<I", len(text)) + text for text in texts)
    described = {
        "name": "text",
        "shape": [len(texts), 1],
        "datatype": "BYTES",
        "parameters": {"binary_data_size": len(tail) if size is None else size},
    }
    header = json.dumps({"inputs": [described | changes]}).encode()
    header_size = len(header) if header_size is None else header_size
    return header + tail, f"{BINARY_TYPE};json-header-size={header_size}"


@given(TEXTS)
def test_json_texts_are_read_back(texts):
    for data, shape in (
        (texts, [len(texts)]),
        (texts, [len(texts), 1]),
        ([[text] for text in texts], [len(texts), 1]),
    ):
        request = body(inputs=[tensor(data=data, shape=shape)])
        assert decode_request(request, "application/json", SIGNATURE).rows == tuple(texts)


def test_request_names_the_form_of_its_answer():
    output = {"name": "embedding", "parameters": {"binary_data": True}}
    request = decode_request(body(outputs=[output], id="7"), "", SIGNATURE)
    assert request == InferenceRequest(rows=("a", "b"), wanted=((0, True),), id="7")
    assert decode_request(body(parameters={"binary_data_output": True}), "", SIGNATURE).wanted[0][1]
    assert not decode_request(body(outputs=[{"name": "embedding"}]), "", SIGNATURE).wanted[0][1]


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[" * 5000, "not JSON"),
        (b'{"inputs": [NaN]}', "not JSON"),
        (b'{"inputs": ["\\ud800"]}', "not JSON"),
        (b'{"inputs": ["a"], "inputs": 1}', "must be a list of texts"),
        (b'{"inputs": %s1%s}' % (b"[" * 1000, b"]" * 1000), "must be a list of texts"),
        (b'{"inputs": [{"name": %s1%s}]}' % (b"[" * 1000, b"]" * 1000), "Unknown input"),
        (body(outputs=[{"name": "embedding"}] * 9), "names 9 outputs; the model gives 1"),
        (body(parameters={"timeout": 0.5}), "whole number of microseconds"),
        (body(parameters={"timeout": 2**60}), "whole number of microseconds"),
        (b"[]", "must be a JSON object, not a list"),
        (b"{}", 'no "inputs"'),
        (b'{"inputs": []}', "must be a list of texts or a list of one tensor"),
        (b'{"inputs": ["a", 1]}', "must be a list of texts or a list of one tensor"),
        (body(inputs=[tensor(), tensor()]), "one tensor named 'text'"),
        (body(inputs=[tensor(name="texts")]), "Unknown input 'texts'; the model takes 'text'"),
        (body(inputs=[tensor(name="x" * 500)]), r"Unknown input 'x+\.\.\."),
        (body(inputs=[tensor(datatype="FP32")]), "datatype 'FP32'; it must be 'BYTES'"),
        (body(inputs=[tensor(shape=[2, 2])]), r"shape \[2, 2\]; it must be"),
        (body(inputs=[tensor(shape=[-2])]), r"shape \[-2\]"),
        (body(inputs=[tensor(shape=[True, 1])]), "shape"),
        (body(inputs=[tensor(shape="2")]), "shape '2'"),
        (body(inputs=[tensor(shape=[3, 1])]), r"shape \[3, 1\] but 2 texts"),
        (body(inputs=[tensor(data=["a", 2])]), "holds a number where a text belongs"),
        (body(inputs=[tensor(data=None)]), 'needs "data"'),
        (
            body(inputs=[tensor(parameters={"binary_data_size": 4})]),
            "binary_data_size 4 but the body carries 0",
        ),
        (body(outputs=[{"name": "logits"}]), "Unknown output 'logits'"),
        (body(outputs="embedding"), '"outputs" must be a list'),
        (body(id=7), '"id" must be a string, not a number'),
    ],
)
def test_refuses_malformed_json(data, sentence):
    with pytest.raises(RequestFault, match=sentence):
        decode_request(data, "application/json", SIGNATURE)


@pytest.mark.parametrize(
    ("request_body", "sentence"),
    [
        (binary([b"a"], header_size="x"), "json-header-size is 'x'"),
        (binary([b"a"], header_size=9999), "from 0 to the body's"),
        (binary([b"a"], header_size=5), "not JSON"),
        (binary([b"a"], size=4), "binary_data_size 4 but the body carries 5"),
        (binary([b"a"], parameters={}), "bytes after its header that no input claims"),
        (binary([b"a\xff"]), "not UTF-8"),
        (binary([b"a", b"b"], shape=[1, 1]), r"shape \[1, 1\] but 2 texts"),
        (binary([b"a"], tail=b"\xff\xff\xff\xffa"), "ends inside a text"),
        ((b'{"inputs": "a"}x', f"{BINARY_TYPE};json-header-size=15"), "1 bytes after its header"),
    ],
)
def test_refuses_malformed_binary(request_body, sentence):
    with pytest.raises(RequestFault, match=sentence):
        decode_request(*request_body, SIGNATURE)


@pytest.mark.parametrize(
    "content_type",
    [
        "",
        "application/json; charset=utf-8",
        "APPLICATION/JSON",
        "application/x-www-form-urlencoded",
    ],
)
def test_json_is_read_under_the_types_that_clients_send(content_type):
    assert decode_request(b'{"inputs": ["", "a"]}', content_type, SIGNATURE).rows == ("", "a")
