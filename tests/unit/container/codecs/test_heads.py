"""Requests and answers of models with heads, as bytes."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest

from container.server.codecs.envelope import BINARY_TYPE
from container.server.codecs.heads import decode_request, encode_response
from container.server.types import HeadSignature, RequestFault
from container.wire import arrays_of, pair_request
from onboarding.manifest import TensorRecord

TEXT = TensorRecord(name="text", datatype="BYTES", shape=(-1, 1))
QUERY = TensorRecord(name="query", datatype="BYTES", shape=(-1, 1))


def record(name, datatype, *shape):
    return TensorRecord(name=name, datatype=datatype, shape=(-1, *shape))


CLASSIFIER = HeadSignature(
    model="tiny",
    task="text-classification",
    inputs=(TEXT,),
    outputs=(
        record("logits", "FP32", 2),
        record("labels", "BYTES", 2),
        record("scores", "FP32", 2),
    ),
    labels=("ja", "nö"),
    activation="softmax",
)
RANKER = HeadSignature(
    model="tiny",
    task="text-ranking",
    inputs=(QUERY, TEXT),
    outputs=(record("scores", "FP32", 1),),
    labels=None,
    activation="identity",
)
TAGGER = HeadSignature(
    model="tiny",
    task="token-classification",
    inputs=(TEXT,),
    outputs=(
        record("labels", "BYTES", -1),
        record("scores", "FP32", -1),
        record("offsets", "INT64", -1, 2),
    ),
    labels=("O", "B-X"),
    activation="softmax",
)
LOGITS = np.array([[0.0, 4.0], [4.0, 0.0]], np.float32)


def tensor(name, texts):
    return {"name": name, "shape": [len(texts), 1], "datatype": "BYTES", "data": texts}


def body_of(**document):
    return json.dumps(document).encode()


@pytest.mark.parametrize("binary", [False, True])
def test_pairs_are_read_in_either_order_of_their_tensors(binary):
    body, content_type = pair_request("wer?", ["ich", "dü"], binary=binary)
    assert decode_request(body, content_type, RANKER).rows == [("wer?", "ich"), ("wer?", "dü")]
    turned = body_of(inputs=[tensor("text", ["b"]), tensor("query", ["a"])])
    assert decode_request(turned, "", RANKER).rows == [("a", "b")]


def test_plain_ranking_has_one_query_and_answers_the_best_first():
    request = decode_request(body_of(query="a", texts=["b", "c"]), "", RANKER)
    assert (request.rows, request.dialect) == ([("a", "b"), ("a", "c")], "plain")
    body, _ = encode_response([np.array([[1.0], [2.0]], np.float32)], request, RANKER)
    assert json.loads(body) == {"outputs": [{"index": 1, "score": 2.0}, {"index": 0, "score": 1.0}]}


def test_plain_labels_are_cut_to_the_first():
    body = body_of(inputs=["a", "b"], parameters={"top_k": 1})
    request = decode_request(body, "", CLASSIFIER)
    answer = json.loads(encode_response([LOGITS], request, CLASSIFIER)[0])["outputs"]
    assert [[row["label"] for row in rows] for rows in answer] == [["nö"], ["ja"]]


@pytest.mark.parametrize("binary", [False, True])
def test_labels_and_scores_are_tensors(binary):
    wanted = [
        {"name": name, "parameters": {"binary_data": binary}} for name in ("labels", "scores")
    ]
    request = decode_request(
        body_of(inputs=[tensor("text", ["a", "b"])], outputs=wanted), "", CLASSIFIER
    )
    arrays = arrays_of(*encode_response([LOGITS], request, CLASSIFIER))
    assert list(arrays) == ["labels", "scores"]
    assert arrays["labels"].tolist() == [["nö", "ja"], ["ja", "nö"]]
    assert np.allclose(arrays["scores"][:, 0], 1 / (1 + np.exp(-4)))


def test_tokens_are_cut_to_those_of_their_texts():
    request = decode_request(body_of(inputs=["ab c", "d"]), "", TAGGER)
    request.rows[0].spans = np.array([[-1, -1], [0, 2], [3, 4], [-1, -1]])
    request.rows[1].spans = np.array([[-1, -1], [0, 1], [-1, -1]])
    classes = np.ones((2, 9), np.int32)
    classes[0, 1] = 0
    scores = np.full((2, 9), 0.75, np.float32)
    answer = json.loads(encode_response([classes, scores], request, TAGGER)[0])["outputs"]
    one = {"entity": "B-X", "score": 0.75}
    assert answer == [
        [one | {"word": "c", "start": 3, "end": 4}],
        [one | {"word": "d", "start": 0, "end": 1}],
    ]


@pytest.mark.parametrize(
    ("signature", "document", "says"),
    [
        (RANKER, {"texts": ["a"]}, '"query" is null'),
        (RANKER, {"query": "a", "texts": "b"}, '"texts" must be a list of texts'),
        (RANKER, {"query": "a", "texts": ["b", 1]}, '"texts" must be a list of texts'),
        (RANKER, {"inputs": ["a"]}, "a list of two tensors, 'query' and 'text'"),
        (RANKER, {"inputs": [tensor("text", ["a"])]}, "the model takes 'query' and 'text'"),
        (
            RANKER,
            {"inputs": [tensor("query", ["a"]), tensor("text", ["b", "c"])]},
            "different numbers of rows: 'query' 1, 'text' 2",
        ),
        (CLASSIFIER, {}, 'has no "inputs"'),
        (CLASSIFIER, {"inputs": ["a"], "parameters": {"top_k": 0}}, '"top_k" is 0'),
        (TAGGER, {"inputs": ["a"], "parameters": {"top_k": 2}}, "only a classifier"),
        (CLASSIFIER, {"inputs": ["a"], "parameters": []}, '"parameters" must be an object'),
    ],
)
def test_refuses_what_is_no_request(signature, document, says):
    with pytest.raises(RequestFault) as fault:
        decode_request(body_of(**document), "", signature)
    assert says in str(fault.value)


def test_refuses_bytes_that_no_tensor_of_a_pair_claims():
    piece = struct.pack("<I", 1) + b"a"
    inputs = [
        {"name": name, "shape": [1, 1], "datatype": "BYTES"}
        | {"parameters": {"binary_data_size": len(piece)}}
        for name in ("query", "text")
    ]
    header = body_of(inputs=inputs)
    kind = f"{BINARY_TYPE};json-header-size={len(header)}"
    assert decode_request(header + piece * 2, kind, RANKER).rows == [("a", "a")]
    for tail in (piece, piece * 2 + b"x"):
        with pytest.raises(RequestFault):
            decode_request(header + tail, kind, RANKER)
