"""Rules of CloudWatch alarms: statistic, threshold, comparison, missing data, metric math."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from onboarding.aws_limits import REAL_TIME_SECONDS
from onboarding.metrics import HIGH_RESOLUTION
from template_rules.hosting import ALARM, config_of, variant_named, variants
from template_rules.metrics import (
    COUNT,
    MICROSECONDS,
    PERCENT,
    PRESENCE,
    RATIO,
    SECONDS,
    MetricMath,
    MetricUse,
    alarm_metrics,
    compared_quantities,
    is_of_sagemaker,
)
from template_rules.rule import resource_rule, template_rule
from template_rules.rules.scaling import utilization_fault
from template_rules.templates import Assembly, Problem, Resource, metadata
from template_rules.values import at, is_known, known_text, number, objects, texts

DAY_SECONDS = 86_400
WAKING = frozenset({"HasBacklogWithoutCapacity", "NoCapacityInvocationFailures"})
"""Metrics of requests that wait while there is no instance or copy."""
SHORTEST_MICROSECONDS, LONGEST_MICROSECONDS = 5_000, REAL_TIME_SECONDS * 1_000_000
"""A latency promise of 5 ms or less is rarer than a value in ms; SageMaker waits 60 s."""
PERCENTILE = r"\bp\d{2}(?:\.\d+)?\b"
QUANTITY = re.compile(
    r"(\d+(?:,\d{3})*(?:\.\d+)?)\s*(ms|milliseconds?|microseconds?|s|seconds?|minutes?|%|x)(?![\w/])"
)
SCALES = {
    MICROSECONDS: {"ms": 1e3, "mi": 1.0, "s": 1e6, "se": 1e6},
    SECONDS: {"s": 1.0, "se": 1.0, "ms": 1e-3, "min": 60.0},
    PERCENT: {"%": 1.0},
    RATIO: {"%": 0.01},
}
"""Quantity -> unit in a description -> factor to the metric's own unit."""


@template_rule("E9190", "Period without data, or more data points than periods")
def alarm_periods(assembly: Assembly) -> Iterator[Problem]:
    """An alarm looks at periods in which SageMaker publishes, and at all of its data points."""
    for alarm in assembly.of_type(ALARM):
        count = number(alarm.properties.get("EvaluationPeriods"))
        points = number(alarm.properties.get("DatapointsToAlarm"))
        if points is not None and count is not None and points > count:
            what = "more data points are needed than there are periods"
            yield alarm.problem("DatapointsToAlarm", what, f"at most {count:g}", value=points)
        for use in alarm_metrics(alarm):
            period = number(use.period)
            path = f"{use.path}.Period" if use.path else "Period"
            if period is None or not is_of_sagemaker(use):
                continue
            if period < _published_every(assembly, use):
                what = f"most periods have no data: {use.metric} is published every minute"
                yield alarm.problem(path, what, "take 60 or more", value=f"{period:g} s")


def _published_every(assembly: Assembly, use: MetricUse) -> float:
    if use.metric in HIGH_RESOLUTION:
        return 10.0
    variant = _variant(assembly, use)
    given = at(
        None if variant is None else variant.config.properties,
        "MetricsConfig",
        "MetricPublishFrequencyInSeconds",
    )
    return number(given) or 60.0


@resource_rule("E9195", "Statistic that does not fit the metric", ALARM)
def alarm_statistic(alarm: Resource) -> Iterator[Problem]:
    """A metric is read by a statistic that fits it: no sum of latencies, no minimum of loads."""
    uses = alarm_metrics(alarm)
    for use in uses:
        fault = _statistic_fault(use)
        if fault is not None:
            path = f"{use.path}.Stat" if use.path else "Statistic"
            what, way_out = fault
            yield alarm.problem(path, what, way_out, value=use.statistic)
    described = re.findall(PERCENTILE, str(alarm.properties.get("AlarmDescription")))
    latencies = [use for use in uses if use.quantity == MICROSECONDS]
    given = {str(use.statistic) for use in latencies} - {"Average", "Maximum"}
    if described and given - set(described):
        what = "the description promises another percentile"
        value = ", ".join(sorted(given - set(described)))
        yield alarm.problem("Statistic", what, "take that", value=value, allowed=described)


