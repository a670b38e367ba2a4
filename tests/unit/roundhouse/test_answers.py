"""Texts, images and arrays: what is sent, what is refused, and how answers are shown."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from onboarding.serving_spec import ServingSpec
from roundhouse.answers import (
    answers_table,
    arrays_document,
    arrays_table,
    cosine_table,
    read_arrays,
    read_image,
    require_inputs,
    text_answers,
)
from roundhouse.errors import UsageError, WrongAnswerError
from roundhouse.invocation import Address, endpoint_client
from tests.unit.roundhouse.engines import copied_tree, local_deployments

PLAIN = Address(endpoint="e", target_model=None)


class Runtime:
    """Answers with the outputs that it is given, and keeps the request."""

    def __init__(self, *outputs):
        self.outputs, self.request = outputs, {}

    def invoke_endpoint(self, **request):
        self.request = request
        return {"Body": io.BytesIO(json.dumps({"outputs": self.outputs}).encode())}

    @property
    def input_data(self):
        """The tensors of a JSON request, by name."""
        return {item["name"]: item["data"] for item in json.loads(self.request["Body"])["inputs"]}


def output(name, datatype, *shape, data):
    return {"name": name, "datatype": datatype, "shape": list(shape), "data": data}


def vectors(*rows):
    data = [value for row in rows for value in row]
    return output("embedding", "FP32", len(rows), len(rows[0]), data=data)


LABELS = (
    output("logits", "FP32", 1, 2, data=[0.0, 1.0]),
    output("labels", "BYTES", 1, 2, data=["good", "bad"]),
    output("scores", "FP32", 1, 2, data=[0.75, 0.25]),
)
ENTITIES = (
    output("labels", "BYTES", 1, 3, data=["B-PER", "I-PER", "O"]),
    output("scores", "FP32", 1, 3, data=[0.5, 1.0, 1.0]),
    output("offsets", "INT64", 1, 3, 2, data=[0, 3, 4, 12, 13, 15]),
)


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return local_deployments(copied_tree(tmp_path_factory.mktemp("tree")))[0].targets[0]


def of_task(target, task):
    return dataclasses.replace(target, model=target.model.model_copy(update={"task": task}))


@pytest.mark.parametrize(
    ("task", "outputs", "texts", "query", "fields", "shown"),
    [
        ("text-embedding", [vectors((1.0, 0.5), (0.0, 2.0))], ("a", "ü"), None,
         [{"text": "a", "embedding": (1.0, 0.5)}, {"text": "ü", "embedding": (0.0, 2.0)}],
         [("1 a", "1.000", "0.447"), ("2 ü", "0.447", "1.000")]),
        ("text-ranking", [output("scores", "FP32", 2, 1, data=[0.25, 0.75])], ("a", "b"), "wer?",
         [{"text": "b", "score": 0.75}, {"text": "a", "score": 0.25}],
         [("b", "0.7500"), ("a", "0.2500")]),
        ("text-classification", LABELS, ("a",), None,
         [{"text": "a", "classes": {"good": 0.75, "bad": 0.25}}],
         [("a", "good 0.750, bad 0.250")]),
        ("token-classification", ENTITIES, ("Ada Lovelace in",), None,
         [{"text": "Ada Lovelace in", "entities": [
             {"label": "PER", "score": 0.75, "start": 0, "end": 12, "text": "Ada Lovelace"}]}],
         [("Ada Lovelace in", "Ada Lovelace (0-12) PER 0.750")]),
    ],
)  # fmt: skip
def test_texts_are_answered_by_task(target, task, outputs, texts, query, fields, shown):
    runtime = Runtime(*outputs)
    found = text_answers(runtime, PLAIN, of_task(target, task), texts, query)
    assert found == fields
    assert list(answers_table(found).rows) == shown
    queries = {} if query is None else {"query": [query] * len(texts)}
    assert runtime.input_data == {"text": list(texts), **queries}


def test_a_single_vector_is_a_line_and_a_text_without_entities_a_row():
    found = answers_table([{"text": "a", "embedding": (1.0, 0.0)}])
    assert found == "[+1.0000, +0.0000, …]  2 numbers"
    assert answers_table([{"text": "b", "entities": []}]).rows == (("b", "none"),)


def test_request_names_target_model_and_prompt_and_keeps_every_character(target):
    runtime, to = Runtime(vectors((1.0, 0.0))), Address(endpoint="e", target_model="k/m")
    own = of_task(target, "text-embedding")
    (answer,) = text_answers(runtime, to, own, ("ü",), prompt_name="query")
    assert answer["embedding"] == (1.0, 0.0)
    assert runtime.request["TargetModel"] == "k/m" and "ü".encode() in runtime.request["Body"]
    assert json.loads(runtime.request["Body"])["parameters"] == {"prompt_name": "query"}


def test_images_are_sent_as_they_are():
    runtime, image = Runtime(*LABELS), b"\xff\xd8\xff one"
    with endpoint_client(runtime, PLAIN, binary=True) as client:
        assert client.classify_images([image]) == [[("good", 0.75), ("bad", 0.25)]]
    assert runtime.request["Body"].endswith(len(image).to_bytes(4, "little") + image)


def test_refuses_an_answer_without_labels(target):
    own = of_task(target, "text-classification")
    with pytest.raises(WrongAnswerError, match="should have 'labels' of each; it has 'logits'"):
        text_answers(Runtime(LABELS[0]), PLAIN, own, ("a",))


FILE, PICTURE = Path("a.npz"), Path("a.jpg")


@pytest.mark.parametrize(
    ("task", "texts", "file", "query", "says"),
    [
        ("text-embedding", (), None, None, "takes texts; give them as arguments"),
        ("text-embedding", ("a",), FILE, None, "takes texts"),
        ("text-embedding", ("a", " "), None, None, "text 2 is empty; give words"),
        ("text-embedding", ("a",), None, "b", "only a ranker takes --query"),
        ("text-embedding", (), PICTURE, None, "is of task text-embedding, and --input names an"),
        ("text-ranking", ("a",), None, None, "give --query"),
        ("text-ranking", ("a",), None, " ", "give --query"),
        ("tensors", ("a",), None, None, r"takes arrays; give --input FILE\.npz"),
        ("tensors", ("a",), FILE, None, "and no texts"),
        ("image-classification", (), FILE, None, r"takes images; give --input PICTURE\.jpg"),
        ("image-classification", ("a",), PICTURE, None, "and no texts"),
        ("text-embedding", ("a",), None, None, None),
        ("text-ranking", ("a",), None, "b", None),
        ("tensors", (), FILE, None, None),
        ("image-classification", (), PICTURE, None, None),
    ],
)
def test_inputs_are_of_the_models_kind(target, task, texts, file, query, says):
    own, is_image = of_task(target, task), file is PICTURE
    if says is None:
        require_inputs(own, texts, file, query, is_image=is_image)
        return
    with pytest.raises(UsageError, match=says):
        require_inputs(own, texts, file, query, is_image=is_image)


def test_refuses_texts_for_a_model_with_tensors_of_its_own(target):
    tensors = [{"name": name, "datatype": "BYTES", "dims": [1]} for name in ("subject", "body")]
    code = {"file": "a.py", "sha256": "0" * 64}

    def with_serving(section):
        serving = ServingSpec.model_validate_json(json.dumps(section))
        return dataclasses.replace(
            target, model=target.model.model_copy(update={"serving": serving})
        )

    own = with_serving({"preprocessing": code | {"inputs": tensors}, "postprocessing": code})
    require_inputs(own, (), FILE)
    for texts, file in ((("a",), None), ((), None), (("a",), FILE)):
        with pytest.raises(UsageError, match=r"takes subject, body; give --input FILE\.npz"):
            require_inputs(own, texts, file)
    require_inputs(with_serving({"preprocessing": code}), ("a",), None)


def test_files_are_read_as_arrays_or_as_an_image(tmp_path):
    np.savez(tmp_path / "a.npz", signal=np.ones((3, 2), np.float32), gain=np.array([1]))
    assert list(read_arrays(tmp_path / "a.npz")) == ["signal", "gain"]
    (tmp_path / "a.JPG").write_bytes(b"\xff\xd8\xff")
    assert read_image(tmp_path / "a.JPG") == b"\xff\xd8\xff"
    assert read_image(None) is None and read_image(tmp_path / "a.npz") is None


def test_a_document_says_shape_and_type_and_stays_json():
    document = arrays_document({"v": np.array([[1.5, np.nan]], np.float32)})
    assert json.loads(json.dumps(document, allow_nan=False)) == {
        "v": {"datatype": "FP32", "shape": [1, 2], "data": [[1.5, None]]}
    }


def test_tables_print_texts_as_they_are_and_arrays_by_shape_type_and_first_values():
    values = {"[v]": np.arange(8, dtype=np.float32).reshape(2, 4), "ok": np.array([True])}
    text = io.StringIO()
    for shown in (cosine_table(["[red]a cat"], [(1.0, 0.0)]), arrays_table(values)):
        Console(file=text, width=200).print(shown)
    expected = ("1 [red]a cat", "1.000", "[v]", "2 × 4", "float32", "0, 1, 2, 3, 4, 5, …", "True")
    assert [words for words in expected if words not in text.getvalue()] == []
