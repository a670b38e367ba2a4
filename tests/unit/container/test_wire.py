"""The server's codecs read what the client writes, and the other way round."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from container.server.codecs import tensors, texts
from container.wire import (
    AnswerFault,
    InputFault,
    array_request,
    arrays_of,
    error_sentence,
    rows_of,
    text_request,
)
from tests.unit.container.signatures import record, tensor_signature, text_signature

TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, max_size=5)
SIGNATURE = text_signature()


def signature(**tensors):
    records = [record(name, *fields) for name, fields in tensors.items()]
    return tensor_signature(records, records)


@given(TEXTS, st.booleans())
def test_texts_arrive_as_they_were_sent(sent, binary):
    request = texts.decode_request(*text_request(sent, binary=binary), SIGNATURE)
    assert (list(request.rows), request.wanted) == (sent, ((0, binary),))


@pytest.mark.parametrize("binary", [True, False])
def test_arrays_arrive_as_they_were_sent_and_come_back(binary):
    sent = {
        "signal": np.arange(12, dtype=np.float32).reshape(2, 3, 2),
        "gain": np.array([5, -7]),
        "on": np.array([[True], [False]]),
        "half": np.array([[0.5], [2.0]], np.float16),
    }
    model = signature(signal=("FP32", 3, 2), gain=("INT64", 1), on=("BOOL", 1), half=("FP16", 1))
    request = tensors.decode_request(*array_request(sent, binary=binary), model)
    stacked = [np.stack(column) for column in zip(*request.rows, strict=True)]
    received = arrays_of(*tensors.encode_response(stacked, request, model))
    for name, array in sent.items():
        assert received[name].dtype == array.dtype
        assert received[name].reshape(-1).tolist() == array.reshape(-1).tolist()


@pytest.mark.parametrize("array", [np.array([1j]), np.array(["2020-01-01"], "datetime64[D]")])
def test_refuses_an_array_that_the_protocol_does_not_have(array):
    with pytest.raises(ValueError, match="KServe v2 has no"):
        array_request({"x": array})


NO_DATA = b'{"outputs": [{"name": "a", "shape": [1], "datatype": "FP32"}]}\0'


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"", ""),
        (b"[]", ""),
        (b'{"outputs": [{"name": "a", "shape": [2], "data": [1]}]}', ""),
        (b'{"outputs": [{"name": "a", "shape": [1], "datatype": "FP99", "data": [1]}]}', ""),
        (b"{}", "x;json-header-size=no"),
        (NO_DATA, "x;json-header-size=62"),
    ],
)
def test_refuses_an_answer_that_cannot_be_read(body, content_type):
    with pytest.raises(AnswerFault, match="cannot be read"):
        arrays_of(body, content_type)


def test_refuses_to_guess_an_output():
    output = {"shape": [1], "datatype": "FP32", "data": [1]}
    body = json.dumps({"outputs": [output | {"name": name} for name in "ab"]}).encode()
    with pytest.raises(AnswerFault, match="should have one output, it has 'a', 'b'"):
        rows_of(body, "")


def test_a_refusal_is_one_sentence():
    assert error_sentence(b'{"error": "Too\\nlong."}') == "Too long."
    assert error_sentence(b"<html>no</html>") == "<html>no</html>"
    assert error_sentence(b'{"error": {"message": "No model.", "code": 404}}') == "No model."
    assert len(error_sentence("x" * 900)) == 300


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        (["a", None], r"text\[1\] is 'None', a NoneType"),
        ([3.5], r"text\[0\] is '3.5', a float"),
        (["a\udcff"], r"text\[0\] is no Unicode"),
        ([b"\xff"], r"text\[0\] is no Unicode"),
    ],
)
def test_refuses_to_send_what_is_no_text(texts, sentence, binary):
    with pytest.raises(InputFault, match=sentence):
        text_request(texts, binary=binary)
