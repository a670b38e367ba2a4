"""The other tasks on every server.

Classes by their logits, and tensors of several shapes and datatypes.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.contract.conftest import rows
from tests.contract.replies import KINDS
from tests.contract.requests import BINARY_TYPE, json_request
from tests.fixtures.tiny_embedder.archive import ARITHMETIC, CLASSIFIER

TEXTS = ("the cat sat on the mat", "a dog", "a fast red train ran over the green track")
SIGNAL = np.arange(-6, 6, dtype=np.float32).reshape(3, 2, 2)
GAIN = np.array([[1], [2], [-3]], dtype=np.int64)
ARRAYS = {"signal": SIGNAL, "gain": GAIN}
TYPES = {"signal": "FP32", "gain": "INT64"}
NUMPY = {"FP32": np.float32, "INT64": np.int64, "BOOL": np.bool_}


def tensor_request(arrays, *, outputs=(), **changes):
    """KServe v2 JSON of several tensors; `changes` replace fields of the first."""
    inputs = [
        {"name": name, "shape": list(array.shape), "datatype": TYPES[name]}
        | {"data": array.reshape(-1).tolist()}
        for name, array in arrays.items()
    ]
    inputs[0] |= changes
    return json.dumps({"inputs": inputs, "outputs": outputs}).encode()


def binary_tensor_request(arrays):
    """The binary extension for every tensor, in and out."""
    inputs = [
        {"name": name, "shape": list(array.shape), "datatype": TYPES[name]}
        | {"parameters": {"binary_data_size": array.nbytes}}
        for name, array in arrays.items()
    ]
    header = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    tail = b"".join(array.tobytes() for array in arrays.values())
    return header + tail, f"{BINARY_TYPE};json-header-size={len(header)}"


def arrays_of(answer):
    """Every output of an answer, by name."""
    assert answer.status == 200, answer.body
    size = int(answer.headers["content-type"].partition("json-header-size=")[2] or len(answer.body))
    header, tail = answer.body[:size], answer.body[size:]
    arrays = {}
    for output in json.loads(header)["outputs"]:
        dtype = NUMPY[output["datatype"]]
        if "data" in output:
            values = np.array(output["data"], dtype)
        else:
            length = output["parameters"]["binary_data_size"]
            values, tail = np.frombuffer(tail[:length], dtype), tail[length:]
        arrays[output["name"]] = values.reshape(output["shape"])
    return arrays


def check(outputs, inputs=ARRAYS):
    """The three outputs are those of the network."""
    scaled = inputs["signal"] * inputs["gain"][:, :, None]
    assert list(outputs) == ["scaled", "positive", "count"]
    assert np.array_equal(outputs["scaled"], scaled)
    assert np.array_equal(outputs["positive"], scaled > 0)
    assert np.array_equal(outputs["count"], (scaled > 0).sum(axis=(1, 2))[:, None])


@pytest.fixture(params=KINDS)
def arithmetic(request, launched):
    return launched(request.param, ARITHMETIC)


def test_texts_are_answered_with_the_same_logits_everywhere(launched):
    ours, *others = [
        rows(launched(kind, CLASSIFIER).ask(json_request(TEXTS)), "logits") for kind in KINDS
    ]
    assert ours.shape == (len(TEXTS), 3) and len(np.unique(ours)) == ours.size
    assert all(np.allclose(ours, logits, atol=1e-5) for logits in others)


def test_tensors_are_answered_in_json(arithmetic):
    check(arrays_of(arithmetic.ask(tensor_request(ARRAYS))))


def test_tensors_are_answered_in_binary(arithmetic):
    body, content_type = binary_tensor_request(ARRAYS)
    check(arrays_of(arithmetic.ask(body, content_type)))


def test_client_chooses_among_the_outputs(arithmetic):
    wanted = [{"name": "count"}, {"name": "scaled", "parameters": {"binary_data": True}}]
    outputs = arrays_of(arithmetic.ask(tensor_request(ARRAYS, outputs=wanted)))
    assert sorted(outputs) == ["count", "scaled"]
    assert np.array_equal(outputs["scaled"], SIGNAL * GAIN[:, :, None])


def test_concurrent_clients_with_tensors_of_two_shapes_get_their_own_answers(arithmetic):
    requests = [
        {
            "signal": np.full((1 + n % 3, 2, 1 + n % 2), n - 20, np.float32),
            "gain": np.full((1 + n % 3, 1), 2),
        }
        for n in range(60)
    ]
    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(lambda arrays: arithmetic.ask(tensor_request(arrays)), requests))
    for arrays, answer in zip(requests, answers, strict=True):
        check(arrays_of(answer), arrays)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "noise"},
        {"datatype": "FP64"},
        {"shape": [3, 4]},
        {"shape": [3, 1, 4]},
        {"shape": [2, 2, 2]},
        {"data": [1.0]},
        {"data": ["1"] * 12},
    ],
    ids=["unknown-input", "datatype", "rank", "fixed-axis", "rows", "too-few-values", "texts"],
)
def test_refuses_wrong_tensors(arithmetic, changes):
    answer = arithmetic.ask(tensor_request(ARRAYS, **changes))
    assert answer.status == 400, answer.body
    assert list(json.loads(answer.body)) == ["error"]
    check(arrays_of(arithmetic.ask(tensor_request(ARRAYS))))


def test_refuses_an_input_too_few_with_400(arithmetic):
    assert arithmetic.ask(tensor_request({"signal": SIGNAL})).status == 400
