"""Requests: OpenAI's schema, lengths by the server's own count, prompts of a file."""

from __future__ import annotations

import json
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onboarding.fault import FaultsError
from onboarding.text_generation.spec import ContextSpec
from roundhouse.errors import RoundhouseError
from roundhouse.measure.destination import Destination
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

TO = Destination(url="http://h/v1/chat/completions", headers={"X-A": "1"})
FIXED = Workload(lengths=parse_lengths("50:20", None))


def requests(workload=FIXED, schema="chat", seed=1, **changes) -> GenerationRequests:
    return GenerationRequests(TO, workload, schema=schema, model="chat", seed=seed, **changes)


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


def test_text_completions_have_a_prompt():
    assert len(body(requests(schema="completion"))["prompt"].split()) == 50


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
    texts = requests(workload, "completion")
    with pytest.raises(RoundhouseError, match="has messages"):
        for _ in range(4):
            texts.next()


def test_refuses_every_line_that_is_no_prompt(tmp_path):
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "a"}\n{\n3\n{"prompt": 5}\n{"prompt": "a", "output_tokens": 0}\n')
    with pytest.raises(FaultsError) as error:
        read_prompts(path, None)
    assert [fault.line for fault in error.value.faults] == [2, 3, 4, 5]


CONTEXT = ContextSpec(
    max_model_len=8192, prompt_p95=3000, prompt_mean=1200, output_p95=400, output_mean=150
)


@given(st.floats(1, 1e5), st.floats(1.001, 3.86))
def test_fit_has_the_declared_mean_and_p95(mean, ratio):
    fitted = log_normal(mean, mean * ratio)
    assert fitted.mean == pytest.approx(mean, rel=1e-6)
    assert fitted.p95 == pytest.approx(mean * ratio, rel=1e-6)


def test_samples_have_the_declared_mean_and_p95():
    lengths, chance = lengths_of(CONTEXT), random.Random(7)
    pairs = [lengths.sample(chance) for _ in range(20_000)]
    for place, mean, p95 in ((0, 1200, 3000), (1, 150, 400)):
        values = sorted(pair[place] for pair in pairs)
        assert statistics.fmean(values) == pytest.approx(mean, rel=0.03)
        assert values[19_000] == pytest.approx(p95, rel=0.05)
    assert all(prompt + output <= 8192 for prompt, output in pairs)


def test_a_mean_alone_gives_one_length():
    assert log_normal(300, 300).sigma == 0 and log_normal(300, 200).mean == pytest.approx(200)


def test_a_p95_far_above_the_mean_keeps_the_p95():
    fitted = log_normal(100, 1000)
    assert fitted.p95 == pytest.approx(1000) and fitted.mean > 100


@pytest.mark.parametrize(("text", "pair"), [("rag", (5000, 500)), ("512:128", (512, 128))])
def test_lengths_by_name_or_number(text, pair):
    assert parse_lengths(text, CONTEXT).sample(random.Random(1)) == pair


@pytest.mark.parametrize("text", ["", "chats", "512", "512:", "0:5", "5:-1", "a:b"])
def test_refuses_other_lengths(text):
    with pytest.raises(RoundhouseError, match=r"--input .*: give PROMPT:OUTPUT"):
        parse_lengths(text, None)


def test_refuses_lengths_over_the_context():
    with pytest.raises(RoundhouseError, match=r"than the model's context\.max_model_len"):
        parse_lengths("long", CONTEXT)


@pytest.mark.parametrize(
    ("most", "words"), [(None, (32, 544)), (4096, (32, 544)), (512, (32, 127)), (16, (1, 3))]
)
def test_prompts_that_count_tokens_fit_the_longest_request(most, words):
    context = None if most is None else CONTEXT.model_copy(update={"max_model_len": most})
    assert parse_lengths("8:4", context).calibration_words == words
