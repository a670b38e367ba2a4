"""What of a request the engine reads, and what is refused before: keys, models, grammars."""

from __future__ import annotations

import json

import pytest

from container.server.types import RequestFault, UnknownPath
from container.server.vllm.requests import (
    CHAT,
    COMPLETION,
    INVOCATIONS,
    check_structures,
    checked_request,
)
from container.server.vllm.settings import EngineSettings

SETTINGS = EngineSettings(model="chat", max_model_len=64, most_sequences=8)
HELLO = {"messages": [{"role": "user", "content": "hello"}]}


def check(document, path=INVOCATIONS, adapter=None):
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return checked_request(body, path, SETTINGS, {"chat", "a1"}, adapter)


def engine_body(document, **more):
    return json.loads(check(document, **more).body)


def test_invocations_says_by_its_keys_what_it_is():
    assert check(HELLO).path == CHAT
    assert check({"prompt": "hello"}).path == COMPLETION


def test_a_request_without_a_model_gets_the_served_one():
    assert engine_body(HELLO)["model"] == "chat"
    assert engine_body({**HELLO, "model": ""})["model"] == "chat"
    assert engine_body({**HELLO, "model": "a1"})["model"] == "a1"


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


def test_refuses_the_other_paths_body():
    with pytest.raises(RequestFault, match="The body has no 'messages'"):
        check({"prompt": "a"}, path=CHAT)
    with pytest.raises(RequestFault, match="The body has no"):
        check(HELLO, path=COMPLETION)


def schema(value):
    return {"response_format": {"type": "json_schema", "json_schema": {"schema": value}}}


def regex(text):
    return {"structured_outputs": {"regex": text}}


PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 200},
        "email": {"type": "string", "pattern": r"^[\w.]{1,64}@[\w.]{1,255}$"},
        "tags": {"type": "array", "maxItems": 20, "items": {"type": "string", "maxLength": 30}},
        "parent": {"$ref": "#"},
    },
}
TOOL = {"type": "function", "function": {"name": "f", "parameters": PERSON}}


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"response_format": {"type": "json_object"}},
        schema(PERSON),
        {"tools": [TOOL] * 20},
        {"structured_outputs": {"choice": ["yes", "no"]}},
        {"structured_outputs": {"json": '{"type": "array", "maxItems": 100}'}},
        regex(r"\d{4}-\d{2}-\d{2}(T\d{2}:\d{2}:\d{2}(\.\d+)?Z)?"),
        regex(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?:cat|dog)+"),
    ],
    ids=range(8),
)
def test_takes_what_people_write(document):
    check_structures(document)


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (schema({"type": "array", "minItems": 10**9}), "'response_format' becomes a grammar"),
        (schema({"maxItems": 400, "items": {"maxItems": 400}}), "becomes a grammar"),
        (schema({"type": "string", "pattern": "(a{1,999}){1,999}"}), "becomes a grammar"),
        (schema({"patternProperties": {"a{199999}": {}}}), "becomes a grammar"),
        (schema({"maxLength": 1e12}), "becomes a grammar"),
        (regex("((a{1,999}){1,999}){1,999}"), "'structured_outputs' becomes"),
        (regex("a{200000}"), "becomes a grammar"),
        (regex(r"\p{Han}+"), "is not read here"),
        (schema({"pattern": "(["}), "is not read here"),
        ({"structured_outputs": {"json": '{"minItems": 1000000}'}}, "becomes a grammar"),
        ({"structured_outputs": {"json": "{"}}, "is no JSON"),
        ({"structured_outputs": {"json": {"$ref": "#"}}}, "a reference to itself"),
        ({"structured_outputs": {"json": '{"$ref": "#"}'}}, "a reference to itself"),
        ({"structured_outputs": {"choice": ["a" * 70_000]}}, "more than 65536 bytes"),
        ({"structured_outputs": {"grammar": "root ::= root"}}, "not 'grammar'"),
        ({"structured_outputs": {"structural_tag": "{}"}}, "not 'structural_tag'"),
        ({"structured_outputs": "x"}, "must be an object"),
        ({"response_format": {"type": "structural_tag"}}, "is not taken here"),
        ({"tools": [{**TOOL, "x": {"maxItems": 10**6}}]}, "'tools' becomes a grammar"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_refuses_a_grammar_that_is_too_large_or_none(document, sentence):
    with pytest.raises(RequestFault, match=sentence):
        check_structures(document)


def test_refuses_what_is_nested_deeply():
    value = {}
    for _ in range(40):
        value = {"items": value}
    with pytest.raises(RequestFault, match="deeper than 32"):
        check_structures(schema(value))
