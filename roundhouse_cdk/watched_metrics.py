"""Metrics and metric math as the CDK's objects."""

from __future__ import annotations

from functools import cache

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cw

from onboarding.metrics import Metric, MetricMath


def cdk_metric(watched: Metric | MetricMath, label: str | None = None) -> cw.IMetric:
    """Return a metric, or an expression and the metrics that it alone uses.

    `label` names a metric in a graph; an expression has its own.
    """
    if isinstance(watched, Metric):
        return _metric(watched, label)
    periods = {metric.period for metric in watched.metrics.values()} or {60}
    return cw.MathExpression(
        expression=watched.expression,
        label=watched.label or label,
        using_metrics={name: _metric(metric) for name, metric in watched.metrics.items()},
        period=seconds(max(periods)),
    )


@cache
def _metric(metric: Metric, label: str | None = None) -> cw.Metric:
    """Return a metric, once: alarms of an endpoint share many."""
    return cw.Metric(
        namespace=metric.namespace,
        metric_name=metric.name,
        dimensions_map=dict(metric.dimensions),
        statistic=metric.statistic,
        period=seconds(metric.period),
        label=label,
    )


@cache
def seconds(count: int) -> Duration:
    """Return a duration, once."""
    return Duration.seconds(count)
