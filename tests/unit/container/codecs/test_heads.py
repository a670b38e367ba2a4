"""Requests and answers of models with heads, as bytes."""

from __future__ import annotations

import json
import struct

import pytest

from container.server.codecs.envelope import BINARY_TYPE
from container.server.codecs.heads import decode_request
from container.server.types import RequestFault, Signature
from container.wire import pair_request
from tests.unit.container.signatures import TEXT, record

QUERY = record("query", "BYTES", 1)
CLASSIFIER = Signature(
    form="heads",
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
RANKER = Signature(
    form="heads",
    model="tiny",
    task="text-ranking",
    inputs=(QUERY, TEXT),
    outputs=(record("scores", "FP32", 1),),
    labels=None,
    activation="identity",
)
TAGGER = Signature(
    form="heads",
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