def _statistic_fault(use: MetricUse) -> tuple[str, str] | None:
    """Return why a statistic does not fit a metric, and the way out; None when it fits."""
    level = use.quantity in (MICROSECONDS, SECONDS, PERCENT) or use.is_utilization
    errors = use.metric is not None and use.metric.endswith("Errors")
    if level and use.statistic == "Sum":
        what = f"Sum of {use.metric} grows with the number of data points"
        return what, "take Average, Maximum or a percentile"
    if level and use.statistic == "Minimum":
        return f"Minimum of {use.metric} hides all but the best", "take Average or Maximum"
    if errors and use.statistic in ("Minimum", "Maximum", "SampleCount"):
        what = f"{use.statistic} of {use.metric} is neither how many failed nor their share"
        return what, "take Sum for how many, Average for the share"
    return None


@template_rule("E9194", "Threshold in another unit than the metric")
def alarm_threshold(assembly: Assembly) -> Iterator[Problem]:
    """A threshold is in the unit of what it is compared with, and can be passed."""
    for alarm in assembly.of_type(ALARM):
        threshold = number(alarm.properties.get("Threshold"))
        if threshold is None:
            continue
        for quantity in sorted(compared_quantities(alarm)):
            fault = _threshold_fault(assembly, alarm, quantity, threshold)
            if fault is not None:
                what, way_out = fault
                yield alarm.problem("Threshold", what, way_out, value=f"{threshold:g}")


def _threshold_fault(
    assembly: Assembly, alarm: Resource, quantity: str, threshold: float
) -> tuple[str, str] | None:
    """Return what is wrong with a threshold, and the way out; None when it fits."""
    promised = _promised(alarm, quantity)
    if promised and not any(abs(threshold - value) <= 0.02 * value for value in promised):
        values = ", ".join(f"{value:g}" for value in sorted(promised))
        what = f"the description promises {values} in the metric's unit ({quantity})"
        return what, "write the promised value in that unit"
    if quantity == RATIO and not 0 < threshold <= 1:
        return "the value is a ratio of 0 to 1", "write a ratio, such as 0.05"
    if quantity in (COUNT, PRESENCE) and 0 < threshold < 1:
        return "the value is a count, and this a fraction", "compare the Average, or a whole number"
    if quantity == MICROSECONDS and not promised:
        return _latency_fault(assembly, alarm, threshold)
    if quantity == SECONDS and threshold > DAY_SECONDS:
        return "the metric is in seconds, and this is more than a day", "write seconds"
    if quantity == PERCENT:
        for use in alarm_metrics(alarm):
            fault = utilization_fault(_variant(assembly, use), threshold, str(use.metric))
            if use.is_utilization and fault is not None:
                return fault
    return None


def _latency_fault(assembly: Assembly, alarm: Resource, threshold: float) -> tuple[str, str] | None:
    """Return what is wrong with a latency that no description promises; None when it fits."""
    asynchronous = any(_is_asynchronous(assembly, use) for use in alarm_metrics(alarm))
    if threshold <= SHORTEST_MICROSECONDS:
        what = f"the metric is in microseconds, and this is {threshold / 1000:g} ms"
        return what, f"write {threshold * 1000:g} for {threshold:g} ms"
    if threshold > LONGEST_MICROSECONDS and not asynchronous:
        return "SageMaker waits 60 s for a response, in microseconds 60000000", "lower it"
    return None


def _promised(alarm: Resource, quantity: str) -> set[float]:
    """Return the values of a quantity that metadata or description of an alarm name."""
    scales = SCALES.get(quantity, {})
    text = str(alarm.properties.get("AlarmDescription", ""))
    found = set()
    for figure, unit in QUANTITY.findall(text):
        key = "min" if unit.startswith("minute") else unit if unit == "ms" else unit[:2]
        key = {"mi": "ms" if unit.startswith("milli") else "mi"}.get(key, key)
        if key in scales:
            found.add(float(figure.replace(",", "")) * scales[key])
    slo = number(metadata(alarm.raw, "latency_slo_ms"))
    return found | ({slo * 1000} if slo is not None and quantity == MICROSECONDS else set())


@template_rule("E9196", "Comparison in the wrong direction")
def alarm_comparison(assembly: Assembly) -> Iterator[Problem]:
    """An alarm rings when a metric is bad: high latencies, errors and loads, missing hosts."""
    for alarm in assembly.of_type(ALARM):
        operator = known_text(alarm.properties.get("ComparisonOperator"))
        uses, quantities = alarm_metrics(alarm), compared_quantities(alarm)
        if operator is None or not uses or not all(map(is_of_sagemaker, uses)):
            continue
        if not operator.startswith(("Less", "Greater")) or _scales(assembly, alarm):
            continue
        low_is_bad = quantities == {PRESENCE} or _low_is_bad(uses)
        if low_is_bad is None:
            continue
        if operator.startswith("Less") != low_is_bad:
            bad = "low" if low_is_bad else "high"
            yield alarm.problem(
                "ComparisonOperator",
                f"the alarm rings while all is well: {uses[0].metric} is bad when it is {bad}",
                f"write {'LessThanThreshold' if low_is_bad else 'GreaterThanThreshold'}",
                value=operator,
            )


