"""The state of an alarm at the end of a synthetic day, by the rules that the local cloud has from
CloudWatch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from local_cloud.cloudwatch.evaluation import EXTRA_DATAPOINTS, OK, Rule, verdict
from roundhouse.dashboards.opened import alarm_query, alarm_series
from roundhouse.dashboards.synthetic import SyntheticMetrics


def alarm_state(alarm: Mapping[str, Any], metrics: SyntheticMetrics, end: float) -> str:
    """OK, ALARM or INSUFFICIENT_DATA, having been OK before."""
    queries, _ = alarm_query(alarm)
    period = max(float(each["MetricStat"]["Period"]) for each in queries if "MetricStat" in each)
    series, looked = (
        alarm_series(alarm, metrics, end),
        int(alarm["EvaluationPeriods"]) + EXTRA_DATAPOINTS,
    )
    last = end // period
    datapoints = [series.get((last - back) * period) for back in range(looked, 0, -1)]
    rule = Rule(
        comparison=alarm["ComparisonOperator"],
        threshold=float(alarm["Threshold"]),
        evaluation_periods=int(alarm["EvaluationPeriods"]),
        datapoints_to_alarm=int(alarm["DatapointsToAlarm"]),
        missing=alarm["TreatMissingData"],
    )
    return verdict(rule, datapoints, OK).state
