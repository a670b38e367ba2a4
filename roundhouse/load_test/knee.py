"""The knee of a server in half a minute: users doubled until answers are late or no more come.

The full search of `roundhouse bench` takes minutes and is right for one endpoint; a comparison
measures many. Closed loops find about where the knee lies, as Inference Recommender's users do; an
open loop then holds a rate, and only that rate counts.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from engine_build.card.render import per_second
from roundhouse.load_test.driver import Driver
from roundhouse.load_test.load_test import (
    FIRST_SHARE,
    SURPLUS,
    LoadTest,
    Runner,
    best_level,
    is_within,
)
from roundhouse.load_test.measurement import Measurement, Outcome, samples_needed
from roundhouse.load_test.options import Loop, Phase
from roundhouse.load_test.saturation import SLO_PERCENTILE, verdict

NEXT_SHARE, TRIES = 0.8, 5
"""Of a rate that missed: what is tried next."""
HOLD_SECONDS, LONGEST_HOLD_SECONDS = 6.0, 16.0


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
    holds: list[Measurement] = field(default_factory=list)

    async def run(self) -> Knee:
        """Return the knee. Raises WrongAnswerError when the whole warm-up fails, AwsError."""
        assert self.test.slo_ms is not None
        runner = Runner(test=self.test, on_phase=self.on_phase)
        begin = asyncio.get_running_loop().time()
        async with await runner.open() as driver:
            await runner.warm_up(driver)
            reason = await runner.double_users(driver)
            await self._hold(runner, driver, self.test.slo_ms)
        seconds = asyncio.get_running_loop().time() - begin
        return self._knee(runner.levels, self.test.slo_ms, reason, seconds)

    async def _hold(self, runner: Runner, driver: Driver, slo_ms: float) -> None:
        best = best_level(runner.levels, slo_ms)
        if best is None:
            return
        rate = FIRST_SHARE * best.answered_per_second

        def hopeless(measurement: Measurement) -> str | None:
            newest = measurement.newest(50)
            is_late = newest is not None and newest > slo_ms
            return f"p50 above {slo_ms:g} ms" if is_late else None

        for _ in range(TRIES):
            needed = samples_needed(SLO_PERCENTILE) * SURPLUS / rate
            seconds = math.ceil(min(max(self.hold_seconds, needed), LONGEST_HOLD_SECONDS))
            if self.hold_seconds > LONGEST_HOLD_SECONDS:
                seconds = math.ceil(self.hold_seconds)
            name = f"{per_second(rate)}/s"
            phase = Phase(name=name, loop=Loop.open, start=rate, seconds=float(seconds))
            hold = await runner.run_phase(driver, phase, hopeless)
            hold.verdict = verdict(hold, slo_ms)
            self.holds.append(hold)
            self.on_phase(hold)
            if _has_held(hold, slo_ms):
                return
            rate *= NEXT_SHARE

    def _knee(self, levels: list[Measurement], slo_ms: float, reason: str, seconds: float) -> Knee:
        best = best_level(levels, slo_ms)
        held = self.holds[-1] if self.holds and _has_held(self.holds[-1], slo_ms) else None
        if best is not None and held is None:
            last = self.holds[-1].verdict
            reason = f"no rate was held: {'' if last is None else last.reason}"
        shown = held if held is not None else levels[0]
        return Knee(
            rate=None if held is None else held.phase.start,
            reason=reason,
            users=None if best is None else int(best.phase.start),
            users_per_second=None if best is None else best.answered_per_second,
            p50_ms=shown.latency.percentile(50),
            p95_ms=shown.latency.percentile(95),
            p99_ms=shown.latency.percentile(99),
            errors=sum(measurement.failed for measurement in (*levels, *self.holds)),
            seconds=seconds,
        )


def _has_held(hold: Measurement, slo_ms: float) -> bool:
    """Too few answers for p99 are judged by p95: so slow a server gets no minute of load."""
    if hold.verdict is None:
        return False
    if hold.verdict.outcome is Outcome.unproven:
        return is_within(hold, slo_ms)
    return hold.verdict.outcome is Outcome.held