def _low_is_bad(uses: list[MetricUse]) -> bool | None:
    """Return whether low values are bad; None for metrics that have no bad side."""
    names = {use.metric for use in uses}
    if names == {"ModelCacheHit"}:
        return True
    plain = {"Invocations", "InvocationsProcessed", "LoadedModelCount"}
    return None if names <= plain else False


def _scales(assembly: Assembly, alarm: Resource) -> bool:
    """Return True for an alarm that starts a scaling policy."""
    return any(
        ":scalingPolicy:" in action or "ScalingPolicy" in action or not is_known(action)
        for action in texts(alarm.properties.get("AlarmActions"))
        if assembly.find(action, "AWS::SNS::Topic") is None and ":sns:" not in action
    )


@template_rule("E9197", "TreatMissingData against the alarm's purpose")
def alarm_missing_data(assembly: Assembly) -> Iterator[Problem]:
    """Missing data is breaching where hosts must report, and nowhere else."""
    for alarm in assembly.of_type(ALARM):
        uses = alarm_metrics(alarm)
        treatment = alarm.properties.get("TreatMissingData", "missing")
        if not uses or not all(map(is_of_sagemaker, uses)) or not is_known(treatment):
            continue
        less = str(alarm.properties.get("ComparisonOperator")).startswith("Less")
        what, right = None, "notBreaching"
        if compared_quantities(alarm) == {PRESENCE} and less:
            if treatment != "breaching":
                what = "hosts that are gone report nothing, and the alarm stays quiet"
                right = "breaching"
        elif _low_is_bad(uses) is None or (treatment == "missing" and _wakes(assembly, alarm)):
            continue
        elif treatment == "breaching":
            what = "the metric has no data while there are no requests, and the alarm rings"
        elif treatment in ("ignore", "missing"):
            what = "without requests the alarm keeps its state, or has none"
        if what is not None:
            yield alarm.problem("TreatMissingData", what, f"write {right}", value=treatment)


@template_rule("E9191", "Alarm that is to wake an endpoint, and does not ring for one request")
def waking_threshold(assembly: Assembly) -> Iterator[Problem]:
    """An alarm that adds the first instance or copy rings for the first waiting request."""
    for alarm in assembly.of_type(ALARM):
        threshold = number(alarm.properties.get("Threshold"))
        over = alarm.properties.get("ComparisonOperator") == "GreaterThanThreshold"
        if threshold is not None and _wakes(assembly, alarm) and threshold + over > 1:
            what = "one request that waits is 1, and nothing wakes the endpoint"
            yield alarm.problem("Threshold", what, "compare with 1 by >=", value=f"{threshold:g}")


def _wakes(assembly: Assembly, alarm: Resource) -> bool:
    """Return True for an alarm that adds the first instance or copy once a request waits."""
    return {use.metric for use in alarm_metrics(alarm)} <= WAKING and _scales(assembly, alarm)


@resource_rule("E9198", "Metric math that compares unlike with like", ALARM)
def alarm_metric_math(alarm: Resource) -> Iterator[Problem]:
    """Metric math adds and compares quantities that fit together."""
    uses = alarm_metrics(alarm)
    quantities = {str(use.identifier): {use.quantity or "unknown"} for use in uses}
    for _, query in objects(alarm.properties.get("Metrics")):
        expression = known_text(query.get("Expression"))
        if expression is not None:
            math = MetricMath(quantities)
            math.quantities(expression)
            for fault in math.faults:
                way_out = "take the statistic that gives what the expression expects"
                yield alarm.problem("Metrics", f"the expression {fault}", way_out, value=expression)


def _variant(assembly: Assembly, use: MetricUse) -> Any:
    given = use.dimensions or {}
    return variant_named(assembly, given.get("EndpointName"), given.get("VariantName"))


def _is_asynchronous(assembly: Assembly, use: MetricUse) -> bool:
    name = (use.dimensions or {}).get("EndpointName")
    config = config_of(assembly, assembly.find(name, "AWS::SageMaker::Endpoint"))
    return (
        config is not None
        and bool(variants(config))
        and ("AsyncInferenceConfig" in config.properties)
    )
