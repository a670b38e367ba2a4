"""Metrics: their counts, their sums, and their exposition to Prometheus."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from container.server.telemetry.metric_values import (
    Histogram,
    MetricValues,
    parse_snapshot,
    sum_snapshots,
)
from container.server.telemetry.metrics import (
    FAMILIES,
    GAUGES,
    BatchMetrics,
    RequestMetrics,
    counter,
    exposition,
    forget_model,
    gauge,
    histogram,
)

STAGES = {"decode": 1e-4, "tokenize": 2e-4, "wait": 3e-3, "encode": 1e-5}


def samples(snapshot: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every sample as Prometheus's own parser reads it."""
    families = text_string_to_metric_families(exposition(snapshot).decode())
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def fill(metric_values: MetricValues) -> MetricValues:
    batches, requests = BatchMetrics(metric_values, "m"), RequestMetrics(metric_values, model="m")
    batches.batch_ran(rows=3, tokens=30, padded_tokens=48, engine_seconds=0.004)
    batches.request_over(queue_seconds=0.001)
    batches.record_drop(reason="deadline", rows=2)
    batches.engine_failed(fault=RuntimeError("x"), rows=1)
    batches.watch_queue(lambda: 7)
    requests.request_over("infer", 200, 0.0034, STAGES)
    requests.request_over("health", 200, 1e-5, {})
    gauge(metric_values, "roundhouse_connections", lambda: 4)
    return metric_values


def test_every_observation_reaches_prometheus():
    values, model = samples(fill(MetricValues()).snapshot()), ("model", "m")
    expected = {
        ("tokens_total", (("kind", "real"), model)): 30,
        ("tokens_total", (("kind", "padding"), model)): 18,
        ("batch_rows_bucket", (("le", "4"), model)): 1,
        ("batch_rows_bucket", (("le", "2"), model)): 0,
        ("dropped_rows_total", (model, ("reason", "deadline"))): 2,
        ("engine_failures_total", (model,)): 1,
        ("queue_rows", (model,)): 7,
        ("connections", ()): 4,
        ("requests_total", (model, ("path", "infer"), ("status", "200"))): 1,
        ("request_seconds_count", ()): 1,
        ("request_seconds_sum", ()): pytest.approx(0.0034),
        ("engine_seconds_bucket", (("le", "+Inf"), model)): 1,
        **{
            ("stage_seconds_sum", (("stage", stage),)): pytest.approx(seconds)
            for stage, seconds in STAGES.items()
        },
    }
    assert {key: values[f"roundhouse_{key[0]}", key[1]] for key in expected} == expected


def test_bounds_are_inclusive_as_prometheus_has_them():
    counts = Histogram((1, 2))
    for value in (0.5, 1, 1.5, 2, 3):
        counts.observe(value)
    assert counts.values() == [2, 2, 1, 8]


def test_sum_of_processes_is_sample_by_sample():
    one, other = fill(MetricValues()), fill(MetricValues())
    counter(other, "roundhouse_http_process_deaths").add()
    together = samples(sum_snapshots((one.snapshot(), b"", other.snapshot())))
    for key, value in samples(one.snapshot()).items():
        assert together[key] == pytest.approx(2 * value)
    assert together["roundhouse_http_process_deaths_total", ()] == 1


def test_process_that_ended_leaves_its_counts_and_no_gauges():
    snapshot = sum_snapshots((fill(MetricValues()).snapshot(),), without=GAUGES)
    names = {name for name, _ in parse_snapshot(snapshot)}
    assert "roundhouse_tokens" in names and not names & GAUGES


def models(metric_values: MetricValues) -> set[str]:
    """The models that have any series."""
    return {
        value
        for name, labels in parse_snapshot(metric_values.snapshot())
        for label, value in zip(FAMILIES[name].labels, labels, strict=True)
        if label == "model"
    }


def test_models_that_clients_invent_make_no_series():
    metric_values = MetricValues()
    requests = RequestMetrics(metric_values)
    requests.request_over("infer", 404, 0.1, {}, model="invented")
    requests.request_over("infer", 200, 0.1, STAGES, model="real")
    assert models(metric_values) == {"", "real"}


def test_unloaded_model_leaves_no_series_and_others_keep_theirs():
    metric_values = fill(MetricValues())
    for name in ("infer", "real", "wait"):  # models may bear the names of paths, kinds and stages
        BatchMetrics(metric_values, name).batch_ran(
            rows=1, tokens=1, padded_tokens=1, engine_seconds=1
        )
    before = samples(metric_values.snapshot())
    for name in ("infer", "real", "wait"):
        forget_model(metric_values, name)
    assert models(metric_values) == {"m"}
    after = samples(metric_values.snapshot())
    assert after == {
        key: value
        for key, value in before.items()
        if ("model", "m") in key[1] or "model" not in dict(key[1])
    }
    forget_model(metric_values, "m")
    assert models(metric_values) == set()
    assert samples(metric_values.snapshot())["roundhouse_connections", ()] == 4


def test_model_that_is_loaded_again_is_counted_from_zero():
    metric_values = MetricValues()
    requests = RequestMetrics(metric_values)
    for _ in range(2):
        requests.request_over("infer", 200, 0.1, STAGES, model="m")
        forget_model(metric_values, "m")
        BatchMetrics(metric_values, "m").request_over(queue_seconds=0.1)
    requests.request_over("infer", 200, 0.1, STAGES, model="m")
    labels = (("model", "m"), ("path", "infer"), ("status", "200"))
    assert samples(metric_values.snapshot())["roundhouse_requests_total", labels] == 1


def test_nothing_counted_is_an_empty_exposition():
    assert exposition(MetricValues().snapshot()) == b""


def test_refuses_families_and_labels_that_are_not_declared():
    for metric in (counter, histogram):
        with pytest.raises(KeyError):
            metric(MetricValues(), "roundhouse_unknown")
        with pytest.raises(ValueError, match="labels"):
            metric(MetricValues(), "roundhouse_connections", "too", "many")
    assert {family.kind for family in FAMILIES.values()} == {"counter", "gauge", "histogram"}
