"""Files of requests: what is read, what is skipped, and faults by line."""

from __future__ import annotations

import base64
import json
import struct

import pytest

from engine_build.errors import InputRefused
from engine_build.lengths import requests as module
from engine_build.lengths.requests import RequestFile
from onboarding.manifest import Prompts

pytestmark = pytest.mark.unit


def read(path, *lines, task="text-embedding", prompts=None):
    text = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(text) + "\n", encoding="utf-8")
    file = RequestFile(path=path, task=task, prompts=prompts)
    return file, [request.texts for request in file.requests()]


def tensor(*texts, name="text"):
    shape = [len(texts), 1]
    return {"name": name, "datatype": "BYTES", "shape": shape, "data": list(texts)}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "requests.jsonl"


def captured(data, encoding="JSON", kind="application/json"):
    side = {"data": data, "encoding": encoding, "observedContentType": kind}
    return {"captureData": {"endpointInput": side}, "eventMetadata": {"eventId": "1"}}


def test_requests_are_read_in_every_form(path):
    lines = [{"inputs": "a cat"}, {"inputs": ["a", "b"]}, {"inputs": [tensor("c", "d")]}]
    assert read(path, *lines)[1] == [("a cat",), ("a", "b"), ("c", "d")]


def test_requests_of_rankers_are_pairs(path):
    lines = [
        {"query": "q", "texts": ["a", "b"]},
        {"inputs": [tensor("q", name="query"), tensor("c", name="text")]},
    ]
    found = read(path, *lines, task="text-ranking")[1]
    assert found == [(("q", "a"), ("q", "b")), (("q", "c"),)]


def test_captures_are_read_as_json_and_binary(path):
    header = json.dumps(
        {"inputs": [{**tensor("ab"), "parameters": {"binary_data_size": 6}, "data": None}]}
    ).encode()
    body = header + struct.pack("<I", 2) + b"ab"
    binary = base64.b64encode(body).decode()
    kind = f"application/octet-stream; json-header-size={len(header)}"
    lines = [captured('{"inputs": ["a"]}'), captured(binary, "BASE64", kind)]
    assert read(path, *lines)[1] == [("a",), ("ab",)]


def test_what_clients_sent_wrongly_is_skipped_with_its_reason(path):
    lines = [captured('{"inputs": ["a"]}'), captured("no"), {"captureData": {}}]
    file, found = read(path, *lines)
    assert found == [("a",)]
    assert file.skipped == {"it is no JSON": 1, "the request was not captured": 1}


def test_prompts_stand_before_texts(path):
    prompts = Prompts(texts={"query": "query: ", "none": ""}, default_prompt_name="query")
    lines = [{"inputs": ["a"]}, {"inputs": ["a"], "prompt_name": "none"}]
    assert read(path, *lines, prompts=prompts)[1] == [("query: a",), ("a",)]


def test_blank_lines_and_other_separators_of_lines_are_no_fault(path):
    assert read(path, '{"inputs": ["a\u2028b"]}', "", '{"inputs": ["c"]}')[1] == [
        ("a\u2028b",),
        ("c",),
    ]


def test_refuses_faulty_lines_all_at_once(path):
    prompts = Prompts(texts={"query": "q"})
    lines = ["{", {"inputs": ["a"]}, [1], {"inputs": [1]}, {"inputs": []}]
    lines += ['{"captureData": {', {"inputs": ["a"], "prompt_name": "x"}]
    with pytest.raises(InputRefused) as error:
        read(path, *lines, prompts=prompts)
    message = str(error.value)
    assert message.startswith("6 of its lines are no requests:")
    for number, reason in (
        (1, "it is no JSON"),
        (3, "it is no JSON object"),
        (4, "it has no texts"),
        (5, "it has no texts"),
        (6, "it is no JSON"),
        (7, "it names a prompt"),
    ):
        assert f"{path}:{number}: {reason}" in message
    assert 'such as {"inputs": ["a text"]}' in message


def test_refuses_many_faulty_lines_with_the_first_of_them(path):
    with pytest.raises(InputRefused, match="and 5 more"):
        read(path, *["no"] * 25)


def test_refuses_a_line_without_an_end_in_bounded_memory(path, monkeypatch):
    monkeypatch.setattr(module, "LONGEST_LINE", 64)
    with pytest.raises(InputRefused, match=r"requests.jsonl:1: it is longer than"):
        read(path, json.dumps({"inputs": ["a" * 500]}), {"inputs": ["b"]})


def test_refuses_a_file_that_is_not_there(tmp_path):
    file = RequestFile(path=tmp_path / "no", task="text-embedding", prompts=None)
    with pytest.raises(InputRefused, match="cannot be read: No such file"):
        list(file.requests())


def test_progress_is_a_share_of_bytes(path):
    shares = []
    path.write_text('{"inputs": "a"}\n' * 1000)
    file = RequestFile(path=path, task="text-embedding", prompts=None, progress=shares.append)
    assert len(list(file.requests())) == 1000
    assert shares == sorted(shares) and len(shares) == 3 and 0.7 < shares[-1] <= 1
