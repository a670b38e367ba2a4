"""The delay of a restarted worker, and when none is restarted."""

from __future__ import annotations

from container.server.processes.restart_policy import (
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    MOST,
    WINDOW_SECONDS,
    RestartPolicy,
)


def test_pauses_grow_for_one_worker_and_not_for_others():
    policy = RestartPolicy()
    assert [policy.restart_delay_seconds(1.0, 0) for _ in range(3)] == [
        FIRST_PAUSE_SECONDS * step for step in (1, 2, 4)
    ]
    assert policy.restart_delay_seconds(1.0, 1) == FIRST_PAUSE_SECONDS


def test_pauses_have_an_end():
    policy = RestartPolicy()
    assert [policy.restart_delay_seconds(1.0, 0) for _ in range(9)][-1] == LONGEST_PAUSE_SECONDS


def test_deaths_of_more_than_a_minute_ago_are_forgotten():
    policy = RestartPolicy()
    for second in range(3 * MOST):
        pause = policy.restart_delay_seconds(second * WINDOW_SECONDS, 0)
        assert pause <= 2 * FIRST_PAUSE_SECONDS and not policy.is_exhausted


def test_refuses_to_go_on_after_too_many_within_a_minute():
    policy = RestartPolicy()
    for worker in range(MOST):
        policy.restart_delay_seconds(0.0, worker)
        assert not policy.is_exhausted
    policy.restart_delay_seconds(0.0, 0)
    assert policy.is_exhausted
