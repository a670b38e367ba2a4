"""Captured bodies of every task and form, as samples and rows."""

from __future__ import annotations

import base64
import json
import struct
from pathlib import Path

import numpy as np
import pytest

from engine_build.captures.bodies import Body, Captured, Unreadable, captured_lines
from engine_build.captures.exchanges import read_request, read_rows
from engine_build.datasets.tensors import TensorEncoder
from engine_build.datasets.text import TextEncoder
from engine_build.onnx_graph.network_store import Network
from onboarding.manifest import Prompts, TensorRecord
from tests.unit.engine_build.pictures import picture_files
from tests.unit.engine_build.tiny import word_tokenizer

pytestmark = pytest.mark.unit
NONE = TensorEncoder(())


def network(*, inputs=("input_ids",), outputs=("it",), **fields):
    record = lambda name: TensorRecord(name=name, datatype="FP32", shape=(-1, 2))
    return Network(
        precision="float",
        path=Path("model.onnx"),
        inputs=tuple(map(record, inputs)),
        outputs=tuple(map(record, outputs)),
        facts=fields.pop("facts", {}),
        **fields,
    )


def body(document, content_type="application/json", tail=b""):
    data = json.dumps(document).encode()
    if tail:
        content_type = f"application/vnd.sagemaker-triton.binary+json;json-header-size={len(data)}"
    return Body(data=data + tail, content_type=content_type)


def tensor(name, datatype, data):
    values = np.array(data)
    return {
        "name": name,
        "datatype": datatype,
        "shape": list(values.shape),
        "data": values.reshape(-1).tolist(),
    }


def exchange(request, answer, of=None, task="text-embedding", encoder=NONE):
    of = network() if of is None else of
    found = read_request(Captured(request=request, answer=answer), of, task)
    return found.samples, read_rows(found, of, task, encoder).values.tolist()


VECTORS = [[1.0, 2.0], [3.0, 4.0]]
PLAIN = body({"inputs": ["a", "b"]})
KSERVE = body({"inputs": [tensor("text", "BYTES", [["a"], ["b"]])]})
TAIL = b"".join(struct.pack("<I", 1) + text for text in (b"a", b"b"))
BINARY = body(
    {
        "inputs": [
            {
                "name": "text",
                "datatype": "BYTES",
                "shape": [2, 1],
                "parameters": {"binary_data_size": len(TAIL)},
            }
        ]
    },
    tail=TAIL,
)
FLOATS = np.array(VECTORS, "<f4").tobytes()
BINARY_ANSWER = body(
    {
        "outputs": [
            {
                "name": "embedding",
                "datatype": "FP32",
                "shape": [2, 2],
                "parameters": {"binary_data_size": len(FLOATS)},
            }
        ]
    },
    tail=FLOATS,
)


@pytest.mark.parametrize("request_", [PLAIN, KSERVE, BINARY])
@pytest.mark.parametrize(
    "answer",
    [
        body({"outputs": VECTORS}),
        body({"outputs": [tensor("embedding", "FP32", VECTORS)]}),
        BINARY_ANSWER,
    ],
)
def test_embeddings_are_read_in_every_form(request_, answer):
    assert exchange(request_, answer) == (("a", "b"), VECTORS)


def test_texts_have_the_prompt_that_the_request_named():
    prompts = Prompts(texts={"query": "q: ", "passage": "p: "}, default_prompt_name="passage")
    of, answer = network(prompts=prompts), body({"outputs": VECTORS[:1]})
    named = body({"inputs": ["a"], "parameters": {"prompt_name": "query"}})
    assert exchange(named, answer, of)[0] == ("q: a",)
    assert exchange(body({"inputs": "a"}), answer, of)[0] == ("p: a",)


def test_scores_by_label_become_logits_in_the_networks_order():
    of = network(labels=("bad", "good"), facts={"activation": "softmax"})
    plain = [[{"label": "good", "score": 0.75}, {"label": "bad", "score": 0.25}]]
    answers = (
        body({"outputs": plain}),
        body(
            {
                "outputs": [
                    tensor("labels", "BYTES", [["good", "bad"]]),
                    tensor("scores", "FP32", [[0.75, 0.25]]),
                ]
            }
        ),
    )
    for answer in answers:
        _, rows = exchange(body({"inputs": "a"}), answer, of, "text-classification")
        assert np.exp(rows) == pytest.approx(np.array([[0.25, 0.75]]))


def test_rankings_are_read_back_into_the_order_of_the_texts():
    of = network(facts={"activation": "sigmoid"})
    request = body({"query": "q", "texts": ["a", "b"]})
    answer = body({"outputs": [{"index": 1, "score": 0.9}, {"index": 0, "score": 0.5}]})
    samples, rows = exchange(request, answer, of, "text-ranking")
    assert samples == (("q", "a"), ("q", "b"))
    assert rows == [[pytest.approx(0.0, abs=1e-9)], [pytest.approx(np.log(9))]]


