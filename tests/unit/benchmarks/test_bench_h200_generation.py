"""The experiment on text generators: its load, its reading of vLLM's log, its bars, its shapes."""

from __future__ import annotations

import asyncio
import json

import pytest

from benchmarks.h200_generation.bars import TOOLS, measures
from benchmarks.h200_generation.engines import cache_report, error_line
from benchmarks.h200_generation.load import numbers, overload_numbers
from benchmarks.h200_generation.predict import prediction
from benchmarks.h200_generation.programs.engine import random_prompts
from benchmarks.h200_generation.programs.streams import stream
from benchmarks.h200_generation.shapes import CASES, CONFIGS, STORED, headers, write_checkpoint
from benchmarks.h200_generation.tokenizer import merges, write_tokenizer
from onboarding.text_generation.platforms import schemes
from onboarding.text_generation.weights import count_weights
from tests.unit.onboarding.text_generation.shapes import LLAMA_8B, LLAMA_70B

pytestmark = pytest.mark.unit

LOG = """INFO [gpu_model_runner.py] Model loading took 14.99 GiB memory and 3.25 seconds
INFO [cuda.py] Using FLASH_ATTN attention backend out of potential backends
INFO [backends.py] torch.compile takes 24.10 s in total
INFO [gpu_worker.py] Available KV cache memory: 111.65 GiB
INFO [kv_cache_utils.py] GPU KV cache size: 914,672 tokens
INFO [gpu_model_runner.py] Graph capturing finished in 9 secs, took 0.61 GiB
"""


def _event(text):
    return b"data: " + text.encode() + b"\n\n"


TOKEN = _event('{"id":"1","choices":[{"text":"a"}],"usage":null}')
USAGE = _event('{"id":"1","choices":[],"usage":{"completion_tokens":3}}')
DONE = _event("[DONE]")


