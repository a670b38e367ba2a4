"""Text generation under load: requests, streams at their moments, metrics and verdicts."""

from __future__ import annotations

import json
import random
import statistics
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from container.generation_client import StreamBroken
from onboarding.fault import FaultsError
from onboarding.text_generation.spec import ContextSpec
from roundhouse.errors import RoundhouseError
from roundhouse.measure.destination import Destination
from roundhouse.measure.measurement import Outcome
from roundhouse.measure.prompts import (
    GenerationRequests,
    WordTokens,
    Workload,
    lengths_of,
    log_normal,
    parse_lengths,
    read_prompts,
    word_tokens,
)
from roundhouse.measure.slo import hopeless, stream_slo, verdict
from roundhouse.measure.streams import EventStream, StreamReader, metrics
from tests.unit.roundhouse.measure.phases import STREAM_SLO, stream_answers, stream_measurement
from tests.unit.roundhouse.measure.streams import (
    ROLE,
    chat_chunk,
    event,
    frame,
    stream,
    text_chunk,
    usage,
    whole,
)

TO = Destination(url="http://h/v1/chat/completions", headers={"X-A": "1"})
FIXED = Workload(lengths=parse_lengths("50:20", None))


def requests(workload=FIXED, seed=1, **changes) -> GenerationRequests:
    return GenerationRequests(TO, workload, model="chat", seed=seed, **changes)


def body(source) -> dict:
    data, headers = source.next()
    assert headers["Content-Type"] == "application/json" and headers["X-A"] == "1"
    return json.loads(data)


def test_a_request_of_given_lengths_is_streamed_with_usage_and_ends_at_its_length():
    found = body(requests(tokens=WordTokens(fixed=10, each=2)))
    (message,) = found.pop("messages")
    assert message["role"] == "user" and len(message["content"].split()) == 20
    assert found == {
        "model": "chat", "max_tokens": 20, "ignore_eos": True, "stream": True,
        "stream_options": {"include_usage": True},
    }  # fmt: skip


def test_the_same_seed_gives_the_same_requests_and_no_two_prompts_are_alike():
    first, second, other = requests(), requests(), requests(seed=2)
    bodies = [first.next()[0] for _ in range(20)]
    assert bodies == [second.next()[0] for _ in range(20)]
    assert len(set(bodies)) == 20 and other.next()[0] not in bodies


def test_tokens_are_counted_by_the_server():
    counted = word_tokens(((32, 58), (544, 672)))
    assert counted.each == pytest.approx(1.2, abs=0.001) and counted.words(672) == 544
    assert counted.words(1) == 1


def test_refuses_a_server_that_counts_no_words():
    with pytest.raises(RoundhouseError, match="give --input"):
        word_tokens(((32, 5), (544, 5)))


def test_prompts_of_a_file_in_an_order_of_the_seed(tmp_path):
    path = tmp_path / "prompts.jsonl"
    lines = [{"prompt": f"number {n}", "output_tokens": 5} for n in range(3)]
    lines.append({"messages": [{"role": "system", "content": "s"}]})
    path.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    workload = read_prompts(path, None)
    assert workload.description == "4 prompts of prompts.jsonl" and len(workload.sha256) == 64
    source = requests(workload)
    bodies = [body(source) for _ in range(8)]
    assert bodies[:4] == bodies[4:]
    free = next(item for item in bodies if "ignore_eos" not in item)
    assert free["messages"] == [{"role": "system", "content": "s"}] and free["max_tokens"] == 256


