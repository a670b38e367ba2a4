"""The other tasks on every server.

Classes by their logits, and tensors of several shapes and datatypes.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from container import wire
from tests.contract.conftest import rows
from tests.contract.replies import KINDS
from tests.contract.requests import json_request
from tests.fixtures.tiny_embedder.archive import ARITHMETIC, CLASSIFIER

TEXTS = ("the cat sat on the mat", "a dog", "a fast red train ran over the green track")
SIGNAL = np.arange(-6, 6, dtype=np.float32).reshape(3, 2, 2)
GAIN = np.array([[1], [2], [-3]], dtype=np.int64)
ARRAYS = {"signal": SIGNAL, "gain": GAIN}
TYPES = {"signal": "FP32", "gain": "INT64"}


def tensor_request(arrays, *, outputs=()):
    """KServe v2 JSON of several tensors."""
    inputs = [
        {"name": name, "shape": list(array.shape), "datatype": TYPES[name]}
        | {"data": array.reshape(-1).tolist()}
        for name, array in arrays.items()
    ]
    return json.dumps({"inputs": inputs, "outputs": outputs}).encode()


def arrays_of(answer):
    """Every output of an answer, by name."""
    assert answer.status == 200, answer.body
    return wire.arrays_of(answer.body, answer.headers["content-type"])


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
    check(arrays_of(arithmetic.ask(*wire.array_request(ARRAYS))))


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
