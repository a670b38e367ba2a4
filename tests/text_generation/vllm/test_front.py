"""The contract of text generators, by real vLLM on this machine's processors behind the front."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from io import BytesIO

import pytest

from tests.text_generation.tiny_llama import write_tiny_llama
from tests.text_generation.vllm.front_process import (
    JSON,
    PYTHON,
    completion,
    front_process,
    read_stream,
)

HELLO = [{"role": "user", "content": "hello"}]
KEYS = (
    *("max_tokens", "min_tokens", "n", "best_of", "temperature", "top_p", "top_k", "seed"),
    *("presence_penalty", "stop", "logprobs", "stop_token_ids", "logit_bias", "prompt_logprobs"),
    *("echo", "suffix", "stream_options", "truncate_prompt_tokens", "allowed_token_ids"),
    *("bad_words", "response_format", "tools", "tool_choice", "structured_outputs"),
    *("guided_json", "chat_template", "chat_template_kwargs", "prompt_embeds"),
    *("kv_transfer_params", "vllm_xargs", "messages", "prompt", "model", "documents"),
    *("mm_processor_kwargs", "logits_processors", "priority", "use_beam_search"),
)
ODD = (
    *(-1, 2**63, 1e308, None, True, "\x00", "é" * 300, [], {}, [-1], [10**12], ["a"] * 2000),
    *({"5": 1e9}, {"json": {"$ref": "#"}}, {"json": {"pattern": "(a+)+$"}}, {"choice": []}),
    *({"regex": "((a{1,999}){1,999}){1,999}"}, {"regex": "(["}, {"grammar": "root ::= root"}),
    {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nope"}}},
    [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "file:///"}}]}],
    [{"type": "function", "function": {"name": "\x00", "parameters": {"$ref": "#"}}}] * 200,
)
BODIES = (
    *(b"", b"{", b"null", b"[]", b"\xff\xfe", b"[" * 100_000, b"x" * 70_000, b'{"prompt": NaN}'),
    *(b'{"prompt":"\\ud800","max_tokens":1}', b'{"a":' * 900 + b"1" + b"}" * 900),
    b'{"prompt":"a","seed":' + b"9" * 5000 + b"}",
)
PATHS = ("/invocations", "/v1/chat/completions", "/adapters", "/v1/load_lora_adapter", "/%2e%2e")


def hostile_requests():
    """Path and body of requests; what of them is right by chance asks for one token."""
    yield from ((path, body) for path in PATHS for body in BODIES)
    for number, (key, value) in enumerate(itertools.product(KEYS, ODD)):
        own = {"messages": HELLO} if number % 2 else {"prompt": "hello"}
        document = {"max_tokens": 1, **own, key: value}
        yield PATHS[number % 2], json.dumps(document).encode()


DONE = b"data: [DONE]\n\n"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    if not PYTHON.exists():
        pytest.skip("the environment .venvs/vllm is not made: make environments-chat")
    return write_tiny_llama(tmp_path_factory.mktemp("llama"), dtype="float32")


@pytest.fixture(scope="module")
def front(checkpoint, tmp_path_factory):
    with front_process(checkpoint, tmp_path_factory.mktemp("front") / "log") as process:
        yield process


def await_idle(front):
    end = time.monotonic() + 15
    while front.metric("vllm:num_requests_running") and time.monotonic() < end:
        time.sleep(0.1)
    assert front.metric("vllm:num_requests_running") == 0


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/invocations", "chat.completion"),
        ("/v1/chat/completions", "chat.completion"),
        ("/invocations", "text_completion"),
        ("/v1/completions", "text_completion"),
    ],
)
def test_chats_and_completions_answer_on_both_paths(front, path, kind):
    body = {"messages": HELLO, "max_tokens": 4} if kind.startswith("chat") else completion(tokens=4)
    status, _, answer = front.ask(path, body)
    document = json.loads(answer)
    assert (status, document["object"], document["model"]) == (200, kind, "chat")
    assert document["usage"]["completion_tokens"] <= 4


def test_a_stream_ends_with_its_usage_and_done(front):
    body = completion(tokens=6, stream=True, stream_options={"include_usage": True})
    status, headers, answer = front.ask("/invocations", body)
    assert status == 200 and headers["content-type"].startswith("text/event-stream")
    *events, done, rest = answer.split(b"\n\n")
    assert (done, rest) == (b"data: [DONE]", b"")
    last = json.loads(events[-1].removeprefix(b"data: "))
    assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 6)


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        ({"inputs": "a", "parameters": {}}, 400),
        (completion("hello " * 600), 400),
        (completion(tokens=513), 400),
        (completion(tokens=0), 400),
        (completion(tokens=10**9), 400),
        (completion(temperature=-1), 400),
        (completion([10**6]), 400),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, 400),
        (completion(model="nope"), 404),
        (b" " * 6_291_457, 413),
    ],
    ids=lambda value: str(value)[:40],
)
def test_refuses_with_openais_error(front, body, status):
    sent = {"data": body} if isinstance(body, bytes) else {"document": body}
    found, _, answer = front.ask("/invocations", **sent)
    assert found == status
    assert {"message", "type", "param", "code"} <= json.loads(answer)["error"].keys()


def test_a_client_that_leaves_frees_its_sequence(front):
    async def leave():
        async with front.session() as session:
            body = json.dumps(completion(tokens=480, stream=True))
            async with session.post("/invocations", data=body, headers=JSON) as answer:
                await answer.content.readany()

    asyncio.run(leave())
    await_idle(front)
    assert front.metric("roundhouse_front_sequences") == 0


def test_hostile_requests_get_4xx_or_503_and_harm_nobody(front):
    async def throw(session, limit, path, body):
        async with limit, session.post(path, data=BytesIO(body), headers=JSON) as answer:
            return answer.status, path, body[:300], (await answer.read())[:300]

    async def innocent(session, stop, answers):
        while not stop.is_set():
            status, _, body = await read_stream(session, completion("the cat", tokens=24))
            if status != 503:
                answers.append((status, body.count(b'"text"'), body.endswith(DONE)))

    async def play():
        async with front.session() as session:
            stop, answers, limit = asyncio.Event(), [], asyncio.Semaphore(12)
            beside = [asyncio.create_task(innocent(session, stop, answers)) for _ in range(2)]
            thrown = [throw(session, limit, *request) for request in hostile_requests()]
            found = await asyncio.gather(*thrown)
            stop.set()
            await asyncio.gather(*beside)
            return found, answers

    found, innocents = asyncio.run(play())
    assert [row for row in found if row[0] >= 500 and row[0] != 503] == []
    assert len(innocents) > 2
    assert {(status, ends) for status, _, ends in innocents} == {(200, True)}
    assert front.process.poll() is None and front.ask("/ping")[0] == 200
    await_idle(front)


async def probe(session, refused):
    """Ask for one token; `refused` is set by any other answer than 200."""
    answer = await read_stream(session, completion(tokens=1))
    if answer.status != 200:
        refused.set()
    return answer


def test_sigterm_cuts_none_of_eight_streams(checkpoint, tmp_path):
    with front_process(checkpoint, tmp_path / "log") as front:

        async def play():
            async with front.session() as session:
                tokens = completion(tokens=400)
                streams = [asyncio.create_task(read_stream(session, tokens)) for _ in range(8)]
                async with asyncio.timeout(60):
                    while (await asyncio.to_thread(front.metric, "vllm:num_requests_running")) < 8:
                        await asyncio.sleep(0.05)
                front.process.terminate()
                # Until the signal has reached the process; none waits for the answer before it.
                probes, refused = [], asyncio.Event()
                async with asyncio.timeout(30):
                    while not refused.is_set():
                        probes.append(asyncio.create_task(probe(session, refused)))
                        await asyncio.sleep(0.01)
                status = max(answer.status for answer in await asyncio.gather(*probes))
                return status, await asyncio.gather(*streams)

        status, answers = asyncio.run(play())
        assert front.process.wait(40) == 0
    assert status == 503
    assert all(body.endswith(DONE) and b'"error"' not in body for _, _, body in answers)
    assert {body.count(b'"text"') for _, _, body in answers} == {400}


def test_tensor_parallel_answers_are_those_of_one_process(checkpoint, front, tmp_path):
    prompts = [f"{number} cats and {number * 7 % 11} dogs went to" for number in range(50)]

    def answers(process):
        bodies = (process.ask("/v1/completions", completion(prompt, 16)) for prompt in prompts)
        return [json.loads(body)["choices"][0]["text"] for _, _, body in bodies]

    alone = answers(front)
    with front_process(checkpoint, tmp_path / "log", SM_VLLM_TENSOR_PARALLEL_SIZE="2") as parallel:
        assert answers(parallel) == alone
    assert len(set(alone)) > 25
