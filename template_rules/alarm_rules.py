"""Rules of CloudWatch alarms: periods, thresholds in the metric's unit, metric math."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from template_rules import hosting
from template_rules.finding import Problem
from template_rules.metric_facts import METRICS, MetricFacts, metric_facts
from template_rules.rule import rule
from template_rules.scaling_rules import gpu_percentage_problem
from template_rules.template import Resource, Template
from template_rules.values import at, boolean, dimensions, fields, is_known, number, objects, text

ALARM, COMPOSITE = "AWS::CloudWatch::Alarm", "AWS::CloudWatch::CompositeAlarm"
SHORT_PERIODS = (10, 20, 30)
DAY_SECONDS = 86_400
MILLISECONDS = re.compile(r"(\d+(?:\.\d+)?)\s*(?:ms\b|milliseconds?\b)", re.IGNORECASE)
SHORTEST_LIKELY_MICROSECONDS, LONGEST_MICROSECONDS = 5000, 60_000_000
"""A promise of 5 ms or less is rarer than 5000 that was meant as milliseconds; and SageMaker waits
60 s for an answer.
"""
GREATER = ("GreaterThanThreshold", "GreaterThanOrEqualToThreshold")
CHOICE = re.compile(r"\s*IF\([^,()]*,\s*(\w+)\s*,\s*(\w+)\s*\)\s*")
NAMED_ALARM = re.compile(r"(?:ALARM|OK|INSUFFICIENT_DATA)\(\s*[\"']?([^\"')]+)[\"']?\s*\)")


@dataclass(frozen=True)
class Watched:
    """What a threshold is compared with: one metric of an alarm, by its path."""

    alarm: Resource
    path: str
    properties: dict[str, Any]
    statistic: str | None

    @property
    def facts(self) -> MetricFacts | None:
        """What is known of the metric."""
        return metric_facts(
            str(self.properties.get("Namespace")), str(self.properties.get("MetricName"))
        )

    @property
    def threshold(self) -> float | None:
        """The alarm's threshold, when it is a number and the metric goes over it."""
        over = text(self.alarm.properties.get("ComparisonOperator")) in GREATER
        return number(self.alarm.properties.get("Threshold")) if over else None

    def variant(self, template: Template) -> hosting.VariantView | None:
        """The variant that is watched, if it is in the template."""
        given = dimensions(self.properties.get("Dimensions"))
        return hosting.variant_named(template, given.get("EndpointName"), given.get("VariantName"))


@rule("RH190", "an alarm's period is 10, 20, 30 or a multiple of 60 seconds")
def period_not_allowed(template: Template) -> Iterator[Problem]:
    for alarm, path, period, _ in _periods(template):
        if period not in SHORT_PERIODS and (period < 60 or period % 60):
            what = "the period is none that CloudWatch has"
            allowed = "10, 20, 30, or a multiple of 60"
            yield Problem(
                resource=alarm.logical_id,
                path=path,
                what=what,
                value=f"{period:g}",
                allowed=allowed,
                way_out="take one of these",
            )


@rule("RH191", "an alarm looks no oftener than its metric is published", "warning")
def period_below_resolution(template: Template) -> Iterator[Problem]:
    for alarm, path, period, holder in _periods(template):
        watched = Watched(alarm, path, fields(holder), None)
        variant = watched.variant(template)
        every = (
            60.0
            if variant is None
            else number(
                at(variant.config.properties, "MetricsConfig", "MetricPublishFrequencyInSeconds")
            )
            or 60.0
        )
        if period in SHORT_PERIODS and watched.facts is not None and period < every:
            what = f"{holder.get('MetricName')} is published every {every:g} s, so that most periods have no data"
            allowed = f"at least {every:g}"
            yield Problem(
                resource=alarm.logical_id,
                path=path,
                what=what,
                value=f"{period:g}",
                allowed=allowed,
                way_out="look less often",
            )


@rule("RH192", "an alarm looks back one day at most, seven with periods of an hour or longer")
def looks_back_too_far(template: Template) -> Iterator[Problem]:
    for alarm, path, period, _ in _periods(template):
        periods = number(alarm.properties.get("EvaluationPeriods"))
        most = DAY_SECONDS if period < 3600 else 7 * DAY_SECONDS
        if periods is not None and period * periods > most:
            what, given = "the alarm looks back too far", f"{periods:g} x {period:g} s"
            yield Problem(
                resource=alarm.logical_id,
                path=path,
                what=what,
                value=given,
                allowed=f"at most {most} s in all",
                way_out="shorten it",
            )


