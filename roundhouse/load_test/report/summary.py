"""Sums a load test up: from what was measured to the result with its headline."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from roundhouse.load_test.asked import Asked
from roundhouse.load_test.conducting import Done, limits
from roundhouse.load_test.judgement.measured import Measured, Moment
from roundhouse.load_test.judgement.saturation import bounds
from roundhouse.load_test.judgement.verdict import Outcome, Verdict
from roundhouse.load_test.latencies import Latencies
from roundhouse.load_test.report.headline import headline
from roundhouse.load_test.report.result import (
    Circumstances,
    LoadResult,
    Numbers,
    PhaseResult,
    SaturationResult,
    SecondResult,
)
from roundhouse.load_test.traffic import Loop

VERSION = 1
"""Of the JSON's layout."""
PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9, 99.99)


def load_result(asked: Asked, done: Done, circumstances: Circumstances) -> LoadResult:
    """The result with its headline."""
    searched = not asked.phases
    kind = "search for the saturation point" if searched else f"{asked.phases[0].loop} loop"
    result = LoadResult(
        version=VERSION,
        subject=asked.subject,
        kind=kind,
        slo_ms=asked.slo_ms,
        saturation=_saturation(done) if searched else None,
        phases=tuple(
            _phase(asked, each, said) for each, said in zip(done.phases, done.verdicts, strict=True)
        ),
        stopped=done.stopped,
        broken_off=done.broken_off,
        tool_limits=limits(done, asked.slo_ms),
        inputs=_inputs(asked),
        settings=_settings(asked, done),
        circumstances=circumstances,
    )
    return replace(result, headline=headline(result))


def _saturation(done: Done) -> SaturationResult:
    known = bounds(done.tried)
    pairs = enumerate(zip(done.phases, done.verdicts, strict=True))
    held = [
        place
        for place, (each, said) in pairs
        if said is not None and _held_at(known.held, each, said)
    ]
    by_the_server = any(
        each.rate == known.missed and each.outcome is Outcome.missed for each in done.tried
    )
    return SaturationResult(
        rate=known.held,
        phase=held[-1] if held else None,
        lowest_missed=known.missed,
        exact=known.found and by_the_server,
    )


def _held_at(rate: float | None, measured: Measured, said: Verdict) -> bool:
    return said.outcome is Outcome.held and measured.phase.start == rate


def _phase(asked: Asked, measured: Measured, said: Verdict | None) -> PhaseResult:
    is_closed = measured.phase.loop is Loop.closed
    corrected = (
        _numbers(measured.corrected)
        if is_closed and asked.expected_interval_ms is not None
        else None
    )
    return PhaseResult(
        name=measured.phase.name,
        loop=measured.phase.loop.value,
        start=measured.phase.start,
        spawn_per_minute=measured.phase.spawn,
        seconds=measured.seconds,
        offered_per_second=measured.offered_per_second,
        answered_per_second=measured.answered_per_second,
        rows_per_second=measured.answered_per_second * asked.inputs.rows_per_request,
        answered=measured.answered,
        failed=measured.failed,
        dropped=measured.dropped,
        faults=dict(measured.faults.most_common()),
        samples=len(measured.latency),
        latency_ms=_numbers(measured.latency),
        mean_ms=measured.latency.mean_ms,
        longest_ms=measured.latency.longest_ms,
        service_ms=_numbers(measured.service),
        corrected_ms=corrected,
        lag_ms=_numbers(measured.lag),
        load_processes=measured.workers,
        cpu_share=measured.busiest_cpu_share,
        most_waiting_for_connection=measured.most_waiting,
        reconnected=measured.reconnected,
        ended_early=measured.ended_early,
        outcome=None if said is None else said.outcome.value,
        reason=None if said is None else said.reason,
        curve=measured.latency.curve(),
        by_second=tuple(_second(each) for each in measured.within),
    )


def _second(moment: Moment) -> SecondResult:
    return SecondResult(
        second=moment.second,
        offered=moment.intended,
        answered=moment.answered,
        faults=moment.faults,
        users=moment.users,
        in_flight=moment.in_flight,
        p50_ms=moment.latency.milliseconds(50),
        p95_ms=moment.latency.milliseconds(95),
        p99_ms=moment.latency.milliseconds(99),
    )


def _numbers(latencies: Latencies) -> Numbers:
    return {f"p{each:g}": latencies.milliseconds(each) for each in PERCENTILES}


def _inputs(asked: Asked) -> dict[str, Any]:
    return {
        "told": asked.inputs.told,
        "sha256": asked.inputs.sha256,
        "bodies": len(asked.bodies),
        "mean_bytes": round(asked.inputs.mean_bytes),
        "content_type": asked.bodies[0].content_type.partition(";")[0],
        "rows_per_request": asked.inputs.rows_per_request,
        "rows": asked.inputs.rows,
    }


def _settings(asked: Asked, done: Done) -> dict[str, Any]:
    probe = done.probe
    return {
        "command": asked.command,
        "url": asked.destination.url,
        "signed": asked.destination.region is not None,
        "arrivals": asked.arrivals.value,
        "seed": asked.seed,
        "load_processes": done.workers,
        "most_connections": asked.most_connections,
        "timeout_seconds": asked.timeout_seconds,
        "warm_up_seconds": asked.warm_up_seconds,
        "stop": None if asked.stop is None else str(asked.stop),
        "expected_interval_ms": asked.expected_interval_ms,
        "probe_per_second": None
        if probe is None or math.isnan(probe.answered_per_second)
        else probe.answered_per_second,
    }
