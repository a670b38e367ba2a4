"""How long the successor of a dead process waits, and when there is none."""

from __future__ import annotations

from container.server.processes.supervisor import (
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    MOST,
    WINDOW_SECONDS,
    Deaths,
)


def test_pauses_grow_at_one_place_and_not_at_others():
    deaths = Deaths()
    assert [deaths.pause_seconds(1.0, 0) for _ in range(3)] == [
        FIRST_PAUSE_SECONDS * step for step in (1, 2, 4)
    ]
    assert deaths.pause_seconds(1.0, 1) == FIRST_PAUSE_SECONDS


def test_pauses_have_an_end():
    deaths = Deaths()
    assert [deaths.pause_seconds(1.0, 0) for _ in range(9)][-1] == LONGEST_PAUSE_SECONDS


def test_deaths_of_more_than_a_minute_ago_are_forgotten():
    deaths = Deaths()
    for second in range(3 * MOST):
        pause = deaths.pause_seconds(second * WINDOW_SECONDS, 0)
        assert pause <= 2 * FIRST_PAUSE_SECONDS and not deaths.too_many


def test_refuses_to_go_on_after_too_many_within_a_minute():
    deaths = Deaths()
    for place in range(MOST):
        deaths.pause_seconds(0.0, place)
        assert not deaths.too_many
    deaths.pause_seconds(0.0, 0)
    assert deaths.too_many
