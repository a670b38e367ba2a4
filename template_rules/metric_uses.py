"""Every place of a template that names a CloudWatch metric: alarms, scaling policies, dashboards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from template_rules.dashboard_body import dashboard_metrics
from template_rules.template import Resource, Template
from template_rules.values import dimensions, fields, is_known, objects, text

ALARM, POLICY, DASHBOARD = (
    "AWS::CloudWatch::Alarm",
    "AWS::ApplicationAutoScaling::ScalingPolicy",
    "AWS::CloudWatch::Dashboard",
)


@dataclass(frozen=True, kw_only=True)
class MetricUse:
    """One metric as a template names it; what is unknown is None.

    `dimensions` are None where a search leaves them open.
    """

    resource: Resource
    path: str
    namespace: str
    metric: str | None
    dimensions: dict[str, Any] | None
    statistic: str | None


def metric_uses(template: Template) -> Iterator[MetricUse]:
    """Every metric whose namespace is known."""
    for alarm in template.of_type(ALARM):
        yield from _of_alarm(alarm)
    for policy in template.of_type(POLICY):
        configuration = fields(policy.properties.get("TargetTrackingScalingPolicyConfiguration"))
        customized = configuration.get("CustomizedMetricSpecification")
        if isinstance(customized, dict):
            path = "TargetTrackingScalingPolicyConfiguration.CustomizedMetricSpecification"
            yield from _use(policy, path, customized, customized.get("Statistic"))
            yield from _queries(policy, f"{path}.Metrics", customized.get("Metrics"))
    for dashboard in template.of_type(DASHBOARD):
        for found in dashboard_metrics(dashboard.properties.get("DashboardBody")):
            if isinstance(found.namespace, str) and is_known(found.namespace):
                yield MetricUse(
                    resource=dashboard,
                    path=f"DashboardBody.{found.path}",
                    namespace=found.namespace,
                    metric=text(found.metric),
                    dimensions=found.dimensions,
                    statistic=text(found.statistic),
                )


def _of_alarm(alarm: Resource) -> Iterator[MetricUse]:
    properties = alarm.properties
    yield from _use(
        alarm, "", properties, properties.get("ExtendedStatistic", properties.get("Statistic"))
    )
    yield from _queries(alarm, "Metrics", properties.get("Metrics"))


def _queries(resource: Resource, path: str, queries: Any) -> Iterator[MetricUse]:
    for index, query in objects(queries):
        stat = fields(query.get("MetricStat"))
        yield from _use(
            resource,
            f"{path}[{index}].MetricStat.Metric",
            fields(stat.get("Metric")),
            stat.get("Stat"),
        )


def _use(resource: Resource, path: str, holder: Any, statistic: Any) -> Iterator[MetricUse]:
    namespace = text(holder.get("Namespace"))
    if namespace is None:
        return
    given = holder.get("Dimensions")
    yield MetricUse(
        resource=resource,
        path=path,
        namespace=namespace,
        metric=text(holder.get("MetricName")),
        dimensions=None if isinstance(given, str) else dimensions(given),
        statistic=text(statistic),
    )