@rule("RH193", "no more data points are needed than periods are looked at")
def more_data_points_than_periods(template: Template) -> Iterator[Problem]:
    for alarm in template.of_type(ALARM):
        points, periods = (
            number(alarm.properties.get(name))
            for name in ("DatapointsToAlarm", "EvaluationPeriods")
        )
        if points is not None and periods is not None and points > periods:
            what, allowed = (
                "more data points are needed than there are periods",
                f"at most {periods:g}",
            )
            yield Problem(
                resource=alarm.logical_id,
                path="DatapointsToAlarm",
                what=what,
                value=f"{points:g}",
                allowed=allowed,
                way_out="lower it",
            )


@rule("RH194", "a latency threshold is in microseconds, as the metric is: the SLO in ms x 1000")
def threshold_in_another_unit(template: Template) -> Iterator[Problem]:
    for watched in _watched(template):
        threshold = watched.threshold
        if watched.facts is None or watched.facts.unit != "microseconds" or threshold is None:
            continue
        promised = _promised_milliseconds(watched.alarm)
        where = partial(
            Problem, resource=watched.alarm.logical_id, path="Threshold", value=f"{threshold:g}"
        )
        metric = watched.properties.get("MetricName")
        if any(threshold == each * 1000 for each in promised):
            continue
        if threshold in promised:
            what = f"{metric} is in microseconds, and this is {threshold / 1000:g} ms"
            yield where(
                what=what,
                allowed=f"{threshold * 1000:g} for {threshold:g} ms",
                way_out=f"write {threshold * 1000:g}",
            )
        elif threshold <= SHORTEST_LIKELY_MICROSECONDS:
            what = f"{metric} is in microseconds, and this is {threshold / 1000:g} ms: it looks like milliseconds"
            yield where(
                what=what,
                way_out=f"write {threshold * 1000:g} for {threshold:g} ms",
                severity="warning",
            )
        elif (
            threshold > LONGEST_MICROSECONDS
            and watched.facts.kind != "asynchronous"
            and not _is_asynchronous(template, watched)
        ):
            what = f"{metric} never comes so far: SageMaker waits 60 s for an answer"
            allowed = f"at most {LONGEST_MICROSECONDS}"
            yield where(
                what=what, allowed=allowed, way_out="write microseconds", severity="warning"
            )


@rule("RH195", "a threshold is one that the metric can pass")
def threshold_never_passed(template: Template) -> Iterator[Problem]:
    for watched in _watched(template):
        facts, threshold = watched.facts, watched.threshold
        if facts is None or threshold is None or watched.statistic in ("Sum", "SampleCount", None):
            continue
        metric = str(watched.properties.get("MetricName"))
        where = partial(
            Problem, resource=watched.alarm.logical_id, path="Threshold", value=f"{threshold:g}"
        )
        orequal = text(watched.alarm.properties.get("ComparisonOperator")) == GREATER[1]
        most = {"share": 1, "percent": 100}.get(facts.unit)
        if most is not None and (threshold > most or (threshold == most and not orequal)):
            what = f"{watched.statistic} of {metric} is a share, 0 to {most}"
            yield where(what=what, allowed=f"below {most}", way_out="write a share")
        variant = watched.variant(template)
        if facts.unit == "gpu percent" and variant is not None:
            problem = gpu_percentage_problem(variant, threshold, metric)
            if problem is not None:
                yield replace(problem, resource=watched.alarm.logical_id, path="Threshold")


@rule("RH196", "metric math names ids that are there, each once, and returns one of them")
def metric_math_contradicts_itself(template: Template) -> Iterator[Problem]:
    for alarm in template.of_type(ALARM):
        queries = [each for _, each in objects(alarm.properties.get("Metrics"))]
        ids = [str(each.get("Id")) for each in queries]
        where = partial(Problem, resource=alarm.logical_id, path="Metrics")
        for name in (name for name, count in Counter(ids).items() if count > 1):
            yield where(what="two metrics have one id", value=name, way_out="rename one")
        band = alarm.properties.get("ThresholdMetricId")
        watched = [each for each in queries if band is None or each.get("Id") != band]
        returned = [each for each in watched if boolean(each.get("ReturnData", True)) is not False]
        if queries and len(returned) != 1:
            given = f"{len(returned)} of {len(queries)}"
            what = "an alarm watches exactly one returned metric"
            yield where(
                what=what,
                value=given,
                allowed="one with ReturnData true",
                way_out="set ReturnData: false on the others",
            )
        for query in queries:
            for name in sorted(unknown_ids(query.get("Expression"), ids)):
                what = f"the expression of {query.get('Id')} names an id that is not there"
                yield where(
                    what=what, value=name, allowed=", ".join(ids), way_out="name one of these"
                )