def test_refuses_every_line_that_is_no_prompt(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "a"}\n{\n3\n{"prompt": 5}\n{"prompt": "a", "output_tokens": 0}\n')
    with pytest.raises(FaultsError) as error:
        read_prompts(path, None)
    assert [fault.line for fault in error.value.faults] == [2, 3, 4, 5]


CONTEXT = ContextSpec(
    max_model_len=8192, prompt_p95=3000, prompt_mean=1200, output_p95=400, output_mean=150
)


def test_samples_have_the_declared_mean_and_p95():
    lengths, chance = lengths_of(CONTEXT), random.Random(7)
    pairs = [lengths.sample(chance) for _ in range(20_000)]
    for place, mean, p95 in ((0, 1200, 3000), (1, 150, 400)):
        values = sorted(pair[place] for pair in pairs)
        assert statistics.fmean(values) == pytest.approx(mean, rel=0.03)
        assert values[19_000] == pytest.approx(p95, rel=0.05)
    assert all(prompt + output <= 8192 for prompt, output in pairs)


@pytest.mark.parametrize(
    ("mean", "p95", "found"),
    [(300, 300, (300, 300)), (300, 200, (200, 200)), (100, 300, (100, 300))],
)
def test_lengths_have_the_declared_mean_and_p95(mean, p95, found):
    fitted = log_normal(mean, p95)
    assert (fitted.mean, fitted.p95) == pytest.approx(found)
    assert log_normal(100, 1000).p95 == pytest.approx(1000), "no log-normal has both"


@pytest.mark.parametrize("text", ["", "chat", "512", "512:", "0:5", "5:-1", "a:b"])
def test_refuses_other_lengths(text):
    with pytest.raises(RoundhouseError, match=r"--input .*: give PROMPT:OUTPUT"):
        parse_lengths(text, None)


def test_refuses_lengths_over_the_context():
    with pytest.raises(RoundhouseError, match=r"than the model's context\.max_model_len"):
        parse_lengths("8000:500", CONTEXT)


@pytest.mark.parametrize(
    ("most", "words"), [(None, (32, 544)), (4096, (32, 544)), (512, (32, 127)), (16, (1, 3))]
)
def test_prompts_that_count_tokens_fit_the_longest_request(most, words):
    context = None if most is None else CONTEXT.model_copy(update={"max_model_len": most})
    assert parse_lengths("8:4", context).calibration_words == words


def read(*parts: bytes, unframe=None):
    """Read parts that arrive at 1 s, 2 s, ..."""
    reader = StreamReader() if unframe is None else StreamReader(unframe=unframe)
    for moment, part in enumerate(parts, 1):
        reader.read(part, float(moment))
    return reader.end()


def test_role_of_a_chat_is_no_token_and_the_last_chunk_is_one():
    last = chat_chunk("", last=True)
    times = read(event(ROLE), event(chat_chunk()), event(last), stream(usage(7, 2), "[DONE]"))
    assert list(times.chunks) == [2.0, 3.0]
    assert (times.prompt_tokens, times.output_tokens, list(times.gaps)) == (7, 2, [1.0])


def test_chunk_without_text_is_a_token_of_part_of_a_character():
    times = read(
        event(text_chunk("")), event(text_chunk("é", last=True)), stream(usage(), "[DONE]")
    )
    assert list(times.chunks) == [1.0, 2.0]


@given(st.lists(st.integers(1, 400), max_size=12), st.booleans())
def test_any_split_of_the_bytes_gives_the_same_answer(cuts, is_framed):
    data = stream(ROLE, chat_chunk("zwölf 🙂"), chat_chunk("b", last=True), usage(5, 2), "[DONE]")
    if is_framed:
        data = b"".join(frame(data[place : place + 7]) for place in range(0, len(data), 7))
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    parts = [data[begin:end] for begin, end in pairwise(places)]
    times = read(*parts, unframe=EventStream() if is_framed else None)
    assert (len(times.chunks), times.prompt_tokens, times.output_tokens) == (2, 5, 2)


ERROR = {"error": {"message": "engine is gone", "type": "x"}}
LAST = chat_chunk(last=True)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (stream(LAST, usage()), r"without \[DONE\]"),
        (stream(chat_chunk(), usage(), "[DONE]"), "not why its answer ended"),
        (stream(chat_chunk(), ERROR, "[DONE]"), "engine is gone"),
        (stream(chat_chunk(), "{", "[DONE]"), "not JSON"),
        (stream(LAST, "[DONE]"), "no usage"),
        (b"data: \xff\xfe\n\n", "not UTF-8"),
    ],
)
def test_refuses_a_broken_stream(data, reason):
    with pytest.raises(StreamBroken, match=reason):
        read(data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (
            frame(
                b'{"Message": "late"}', message_type="exception", exception_type="ModelStreamError"
            ),
            "ModelStreamError.*late",
        ),
        (frame(b"x", message_type="error", error_code="InternalStreamFailure"), "InternalStream"),
        (frame(whole())[:-1] + b"\x00", "event stream is damaged"),
        (frame(whole())[:-5], r"without \[DONE\]"),
    ],
)
def test_refuses_a_broken_event_stream(data, reason):
    with pytest.raises(StreamBroken, match=reason):
        read(data, unframe=EventStream())


FIRST = (10.0, (10.2, 10.25, 10.3), 100, 3)
SECOND = (10.1, (10.5, 10.6), 50, 4)
"""Four tokens in two chunks."""


