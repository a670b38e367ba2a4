"""Bodies of JSON lines before a Triton that answers with the name of the request's own text."""

import asyncio
import json

import pytest

from container.server.triton.json_lines import BYTES_AT_ONCE, LINES_AT_ONCE, TritonLines
from container.server.types import RequestFault, Response
from tests.unit.container.triton_server.test_routes import Triton, ask, front

pytestmark = pytest.mark.unit
LINES = {b"content-type": b"application/jsonlines"}


def line(text):
    tensor = {"name": "text", "shape": [1, 1], "datatype": "BYTES", "data": [text]}
    return json.dumps({"inputs": [tensor]}).encode() + b"\n"


class Answering:
    """Answers each text after a turn of the loop; counts the requests under way."""

    def __init__(self, refuse=None):
        self.refuse, self.now, self.most, self.count = refuse or {}, 0, 0, 0

    async def __call__(self, body, kind, seconds):
        self.now, self.count = self.now + 1, self.count + 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= 1
        text = json.loads(body)["inputs"][0]["data"][0]
        if self.refuse.get(text):
            return self.refuse[text].pop()
        return Response(200, b'{"outputs":\n["%s"]}' % text[:9].encode(), "application/json")


def infer(triton, *lines):
    return asyncio.run(TritonLines(triton, 5.0).answer(b"".join(lines)))


def test_lines_are_answered_in_order_a_line_each():
    triton = Answering()
    answer = infer(triton, *(line(str(number)) for number in range(500)))
    assert (answer.status, answer.content_type) == (200, "application/jsonlines")
    assert [json.loads(text)["outputs"] for text in answer.body.splitlines()] == [
        [str(number)] for number in range(500)
    ]
    assert 1 < triton.most <= LINES_AT_ONCE


def test_few_bytes_are_under_way():
    triton = Answering()
    infer(triton, *(line(f"{number}" + "x" * (BYTES_AT_ONCE // 4)) for number in range(20)))
    assert triton.most == 3


def test_last_line_needs_no_end():
    assert infer(Answering(), line("a").rstrip()).body.count(b"\n") == 1


def test_line_that_a_full_queue_refused_is_sent_again():
    full = Response(503, b'{"error":"Exceeds maximum queue size"}', "application/json")
    triton = Answering({"b": [full, full]})
    answer = infer(triton, line("a"), line("b"), line("c"))
    assert [json.loads(text)["outputs"][0] for text in answer.body.splitlines()] == ["a", "b", "c"]
    assert triton.count == 5


def test_refuses_the_body_for_a_line_that_triton_refuses():
    wrong = Response(422, b'{"error":"unexpected shape"}', "application/json")
    with pytest.raises(RequestFault, match=r"^Line 2: unexpected shape$") as fault:
        infer(Answering({"b": [wrong]}), line("a"), line("b"), line("c"))
    assert fault.value.status == 422


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (line("a") + b"{\n", "Line 2: "),
        (line("a") + b"\n", "Line 2: "),
        (b'{"inputs": ["plain"]}\n', "Line 1: "),
        (line("x" * (6 << 20)), "Line 1 has 62"),
        (b"", "The body has no lines"),
    ],
)
def test_refuses_lines(body, sentence):
    triton = Triton()
    answer = ask(front(triton), "POST", "/invocations", body, LINES.items())
    assert answer.status in (400, 413)
    assert json.loads(answer.body)["error"].startswith(sentence)


def test_lines_reach_triton_as_json_with_sagemakers_headers():
    triton, headers = Triton(), {**LINES, b"x-amzn-trace": b"1"}
    body = line("a") + line("b")
    answer = ask(front(triton), "POST", "/invocations", body, headers.items())
    assert (answer.status, answer.body) == (200, b"{}\n{}\n")
    assert {request.content_type for request in triton.requests} == {"application/json"}
    assert {request.headers for request in triton.requests} == {((b"x-amzn-trace", b"1"),)}


def test_refuses_one_request_of_the_size_of_a_body_of_lines():
    answer = ask(front(Triton()), "POST", "/invocations", line("x" * (1 << 20)))
    assert answer.status == 413
    assert "send JSON lines" in json.loads(answer.body)["error"]
