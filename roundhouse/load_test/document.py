"""The document of a load test's result, which its JSON file and `--format json` hold."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from roundhouse.load_test.measurement import Latencies, Measurement
from roundhouse.load_test.result import LoadResult

VERSION = 2
"""Of the layout."""
PERCENTILES = (50, 90, 95, 99, 99.9, 99.99)


def load_document(result: LoadResult) -> dict[str, Any]:
    """Return a result for JSON; a percentile is None where there are too few samples."""
    test = result.test
    options, inputs = test.options, test.inputs
    return {
        "version": VERSION,
        "subject": test.subject,
        "kind": result.kind,
        "slo_ms": test.slo_ms,
        "saturation": None if result.saturation is None else asdict(result.saturation),
        "phases": [_phase(measurement, inputs.rows_per_request) for measurement in result.phases],
        "stopped": result.stopped,
        "broken_off": result.broken_off,
        "tool_limits": result.tool_limits,
        "inputs": {
            "description": inputs.description,
            "sha256": inputs.sha256,
            "bodies": len(inputs.bodies),
            "mean_bytes": inputs.mean_bytes,
            "content_type": inputs.content_type,
            "rows_per_request": inputs.rows_per_request,
            "rows": inputs.rows,
        },
        "settings": {
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
            "probe_per_second": result.probe_per_second,
        },
        "circumstances": asdict(result.circumstances),
        "headline": result.headline,
    }


def _phase(measurement: Measurement, rows_per_request: int) -> dict[str, Any]:
    phase, verdict = measurement.phase, measurement.verdict
    has_corrected = measurement.expected_interval_seconds is not None
    return {
        "name": phase.name,
        "loop": phase.loop.value,
        "start": phase.start,
        "spawn_per_minute": phase.spawn,
        "seconds": measurement.seconds,
        "offered_per_second": measurement.offered_per_second,
        "answered_per_second": measurement.answered_per_second,
        "rows_per_second": measurement.answered_per_second * rows_per_request,
        "answered": measurement.answered,
        "failed": measurement.failed,
        "dropped": measurement.dropped,
        "errors": dict(measurement.errors.most_common()),
        "samples": len(measurement.latency),
        "latency_ms": _percentiles(measurement.latency),
        "mean_ms": measurement.latency.mean_ms,
        "longest_ms": measurement.latency.longest_ms,
        "service_ms": _percentiles(measurement.service),
        "corrected_ms": _percentiles(measurement.corrected) if has_corrected else None,
        "lag_ms": _percentiles(measurement.lag),
        "cpu_share": measurement.cpu_share,
        "max_waiting_for_connection": measurement.max_waiting,
        "reconnected": measurement.reconnected,
        "ended_early": measurement.ended_early,
        "outcome": None if verdict is None else verdict.outcome.value,
        "reason": None if verdict is None else verdict.reason,
        "curve": measurement.latency.curve(),
        "by_second": [
            {
                "second": second.second,
                "offered": second.offered,
                "answered": second.answered,
                "errors": second.errors,
                "users": second.users,
                "in_flight": second.in_flight,
                **{f"p{p}_ms": second.percentile(p) for p in (50, 95, 99)},
            }
            for second in measurement.sending_seconds
        ],
    }


def _percentiles(latencies: Latencies) -> dict[str, float | None]:
    return {f"p{percentile:g}": latencies.percentile(percentile) for percentile in PERCENTILES}