def _answer(*parts, status="200 OK"):
    """Return what the client makes of an answer in such chunks."""

    async def talk():
        async def serve(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            head = f"HTTP/1.1 {status}\r\nTransfer-Encoding: chunked\r\n\r\n"
            chunks = [b"%x\r\n%s\r\n" % (len(part), part) for part in parts]
            writer.write(head.encode() + b"".join(chunks) + b"0\r\n\r\n")
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            return await stream(port, "/invocations", b"{}")

    return asyncio.run(talk())


def test_stream_counts_tokens_of_the_usage_and_gaps_between_events():
    answer = _answer(TOKEN, TOKEN[:20], TOKEN[20:] + TOKEN, USAGE + DONE)
    assert (answer.fault, answer.tokens, answer.events, len(answer.gaps_ms)) == ("", 3, 3, 2)
    assert answer.begin <= answer.first <= answer.last


@pytest.mark.parametrize(
    ("parts", "status", "says"),
    [
        ((TOKEN, USAGE), "200 OK", "no [DONE]"),
        ((TOKEN, _event('{"error":{"message":"stop"}}'), DONE), "200 OK", "stop"),
        ((b"event: error\ndata: {}\n\n", DONE), "200 OK", "event: error"),
        ((b"broken",), "500 Internal Server Error", "500"),
    ],
    ids=["no-done", "error", "error-event", "status"],
)
def test_stream_that_is_not_complete_is_a_fault(parts, status, says):
    assert says in _answer(*parts, status=status).fault


def test_refusal_is_no_fault():
    answer = _answer(b"busy", status="503 Service Unavailable")
    assert answer.is_refused and answer.fault == "" and answer.last > answer.begin


def test_overload_counts_the_refused_apart():
    whole = {"begin": 0.0, "first": 0.5, "last": 2.5, "tokens": 5, "events": 5, "fault": "",
             "gaps_ms": [500.0] * 4, "is_refused": False}  # fmt: skip
    refused = {**whole, "last": 0.02, "tokens": 0, "is_refused": True}
    found = overload_numbers([whole, refused, {**refused, "last": 0.04}, whole])
    assert (found["requests"], found["refused"]) == (2, 2)
    assert found["ttft_ms"]["p50"] == 500 and found["refused_ms"]["mean"] == 30


def test_stored_formats_are_those_of_the_recipes(tmp_path):
    for scheme, case in STORED.items():
        config = json.loads((write_checkpoint(case, tmp_path) / "config.json").read_text())
        group = config["quantization_config"]["config_groups"]["group_0"]
        bits = schemes()[scheme].weight_bits
        assert group["weights"]["num_bits"] == round(bits)
        assert (group["input_activations"] is None) == schemes()[scheme].weight_only
        assert case.arguments().get("quantization") is None


def test_bars_compare_the_load_tools_and_the_overload():
    phase = {"metrics": {name: {"avg": 2.0} for _, _, (name, _) in TOOLS}}
    theirs = {name: 1.0 for _, name, _ in TOOLS}
    overload = {
        "1": {"ttft_ms": {"p95": 100.0}},
        "3": {"ttft_ms": {"p95": 120.0}, "refused_ms": {"p50": 2.0, "p99": 60.0}},
    }
    run = {
        "endpoint-bf16": {"load_tools": [{"vllm": theirs, "ours": phase, "again": theirs}]},
        "overload": {"rounds": [overload]},
    }
    found = {measure.name: measure for measure in measures({"cases": {}}, [run])}
    assert found["TTFT, roundhouse bench / vllm bench serve"].value == 2
    assert found["TTFT, vllm bench serve again / vllm bench serve"].value == 1
    assert found["p95 TTFT of the admitted, 3 x the knee / knee"].verdict == "held"
    assert found["p99 of a 503 at 3 x the knee"].verdict == "missed"


def test_numbers_are_of_all_streams_together():
    answers = [
        {"begin": 0.0, "first": 0.5, "last": 2.5, "tokens": 5, "events": 5, "fault": "",
         "gaps_ms": [500.0] * 4},
        {"begin": 1.0, "first": 2.0, "last": 4.0, "tokens": 3, "events": 3, "fault": "",
         "gaps_ms": [1000.0] * 2},
    ]  # fmt: skip
    found = numbers(answers)
    assert (found["tokens"], found["seconds"], found["output_tokens_per_second"]) == (8, 4.0, 2.0)
    assert found["ttft_ms"]["mean"] == 750 and found["tpot_ms"]["mean"] == 750
    assert found["itl_ms"]["p50"] == 500 and found["itl_ms"]["p99"] == 1000
    with pytest.raises(ValueError, match="1 of 3 streams were not complete: no"):
        numbers([*answers, {**answers[0], "fault": "no [DONE]"}])


def test_log_of_vllm_is_read():
    report = cache_report(LOG)
    assert report["kv_tokens"] == 914_672 and report["kv_gib"] == 111.65
    assert (report["weights_gib"], report["load_seconds"]) == (14.99, 3.25)
    assert report["attention"] == "FLASH_ATTN" and report["compile_seconds"] == 24.1
    assert cache_report("") == {}


def test_refusal_is_vllms_last_error():
    log = (
        "ERROR x\nValueError: first\n  at y\nERROR [core.py] ValueError: No available memory\nend\n"
    )
    assert error_line(log) == "ValueError: No available memory"
    assert error_line("a\nb\n") == "b"


def test_vocabulary_has_the_size_and_no_word_twice(tmp_path):
    size = CONFIGS["8b"]["vocab_size"]
    write_tokenizer(tmp_path, size)
    model = json.loads((tmp_path / "tokenizer.json").read_text())["model"]
    assert sorted(model["vocab"].values()) == list(range(size))
    assert {word for pair in model["merges"] for word in pair} <= model["vocab"].keys()


def test_refuses_a_vocabulary_that_letters_do_not_fill():
    with pytest.raises(ValueError, match="merges were wanted"):
        merges(10_000_000)


def test_prompts_are_random_tokens_of_the_vocabulary():
    first, second = random_prompts(128_256, 2, 8, 1)
    assert first != second and all(1000 <= token < 128_256 for token in (*first, *second))
    assert random_prompts(128_256, 2, 8, 1) == [first, second]


@pytest.mark.parametrize(("shape", "expected"), [("8b", LLAMA_8B), ("70b", LLAMA_70B)])
def test_headers_are_those_of_the_planners_tests(shape, expected):
    for size in (1, 2):
        found = count_weights(headers(shape), schemes()["bf16"], size)
        assert found == count_weights(expected, schemes()["bf16"], size)


@pytest.mark.parametrize(
    ("shape", "billions"),
    [("qwen2.5-1.5b", 1.54), ("qwen3-32b", 32.8), ("gemma3-4b", 3.88), ("70b", 70.6)],
)
def test_shapes_have_the_parameters_of_the_published_models(shape, billions):
    parameters = count_weights(headers(shape), schemes()["bf16"], 1).parameters
    assert parameters / 1e9 == pytest.approx(billions, rel=0.005)


def test_planner_refuses_70b_in_16_bits_on_one_card():
    assert prediction(CASES["70b-bf16-kv-bf16"])["kv_tokens"] == 0
    assert prediction(CASES["8b-bf16-kv-bf16"])["kv_tokens"] > 900_000


def _run(endpoint=0.97):
    rates = {"by_batch": {"1": [205.0, 207.0], "64": [5000.0]}, "kv_tokens": 914_672}
    fast = {"by_batch": {"1": [280.0], "64": [6900.0]}, "kv_tokens": 1_935_264}
    return {
        "rates-bf16": rates,
        "rates-fp8": fast,
        "baseline": {"by_batch": {"1": [1.0, 12.5, 13.0], "64": [1.0, 870.0]}},
        "caches": {"small": {"kv_tokens": 1000}},
        "endpoint-bf16": {
            "rounds": [
                {"throughput": 100.0, "endpoint": {"output_tokens_per_second": 100 * endpoint}}
            ]
        },
    }


def test_bars_are_held_or_missed():
    planned = {"8b-bf16-kv-bf16": 914_704, "small": 970}
    predictions = {"cases": {name: {"kv_tokens": tokens} for name, tokens in planned.items()}}
    found = {item.name: item for item in measures(predictions, [_run(), _run(0.94)])}
    verdicts = {name: item.verdict for name, item in found.items() if item.bar is not None}
    assert verdicts == {
        "8B BF16, 1 at once": "held",
        "8B BF16 / transformers generate, 1 at once": "held",
        "8B BF16 / transformers generate, 64 at once": "held",
        "8B FP8 with FP8 KV / BF16, 1 at once": "held",
        "8B FP8 with FP8 KV / BF16, 64 at once": "missed",
        "8B FP8 with FP8 KV / BF16, KV tokens": "held",
        "KV tokens planned against logged, 8b-bf16-kv-bf16": "held",
        "KV tokens planned against logged, small": "missed",
        "8B BF16, our endpoint / vllm bench throughput": "held",
    }
    ours = found["8B BF16, our endpoint / vllm bench throughput"]
    assert (ours.low, ours.high) == (pytest.approx(0.94), pytest.approx(0.97))


def test_stage_that_did_not_run_has_no_measure():
    assert measures({"cases": {"small": {"kv_tokens": 1}}}, [{}]) == []
