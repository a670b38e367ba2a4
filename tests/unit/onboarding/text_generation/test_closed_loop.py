"""Users of one engine: a step of 10 ms, 0.1 ms a prompt token, answers of 11 tokens."""

from __future__ import annotations

import dataclasses

import pytest

from onboarding.text_generation.closed_loop import Engine, Server, simulate
from onboarding.text_generation.lengths import log_normal

SERVER = Server(request=0.002, latency=0.003, chunk=0.0, turns=0)
ENGINE = Engine(
    step_seconds=lambda prompts, requests, cached: 0.01 + 0.0001 * prompts,
    launch_seconds=lambda prompts, requests: 0.0,
    is_one_process=True,
    step_tokens=1000,
    server=SERVER,
)
PROMPT, ANSWER, MOST = log_normal(100, 100), log_normal(11, 11), 4096


def measure(users, engine=ENGINE, prompt=PROMPT, **changes):
    return simulate(dataclasses.replace(engine, **changes), prompt, ANSWER, MOST, users)


def test_one_user_waits_for_the_server_and_the_own_prompt():
    alone = measure(1)
    assert alone.ttft_p95 == pytest.approx(0.005 + 0.01 + 0.01)
    assert (alone.itl_p95, alone.itl_mean) == (pytest.approx(0.01), pytest.approx(0.01))
    assert alone.tokens_per_second == pytest.approx(11 / (0.025 + 0.1), rel=0.01)


def test_prompts_of_others_delay_the_next_token():
    many = measure(8)
    assert many.itl_p95 >= 0.02 > many.itl_mean > 0.011
    assert many.ttft_p95 > 0.03, "two steps pass before a prompt is scheduled"


def test_step_takes_no_less_than_its_launch():
    def launch(prompts, requests):
        return 0.05 if prompts else 0.0

    alone = measure(1, launch_seconds=launch)
    assert alone.ttft_p95 == pytest.approx(0.005 + 0.05)


def test_decode_takes_no_less_than_its_launch():
    slow = measure(1, launch_seconds=lambda prompts, requests: 0.05)
    assert slow.itl_mean == pytest.approx(0.05, rel=0.02)


def test_worker_launches_one_step_after_the_other():
    def rate(*, is_one_process):
        engine = {"launch_seconds": lambda *_: 0.05, "is_one_process": is_one_process}
        return measure(8, **engine).tokens_per_second

    assert rate(is_one_process=False) < 1.1 * rate(is_one_process=True)


def test_answers_of_a_step_are_read_once_the_next_one_is_launched():
    def launch(prompts, requests):
        return 0.018 if prompts else 0.0

    one, several = (measure(8, launch_seconds=launch, is_one_process=on) for on in (True, False))
    assert one.itl_p95 < several.itl_p95, "part of a prompt's time is in the chunk before"
    assert one.tokens_per_second == pytest.approx(several.tokens_per_second, rel=0.05)


def test_prompt_longer_than_a_step_takes_several():
    long = measure(1, prompt=log_normal(2500, 2500))
    assert long.ttft_p95 == pytest.approx(0.005 + 3 * 0.01 + 0.25)


def test_server_sends_the_tokens_that_wait_in_one_chunk():
    slow, fast = measure(8, server=dataclasses.replace(SERVER, chunk=0.005)), measure(8)
    assert slow.itl_mean > 0.034 > fast.itl_p95
    assert slow.tokens_per_second > 0.7 * fast.tokens_per_second
    alone = measure(1, server=dataclasses.replace(SERVER, chunk=0.001))
    assert alone.itl_mean == pytest.approx(0.01), "it sends meanwhile"


def test_request_waits_for_the_servers_thread():
    busy = dataclasses.replace(SERVER, chunk=0.0005)
    waits = measure(8, server=dataclasses.replace(busy, turns=20)).ttft_p95
    assert waits > measure(8, server=busy).ttft_p95 + 0.01
    burst = dataclasses.replace(SERVER, request=0.02)
    assert measure(8, server=burst).ttft_p95 > measure(8).ttft_p95 + 0.02


def test_cached_tokens_are_those_of_the_requests_that_run():
    most = []

    def step(prompts, requests, cached):
        most.append((cached, requests))
        return 0.01

    measure(4, step_seconds=step)
    assert max(cached for cached, _ in most) <= 4 * 110 and min(c for c, r in most if not r) == 0
