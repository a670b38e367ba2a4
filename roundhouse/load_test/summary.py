"""Sums a load test up: from what was measured to the result with its headline."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from roundhouse.load_test.headline import headline
from roundhouse.load_test.load_test import LoadTest, Measured
from roundhouse.load_test.measurement import Latencies, Measurement, exact_percentile
from roundhouse.load_test.options import Loop
from roundhouse.load_test.result import (
    Circumstances,
    LoadResult,
    Numbers,
    PhaseResult,
    SaturationResult,
    SecondResult,
)
from roundhouse.load_test.saturation import Outcome, Verdict, bounds, is_exact, tool_limit

VERSION = 2
"""Of the JSON's layout."""
PERCENTILES = (50.0, 90.0, 95.0, 99.0, 99.9, 99.99)


def load_result(test: LoadTest, measured: Measured, where: Circumstances) -> LoadResult:
    """Return the result of a load test, with its headline."""
    is_search = not test.phases
    pairs = list(zip(measured.phases, measured.verdicts, strict=True))
    limits = {phase.phase.name: tool_limit(phase, test.slo_ms) for phase in measured.phases}
    result = LoadResult(
        version=VERSION,
        subject=test.subject,
        kind="search for the saturation point" if is_search else f"{test.phases[0].loop} loop",
        slo_ms=test.slo_ms,
        saturation=_saturation(measured, pairs) if is_search else None,
        phases=tuple(_phase(test, phase, outcome) for phase, outcome in pairs),
        stopped=measured.stopped,
        broken_off=measured.interrupted,
        tool_limits={name: limit for name, limit in limits.items() if limit is not None},
        inputs=_inputs(test),
        settings=_settings(test, measured),
        circumstances=where,
    )
    return replace(result, headline=headline(result))


def _saturation(
    measured: Measured, pairs: list[tuple[Measurement, Verdict | None]]
) -> SaturationResult:
    known = bounds(measured.steps)
    held = [
        position
        for position, (phase, outcome) in enumerate(pairs)
        if outcome is not None
        and outcome.outcome is Outcome.held
        and phase.phase.start == known.held
    ]
    return SaturationResult(
        rate=known.held,
        phase=held[-1] if held else None,
        lowest_missed=known.missed,
        exact=is_exact(measured.steps),
    )


def _phase(test: LoadTest, measurement: Measurement, outcome: Verdict | None) -> PhaseResult:
    phase, interval = measurement.phase, test.options.expected_interval
    has_corrected = phase.loop is Loop.closed and interval is not None
    return PhaseResult(
        name=phase.name,
        loop=phase.loop.value,
        start=phase.start,
        spawn_per_minute=phase.spawn,
        seconds=measurement.seconds,
        offered_per_second=measurement.offered_per_second,
        answered_per_second=measurement.answered_per_second,
        rows_per_second=measurement.answered_per_second * test.inputs.rows_per_request,
        answered=measurement.answered,
        failed=measurement.failed,
        dropped=measurement.dropped,
        errors=dict(measurement.errors.most_common()),
        samples=len(measurement.latency),
        latency_ms=_numbers(measurement.latency),
        mean_ms=measurement.latency.mean_ms,
        longest_ms=measurement.latency.longest_ms,
        service_ms=_numbers(measurement.service),
        corrected_ms=_numbers(measurement.corrected) if has_corrected else None,
        lag_ms=_numbers(measurement.lag),
        cpu_share=measurement.cpu_share,
        max_waiting_for_connection=measurement.max_waiting,
        reconnected=measurement.reconnected,
        ended_early=measurement.ended_early,
        outcome=None if outcome is None else outcome.outcome.value,
        reason=None if outcome is None else outcome.reason,
        curve=measurement.latency.curve(),
        by_second=_seconds(measurement),
    )


def _seconds(measurement: Measurement) -> tuple[SecondResult, ...]:
    results = []
    for second in measurement.sending_seconds:
        latencies = sorted(second.milliseconds)
        p50, p95, p99 = (exact_percentile(latencies, percentile) for percentile in (50, 95, 99))
        results.append(
            SecondResult(
                second=second.second,
                offered=second.intended,
                answered=second.answered,
                errors=second.errors,
                users=second.users,
                in_flight=second.in_flight,
                p50_ms=p50,
                p95_ms=p95,
                p99_ms=p99,
            )
        )
    return tuple(results)


def _numbers(latencies: Latencies) -> Numbers:
    return {f"p{percentile:g}": latencies.percentile(percentile) for percentile in PERCENTILES}


def _inputs(test: LoadTest) -> dict[str, Any]:
    inputs = test.inputs
    return {
        "description": inputs.description,
        "sha256": inputs.sha256,
        "bodies": len(inputs.bodies),
        "mean_bytes": round(inputs.mean_bytes),
        "content_type": inputs.bodies[0].content_type.partition(";")[0],
        "rows_per_request": inputs.rows_per_request,
        "rows": inputs.rows,
    }


def _settings(test: LoadTest, measured: Measured) -> dict[str, Any]:
    options, probe = test.options, measured.probe
    return {
        "command": options.command,
        "url": test.destination.url,
        "signed": test.destination.region is not None,
        "arrivals": options.arrivals.value,
        "seed": options.seed,
        "connections": options.connections,
        "timeout_seconds": options.timeout,
        "warm_up_seconds": options.warm_up,
        "stop": None if test.stop is None else str(test.stop),
        "expected_interval_ms": options.expected_interval,
        "probe_per_second": None if probe is None else probe.answered_per_second,
    }
