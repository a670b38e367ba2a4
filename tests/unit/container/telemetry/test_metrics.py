"""Metrics: what is counted, as Prometheus reads it."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from container.server.telemetry.metrics import ServerMetrics

STAGES = {"decode": 1e-4, "tokenize": 2e-4, "wait": 3e-3, "encode": 1e-5}
NAMES = """batch_rows connections dropped_rows engine_failures engine_seconds models_loaded
queue_rows queue_seconds request_seconds requests stage_seconds tokens truncated_texts"""


def samples(metrics: ServerMetrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every sample as Prometheus's own parser reads it."""
    return {
        (sample.name.removeprefix("roundhouse_"), tuple(sorted(sample.labels.items()))): (
            sample.value
        )
        for family in text_string_to_metric_families(metrics.exposition().decode())
        for sample in family.samples
    }


def example_metrics() -> ServerMetrics:
    metrics = ServerMetrics("m")
    metrics.batch_ran(rows=3, tokens=30, padded_tokens=48, engine_seconds=0.004)
    metrics.request_over(queue_seconds=0.001)
    metrics.record_drop(reason="deadline", rows=2)
    metrics.engine_failed(fault=RuntimeError("x"), rows=1)
    metrics.watch_queue(lambda: 7)
    metrics.record_request("infer", 200, 0.0034, STAGES)
    metrics.record_request("health", 200, 1e-5, {})
    metrics.connections.set_function(lambda: 4)
    return metrics


def test_every_observation_reaches_prometheus():
    values, model = samples(example_metrics()), ("model", "m")
    expected = {
        ("tokens_total", (("kind", "real"), model)): 30,
        ("tokens_total", (("kind", "padding"), model)): 18,
        ("batch_rows_bucket", (("le", "4"), model)): 1,
        ("batch_rows_bucket", (("le", "2"), model)): 0,
        ("batch_rows_bucket", (("le", "1024"), model)): 1,
        ("dropped_rows_total", (model, ("reason", "deadline"))): 2,
        ("engine_failures_total", (model,)): 1,
        ("queue_rows", (model,)): 7,
        ("connections", ()): 4,
        ("requests_total", (model, ("path", "infer"), ("status", "200"))): 1,
        ("request_seconds_count", ()): 1,
        ("request_seconds_sum", ()): pytest.approx(0.0034),
        ("engine_seconds_bucket", (("le", "+Inf"), model)): 1,
        ("engine_seconds_bucket", (("le", "1e-05"), model)): 0,
        ("engine_seconds_bucket", (("le", "10"), model)): 1,
        **{
            ("stage_seconds_sum", (("stage", stage),)): pytest.approx(seconds)
            for stage, seconds in STAGES.items()
        },
    }
    assert {key: values[key] for key in expected} == expected
    assert not any(name.endswith("_created") for name, _ in values)


def test_families_are_those_that_dashboards_know():
    families = text_string_to_metric_families(example_metrics().exposition().decode())
    names = [family.name.removeprefix("roundhouse_") for family in families]
    assert names == sorted(names) == NAMES.split()