@rule("RH198", "an alarm says what it compares with what, and over how many periods")
def alarm_says_too_little(template: Template) -> Iterator[Problem]:
    for alarm in template.of_type(ALARM):
        given = alarm.properties
        if "EvaluationCriteria" in given:
            continue
        needed = [
            ("ComparisonOperator",),
            ("EvaluationPeriods",),
            ("Threshold", "ThresholdMetricId"),
        ]
        if "MetricName" in given:
            needed += [("Namespace",), ("Period",), ("Statistic", "ExtendedStatistic")]
        for names in needed:
            if not any(name in given for name in names):
                either = " or ".join(names)
                yield Problem(
                    resource=alarm.logical_id,
                    path=names[0],
                    what=f"{either} is missing",
                    way_out=f"write {either}",
                )


@rule("RH197", "a composite alarm names alarms that are there")
def composite_of_missing_alarms(template: Template) -> Iterator[Problem]:
    names = template.names(ALARM, COMPOSITE)
    if not all(is_known(name) for name in names):
        return
    for composite in template.of_type(COMPOSITE):
        for name in NAMED_ALARM.findall(str(composite.properties.get("AlarmRule"))):
            if is_known(name) and not name.startswith("arn:") and name.strip() not in names:
                what = "no alarm of this template has the name"
                allowed = ", ".join(sorted(names))
                yield Problem(
                    resource=composite.logical_id,
                    path="AlarmRule",
                    what=what,
                    value=name,
                    allowed=allowed,
                    way_out="name one of these",
                )


def unknown_ids(expression: Any, ids: list[str]) -> set[str]:
    """Ids of metrics, which begin in lower case, that an expression names and nothing defines."""
    if (
        not isinstance(expression, str)
        or not is_known(expression)
        or re.search(r"\bSELECT\b|\bSEARCH\(", expression)
    ):
        return set()
    bare = re.sub(r"'[^']*'|\"[^\"]*\"", "", expression)
    return set(re.findall(r"(?<![\w.])[a-z]\w*", bare)) - set(ids)


def _periods(template: Template) -> Iterator[tuple[Resource, str, float, Any]]:
    for alarm in template.of_type(ALARM):
        own = number(alarm.properties.get("Period"))
        if own is not None:
            yield alarm, "Period", own, alarm.properties
        for index, query in objects(alarm.properties.get("Metrics")):
            for path, holder in (
                ("Period", query),
                ("MetricStat.Period", fields(query.get("MetricStat"))),
            ):
                period = number(holder.get("Period"))
                if period is not None:
                    yield alarm, f"Metrics[{index}].{path}", period, fields(holder.get("Metric"))


def _watched(template: Template) -> Iterator[Watched]:
    """The metrics that each alarm compares with its threshold, each once; of metric math those that
    a choice is made of.
    """
    for alarm in template.of_type(ALARM):
        properties = dict(alarm.properties)
        if text(properties.get("Namespace")) in METRICS:
            yield Watched(
                alarm,
                "",
                properties,
                text(properties.get("ExtendedStatistic", properties.get("Statistic"))),
            )
        seen: list[dict[str, Any]] = []
        for stat in _compared(objects(properties.get("Metrics"))):
            metric = fields(stat.get("Metric"))
            if metric not in seen:
                seen.append(metric)
                yield Watched(alarm, "Metrics", metric, text(stat.get("Stat")))


def _compared(queries: Iterable[tuple[int, dict[str, Any]]]) -> list[dict[str, Any]]:
    """The statistics that come out of an alarm's queries as they went in: the one returned, or
    either of `IF(…, p99, p95)`.
    """
    found = [query for _, query in queries]
    returned = [each for each in found if boolean(each.get("ReturnData", True)) is not False]
    if len(returned) != 1:
        return []
    chosen = CHOICE.fullmatch(text(returned[0].get("Expression")) or "")
    meant = (
        returned
        if chosen is None
        else [each for each in found if each.get("Id") in chosen.groups()]
    )
    return [stat for each in meant if (stat := fields(each.get("MetricStat")))]


def _promised_milliseconds(alarm: Resource) -> set[float]:
    """Latencies that an alarm's metadata or its description names, in ms."""
    slo = number(hosting.roundhouse_metadata(alarm.raw).get("latency_slo_ms"))
    described = MILLISECONDS.findall(str(alarm.properties.get("AlarmDescription", "")))
    return {float(each) for each in described} | ({slo} if slo is not None else set())


def _is_asynchronous(template: Template, watched: Watched) -> bool:
    variant = watched.variant(template)
    return variant is not None and "AsyncInferenceConfig" in variant.config.properties