def test_labels_of_tokens_stand_at_the_places_of_the_tokens(tmp_path):
    word_tokenizer().save(str(tmp_path / "tokenizer.json"))
    encoder = TextEncoder(
        tmp_path / "tokenizer.json",
        inputs=("input_ids", "attention_mask"),
        longest=8,
        answers_tokens=True,
    )
    of = network(labels=("O", "B"), tokenizer=tmp_path / "tokenizer.json")
    request = body({"inputs": ["red train", "cat"]})
    answer = body({"outputs": [tensor("labels", "BYTES", [["O", "B"], ["B", ""]])]})
    _, rows = exchange(request, answer, of, "token-classification", encoder)
    expected = np.zeros((2, 8, 2))
    expected[0, 1, 0] = expected[0, 2, 1] = expected[1, 1, 1] = 1
    assert np.array_equal(np.reshape(rows, expected.shape), expected)


def test_arrays_are_rows_of_each_input_and_outputs_side_by_side():
    of = network(inputs=("x", "y"), outputs=("s", "t"))
    request = body({"inputs": [tensor("y", "FP32", [[5.0]]), tensor("x", "INT64", [[1, 2]])]})
    answer = body({"outputs": [tensor("t", "FP32", [[3.0]]), tensor("s", "FP32", [[1.0, 2.0]])]})
    samples, rows = exchange(request, answer, of, "tensors")
    assert [samples[0][name].tolist() for name in ("x", "y")] == [[1, 2], [5.0]]
    assert rows == [[1.0, 2.0, 3.0]]


FILES = picture_files(2)
TEXTS = [base64.b64encode(file).decode() for file in FILES]
FILE_TAIL = b"".join(struct.pack("<I", len(file)) + file for file in FILES)
FILE_TENSOR = {
    "name": "image",
    "datatype": "BYTES",
    "shape": [2, 1],
    "parameters": {"binary_data_size": len(FILE_TAIL)},
}
GOOD = [{"label": "good", "score": 0.75}, {"label": "bad", "score": 0.25}]


@pytest.mark.parametrize(
    ("request_", "files"),
    [
        (Body(data=FILES[0], content_type="image/png"), FILES[:1]),
        (body({"inputs": TEXTS}), FILES),
        (body({"inputs": TEXTS[1]}), FILES[1:]),
        (body({"inputs": [tensor("image", "BYTES", TEXTS)]}), FILES),
        (body({"inputs": [FILE_TENSOR]}, tail=FILE_TAIL), FILES),
    ],
)
def test_images_are_read_in_every_form(request_, files):
    of = network(labels=("bad", "good"), facts={"activation": "softmax"})
    answer = body({"outputs": [GOOD] * len(files)})
    samples, rows = exchange(request_, answer, of, "image-classification")
    assert samples == tuple(files)
    assert np.exp(rows) == pytest.approx(np.array([[0.25, 0.75]] * len(files)))


@pytest.mark.parametrize(
    "request_",
    [
        Body(data=b"GIF89a", content_type="image/jpeg"),
        body({"inputs": ["no image"]}),
        body({"inputs": [1]}),
        Body(data=FILES[0], content_type="application/json"),
    ],
)
def test_refuses_what_is_no_image(request_):
    with pytest.raises(Unreadable, match=r"no images|no JPEG or PNG|no JSON"):
        exchange(request_, body({"outputs": [GOOD]}), task="image-classification")


REFUSED = {
    "no JSON": (Body(data=b"{", content_type=""), body({"outputs": VECTORS})),
    "no texts": (body({"inputs": [1, 2]}), body({"outputs": VECTORS})),
    "another number of rows": (PLAIN, body({"outputs": VECTORS[:1]})),
    "do not follow": (
        body({"inputs": [{"name": "text", "datatype": "FP9", "shape": [1], "data": [1]}]}),
        body({"outputs": VECTORS}),
    ),
}


@pytest.mark.parametrize("words", REFUSED)
def test_refuses_what_is_no_exchange_without_a_word_of_it(words):
    with pytest.raises(Unreadable, match=words):
        exchange(*REFUSED[words])


def test_refuses_answers_with_some_of_the_labels():
    of = network(labels=("bad", "good"), facts={"activation": "softmax"})
    answer = body({"outputs": [[{"label": "good", "score": 0.75}]]})
    with pytest.raises(Unreadable, match="some of the labels"):
        exchange(body({"inputs": "a"}), answer, of, "text-classification")


def test_lines_are_read_whatever_their_encoding_and_others_are_none():
    sides = {
        "endpointInput": {
            "data": base64.b64encode(b"\xff").decode(),
            "encoding": "BASE64",
            "observedContentType": "application/octet-stream",
        },
        "endpointOutput": {"data": "{}", "encoding": "JSON"},
    }
    lines = [json.dumps({"captureData": sides}), "{", "[]", json.dumps({"captureData": {}})]
    first, *rest = captured_lines("\n".join(lines))
    assert (first.request.data, first.answer.data) == (b"\xff", b"{}")
    assert rest[:2] == [None, None] and rest[2].request is None
