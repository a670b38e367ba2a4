"""Asking a text generator through a boto3 client: answers, times, refusals, addresses."""

from __future__ import annotations

import io
import json
from types import SimpleNamespace

import pytest
from botocore.exceptions import ClientError

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

ADDRESS = GeneratorAddress(name="chat", endpoint="dev-chat", component="dev-chat")
USAGE = {"prompt_tokens": 5, "completion_tokens": 2}
WHOLE = {"choices": [{"message": {"content": "Paris"}, "finish_reason": "stop"}], "usage": USAGE}


def event(delta, reason=None):
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return f"data: {json.dumps({'choices': [choice]}, ensure_ascii=False)}\n\n".encode()


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


def refusal(code, message, **more):
    return ClientError({"Error": {"Code": code, "Message": message}, **more}, "InvokeEndpoint")


class Runtime:
    """boto3's client, which gives one answer, a stream's bytes or an error, after the other."""

    def __init__(self, *answers):
        self.answers, self.requests = list(answers), []

    def _answer(self, request):
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def invoke_endpoint(self, **request):
        return {"Body": io.BytesIO(json.dumps(self._answer(request)).encode())}

    def invoke_endpoint_with_response_stream(self, **request):
        stream = self._answer(request)
        pieces = (stream[at : at + 7] for at in range(0, len(stream), 7))
        return {"Body": [{"PayloadPart": {"Bytes": piece}} for piece in pieces]}


def ask(*answers, streams=True, seconds=0):
    """Return the timed answer, its text, the requests, and the seconds that were waited."""
    text, waits, runtime = [], [], Runtime(*answers)
    request = Prompt(text="Capital?", max_tokens=9, stream=streams).as_request()
    generator = Generator(address=ADDRESS, clients=lambda service: runtime, pause=waits.append)
    timed = generator.ask_until(request, text.append, seconds, lambda line: None)
    return timed, "".join(text), runtime.requests, waits


def test_a_stream_is_printed_as_it_comes_with_its_times():
    timed, text, [request], _ = ask(STREAM)
    assert (text, timed.answer.text) == ("Paris é", "Paris é")
    assert (request["EndpointName"], request["InferenceComponentName"]) == ("dev-chat", "dev-chat")
    body = json.loads(request["Body"])
    assert body["stream"] and body["max_tokens"] == 9
    document = timed.as_dict("dev-chat")
    assert (document["output_tokens"], document["finish_reason"]) == (2, "stop")
    assert document["ttft_ms"] >= 0 and document["output_tokens_per_second"] > 0
    assert "ms to the first token, 5 + 2 tokens" in timed.sentence()


def test_a_whole_answer_has_no_first_token():
    timed, text, *_ = ask(WHOLE, streams=False)
    assert (text, timed.first_seconds, timed.tokens_per_second) == ("Paris", None, None)


def test_refuses_a_broken_stream():
    """Each way to break is the client's own: container/generation_client.py."""
    with pytest.raises(WrongAnswerError, match=r"Endpoint dev-chat: .*ended without .DONE.*; ask"):
        ask(STREAM.replace(b"data: [DONE]\n\n", b""))


def model_error(status, message):
    error = {"error": {"message": message}}
    more = {"OriginalStatusCode": status, "OriginalMessage": json.dumps(error)}
    return refusal("ModelError", "Received client error", **more)


NONE = refusal("ValidationError", "Inference Component has no capacity to process this request.")


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize(
    ("answer", "kind", "sentence"),
    [
        (model_error(400, "too long."), RoundhouseError, "answered 400: too long"),
        (model_error(503, "busy"), NotReadyError, "answered 503: busy; ask again"),
        (
            refusal("ValidationError", "Endpoint dev-chat not found."),
            NotReadyError,
            "`roundhouse d",
        ),
        (NONE, NotReadyError, "let --wait SECONDS ask"),
    ],
)
def test_refuses_with_one_sentence(answer, kind, sentence, streams):
    with pytest.raises(kind) as fault:
        ask(answer, streams=streams)
    assert sentence in str(fault.value) and "\n" not in str(fault.value)


def test_wait_asks_again_until_a_copy_answers():
    timed, _, requests, waits = ask(NONE, NONE, STREAM, seconds=60)
    assert timed.answer.text == "Paris é" and (len(requests), waits) == (3, [5.0, 5.0])


@pytest.fixture
def session(tmp_path):
    """A session of a tree with a text generator that has an adapter."""
    text = (FIXTURES / "text_generation" / "base.yaml").read_text()
    text = text.replace("serving: {", "serving: {adapters: [{name: fr, source: adapters/faq}], ")
    root = generator_tree(tmp_path, text)
    tree = read_tree(root)
    return SimpleNamespace(
        paths=SimpleNamespace(tree=root), environment=tree.environments["cloud"], tree=tree
    )


def test_a_generator_and_its_adapters_are_found_by_name_and_endpoint(session):
    components = {"chat": "cloud-chat", "cloud-chat": "cloud-chat"}
    components |= dict.fromkeys(("chat-fr", "cloud-chat-fr"), "cloud-chat-fr")
    for name, component in components.items():
        found = generator_address(session.environment, session.tree.generators, name)
        assert (found.endpoint, found.component) == ("cloud-chat", component)
    assert generator_address(session.environment, session.tree.generators, "other") is None


def test_refuses_prompts_that_do_not_fit(session):
    assert find_generator(session, "chat", Prompt(text="hello")).component == "cloud-chat"
    assert find_generator(session, "other", Prompt(text=None)) is None
    with pytest.raises(UsageError, match="chat: is a text generator; give --prompt TEXT"):
        find_generator(session, "chat", Prompt(text=None))
    with pytest.raises(UsageError, match=r"'chatt' is no text .* of cloud; allowed: chat, chat-fr"):
        find_generator(session, "chatt", Prompt(text="hello"))
    with pytest.raises(UsageError, match="--prompt: is empty"):
        Prompt(text=" ").as_request()
