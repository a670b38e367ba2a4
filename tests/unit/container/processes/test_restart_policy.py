"""How long the successor of a dead process waits, and when there is none."""

from __future__ import annotations

from container.server.processes.restart_policy import (
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    MOST,
    WINDOW_SECONDS,
    RestartPolicy,
)


def test_pauses_grow_at_one_place_and_not_at_others():
    deaths = RestartPolicy()
    assert [deaths.restart_delay_seconds(1.0, 0) for _ in range(3)] == [
        FIRST_PAUSE_SECONDS * step for step in (1, 2, 4)
    ]
    assert deaths.restart_delay_seconds(1.0, 1) == FIRST_PAUSE_SECONDS


def test_pauses_have_an_end():
    deaths = RestartPolicy()
    assert [deaths.restart_delay_seconds(1.0, 0) for _ in range(9)][-1] == LONGEST_PAUSE_SECONDS


def test_deaths_of_more_than_a_minute_ago_are_forgotten():
    deaths = RestartPolicy()
    for second in range(3 * MOST):
        pause = deaths.restart_delay_seconds(second * WINDOW_SECONDS, 0)
        assert pause <= 2 * FIRST_PAUSE_SECONDS and not deaths.is_exhausted


def test_refuses_to_go_on_after_too_many_within_a_minute():
    deaths = RestartPolicy()
    for place in range(MOST):
        deaths.restart_delay_seconds(0.0, place)
        assert not deaths.is_exhausted
    deaths.restart_delay_seconds(0.0, 0)
    assert deaths.is_exhausted
