"""The knee of a server in half a minute: users doubled until answers are late or no more come.

The full search of `roundhouse bench` takes minutes and is right for one endpoint; a comparison
measures many. Closed loops find about where the knee lies, as Inference Recommender's users do; an
open loop then holds a rate, and only that rate counts.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from engine_build.card.render import milliseconds, per_second
from roundhouse.load_test.destination import Requests, signer
from roundhouse.load_test.driver import Driver, open_driver
from roundhouse.load_test.load_test import LoadTest, Runner
from roundhouse.load_test.measurement import Measurement, Outcome, samples_needed
from roundhouse.load_test.options import LatencyStop, Loop, Phase, closed_phase
from roundhouse.load_test.saturation import SLO_PERCENTILE, verdict

USERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
LEVEL_SECONDS = 2.0
PERCENTILE = 95.0
"""Of a level's answers: what Inference Recommender's latency threshold is of."""
FLAT = 1.05
"""Twice the users that bring less than this much more are the last."""
FIRST_SHARE, NEXT_SHARE, TRIES = 0.9, 0.8, 5
"""Of the best level's rate: what the open loop begins with, and what it tries after a miss."""
HOLD_SECONDS, LONGEST_HOLD_SECONDS = 6.0, 16.0
SURPLUS = 1.15


@dataclass(frozen=True, kw_only=True)
class Knee:
    """The highest rate tried that an open loop held within the SLO; `rate` None: none did."""

    rate: float | None
    reason: str
    """Why no higher rate counts."""
    users: int | None
    """Of the closed loop with most answers within the SLO."""
    users_per_second: float | None
    p50_ms: float | None
    p95_ms: float | None
    p99_ms: float | None
    """At the rate; where none held, of one user alone. None: too few answers for it."""
    errors: int
    seconds: float


@dataclass(kw_only=True)
class KneeSearch:
    """One search under way."""

    test: LoadTest
    on_phase: Callable[[Measurement], None] = lambda measurement: None
    hold_seconds: float = HOLD_SECONDS
    levels: list[Measurement] = field(default_factory=list)
    holds: list[Measurement] = field(default_factory=list)

    async def run(self) -> Knee:
        """Return the knee. Raises WrongAnswerError when the whole warm-up fails, AwsError."""
        test = self.test
        assert test.slo_ms is not None
        runner = Runner(test=test)
        begin = asyncio.get_running_loop().time()
        requests = Requests(
            test.destination, test.inputs.bodies, test.options.seed, signer(test.destination)
        )
        async with open_driver(test.destination, requests, test.options) as driver:
            await runner.warm_up(driver)
            reason = await self._double_users(runner, driver, test.slo_ms)
            await self._hold(runner, driver, test.slo_ms)
        return self._knee(reason, asyncio.get_running_loop().time() - begin)

    async def _double_users(self, runner: Runner, driver: Driver, slo_ms: float) -> str:
        """Run levels; return why there is none after the last."""
        best, flat = 0.0, 0
        for users in USERS:
            phase = closed_phase(f"{users} users", users, LEVEL_SECONDS)
            level = await runner.run_phase(driver, phase)
            self.levels.append(level)
            self.on_phase(level)
            if level.failed:
                return f"{users} users get errors: {level.errors.most_common(1)[0][0]}"
            if not _is_within(level, slo_ms):
                late = milliseconds(level.latency.percentile_of_any(PERCENTILE))
                return f"with {users} users p{PERCENTILE:g} is {late}"
            flat = 0 if level.answered_per_second > FLAT * best else flat + 1
            best = max(best, level.answered_per_second)
            if flat == 2:
                return f"more than {users // 4} users bring no more answers"
        return f"no more than {USERS[-1]} users are tried"

    async def _hold(self, runner: Runner, driver: Driver, slo_ms: float) -> None:
        best = best_level(self.levels, slo_ms)
        if best is None:
            return
        rate = FIRST_SHARE * best.answered_per_second
        hopeless = LatencyStop(percentile=50, milliseconds=slo_ms)
        for _ in range(TRIES):
            needed = samples_needed(SLO_PERCENTILE) * SURPLUS / rate
            seconds = math.ceil(min(max(self.hold_seconds, needed), LONGEST_HOLD_SECONDS))
            if self.hold_seconds > LONGEST_HOLD_SECONDS:
                seconds = math.ceil(self.hold_seconds)
            name = f"{per_second(rate)}/s"
            phase = Phase(name=name, loop=Loop.open, start=rate, seconds=float(seconds))
            hold = await runner.run_phase(
                driver, phase, lambda m: str(hopeless) if m.is_above(hopeless) else None
            )
            hold.verdict = verdict(hold, slo_ms)
            self.holds.append(hold)
            self.on_phase(hold)
            if _has_held(hold, slo_ms):
                return
            rate *= NEXT_SHARE

    def _knee(self, reason: str, seconds: float) -> Knee:
        slo_ms = self.test.slo_ms
        assert slo_ms is not None
        best = best_level(self.levels, slo_ms)
        held = self.holds[-1] if self.holds and _has_held(self.holds[-1], slo_ms) else None
        if best is not None and held is None:
            last = self.holds[-1].verdict
            reason = f"no rate was held: {'' if last is None else last.reason}"
        shown = held if held is not None else self.levels[0]
        return Knee(
            rate=None if held is None else held.phase.start,
            reason=reason,
            users=None if best is None else int(best.phase.start),
            users_per_second=None if best is None else best.answered_per_second,
            p50_ms=shown.latency.percentile(50),
            p95_ms=shown.latency.percentile(95),
            p99_ms=shown.latency.percentile(99),
            errors=sum(measurement.failed for measurement in (*self.levels, *self.holds)),
            seconds=seconds,
        )


def best_level(levels: Sequence[Measurement], slo_ms: float) -> Measurement | None:
    """Return the level with most answers of those within the SLO; None where there is none."""
    within = [level for level in levels if not level.failed and _is_within(level, slo_ms)]
    return max(within, key=lambda level: level.answered_per_second, default=None)


def _is_within(level: Measurement, slo_ms: float) -> bool:
    return level.answered > 0 and level.latency.percentile_of_any(PERCENTILE) <= slo_ms


def _has_held(hold: Measurement, slo_ms: float) -> bool:
    """Too few answers for p99 are judged by p95: so slow a server gets no minute of load."""
    if hold.verdict is None:
        return False
    if hold.verdict.outcome is Outcome.unproven:
        return _is_within(hold, slo_ms)
    return hold.verdict.outcome is Outcome.held
