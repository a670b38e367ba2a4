"""What every server owes its clients, asked of all alike.

Where they differ, `exchanges` has the table.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from container.client import rows_of
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


def rows(answer):
    """The vectors of an answer that is one."""
    assert answer.status == 200, answer.body
    return rows_of(answer.body, answer.headers["content-type"], "embedding")


def test_ping_is_healthy_once_the_engine_answers(served):
    assert served.client.request("GET", "/ping").status == 200


def test_json_answer_is_a_unit_vector_per_text(served):
    vectors = rows(served.ask(json_request(TEXTS)))
    assert vectors.shape == (len(TEXTS), SIZE)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_json_answer_names_its_tensor_and_echoes_the_id(served):
    document = json.loads(served.ask(json_request(["a dog"], id="seven")).body)
    assert document["id"] == "seven"
    assert [
        (output["name"], output["datatype"], output["shape"]) for output in document["outputs"]
    ] == [("embedding", "FP32", [1, SIZE])]


def test_binary_answer_equals_json_answer(served):
    answer = served.ask(*binary_request([text.encode() for text in TEXTS]))
    assert answer.headers["content-type"].startswith(
        "application/vnd.sagemaker-triton.binary+json;json-header-size="
    )
    assert np.array_equal(rows(answer), rows(served.ask(json_request(TEXTS))))


def test_binary_request_may_ask_for_a_json_answer(served):
    answer = served.ask(*binary_request([b"a dog"], binary_answer=False))
    assert answer.headers["content-type"] == "application/json"
    assert np.array_equal(rows(answer), rows(served.ask(json_request(["a dog"]))))


def test_batch_answers_equal_single_answers(served):
    together = rows(served.ask(json_request(TEXTS)))
    alone = np.concatenate([rows(served.ask(json_request([text]))) for text in TEXTS])
    assert np.allclose(together, alone, atol=1e-6)


def test_long_text_is_cut_at_the_longest_sequence(served):
    exact, longer = "cat " * 30, "cat " * 30 + "train " * 200
    assert np.allclose(
        rows(served.ask(json_request([exact]))), rows(served.ask(json_request([longer]))), atol=1e-6
    )


def test_concurrent_clients_get_their_own_answers(served):
    expected = {text: rows(served.ask(json_request([text]))) for text in TEXTS}
    asked = [TEXTS[index % len(TEXTS)] for index in range(200)]
    with ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(lambda text: rows(served.ask(json_request([text]))), asked))
    assert all(
        np.allclose(answer, expected[text], atol=1e-6)
        for text, answer in zip(asked, answers, strict=True)
    )


def test_bad_request_leaves_its_neighbours_alone(served):
    bad = binary_request([b"\xff"])
    expected = rows(served.ask(json_request(["a dog"])))
    with ThreadPoolExecutor(8) as clients:
        answers = list(
            clients.map(
                lambda odd: served.ask(*bad) if odd else served.ask(json_request(["a dog"])),
                [0, 1] * 40,
            )
        )
    assert {answer.status for answer in answers[1::2]} == {400}
    assert all(np.allclose(rows(answer), expected, atol=1e-6) for answer in answers[::2])


def test_all_servers_give_the_same_vectors(launched):
    ours, *others = [rows(launched(kind).ask(json_request(TEXTS))) for kind in KINDS]
    assert all(np.allclose(ours, theirs, atol=1e-6) for theirs in others)


def test_refuses_a_body_beyond_the_limit(launched):
    server = launched("python-server")
    answer = server.ask(b" " * 6_291_457)
    assert (answer.status, json.loads(answer.body)) == (
        413,
        {"error": "The request has more than 6291456 bytes."},
    )
    assert server.client.request("GET", "/ping").status == 200
