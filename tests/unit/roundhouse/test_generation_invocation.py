"""Asking a text generator through boto3, of a server that plays AWS."""

from __future__ import annotations

import json
import struct
import threading
import zlib
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import boto3
import pytest
from botocore.config import Config

from onboarding.tree import read_tree
from roundhouse.errors import NotReadyError, RoundhouseError, UsageError, WrongAnswerError
from roundhouse.generation_invocation import (
    Generator,
    GeneratorAddress,
    Prompt,
    find_generator,
    generator_address,
)
from tests.unit.onboarding.text_generation.shapes import FIXTURES, generator_tree

pytestmark = pytest.mark.unit
ADDRESS = GeneratorAddress(name="chat", endpoint="dev-chat", component="dev-chat")
NO_CAPACITY = (
    "Inference Component has no capacity to process this request. ApplicationAutoScaling may be "
    "in-progress (if configured)"
)


def event(delta, reason=None, **more):
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return f"data: {json.dumps({'choices': [choice], **more}, ensure_ascii=False)}\n\n".encode()


USAGE = {"prompt_tokens": 5, "completion_tokens": 3}
STREAM = b"".join(
    (
        event({"role": "assistant", "content": ""}),
        event({"content": "Par"}),
        event({"content": "is é"}),
        event({}, "stop"),
        f"data: {json.dumps({'choices': [], 'usage': USAGE})}\n\n".encode(),
        b"data: [DONE]\n\n",
    )
)
WHOLE = {"choices": [{"message": {"content": "Paris"}, "finish_reason": "stop"}], "usage": USAGE}


def frame(payload, **headers):
    """One message of AWS's event stream."""
    head = b"".join(
        bytes([len(name)]) + name + b"\x07" + struct.pack(">H", len(value)) + value
        for name, value in (
            (f":{k.replace('_', '-')}".encode(), v.encode()) for k, v in headers.items()
        )
    )
    prelude = struct.pack(">II", 16 + len(head) + len(payload), len(head))
    prelude += struct.pack(">I", zlib.crc32(prelude))
    message = prelude + head + payload
    return message + struct.pack(">I", zlib.crc32(message))


def parts(stream, size=7):
    pieces = (stream[at : at + size] for at in range(0, len(stream), size))
    return b"".join(frame(p, message_type="event", event_type="PayloadPart") for p in pieces)


