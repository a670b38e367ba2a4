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
from onboarding.text_generation.spec import ContextSpec
from roundhouse.errors import RoundhouseError
from roundhouse.measure import measurement
from roundhouse.measure.destination import Destination
from roundhouse.measure.generation import GenerationRunner
from roundhouse.measure.prompts import (
    GenerationRequests,
    WordTokens,
    lengths_of,
    log_normal,
    parse_lengths,
    word_tokens,
)
from roundhouse.measure.slo import stream_slo
from roundhouse.measure.streams import EventStream, StreamReader
from tests.unit.roundhouse.measure.phases import stream_measurement
from tests.unit.roundhouse.measure.streams import (
    ROLE,
    chat_chunk,
    event,
    frame,
    stream,
    usage,
    whole,
)

TO = Destination(url="http://h/v1/chat/completions", headers={"X-A": "1"})
FIXED = parse_lengths("50:20", None)


def requests(seed=1, **changes) -> GenerationRequests:
    return GenerationRequests(TO, FIXED, model="chat", seed=seed, **changes)


def test_a_request_of_given_lengths_is_streamed_with_usage_and_ends_at_its_length():
    data, headers = requests(tokens=WordTokens(fixed=10, each=2)).next()
    found = json.loads(data)
    assert headers == {"Content-Type": "application/json", "X-A": "1"}
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


def test_two_runs_send_prompts_of_the_same_lengths_and_of_other_words():
    """An engine would answer the same prompts from its prefix cache."""
    first, second = requests(), requests(words_seed=1)
    bodies = [(json.loads(first.next()[0]), json.loads(second.next()[0])) for _ in range(20)]
    words = [[body["messages"][0]["content"].split() for body in pair] for pair in bodies]
    assert all(len(one) == len(two) and one != two for one, two in words)
    runners = [GenerationRunner(test=None) for _ in range(2)]
    assert runners[0].words_seed != runners[1].words_seed


def test_tokens_are_counted_by_the_server():
    counted = word_tokens(((32, 58), (544, 672)))
    assert counted.each == pytest.approx(1.2, abs=0.001) and counted.words(672) == 544
    assert counted.words(1) == 1
    with pytest.raises(RoundhouseError, match="prompts of given lengths cannot be made"):
        word_tokens(((32, 5), (544, 5)))


CONTEXT = ContextSpec(
    max_model_len=8192, prompt_p95=3000, prompt_mean=1200, output_p95=400, output_mean=150
)


def test_samples_have_the_declared_mean_and_p95():
    drawn = lengths_of(CONTEXT).draw(random.Random(7))
    pairs = [next(drawn) for _ in range(20_000)]
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


@given(st.lists(st.integers(1, 400), max_size=12), st.booleans())
def test_any_split_of_the_bytes_gives_the_same_answer(cuts, is_framed):
    data = stream(ROLE, chat_chunk("zwölf 🙂"), chat_chunk("b", last=True), usage(5, 2), "[DONE]")
    if is_framed:
        data = b"".join(frame(data[place : place + 7]) for place in range(0, len(data), 7))
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    parts = [data[begin:end] for begin, end in pairwise(places)]
    times = read(*parts, unframe=EventStream() if is_framed else None)
    assert (len(times.chunks), times.prompt_tokens, times.output_tokens) == (2, 5, 2)


LAST = chat_chunk(last=True)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (stream(LAST, "[DONE]"), "no usage"),
        (b"data: \xff\xfe\n\n", "not UTF-8"),
    ],
)
def test_refuses_a_broken_stream(data, reason):
    """The other ways to break are the client's own: container/generation_client.py."""
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


ANSWERS = (
    (0.0, (0.2, 0.24, 0.28, 0.32), 11, 4),
    (0.1, (0.5, 0.6), 7, 4),
    (0.4, (0.6, 0.65, 0.70), 5, 3),
    (0.5, (0.7,), 9, 1),
)
"""Due, moments of chunks, prompt tokens, output tokens; one of two chunks has four tokens."""
VLLM_TIMES = {
    "ttft": {"mean": 250, "p50": 200, "p95": 370},
    "tpot": {"mean": 41.1111, "p50": 40, "p95": 49},
    "itl": {"mean": 53.3333, "p50": 45, "p95": 87.5},
    "e2el": {"mean": 330, "p50": 310, "p95": 473},
}
VLLM = {
    "requests_per_second": 5.714286,
    "goodput_requests_per_second": 2.857143,
    "output_tokens_per_second": 17.142857,
    "total_tokens_per_second": 62.857143,
    "answered": 4,
    "output_tokens": 12,
    "prompt_tokens": 32,
}
"""Of these answers in 0.7 s, by calculate_metrics of `vllm bench serve` 0.30.0."""


def test_metrics_are_those_of_vllm_bench_serve(monkeypatch):
    """Which proves no percentile by the number of its samples."""
    slo = stream_slo(ttft_ms=250, itl_ms=45)
    phase = stream_measurement(*ANSWERS, slo=slo, errors=2)
    assert {spread["p50"] for spread in phase.document()["times_ms"].values() if spread} == {None}
    monkeypatch.setattr(measurement, "SAMPLES_BEYOND", 0)
    found = phase.document()
    for name, expected in VLLM_TIMES.items():
        own = {key: found["times_ms"][name][key] for key in expected}
        assert own == pytest.approx(expected, rel=1e-5), name
    assert {name: found[name] for name in VLLM} == pytest.approx(VLLM, rel=1e-5)
    assert (found["good_answers"], found["failed"]) == (2, 2)


@pytest.mark.parametrize(
    ("ttft_ms", "itl_ms", "good"), [(500, 60, 4), (200, 60, 3), (500, 40, 3), (100, 1, 0)]
)
def test_goodput_needs_both_limits_of_each_answer_and_of_one_token_the_first(ttft_ms, itl_ms, good):
    slo = stream_slo(ttft_ms=ttft_ms + 0.1, itl_ms=itl_ms + 0.1)
    assert stream_measurement(*ANSWERS, slo=slo).good == good


def test_of_no_answer_and_without_an_slo_nothing_is_known():
    found = stream_measurement(errors=3, slo=None).document()
    assert (found["answered"], found["failed"], found["times_ms"]["ttft"]) == (0, 3, None)
    assert found["good_answers"] is found["goodput_requests_per_second"] is None
