"""Text datasets are read line by line, and held-out texts stand in no other file."""

from __future__ import annotations

import json

import pytest

from onboarding.starter_texts import evaluation_path
from onboarding.text_generation.task_file import TaskFileError, read_task_file
from onboarding.text_generation.texts import (
    LONGEST_LINE,
    TextSample,
    TextsError,
    read_texts,
    shared_line,
)

pytestmark = pytest.mark.unit

MESSAGES = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "there"}]


def write_lines(folder, name, *lines):
    path = folder / name
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_text_file_has_a_sample_a_line_and_blank_lines_are_none(tmp_path):
    path = write_lines(tmp_path, "a.txt", "one", "", "  two  ", "three")
    found = [(sample.line, sample.text) for sample in read_texts(path, 2)]
    assert found == [(1, "one"), (3, "two")]


def test_json_lines_hold_texts_or_messages(tmp_path):
    lines = [json.dumps({"text": "one"}), json.dumps({"messages": MESSAGES, "id": 7})]
    samples = list(read_texts(write_lines(tmp_path, "a.jsonl", *lines)))
    assert samples == [
        TextSample(line=1, text="one"),
        TextSample(line=2, messages=tuple(MESSAGES)),
    ]


def test_a_large_file_is_not_read_beyond_its_first_samples(tmp_path):
    path = write_lines(tmp_path, "a.jsonl", json.dumps({"text": "one"}), "no JSON")
    assert [sample.text for sample in read_texts(path, 1)] == ["one"]
    with pytest.raises(TextsError, match=r"^line 2 is no JSON; write one JSON object a line"):
        list(read_texts(path))


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.csv", b"a", "is no dataset of texts: a.csv; name a file that ends in .jsonl, .txt"),
        ("a.jsonl", b'{"prompt": "a"}', "line 1 has neither text nor messages; write"),
        ("a.jsonl", b'{"messages": [{"role": "user"}]}', "line 1 has neither text nor messages"),
        ("a.jsonl", b"[1]", "line 1 has neither text nor messages"),
        ("a.txt", b"ok\n\xff\xfe\n", "line 2 is not UTF-8 text; save the file as UTF-8"),
        ("a.txt", b"x" * (LONGEST_LINE + 1), "line 1 is longer than"),
    ],
)
def test_refuses_a_line_in_one_sentence(tmp_path, name, content, says):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TextsError) as caught:
        list(read_texts(tmp_path / name))
    assert str(caught.value).startswith(says)


def test_shared_samples_are_found_whatever_their_case_and_roles(tmp_path):
    calibration = write_lines(tmp_path, "a.jsonl", json.dumps({"messages": MESSAGES}))
    held_out = write_lines(tmp_path, "b.txt", "another", "hello   THERE")
    assert shared_line(calibration, 10, held_out) == (2, 1)
    assert shared_line(calibration, 10, write_lines(tmp_path, "c.txt", "another")) is None


def test_samples_that_calibration_does_not_use_are_not_shared(tmp_path):
    calibration = write_lines(tmp_path, "a.txt", "one", "two")
    assert shared_line(calibration, 1, write_lines(tmp_path, "b.txt", "two")) is None


def test_shipped_paragraphs_are_enough_and_stand_once():
    texts = [sample.text for sample in read_texts(evaluation_path())]
    assert len(texts) == len(set(texts)) == 56
    assert min(len(text.split()) for text in texts) >= 80


TASK = """
max_tokens: 8
items:
  - {prompt: What is the capital of France?, answers: [Paris]}
  - {prompt: Two and two?, answers: ["4", four]}
"""


def test_task_answers_are_right_whatever_their_case_and_spaces(tmp_path):
    path = tmp_path / "task.yaml"
    path.write_text(TASK)
    task = read_task_file(path)
    first, second = task.items
    assert task.is_right(first, "It is  paris.") and not task.is_right(first, "Rome")
    assert task.is_right(second, "Four") and task.messages(first) == [
        {"role": "user", "content": "What is the capital of France?"}
    ]
    path.write_text(TASK + "match: exact\nsystem: Be brief.\n")
    exact = read_task_file(path)
    assert not exact.is_right(first, "It is Paris.") and exact.is_right(first, " PARIS ")
    assert exact.messages(first)[0] == {"role": "system", "content": "Be brief."}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("items: []", "is no task file (items: "),
        ("items: [{prompt: a}]", "is no task file (items.0.answers: "),
        ("items: [{prompt: a, answers: [1]}]", "is no task file (items.0.answers.0: "),
        ("a: b: c", "is no task file; write `items:`"),
    ],
)
def test_refuses_what_is_no_task_file(tmp_path, content, says):
    path = tmp_path / "task.yaml"
    path.write_text(content)
    with pytest.raises(TaskFileError) as caught:
        read_task_file(path)
    assert str(caught.value).startswith(says)