@contextmanager
def aws(*answers):
    """A server that gives one (status, headers, body) after the other; what it was requests."""
    left, requests = list(answers), []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            requests.append((self.path, dict(self.headers), json.loads(body)))
            status, headers, answer = left.pop(0)
            self.send_response(status)
            for name, value in {"Content-Length": str(len(answer)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    runtime = boto3.client(
        "sagemaker-runtime", region_name="us-east-1", aws_access_key_id="a",
        aws_secret_access_key="b", endpoint_url=f"http://127.0.0.1:{server.server_port}",
        config=Config(retries={"total_max_attempts": 1}),
    )  # fmt: skip
    try:
        yield (lambda service: runtime), requests
    finally:
        server.shutdown()
        server.server_close()


def streamed(body):
    return 200, {"Content-Type": "application/vnd.amazon.eventstream"}, body


def refusal(status, code, message, **more):
    body = json.dumps({"Message": message, **more}).encode()
    return status, {"x-amzn-ErrorType": code, "Content-Type": "application/json"}, body


def ask(*answers, streams=True, seconds=0, paused=None):
    text, waits = [], [].append if paused is None else paused.append
    request = Prompt(text="Capital?", max_tokens=9, stream=streams).as_request()
    with aws(*answers) as (clients, requests):
        generator = Generator(address=ADDRESS, clients=clients, pause=waits)
        timed = generator.ask_until(request, text.append, seconds, lambda line: None)
    return timed, "".join(text), requests


def test_a_stream_is_printed_as_it_comes_with_its_times():
    timed, text, [(path, headers, body)] = ask(streamed(parts(STREAM)))
    assert (text, timed.answer.text) == ("Paris é", "Paris é")
    assert path == "/endpoints/dev-chat/invocations-response-stream"
    assert headers["X-Amzn-SageMaker-Inference-Component"] == "dev-chat"
    assert body["stream"] and body["max_tokens"] == 9
    document = timed.as_dict("dev-chat")
    assert (document["output_tokens"], document["finish_reason"]) == (3, "stop")
    assert document["ttft_ms"] >= 0 and document["output_tokens_per_second"] > 0
    assert "ms to the first token, 5 + 3 tokens" in timed.sentence()


def test_a_whole_answer_has_no_first_token():
    timed, text, _ = ask((200, {}, json.dumps(WHOLE).encode()), streams=False)
    assert (text, timed.first_seconds, timed.tokens_per_second) == ("Paris", None, None)


@pytest.mark.parametrize(
    ("stream", "sentence"),
    [
        (parts(STREAM[:60]), "Endpoint dev-chat: "),
        (parts(STREAM.replace(b"data: [DONE]\n\n", b"")), "ended without [DONE]"),
        (parts(event({"content": "a"}) + b'data: {"error": {"message": "died"}}\n\n'
               + b"data: [DONE]\n\n"), "broke off: died; ask again."),
        (parts(event({"content": "a"})) + frame(
            b'{"Message": "gone", "ErrorCode": "StreamBroken"}', message_type="exception",
            exception_type="ModelStreamError"), "ModelStreamError"),
        (parts(STREAM)[:-200], "Endpoint dev-chat: "),
    ],
    ids=["cut", "no done", "error event", "ModelStreamError", "half a part"],
)  # fmt: skip
def test_refuses_a_broken_stream(stream, sentence):
    with pytest.raises(WrongAnswerError) as fault:
        ask(streamed(stream))
    assert sentence in str(fault.value)


def model_error(status, message):
    more = {"OriginalStatusCode": status, "OriginalMessage": message}
    return refusal(424, "ModelError", "Received client error", **more)


TOO_LONG = json.dumps({"error": {"message": "This model's maximum context length is 64 tokens."}})


@pytest.mark.parametrize(
    ("answer", "kind", "sentence"),
    [
        (model_error(400, TOO_LONG), RoundhouseError, "answered 400: This model's maximum context"),
        (model_error(503, '{"error": {"message": "The engine is busy"}}'), NotReadyError,
         "answered 503: The engine is busy; ask again"),
        (refusal(400, "ValidationError", "Endpoint dev-chat not found."), NotReadyError,
         "`roundhouse deploy` deploys"),
        (refusal(400, "ValidationError", NO_CAPACITY), NotReadyError, "let --wait SECONDS ask"),
    ],
)  # fmt: skip
def test_refuses_with_one_sentence(answer, kind, sentence):
    for streams in (True, False):
        with pytest.raises(kind) as fault:
            ask(answer, streams=streams)
        assert sentence in str(fault.value) and "\n" not in str(fault.value)


def test_wait_asks_again_until_a_copy_answers():
    paused, none = [], refusal(400, "ValidationError", NO_CAPACITY)
    timed, _, requests = ask(none, none, streamed(parts(STREAM)), seconds=60, paused=paused)
    assert timed.answer.text == "Paris é" and (len(requests), paused) == (3, [5.0, 5.0])


@pytest.fixture
def root(tmp_path):
    text = (FIXTURES / "text_generation" / "base.yaml").read_text()
    return generator_tree(tmp_path, text)


def test_a_generator_is_found_by_its_name_and_by_its_endpoints(root):
    tree = read_tree(root)
    environment = tree.environments["cloud"]
    for name in ("chat", "cloud-chat"):
        found = generator_address(environment, tree.generators, name)
        assert (found.endpoint, found.component) == ("cloud-chat", "cloud-chat")
    assert generator_address(environment, tree.generators, "other") is None


def test_an_adapter_is_found_by_its_component(tmp_path):
    text = (FIXTURES / "text_generation" / "base.yaml").read_text()
    text = text.replace("serving: {", "serving: {adapters: [{name: fr, source: adapters/faq}], ")
    tree = read_tree(generator_tree(tmp_path, text))
    for name in ("chat-fr", "cloud-chat-fr"):
        found = generator_address(tree.environments["cloud"], tree.generators, name)
        assert (found.endpoint, found.component) == ("cloud-chat", "cloud-chat-fr")
    environment = tree.environments["cloud"]
    session = SimpleNamespace(paths=SimpleNamespace(tree=tree.root), environment=environment)
    with pytest.raises(UsageError, match="allowed: chat, chat-fr"):
        find_generator(session, "chat-de", Prompt(text="hello"))


def test_refuses_prompts_that_do_not_fit(root):
    tree = read_tree(root)
    session = SimpleNamespace(
        paths=SimpleNamespace(tree=root), environment=tree.environments["cloud"]
    )
    with pytest.raises(UsageError, match="chat: is a text generator; give --prompt TEXT"):
        find_generator(session, "chat", Prompt(text=None))
    with pytest.raises(UsageError, match="'chatt' is no text generator of cloud; allowed: chat"):
        find_generator(session, "chatt", Prompt(text="hello"))
    with pytest.raises(UsageError, match="--prompt: is empty"):
        Prompt(text=" ").as_request()
