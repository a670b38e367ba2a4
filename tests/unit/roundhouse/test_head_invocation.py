"""Labels, rankings, entities and rows of files, asked of an endpoint and shown."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path

import pytest

from onboarding.serving_spec import ServingSpec
from roundhouse.answers import RowRequests, answers_table, row_queries, rows_table
from roundhouse.errors import RoundhouseError, UsageError, WrongAnswerError
from roundhouse.invocation import (
    Address,
    answers_labels,
    invoke_entities,
    invoke_labels,
    invoke_ranking,
    require_arrays,
)
from roundhouse.invocation_inputs import (
    TextRows,
    image_paths,
    read_text_rows,
    require_images,
    require_inputs,
)
from tests.unit.roundhouse.engines import copied_tree, entry_for, local_deployments

PLAIN = Address(endpoint="e", target_model=None)


class Runtime:
    """Answers each request with the next of its documents."""

    def __init__(self, *documents):
        self.documents = list(documents)
        self.sent = []

    def invoke_endpoint(self, **request):
        self.sent.append({t["name"]: t["data"] for t in json.loads(request["Body"])["inputs"]})
        return {"Body": io.BytesIO(json.dumps({"outputs": self.documents.pop(0)}).encode())}


def output(name, datatype, *shape, data):
    return {"name": name, "datatype": datatype, "shape": list(shape), "data": data}


def labels(*rows):
    names = [name for row in rows for name, _ in row]
    scores = [score for row in rows for _, score in row]
    shape = (len(rows), len(rows[0]))
    return [
        output("logits", "FP32", *shape, data=scores),
        output("labels", "BYTES", *shape, data=names),
        output("scores", "FP32", *shape, data=scores),
    ]


def test_labels_come_in_requests_of_the_largest_batch():
    good, bad = (("good", 0.75), ("bad", 0.25)), (("bad", 0.5), ("good", 0.5))
    runtime = Runtime(labels(good, bad), labels(bad))
    assert invoke_labels(runtime, PLAIN, ("a", "b", "c"), 2) == (good, bad, bad)
    assert runtime.sent == [{"text": ["a", "b"]}, {"text": ["c"]}]


class ImageRuntime(Runtime):
    """Reads the files of binary requests."""

    def invoke_endpoint(self, **request):
        size = int(request["ContentType"].partition("json-header-size=")[2])
        tail, files = request["Body"][size:], []
        while tail:
            end = 4 + int.from_bytes(tail[:4], "little")
            files.append(tail[4:end])
            tail = tail[end:]
        self.sent.append(files)
        return {"Body": io.BytesIO(json.dumps({"outputs": self.documents.pop(0)}).encode())}


def test_images_are_sent_as_they_are_in_requests_of_the_largest_batch():
    cat, dog = (("cat", 0.75), ("dog", 0.25)), (("dog", 0.5), ("cat", 0.5))
    runtime = ImageRuntime(labels(cat, dog), labels(dog))
    files = (b"\xff\xd8\xff one", b"\x89PNG two", b"\xff\xd8\xff")
    assert invoke_labels(runtime, PLAIN, files, 2) == (cat, dog, dog)
    assert runtime.sent == [[*files[:2]], [files[2]]]


def test_refuses_images_of_a_model_of_texts(tmp_path):
    (deployment, *_) = local_deployments(copied_tree(tmp_path))
    with pytest.raises(UsageError, match="is of task text-embedding, and --input names images"):
        require_images(deployment.targets[0], [tmp_path / "a.jpg"])


def test_images_are_a_file_or_a_folder(tmp_path):
    assert image_paths(tmp_path / "texts.txt", ()) is None
    file = tmp_path / "a.jpg"
    with pytest.raises(UsageError, match="is no file"):
        image_paths(file, ())
    file.write_bytes(b"\xff\xd8\xff")
    assert image_paths(file, ()) == image_paths(tmp_path, ()) == [file]


def test_each_text_of_a_ranking_is_sent_with_the_query():
    runtime = Runtime([output("scores", "FP32", 2, 1, data=[0.25, 0.75])])
    assert invoke_ranking(runtime, PLAIN, "wer?", ("ä", "b"), 8) == (0.25, 0.75)
    assert runtime.sent == [{"query": ["wer?", "wer?"], "text": ["ä", "b"]}]


def test_entities_are_grouped():
    answer = [
        output("labels", "BYTES", 1, 3, data=["B-PER", "I-PER", "O"]),
        output("scores", "FP32", 1, 3, data=[0.5, 1.0, 1.0]),
        output("offsets", "INT64", 1, 3, 2, data=[0, 3, 4, 12, 13, 15]),
    ]
    ((entity,),) = invoke_entities(Runtime(answer), PLAIN, ("Ada Lovelace in",), 8)
    assert entity == ("PER", 0.75, 0, 12, "Ada Lovelace")
    fields = [{"text": "a", "entities": [entity._asdict()]}, {"text": "b", "entities": []}]
    table = answers_table(fields)
    assert [row[:2] for row in table.rows] == [("a", "Ada Lovelace"), ("b", "none")]


def test_answers_to_texts_are_shown_by_their_kind():
    classes = answers_table([{"text": "a", "classes": {"good": 0.75, "bad": 0.25}}])
    assert classes.rows == (("a", "good", "0.750", "bad 0.250"),)
    vectors = [{"text": text, "embedding": (1.0, 0.0)} for text in "ab"]
    assert answers_table(vectors[:1]) == "[+1.0000, +0.0000, …]  2 numbers"
    assert [row[2] for row in answers_table(vectors).rows] == ["1.000", "1.000"]


def test_ranking_is_shown_in_its_order():
    table = answers_table([{"text": "b", "score": 0.75}, {"text": "a", "score": 0.25}])
    assert table.rows == (("1", "0.7500", "b"), ("2", "0.2500", "a"))


def test_refuses_an_answer_without_labels():
    logits = [output("logits", "FP32", 1, 2, data=[0.0, 1.0])]
    with pytest.raises(WrongAnswerError, match="should have 'labels' of each; it has 'logits'"):
        invoke_labels(Runtime(logits), PLAIN, ("a",), 8)


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    return local_deployments(copied_tree(tmp_path_factory.mktemp("tree")))[0]


def of_task(deployment, task):
    target = deployment.targets[0]
    return dataclasses.replace(target, model=target.model.model_copy(update={"task": task}))


@pytest.mark.parametrize(
    ("task", "query", "says"),
    [
        ("text-ranking", None, "give --query"),
        ("text-ranking", " ", "give --query"),
        ("text-embedding", "a", "only a ranker takes --query"),
    ],
)
def test_refuses_a_query_where_it_does_not_belong(deployment, task, query, says):
    require_inputs(of_task(deployment, "text-ranking"), ("a",), None, "b")
    with pytest.raises(RoundhouseError, match=says):
        require_inputs(of_task(deployment, task), ("a",), None, query)


def test_older_classifiers_answer_logits_alone(deployment):
    target = deployment.targets[0]
    for activation, expected in ((None, False), ("softmax", True)):
        entry = entry_for(deployment, target, activation=activation)
        assert answers_labels(dataclasses.replace(target, lock_entry=entry)) is expected


FILE = Path("a.npz")


def test_refuses_texts_for_a_model_with_tensors_of_its_own(deployment):
    target = deployment.targets[0]
    tensors = [{"name": name, "datatype": "BYTES", "dims": [1]} for name in ("subject", "body")]
    code = {"file": "a.py", "sha256": "0" * 64}
    section = {"preprocessing": code | {"inputs": tensors}, "postprocessing": code}
    own = target.model.model_copy(
        update={"serving": ServingSpec.model_validate_json(json.dumps(section))}
    )
    own_target = dataclasses.replace(target, model=own)
    require_inputs(own_target, (), FILE)
    for texts, file in ((("a",), None), ((), None), (("a",), FILE)):
        with pytest.raises(UsageError, match=r"so it takes subject, body; give --input FILE\.npz"):
            require_inputs(own_target, texts, file)
    unchanged = target.model.model_copy(
        update={"serving": ServingSpec.model_validate_json(json.dumps({"preprocessing": code}))}
    )
    require_inputs(dataclasses.replace(target, model=unchanged), ("a",), None)


def answers(target, runtime, rows, queries=(), most=2):
    progress = []
    requests = RowRequests(runtime=runtime, address=PLAIN, target=target, most_rows=most)
    return requests.answers(rows.texts, queries, progress.append), progress


def vectors(*rows):
    data = [value for row in rows for value in row]
    return [output("embedding", "FP32", len(rows), len(rows[0]), data=data)]


def test_texts_go_in_batches_and_each_row_has_its_vector(deployment):
    runtime = Runtime(vectors((1.0, 0.5), (0.0, 2.0)), vectors((3.0, 4.0)))
    found, progress = answers(deployment.targets[0], runtime, TextRows(texts=("a", "b", "c")))
    assert [request["text"] for request in runtime.sent] == [["a", "b"], ["c"]]
    assert [answer.vector for answer in found] == [(1.0, 0.5), (0.0, 2.0), (3.0, 4.0)]
    assert found[2].fields == {"text": "c", "embedding": (3.0, 4.0)}
    assert progress == ["2 of 3 rows", "3 of 3 rows"]


def test_texts_of_a_ranker_go_with_the_query_of_their_row(deployment):
    runtime = Runtime(
        [output("scores", "FP32", 2, 1, data=[0.25, 0.75])],
        [output("scores", "FP32", 1, 1, data=[0.5])],
    )
    target = of_task(deployment, "text-ranking")
    rows = TextRows(texts=("a", "b", "c"), first=("who?", "who?", "where?"))
    queries = row_queries(target, rows, None)
    found, _ = answers(target, runtime, rows, queries, most=8)
    assert [request["query"] for request in runtime.sent] == [["who?", "who?"], ["where?"]]
    assert found[2].fields == {"query": "where?", "text": "c", "score": 0.5}
    table = rows_table(rows.texts, [answer.cell for answer in found], queries)
    assert [row[1:] for row in table.rows] == [
        ("who?", "a", "0.2500"), ("who?", "b", "0.7500"), ("where?", "c", "0.5000"),
    ]  # fmt: skip


def test_labels_of_a_dataset_are_not_sent(deployment):
    target = of_task(deployment, "text-classification")
    entry = entry_for(deployment, deployment.targets[0], activation="softmax")
    target = dataclasses.replace(target, lock_entry=entry)
    runtime = Runtime(labels((("good", 0.75), ("bad", 0.25))))
    found, _ = answers(target, runtime, TextRows(texts=("a",), first=("bad",)))
    assert runtime.sent == [{"text": ["a"]}]
    assert found[0].cell == "good 0.750, bad 0.250"


def test_one_query_is_that_of_every_row_of_a_file(deployment):
    target, rows = of_task(deployment, "text-ranking"), TextRows(texts=("a", "b"))
    assert row_queries(target, rows, "who?") == ("who?", "who?")
    assert row_queries(target, rows, None) == ()
    with pytest.raises(RoundhouseError, match="each row of the file has a query; leave --query"):
        row_queries(target, TextRows(texts=("a",), first=("b",)), "who?")


def test_file_gives_its_rows(tmp_path):
    path = tmp_path / "rows.tsv"
    path.write_text("one\ta text\n\ntwo\tanother\n")
    assert read_text_rows(path) == TextRows(texts=("a text", "another"), first=("one", "two"))


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("rows.txt", None, "does not exist; add the file"),
        ("rows.txt", b"", "is empty; write one sample a line"),
        ("rows.txt", b"\xff", "is not UTF-8"),
        ("rows.tsv", b"no tab", "has a line without a label"),
        ("rows.json", b"[]", "is no file of texts; allowed: .txt"),
    ],
)
def test_refuses_files_without_texts(name, content, fault, tmp_path):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(RoundhouseError, match=f"--input .*{name}: {fault}"):
        read_text_rows(tmp_path / name)


@pytest.mark.parametrize("task", ["text-classification", "text-ranking", "image-classification"])
def test_refuses_arrays_of_a_model_that_answers_labels(deployment, task):
    require_arrays(deployment.targets[0])
    with pytest.raises(UsageError, match="answers labels, no arrays; use --format json"):
        require_arrays(of_task(deployment, task))
