"""Tensors as bytes: what is written is read back in every datatype.

Nothing malformed gets past as anything but a fault.
"""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from container.server.codecs.envelope import BINARY_TYPE
from container.server.codecs.tensors import (
    DATATYPES,
    TensorRows,
    decode_request,
    encode_response,
)
from container.server.types import InferenceRequest, RequestFault
from tests.unit.container.signatures import record, tensor_signature


def signature(datatype="FP32"):
    inputs = record("x", datatype, 2, -1), record("scale", "INT64", 1)
    return tensor_signature(inputs, (record("y", datatype, 2), record("count", "INT64", 1)))


def tensor(**changes):
    return {"name": "x", "shape": [1, 2, 2], "datatype": "FP32", "data": [1, 2.5, 3, 4]} | changes


SCALE = {"name": "scale", "shape": [1, 1], "datatype": "INT64", "data": [7]}


def body(*tensors, **changes):
    return json.dumps({"inputs": list(tensors or (tensor(), SCALE))} | changes).encode()


def binary(arrays, *, sizes=None, datatype="FP32", tail=b""):
    data = [array.tobytes() for array in arrays]
    sizes = map(len, data) if sizes is None else sizes
    described = zip((("x", datatype), ("scale", "INT64")), arrays, sizes, strict=True)
    inputs = [
        {"name": name, "shape": list(array.shape), "datatype": kind}
        | {"parameters": {"binary_data_size": size}}
        for (name, kind), array, size in described
    ]
    header = json.dumps({"inputs": inputs}).encode()
    return header + b"".join(data) + tail, f"{BINARY_TYPE};json-header-size={len(header)}"


@pytest.mark.parametrize("datatype", DATATYPES)
def test_tensors_of_every_datatype_are_read_back_in_json_and_binary(datatype):
    values = np.array([[[0, 1, 1], [1, 0, 1]], [[1, 1, 0], [0, 0, 1]]]).astype(DATATYPES[datatype])
    scale = np.array([[3], [-4]], np.int64)
    listed = {"name": "x", "shape": [2, 2, 3], "datatype": datatype, "data": values.tolist()}
    others = {"name": "scale", "shape": [2, 1], "datatype": "INT64", "data": [3, -4]}
    for request in (
        decode_request(body(listed, others), "application/json", signature(datatype)),
        decode_request(body(others, listed), "application/json", signature(datatype)),
        decode_request(*binary([values, scale], datatype=datatype), signature(datatype)),
    ):
        x, second = map(np.stack, zip(*request.rows, strict=True))
        assert np.array_equal(x, values) and x.dtype == values.dtype
        assert np.array_equal(second, scale)
        assert len(request.rows) == 2


def in_json(values):
    return body(tensor(), SCALE | {"data": values.reshape(-1).tolist()}), ""


def in_binary(values):
    return binary([np.ones((1, 2, 2), np.float32), values])


