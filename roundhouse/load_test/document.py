"""The document of a load test's result, which its JSON file and `--format json` hold."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from roundhouse.load_test.measurement import Latencies, Measurement
from roundhouse.load_test.result import LoadResult

VERSION = 2
"""Of the layout."""
PERCENTILES = (50, 90, 95, 99, 99.9, 99.99)
INPUTS = ("description", "sha256", "mean_bytes", "content_type", "rows_per_request", "rows")
OPTIONS = ("command", "arrivals", "seed", "connections")
COUNTS = (
    "seconds", "offered_per_second", "answered_per_second", "answered", "failed", "dropped",
    "cpu_share", "reconnected", "ended_early",
)  # fmt: skip
SECOND = ("second", "offered", "answered", "errors", "users", "in_flight")


def load_document(result: LoadResult) -> dict[str, Any]:
    """Return a result for JSON; a percentile is None where there are too few samples."""
    test = result.test
    options, inputs = test.options, test.inputs
    return {
        "version": VERSION,
        "subject": test.subject,
        "kind": result.kind,
        "slo_ms": test.slo_ms,
        "headline": result.headline,
        "saturation": None if result.saturation is None else asdict(result.saturation),
        "phases": [_phase(measurement, inputs.rows_per_request) for measurement in result.phases],
        "stopped": result.stopped,
        "broken_off": result.broken_off,
        "tool_limits": result.tool_limits,
        "inputs": {"bodies": len(inputs.bodies), **_fields(inputs, INPUTS)},
        "settings": {
            **_fields(options, OPTIONS),
            "url": test.destination.url,
            "signed": test.destination.region is not None,
            "timeout_seconds": options.timeout,
            "warm_up_seconds": options.warm_up,
            "stop": None if test.stop is None else str(test.stop),
            "expected_interval_ms": options.expected_interval,
            "probe_per_second": result.probe_per_second,
        },
        "circumstances": asdict(result.circumstances),
    }


def _phase(measurement: Measurement, rows_per_request: int) -> dict[str, Any]:
    phase, verdict, latency = measurement.phase, measurement.verdict, measurement.latency
    has_corrected = measurement.expected_interval_seconds is not None
    return {
        "name": phase.name,
        "loop": phase.loop,
        "start": phase.start,
        "spawn_per_minute": phase.spawn,
        **_fields(measurement, COUNTS),
        "rows_per_second": measurement.answered_per_second * rows_per_request,
        "max_waiting_for_connection": measurement.max_waiting,
        "errors": dict(measurement.errors.most_common()),
        "samples": len(latency),
        "latency_ms": _percentiles(latency),
        "mean_ms": latency.mean_ms,
        "longest_ms": latency.longest_ms,
        "service_ms": _percentiles(measurement.service),
        "corrected_ms": _percentiles(measurement.corrected) if has_corrected else None,
        "lag_ms": _percentiles(measurement.lag),
        "outcome": None if verdict is None else verdict.outcome,
        "reason": None if verdict is None else verdict.reason,
        "curve": latency.curve(),
        "by_second": [
            {**_fields(second, SECOND), **{f"p{p}_ms": second.percentile(p) for p in (50, 95, 99)}}
            for second in measurement.sending_seconds
        ],
    }


def _fields(value: object, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(value, name) for name in names}


def _percentiles(latencies: Latencies) -> dict[str, float | None]:
    return {f"p{percentile:g}": latencies.percentile(percentile) for percentile in PERCENTILES}
