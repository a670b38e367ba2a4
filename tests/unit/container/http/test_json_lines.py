"""Bodies of JSON lines: answers in order, faults with their line, memory that does not grow."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from container.server.codecs import texts
from container.server.http.json_lines import ROWS_AT_ONCE, infer_lines, is_json_lines
from container.server.types import QueueFull, RequestFault, Signature, TooLarge

ROOT = Path(__file__).parents[4]
SIGNATURE = Signature(model="tiny", input_name="text", output_name="embedding")
HOUR = 3600.0


class Plane:
    """Answers each text with its length, in the next turn of the loop, of so many rows at once."""

    signature = SIGNATURE

    def __init__(self, capacity=10 * ROWS_AT_ONCE):
        self.capacity, self.waiting, self.most = capacity, 0, 0

    async def submit(self, rows, *, deadline=None):
        if self.waiting + len(rows) > self.capacity:
            raise QueueFull("The queue is full.")
        self.waiting += len(rows)
        self.most = max(self.most, self.waiting)
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        loop.call_soon(self._answer, answer, rows)
        return answer

    def _answer(self, answer, rows):
        self.waiting -= len(rows)
        if not answer.cancelled():
            answer.set_result((np.array([[len(text)] for text in rows], np.float32),))


def lines(*documents):
    return b"".join(json.dumps(document).encode() + b"\n" for document in documents)


def ask(body, plane=None):
    async def run():
        deadline = asyncio.get_running_loop().time() + HOUR
        return await infer_lines(plane or Plane(), texts, body, deadline)

    return asyncio.run(run())


def test_each_line_is_answered_by_a_line_in_order():
    tensor = {"name": "text", "shape": [1], "datatype": "BYTES", "data": ["four"]}
    body = lines({"inputs": "a"}, {"inputs": ["bb", "ccc"]}, {"inputs": [tensor], "id": "7"})
    response = ask(body.rstrip(b"\n"))
    assert (response.status, response.content_type) == (200, "application/jsonlines")
    first, second, third = map(json.loads, response.body.splitlines())
    assert (first["outputs"], second["outputs"]) == ([[1]], [[2], [3]])
    assert (third["outputs"][0]["data"], third["id"]) == ([4], "7")


def test_rows_under_way_are_bounded():
    plane = Plane()
    response = ask(lines(*[{"inputs": ["a"] * 100}] * 200), plane)
    assert len(response.body.splitlines()) == 200
    assert plane.most <= ROWS_AT_ONCE


def test_lines_wait_while_they_fill_the_queue_themselves():
    response = ask(lines(*[{"inputs": ["a"] * 10}] * 50), Plane(capacity=20))
    assert len(response.body.splitlines()) == 50


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (b"", "The body has no lines"),
        (lines({"inputs": "a"}) + b"{no\n", "Line 2: The request is not JSON"),
        (lines({"inputs": "a"}) + b"\n" + lines({"inputs": "a"}), "Line 2: The request is not JS"),
        (lines({"inputs": 7}), "Line 1: "),
        (
            lines(
                {
                    "inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": ["a"]}],
                    "parameters": {"binary_data_output": True},
                }
            ),
            "Line 1: It asks for binary outputs",
        ),
    ],
)
def test_refuses_a_body_with_the_line_of_its_fault(body, sentence):
    with pytest.raises(RequestFault, match=sentence):
        ask(body)


def test_refuses_a_line_that_is_as_long_as_no_request_may_be():
    with pytest.raises(TooLarge, match="Line 2 has 6291458 bytes"):
        ask(lines({"inputs": "a"}) + b'"' + b"a" * 6_291_456 + b'"')


def test_refuses_a_line_larger_than_the_queue():
    with pytest.raises(QueueFull, match="Line 1: The queue is full"):
        ask(lines({"inputs": ["a"] * 30}), Plane(capacity=20))


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        ("application/jsonlines", True),
        ("Application/JSONLines; charset=utf-8", True),
        ("application/x-ndjson", True),
        ("application/json", False),
        ("", False),
    ],
)
def test_content_type_of_json_lines(content_type, expected):
    assert is_json_lines(content_type) is expected


def test_memory_of_a_large_body_and_its_answer_does_not_grow_with_them():
    """16 MiB in, 13 MiB out: 8 MiB more than before at most, files' pages apart."""
    program = """
import asyncio, re
from pathlib import Path
from container.server.http.messages import HttpLimits
from container.server.http.request_reader import RequestReader
from tests.unit.container.http.test_json_lines import SIGNATURE, Plane, infer_lines, texts

def held_mib():
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"RssAnon:\\s+(\\d+)", status)[1]) / 1024

line = b'{"inputs": ["a"%s]}\\n' % (b', "a"' * 99)
count = (16 << 20) // len(line)
reader = RequestReader(HttpLimits(body_bytes=1 << 30), lambda: 0.0)
before = held_mib()
head = b"POST / HTTP/1.1\\r\\ncontent-length: %d\\r\\n\\r\\n" % (len(line) * count)
reader.feed(head)
for _ in range(count):
    reader.feed(line)
body = reader.arrived.popleft().request.body
readings = [held_mib()]

class Watched(Plane):
    def _answer(self, answer, rows):
        super()._answer(answer, rows)
        self.answered = getattr(self, "answered", 0) + 1
        if self.answered % 2500 == 0:
            readings.append(held_mib())

async def run():
    return await infer_lines(Watched(), texts, body, asyncio.get_running_loop().time() + 3600)

answer = asyncio.run(run()).body
print(len(body), len(answer), max(*readings, held_mib()) - before)
"""
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    outcome = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, env=environment
    )
    assert outcome.returncode == 0, outcome.stderr
    sent, answered, most_mib = map(float, outcome.stdout.split())
    assert sent > 15 << 20 and answered > 12 << 20
    assert most_mib < 12, most_mib
