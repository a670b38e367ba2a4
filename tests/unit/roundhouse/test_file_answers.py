"""Rows of a file: read, sent in batches, and answered one by one."""

from __future__ import annotations

import dataclasses

import pytest

from roundhouse.answers import RowRequests, row_queries, rows_table
from roundhouse.errors import RoundhouseError
from roundhouse.invocation_inputs import TextRows, read_text_rows
from tests.unit.roundhouse.engines import copied_tree, entry_for, local_deployments
from tests.unit.roundhouse.test_head_invocation import PLAIN, Runtime, labels, of_task, output


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    return local_deployments(copied_tree(tmp_path_factory.mktemp("tree")))[0]


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
    assert [list(column.cells) for column in table.columns][1:] == [
        ["who?", "who?", "where?"],
        ["a", "b", "c"],
        ["0.2500", "0.7500", "0.5000"],
    ]


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
