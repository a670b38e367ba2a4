"""The command line's wishes, and the phases that they come to."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from pathlib import Path

from roundhouse.errors import RoundhouseError
from roundhouse.load_test.traffic import MOST, Arrivals, Loop, Phase, bounded, phase

SECONDS = 30.0
USERS = 8
_OPTIONS = {
    "slo_ms": "slo",
    "warm_up_seconds": "warm_up",
    "timeout_seconds": "timeout",
    "expected_interval_ms": "expected_interval",
}


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What was typed; None is not said."""

    endpoint: str | None = None
    environment: str | None = None
    model: str | None = None
    url: str | None = None
    closed_loop: bool = False
    rate: float | None = None
    users: int | None = None
    spawn: float | None = None
    seconds: float | None = None
    phases: tuple[str, ...] = ()
    slo_ms: float | None = None
    stop: str | None = None
    most_requests: int | None = None
    first_rate: float | None = None
    step_seconds: float = 10.0
    warm_up_seconds: float = 3.0
    input: Path | None = None
    rows_per_request: int = 1
    binary: bool | None = None
    arrivals: Arrivals = Arrivals.poisson
    seed: int = 1
    workers: int | None = None
    most_connections: int = 512
    timeout_seconds: float = 60.0
    expected_interval_ms: float | None = None
    output: Path | None = None
    record: bool = False
    """Into the lock of the model behind the endpoint."""
    command: str = ""

    @property
    def loop(self) -> Loop | None:
        """Open or closed; None where the saturation point is searched for."""
        if self.closed_loop:
            return Loop.closed
        return Loop.open if self.rate is not None or self.phases else None


def require_sound(wishes: Wishes) -> None:
    """Refuses wishes that exclude each other. Raises RoundhouseError."""
    refused = (
        (
            wishes.closed_loop and wishes.rate is not None,
            "--closed-loop and --rate: a closed loop has no rate; give --users",
        ),
        (
            wishes.loop is not Loop.closed and wishes.users is not None,
            "--users: belongs to --closed-loop; an open loop has --rate",
        ),
        (
            bool(wishes.phases)
            and (wishes.rate, wishes.users, wishes.spawn, wishes.seconds) != (None,) * 4,
            PHASES_ALONE,
        ),
        (wishes.loop is None and (wishes.spawn, wishes.seconds) != (None, None), SEARCH_STEPS),
        (
            wishes.loop is None and (wishes.stop, wishes.most_requests) != (None, None),
            "--stop and --max-requests: " + NEEDS_LOAD,
        ),
        (
            wishes.first_rate is not None and wishes.first_rate > MOST,
            f"--first-rate: at most {MOST:,.0f} requests can be sent a second",
        ),
        (
            wishes.loop is not None and wishes.first_rate is not None,
            "--first-rate: belongs to the search, which takes no phases",
        ),
        (wishes.loop is not Loop.closed and wishes.expected_interval_ms is not None, INTERVAL),
        ((wishes.endpoint is None) == (wishes.url is None), "ENDPOINT or --url: give one of them"),
        (
            wishes.endpoint is not None and wishes.environment is None,
            "--env: is missing; an endpoint belongs to an environment",
        ),
        (
            wishes.url is not None and wishes.environment is not None,
            "--env: belongs to an ENDPOINT; a server by its URL has none",
        ),
        (
            wishes.record and wishes.endpoint is None,
            "--record: needs an ENDPOINT; a server by its URL has no lock",
        ),
        (wishes.record and wishes.loop is not None, RECORDED_SEARCH),
    )
    for field in fields(wishes):
        given = getattr(wishes, field.name)
        if isinstance(given, float) and not math.isfinite(given):
            option = _OPTIONS.get(field.name, field.name).replace("_", "-")
            raise RoundhouseError(f"--{option}: {given} is no amount; give a number.")
    for wrong, sentence in refused:
        if wrong:
            raise RoundhouseError(f"{sentence}.")


PHASES_ALONE = "--phase: says start, spawn and seconds itself; leave --rate, --users, --spawn and --seconds out"
NEEDS_LOAD = "belong to --rate, --closed-loop or --phase; the search stops by itself"
SEARCH_STEPS = (
    "--spawn and --seconds: belong to --rate or --closed-loop; the search has --step-seconds"
)
RECORDED_SEARCH = "--record: takes no load; it searches for the highest rate itself, then holds it"
INTERVAL = "--expected-interval: belongs to --closed-loop; an open loop needs no correction"


def phases(wishes: Wishes) -> tuple[Phase, ...]:
    """The phases; none where the saturation point is searched for. Raises RoundhouseError."""
    loop = wishes.loop
    if loop is None:
        return ()
    if wishes.phases:
        return tuple(phase(text, loop, number) for number, text in enumerate(wishes.phases, 1))
    users = USERS if wishes.users is None else wishes.users
    rate = 0.0 if wishes.rate is None else wishes.rate
    start, said = (
        (float(users), f"--users {users}") if loop is Loop.closed else (rate, f"--rate {rate:g}")
    )
    seconds = SECONDS if wishes.seconds is None else wishes.seconds
    spawn = 0.0 if wishes.spawn is None else wishes.spawn
    made = Phase(name="phase 1", loop=loop, start=start, seconds=seconds, spawn=spawn)
    return (bounded(made, f"{said} --spawn {spawn:g} --seconds {seconds:g}" if spawn else said),)
