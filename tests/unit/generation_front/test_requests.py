"""What of a request the engine reads, and what is refused before."""

from __future__ import annotations

import json

import pytest

from container.generation_front.requests import CHAT, COMPLETION, INVOCATIONS, checked_request
from container.generation_front.settings import EngineSettings
from container.server.types import RequestFault, UnknownPath

pytestmark = pytest.mark.unit
SETTINGS = EngineSettings(models=("chat", "chat-2"), max_model_len=64, most_sequences=8)
HELLO = {"messages": [{"role": "user", "content": "hello"}]}


def check(document, path=INVOCATIONS, adapter=None):
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return checked_request(body, path, SETTINGS, {"chat", "chat-2", "a1"}, adapter)


def engine_body(document, **more):
    return json.loads(check(document, **more).body)


def test_invocations_says_by_its_keys_what_it_is():
    assert check(HELLO).path == CHAT
    assert check({"prompt": "hello"}).path == COMPLETION


def test_a_request_without_a_model_gets_the_served_one():
    assert engine_body(HELLO)["model"] == "chat"
    assert engine_body({**HELLO, "model": ""})["model"] == "chat"
    assert engine_body({**HELLO, "model": "chat-2"})["model"] == "chat-2"


def test_sagemakers_adapter_goes_before_the_bodys_model():
    assert engine_body({**HELLO, "model": "chat"}, adapter="a1")["model"] == "a1"
    with pytest.raises(UnknownPath, match="The model 'a2' does not exist here"):
        check(HELLO, adapter="a2")


def test_the_engine_gets_one_value_of_a_key_and_all_others():
    body = b'{"model":"nope","model":"chat","prompt":"\\u00e9","temperature":0.5,"x":[1]}'
    assert engine_body(body) == {"model": "chat", "prompt": "é", "temperature": 0.5, "x": [1]}


@pytest.mark.parametrize(
    ("more", "sequences"),
    [({}, 1), ({"n": 4}, 4), ({"prompt": ["a", "b"], "n": 3}, 6), ({"prompt": [1, 2, 3]}, 1),
     ({"prompt": [[1], [2, 3]]}, 2)],
)  # fmt: skip
def test_sequences_are_answers_times_prompts(more, sequences):
    assert check({"prompt": "a", **more}).sequences == sequences


def test_streams_on_request():
    assert check({**HELLO, "stream": True}).streams
    assert not check({**HELLO, "stream": None}).streams


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (b"{", "The body is not JSON: Expecting property name"),
        (b"", "The body is not JSON"),
        (b"[1]", r"The body is \[1\]; it must be a JSON object"),
        (b'{"prompt": NaN}', "NaN is no number"),
        (b'{"prompt": "\xff"}', "The body is not UTF-8, at byte 12"),
        (b'{"prompt": "a", "top_p": 1e999}', "greater than any"),
        (b'{"prompt": "\\ud800"}', "half of a surrogate pair"),
        (b'{"prompt": "a", "seed": ' + b"9" * 5000 + b"}", "The body is not JSON: Exceeds"),
        (b'{"prompt": "a", "x": ' + b"[" * 100_000 + b"}", "nested too deeply"),
        ({}, "The body has no 'messages' .* or 'prompt'"),
        ({"inputs": "a", "parameters": {}}, "are LMI's schema"),
        ({"prompt": "a", "model": 7}, "'model' is 7"),
        ({"prompt": "a", "max_tokens": 0}, "'max_tokens' is 0; .* from 1 to 64"),
        ({"prompt": "a", "max_tokens": 10**9}, "'max_tokens' is 1000000000"),
        ({"prompt": "a", "max_tokens": True}, "'max_tokens' is true"),
        ({"prompt": "a", "max_tokens": 1.5}, "'max_tokens' is 1.5"),
        ({**HELLO, "max_completion_tokens": -1}, "'max_completion_tokens' is -1"),
        ({"prompt": "a", "n": 9}, "asks for 9 answers at once, and 8 may be"),
        ({"prompt": ["a"] * 9}, "asks for 9 answers"),
        ({"prompt": "a", "n": 0}, "'n' is 0"),
        ({"prompt": []}, "'prompt' must be"),
        ({"prompt": {}}, "'prompt' must be"),
        ({"prompt": "a", "stream": "yes"}, "'stream' is \"yes\""),
        ({"messages": []}, "at least one message"),
        ({"messages": "a"}, "at least one message"),
        ({"messages": ["a"]}, "A message is \"a\""),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "reads text"),
        ({"prompt": "a", "prompt_embeds": "x"}, "'prompt_embeds' is not taken"),
        ({**HELLO, "chat_template": "{{ 1 }}"}, "'chat_template' is not taken"),
        ({**HELLO, "kv_transfer_params": {"remote_host": "x"}}, "'kv_transfer_params' is not"),
    ],
    ids=lambda value: str(value)[:30],
)  # fmt: skip
def test_refuses(document, sentence):
    with pytest.raises(RequestFault, match=sentence) as fault:
        check(document)
    assert fault.value.status == 400


def test_refuses_an_unknown_model():
    with pytest.raises(UnknownPath, match=r"'nope' does not exist here; known: a1, chat, chat-2"):
        check({**HELLO, "model": "nope"})


def test_refuses_the_other_paths_body():
    with pytest.raises(RequestFault, match="The body has no 'messages'"):
        check({"prompt": "a"}, path=CHAT)
    with pytest.raises(RequestFault, match="The body has no"):
        check(HELLO, path=COMPLETION)