def test_metrics_have_aiperfs_names_units_and_fields():
    found = metrics(stream_measurement(FIRST, SECOND, errors=2))
    assert found["time_to_first_token"] == {
        "unit": "ms", "avg": pytest.approx(300), "min": pytest.approx(200),
        "max": pytest.approx(400), "p1": pytest.approx(202), "p5": pytest.approx(210),
        "p10": pytest.approx(220), "p25": pytest.approx(250), "p50": pytest.approx(300),
        "p75": pytest.approx(350), "p90": pytest.approx(380), "p95": pytest.approx(390),
        "p99": pytest.approx(398), "std": pytest.approx(141.42, abs=0.01), "count": 2,
        "sum": pytest.approx(600),
    }  # fmt: skip
    assert found["inter_token_latency"]["avg"] == pytest.approx((50 + 100 / 3) / 2)
    assert found["inter_chunk_latency"]["count"] == 3
    assert found["inter_chunk_latency"]["max"] == pytest.approx(100)
    assert found["request_latency"]["avg"] == pytest.approx(400)
    assert found["output_sequence_length"]["sum"] == 7
    assert found["input_sequence_length"]["avg"] == 75
    for name, unit, value in (
        ("benchmark_duration", "sec", 0.6),
        ("request_throughput", "requests/sec", 2 / 0.6),
        ("output_token_throughput", "tokens/sec", 7 / 0.6),
        ("total_token_throughput", "tokens/sec", 157 / 0.6),
        ("request_count", "requests", 2),
        ("error_request_count", "requests", 2),
        ("good_request_count", "requests", 1),
        ("goodput", "requests/sec", 1 / 0.6),
    ):
        assert found[name] == {"unit": unit, "avg": pytest.approx(value)}


@pytest.mark.parametrize(
    ("ttft_ms", "itl_ms", "good"), [(500, 60, 2), (300, 60, 1), (500, 40, 1), (100, 1, 0)]
)
def test_goodput_needs_both_limits_of_each_answer(ttft_ms, itl_ms, good):
    slo = stream_slo(ttft_ms=ttft_ms, itl_ms=itl_ms)
    assert stream_measurement(FIRST, SECOND, slo=slo).good == good


def test_answer_of_one_token_has_no_time_between_tokens():
    phase = stream_measurement((0.0, (0.1,), 5, 1))
    found = metrics(phase)
    assert phase.good == 1
    assert {"inter_token_latency", "inter_chunk_latency"} & found.keys() == set()


def test_of_no_answer_and_without_an_slo_nothing_is_known():
    found = metrics(stream_measurement(errors=3, slo=None))
    assert found["request_count"]["avg"] == 0 and found["error_request_count"]["avg"] == 3
    assert {"time_to_first_token", "goodput", "good_request_count"} & found.keys() == set()


def test_both_percentiles_within_the_slo_hold():
    found = verdict(stream_measurement(*stream_answers(200, late=9)), STREAM_SLO)
    assert found.outcome is Outcome.held
    assert "TTFT p95" in found.reason and "ITL p95" in found.reason


@pytest.mark.parametrize(
    ("phase", "reason"),
    [
        (stream_measurement(*stream_answers(200, late=20)), "TTFT p95 400 ms above 300 ms"),
        (stream_measurement(*stream_answers(200, gap=0.07)), "ITL p95 70.0 ms above 60 ms"),
        (stream_measurement(*stream_answers(30, ttft=0.5)), "TTFT p50 500 ms above 300 ms"),
        (stream_measurement(*stream_answers(200), errors=1), "1 error: HTTP 503"),
    ],
    ids=["first token", "between tokens", "few answers, all late", "errors"],
)
def test_a_phase_misses(phase, reason):
    found = verdict(phase, STREAM_SLO)
    assert (found.outcome, found.reason) == (Outcome.missed, reason)


def test_refuses_a_verdict_on_too_few_answers():
    found = verdict(stream_measurement(*stream_answers(150, late=20)), STREAM_SLO)
    assert (found.outcome, found.reason) == (Outcome.unproven, "150 answers; p95 needs 200")


def test_the_tools_own_load_is_not_the_servers_miss():
    phase = stream_measurement(*stream_answers(200, late=20))
    phase.seconds_seen[0].cpu_share = 0.99
    assert verdict(phase, STREAM_SLO).outcome is Outcome.tool


@pytest.mark.parametrize(
    ("count", "changes", "reason"),
    [
        (20, {"ttft": 0.7}, "TTFT p50 above 600 ms"),
        (20, {"gap": 0.13}, "ITL p50 above 120 ms"),
        (20, {"ttft": 0.5}, None),
        (3, {"ttft": 9}, None),
    ],
)
def test_a_step_whose_median_misses_by_far_is_ended(count, changes, reason):
    phase = stream_measurement(*stream_answers(count, **changes))
    assert hopeless(phase, STREAM_SLO, 2) == reason
