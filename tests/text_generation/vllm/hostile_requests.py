"""Hostile requests to a text generator; a seed gives the same ones."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

WORDS = ("hello", "é", "猫", "\x00", "\u202e", "a" * 300, " " * 500, "<|im_start|>", "{{7*7}}")
NUMBERS: tuple[Any, ...] = (
    0,
    -1,
    1,
    10**9,
    2**63,
    -(2**63),
    1.5,
    1e308,
    -1e308,
    True,
    False,
    None,
    "1",
    [],
    {},
)
KEYS = (
    "max_tokens", "max_completion_tokens", "min_tokens", "n", "best_of", "temperature", "top_p",
    "top_k", "min_p", "seed", "presence_penalty", "frequency_penalty", "repetition_penalty", "stop",
    "stop_token_ids", "logit_bias", "logprobs", "prompt_logprobs", "top_logprobs", "echo", "suffix",
    "stream", "stream_options", "priority", "truncate_prompt_tokens", "allowed_token_ids",
    "bad_words", "response_format", "tools", "tool_choice", "guided_regex", "guided_json",
    "structured_outputs", "add_generation_prompt", "continue_final_message", "chat_template",
    "chat_template_kwargs", "documents", "mm_processor_kwargs", "prompt_embeds",
    "logits_processors", "kv_transfer_params", "vllm_xargs", "cache_salt", "request_id",
    "return_token_ids", "user",
    "model", "messages", "prompt", "use_beam_search", "include_stop_str_in_output", "spaces",
)  # fmt: skip
ODD: tuple[Any, ...] = (
    {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nope"}}},
    {"type": "json_object"}, {"regex": "((a{1,999}){1,999}){1,999}"}, {"regex": "(["},
    {"grammar": "root ::= root"}, {"json": {"$ref": "#"}}, {"choice": []}, {"5": 1e9},
    {"99999999": -100}, {"include_usage": "x"}, [-1], [10**12], ["a"] * 2000, [[1], "a"],
    [{"type": "function", "function": {"name": "\x00", "parameters": {"$ref": "#"}}}],
    {"type": "function", "function": {"name": "none"}}, {"remote_host": "127.0.0.1"},
    [{"role": "nobody", "content": "x"}], [{"role": "user"}], [{"role": "user", "content": 7}],
    [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///"}}]}],
    [{"role": "tool", "content": "x", "tool_call_id": []}], "required", "auto", "../../x",
)  # fmt: skip
STRUCTURED = ("response_format", "structured_outputs", "guided_json", "tools")
STRUCTURES: tuple[Any, ...] = (
    {"json": {"type": "object", "properties": {"a": {"$ref": "#"}}}}, {"json": "{"}, {"json": 7},
    {"json": {"type": "array", "minItems": 10**9}}, {"json": {"pattern": "(a+)+$"}}, {"json": {}},
    {"choice": ["a"] * 3000}, {"choice": [""]}, {"choice": [7]}, {"choice": "a", "regex": "b"},
    {"regex": "(?<=a)b"}, {"regex": "\\p{Han}+"}, {"regex": ""}, {"regex": 7}, {"json_object": 1},
    {"structural_tag": "{}"}, {"structural_tag": "x"}, {"regex": "a{100000}"}, {"whitespace": "("},
    {"type": "json_schema"}, {"type": "json_schema", "json_schema": {"name": "x", "schema": True}},
    {"type": "json_schema", "json_schema": {"name": "x", "schema": {"enum": []}}},
    {"type": "structural_tag", "structures": [], "triggers": []}, {"type": "grammar"},
    [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}] * 200,
    [{"type": "function", "function": {"name": "f", "parameters": {"type": 7}}}],
)  # fmt: skip
"""Schemas, expressions and tools that a compiler of grammars sees."""
HEADERS: tuple[dict[str, str], ...] = (
    {}, {"Content-Type": "text/plain"}, {"Content-Type": ""}, {"Content-Encoding": "gzip"},
    {"X-Amzn-SageMaker-Custom-Attributes": "route=/adapters"},
    {"X-Amzn-SageMaker-Session-Id": "NEW_SESSION"}, {"X-Request-Id": "same"},
    {"X-Amzn-SageMaker-Adapter-Identifier": "../../etc"}, {"Authorization": "Bearer x"},
)  # fmt: skip
PATHS = (
    "/invocations", "/v1/chat/completions", "/v1/completions", "/v1/models", "/adapters",
    "/v1/load_lora_adapter", "/tokenize", "/invocations?x=1", "/v1/../adapters", "/%2e%2e",
    "/reset",
)  # fmt: skip
BODIES = (
    b"", b"{", b"null", b"7", b"[]", b'"x"', b"\xff\xfe", b"{" * 5000, b"[" * 100_000,
    b'{"prompt":"\\ud800","max_tokens":1}', b'{"prompt": NaN}', b'{"a":' * 900 + b"1" + b"}" * 900,
    b'{"prompt":"a","max_tokens":1,"x":' + b"[" * 700 + b"]" * 700 + b"}", b"x" * 70_000,
    b'{"prompt":"a","seed":' + b"9" * 5000 + b"}", b'{"inputs":"a","parameters":{}}',
)  # fmt: skip


class HostileRequest(NamedTuple):
    """A request of HTTP."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


def hostile_requests(count: int, seed: int = 0) -> Iterator[HostileRequest]:
    """Yield requests; what of them is right by chance asks for one token."""
    dice = random.Random(seed)
    for _ in range(count):
        path = dice.choice(PATHS[:3] * 6 + PATHS)
        method = dice.choice(("POST",) * 12 + ("GET", "PUT", "DELETE", "OPTIONS"))
        headers = {"Content-Type": "application/json", **dice.choice(HEADERS[:1] * 9 + HEADERS)}
        kind = dice.random()
        if kind < 0.15:
            body = dice.choice(BODIES)
        elif kind < 0.2:
            body = _damage(dice, json.dumps(_document(dice)).encode())
        elif kind < 0.22:
            body = json.dumps({"prompt": dice.choice(WORDS) * 3000, "max_tokens": 1}).encode()
        else:
            body = json.dumps(_document(dice)).encode()
        yield HostileRequest(method, path, headers, b"" if method == "GET" else body)


def _document(dice: random.Random) -> dict[str, Any]:
    document: dict[str, Any] = {"max_tokens": 1}
    if dice.random() < 0.6:
        document["messages"] = [{"role": "user", "content": dice.choice(WORDS)}]
    if dice.random() < 0.5:
        document["prompt"] = dice.choice((*WORDS, [1, 2], [-1], [[1], [10**6]], ["a"] * 9, ""))
    for _ in range(dice.randint(1, 3)):
        document[dice.choice(KEYS)] = dice.choice((*NUMBERS, *WORDS, *ODD))
    if dice.random() < 0.2:
        document = {key: document[key] for key in ("messages", "prompt") if key in document}
        document |= {"max_tokens": 1, dice.choice(STRUCTURED): dice.choice(STRUCTURES)}
        if dice.random() < 0.3:
            document["tool_choice"] = dice.choice(("auto", "required", "none", "f"))
    return document


def _damage(dice: random.Random, body: bytes) -> bytes:
    data = bytearray(body)
    for _ in range(dice.randint(1, 4)):
        data[dice.randrange(len(data))] = dice.randrange(256)
    return bytes(data[: dice.randrange(len(data)) + 1])
