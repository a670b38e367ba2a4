"""What every server owes its clients; where they differ, `exchanges` has the table."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tests.contract.conftest import rows
from tests.contract.replies import KINDS
from tests.contract.requests import binary_request, json_request
from tests.fixtures.tiny_embedder.archive import SIZE

TEXTS = (
    "the cat sat on the mat",
    "a dog",
    "a fast red train ran over the green track",
    "ünïcode 火車",
    "",
)


def test_json_answer_names_its_tensor_and_echoes_the_id(server):
    document = json.loads(server.ask(json_request(["a dog"], id="seven")).body)
    (output,) = document["outputs"]
    assert (document["id"], output["name"]) == ("seven", "embedding")
    assert (output["datatype"], output["shape"]) == ("FP32", [1, SIZE])


def test_binary_answer_equals_json_answer(server):
    answer = server.ask(*binary_request([text.encode() for text in TEXTS]))
    assert answer.headers["content-type"].startswith(
        "application/vnd.sagemaker-triton.binary+json;json-header-size="
    )
    assert np.array_equal(rows(answer), rows(server.ask(json_request(TEXTS))))


def test_batch_answers_equal_single_answers(server):
    together = rows(server.ask(json_request(TEXTS)))
    alone = np.concatenate([rows(server.ask(json_request([text]))) for text in TEXTS])
    assert np.allclose(together, alone, atol=1e-6)


def test_concurrent_clients_get_their_own_answers(server):
    expected = {text: rows(server.ask(json_request([text]))) for text in TEXTS}
    texts = TEXTS * 40
    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(lambda text: rows(server.ask(json_request([text]))), texts))
    for text, answer in zip(texts, answers, strict=True):
        assert np.allclose(answer, expected[text], atol=1e-6)


def test_all_servers_give_the_same_vectors(launched):
    ours, *others = [rows(launched(kind).ask(json_request(TEXTS))) for kind in KINDS]
    assert all(np.allclose(ours, theirs, atol=1e-6) for theirs in others)
