"""Single faults of statistics, units and directions in alarms and scaling policies."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.synth.template_rules.fault import EMBEDDER, EXAMPLE, SHARED, add
from tests.synth.template_rules.stacks import POLICY, Stacks, alarm, metric, one

fault_dev = partial(add, "statistics and units", "dev")
fault_queue = partial(add, "statistics and units", "queue")
fault = partial(add, "statistics and units")


def alarm_fault(
    name: str, end: str, /, assembly: str = "dev", stack: str = EMBEDDER, **new: Any
) -> None:
    """Add a fault that sets properties of an alarm."""
    fault(assembly, name, lambda s: alarm(s[stack], end).update(new))


def statistic(name: str, end: str, identifier: str, value: str) -> None:
    """Add a fault that changes a statistic in an alarm's metric math."""
    fault_dev(name, lambda s: metric(alarm(s[EMBEDDER], end), identifier).update(Stat=value))


def drift_by_sum(s: Stacks) -> None:
    """Read the latency of the drift alarm by Sum."""
    properties = alarm(s[EMBEDDER], "-drift")
    del properties["ExtendedStatistic"]
    properties["Statistic"] = "Sum"


fault_dev("latency by Sum", drift_by_sum)
statistic("latency of the SLO by Sum", "-latency", "p99", "Sum")
statistic("share of server errors by Sum", "-server-errors", "share", "Sum")
statistic("share of client errors by Sum", "-client-errors", "share", "Sum")
statistic("failed requests by Average", "-server-errors", "failed", "Average")
statistic("share without answers by Sum", "-no-answers", "clients", "Sum")
statistic("requests by Average", "-ceiling", "requests", "Average")
statistic("failed requests by SampleCount", "-server-errors", "failed", "SampleCount")
statistic("share of server errors by Maximum", "-server-errors", "share", "Maximum")
statistic("latency of the SLO by SampleCount", "-latency", "p99", "SampleCount")
statistic("few requests by their latency", "-latency", "requests", "Average")
statistic("latency of the SLO by p50", "-latency", "p99", "p50")
alarm_fault("disk by Minimum", "-disk", Statistic="Minimum")
alarm_fault("drift by p50", "-drift", ExtendedStatistic="p50")
alarm_fault("disk by Sum", "-disk", Statistic="Sum")
alarm_fault("host memory by Sum", "-host-memory", Statistic="Sum")
alarm_fault("GPU memory by SampleCount", "-gpu-memory", Statistic="SampleCount")
alarm_fault("load by Average", "-saturation", Statistic="Average")
alarm_fault("SLO in ms", "-latency", Threshold=50)
alarm_fault("SLO in seconds", "-latency", Threshold=0.05)
alarm_fault("drift in ms", "-drift", Threshold=46)
alarm_fault("disk as a share", "-disk", Threshold=0.85)
alarm_fault("disk of 850 %", "-disk", Threshold=850)
alarm_fault("server errors in percent", "-server-errors", Threshold=25)
alarm_fault("early errors in percent", "-early-5xx", Threshold=1)
alarm_fault("load a second", "-saturation", Threshold=400)
alarm_fault("age in ms", "-oldest-request", "queue", EXAMPLE, Threshold=2_645_000)
alarm_fault("loading in ms", "-loading-wait", "queue", SHARED, Threshold=14_000)
alarm_fault("cache hits in percent", "-cache-hits", "queue", SHARED, Threshold=50)
alarm_fault("latency the wrong way", "-latency", ComparisonOperator="LessThanThreshold")
alarm_fault("errors the wrong way", "-server-errors", ComparisonOperator="LessThanThreshold")
alarm_fault("hosts the wrong way", "-no-instances", ComparisonOperator="GreaterThanThreshold")
alarm_fault("disk the wrong way", "-disk", ComparisonOperator="LessThanOrEqualToThreshold")
alarm_fault(
    "cache hits the wrong way",
    "-cache-hits",
    "queue",
    SHARED,
    ComparisonOperator="GreaterThanThreshold",
)
alarm_fault("gone hosts are fine", "-no-instances", TreatMissingData="notBreaching")
alarm_fault("gone hosts are missing", "-no-instances", TreatMissingData="missing")
alarm_fault("no traffic is a latency", "-latency", TreatMissingData="breaching")
alarm_fault("no traffic is an error", "-server-errors", TreatMissingData="breaching")
alarm_fault("no queue is an age", "-oldest-request", "queue", EXAMPLE, TreatMissingData="breaching")


def policy_statistic(s: Stacks, value: str = "Sum") -> None:
    """Scale on the sum of GPU utilization."""
    tracking = one(s[EMBEDDER], POLICY, "GPUUtilization")
    tracking["TargetTrackingScalingPolicyConfiguration"]["CustomizedMetricSpecification"].update(
        Statistic=value
    )


fault_dev("utilization policy by Sum", policy_statistic)


def backlog_by_sum(s: Stacks) -> None:
    """Scale on the sum of the backlog."""
    tracking = one(s[EXAMPLE], POLICY, "ApproximateBacklogSizePerInstance")
    tracking["TargetTrackingScalingPolicyConfiguration"]["CustomizedMetricSpecification"].update(
        Statistic="Sum"
    )


fault_queue("backlog policy by Sum", backlog_by_sum)


def target_share(s: Stacks) -> None:
    """Scale on a share instead of a percentage."""
    tracking = one(s[EMBEDDER], POLICY, "GPUUtilization")
    tracking["TargetTrackingScalingPolicyConfiguration"]["TargetValue"] = 0.7


fault_dev("utilization target as a share", target_share)