@pytest.mark.parametrize("encode", [in_json, in_binary])
def test_refuses_an_index_beyond_a_networks_table(encode):
    known = signature()
    table = known.inputs[1].model_copy(update={"table_rows": 4})
    model = dataclasses.replace(known, inputs=(known.inputs[0], table))
    for value, is_row in ((-5, False), (-4, True), (3, True), (4, False), (2**62, False)):
        request = encode(np.array([[value]]))
        if is_row:
            assert decode_request(*request, model).rows[0][1] == value
            continue
        sentence = rf"'scale' holds {value}, and .* a table of 4 rows; they must be from -4 to 3\."
        with pytest.raises(RequestFault, match=sentence):
            decode_request(*request, model)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (body(inputs="a"), "must be a list of tensors"),
        (body(tensor(name="z"), SCALE), "Unknown input 'z'; the model takes 'x', 'scale'"),
        (body(tensor()), "has 1 inputs; the model takes each of these once: 'x', 'scale'"),
        (body(tensor(), tensor()), "has 2 inputs; the model takes each of these once"),
        (body(tensor(datatype="FP64"), SCALE), "datatype 'FP64'; it must be 'FP32'"),
        (body(tensor(shape=[1, 4]), SCALE), r"shape \[1, 4\]; it must be \[-1, 2, -1\]"),
        (body(tensor(shape=[1, 4, 1]), SCALE), r"shape \[1, 4, 1\]; it must be \[-1, 2, -1\]"),
        (body(tensor(shape=[1, 2, 3]), SCALE), r"shape \[1, 2, 3\] but 4 values"),
        (body(tensor(shape=[-1, 2, 2]), SCALE), r"shape \[-1, 2, 2\]; it must be"),
        (body(tensor(data=None), SCALE), 'needs "data"'),
        (body(tensor(data=["1"] * 4), SCALE), "is FP32, so its data must be numbers"),
        (body(tensor(data=[True] * 4), SCALE), "is FP32, so its data must be numbers"),
        (body(tensor(data=[[1, 2], [3]]), SCALE), "lists differ in length"),
        (body(tensor(data=[1e39] * 4), SCALE), "holds a number that FP32 cannot"),
        (body(tensor(), SCALE | {"data": [1.5]}), "is INT64, so its data must be whole numbers"),
        (body(tensor(), SCALE | {"data": [2**63]}), "holds a number that INT64 cannot"),
        (body(tensor(), SCALE | {"data": [2**80]}), "is INT64, so its data must be whole numbers"),
        (
            body(tensor(), SCALE | {"shape": [2, 1], "data": [1, 2]}),
            "different numbers of rows: 'x' 1, 'scale' 2",
        ),
        (body(tensor(), SCALE | {"data": [True]}), "is INT64, so its data must be whole numbers"),
        (body(tensor(shape=[2**62, 2, 4]), SCALE), "but 4 values"),
        (body(tensor(shape=[0, 2, 2**62], data=[]), SCALE), "larger than any array"),
        (body(tensor(shape=[0, 2, 2**63], data=[]), SCALE), "larger than any array"),
        (body(outputs=[{"name": "y"}] * 2), "asks for the same output twice"),
    ],
)
def test_refuses_malformed_json(data, sentence):
    with pytest.raises(RequestFault, match=sentence):
        decode_request(data, "application/json", signature())


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"sizes": [17, 8]}, "binary_data_size 8 but the body carries 7"),
        ({"sizes": [17, 7]}, "has 17 bytes, no whole number of FP32 values"),
        ({"sizes": [12, 8]}, "4 bytes after its header that no input claims"),
        ({"sizes": [12, 12]}, r"shape \[1, 2, 2\] but 3 values"),
        ({"sizes": [16, 99]}, "'scale' has binary_data_size 99 but the body carries 8 more bytes"),
        ({"sizes": [-1, 8]}, "binary_data_size -1"),
        ({"tail": b"more"}, "carries 4 bytes after its header that no input claims"),
    ],
)
def test_refuses_malformed_binary(changes, sentence):
    arrays = [np.zeros((1, 2, 2), np.float32), np.zeros((1, 1), np.int64)]
    with pytest.raises(RequestFault, match=sentence):
        decode_request(*binary(arrays, **changes), signature())


def test_answer_has_null_where_json_has_no_word_and_the_binary_the_number():
    arrays = (np.array([[np.nan, np.inf]], np.float32), np.ones((1, 1), np.int64))
    json_data, binary_data = (
        encode_response(
            arrays, InferenceRequest(rows=TensorRows(arrays), wanted=((0, is_binary),)), signature()
        )[0]
        for is_binary in (False, True)
    )
    assert json.loads(json_data)["outputs"][0]["data"] == [None, None]
    assert binary_data.endswith(arrays[0].tobytes())


@pytest.mark.parametrize(
    "changes",
    [
        {"parameters": {"binary_data_output": "yes"}},
        {"parameters": {"binary_data_output": 1}},
        {"outputs": [{"name": "y", "parameters": {"binary_data": "false"}}]},
    ],
)
def test_refuses_a_binary_parameter_that_is_no_boolean(changes):
    sentence = r'"binary_data(_output)?" is .*; it must be true or false\.$'
    with pytest.raises(RequestFault, match=sentence):
        decode_request(body(**changes), "", signature())
