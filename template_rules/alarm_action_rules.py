"""Rules of what an alarm does, of the unit that it asks for, and of the grammar of its metric math."""

from __future__ import annotations

import re
from collections.abc import Iterator

from onboarding.nearest import nearest
from template_rules.arn_rules import ARN
from template_rules.finding import Problem
from template_rules.metric_facts import metric_facts
from template_rules.rule import rule
from template_rules.template import Resource, Template
from template_rules.values import fields, is_known, objects, shown, text

ALARM, COMPOSITE = "AWS::CloudWatch::Alarm", "AWS::CloudWatch::CompositeAlarm"
WAYS = ("AlarmActions", "OKActions", "InsufficientDataActions")
MOST_ACTIONS = 5
UNITS = {"microseconds": ("Microseconds",), "seconds": ("Seconds",)}
MEASURES = re.compile(r"(Micro|Milli)?[Ss]econds|.*(bytes|bits|Bytes|Bits|/Second)")
"""Units of time, of size and of rates, which no count, share or percentage is published in."""
FUNCTIONS = (
    *(
        "ABS",
        "ANOMALY_DETECTION_BAND",
        "AVG",
        "CEIL",
        "DATAPOINT_COUNT",
        "DATE",
        "DAY",
        "DB_PERF_INSIGHTS",
        "DIFF",
        "DIFF_TIME",
    ),
    *(
        "EPOCH",
        "FILL",
        "FIRST",
        "FLOOR",
        "HOUR",
        "IF",
        "INSIGHT_RULE_METRIC",
        "LAMBDA",
        "LAST",
        "LOG",
        "LOG10",
        "MAX",
    ),
    *(
        "METRIC_COUNT",
        "METRICS",
        "MIN",
        "MINUTE",
        "MONTH",
        "PERIOD",
        "RATE",
        "REMOVE_EMPTY",
        "RUNNING_SUM",
        "SEARCH",
    ),
    *(
        "SERVICE_QUOTA",
        "SLICE",
        "SORT",
        "STDDEV",
        "SUM",
        "TIME_SERIES",
        "YEAR",
        "MEDIAN",
        "PERCENTILE",
        "SELECT",
        "SCHEMA",
    ),
    *("AND", "OR", "NOT", "FROM", "WHERE", "COUNT"),
)
"""Source: CloudWatch user guide, "Using math expressions with CloudWatch metrics", and Metrics
Insights' words.
"""


@rule("RH186", "an alarm asks for a metric in the unit that it is published in")
def unit_not_published(template: Template) -> Iterator[Problem]:
    for alarm in template.of_type(ALARM):
        for path, holder, unit in _units(alarm):
            name, namespace = text(holder.get("MetricName")), text(holder.get("Namespace"))
            facts = None if name is None or namespace is None else metric_facts(namespace, name)
            if facts is None or unit is None:
                continue
            units = UNITS.get(facts.unit)
            if (units is not None and unit not in units) or (
                units is None and MEASURES.fullmatch(unit)
            ):
                what = f"{name} is published in {units[0] if units else 'another unit'}, so that there is never a value"
                way_out = "take Unit out: the metric has one unit"
                yield Problem(
                    resource=alarm.logical_id, path=path, what=what, value=unit, way_out=way_out
                )


@rule("RH187", "metric math closes what it opens, and calls functions that there are")
def ill_formed_expression(template: Template) -> Iterator[Problem]:
    for alarm in template.of_type(ALARM):
        for index, query in objects(alarm.properties.get("Metrics")):
            expression, path = query.get("Expression"), f"Metrics[{index}].Expression"
            if not isinstance(expression, str) or not is_known(expression):
                continue
            bare = re.sub(r"'[^']*'|\"[^\"]*\"", "", expression)
            if not _balanced(bare):
                what = "a bracket of the expression is open, or closed twice"
                yield Problem(
                    resource=alarm.logical_id,
                    path=path,
                    what=what,
                    value=expression,
                    way_out="close it",
                )
            for name in dict.fromkeys(re.findall(r"\b([A-Z][A-Z0-9_]*)\s*\(", bare)):
                if name not in FUNCTIONS:
                    match = nearest(name, FUNCTIONS)
                    way_out = "look it up" if match is None else f"did you mean {match}?"
                    what = f"metric math is not known to have a function {name}"
                    yield Problem(
                        resource=alarm.logical_id,
                        path=path,
                        what=what,
                        way_out=way_out,
                        severity="warning",
                    )


@rule("RH199", "an alarm does at most five things a state, each named by an ARN of its own region")
def ill_formed_action(template: Template) -> Iterator[Problem]:
    region = template.stack.region
    for alarm in template.of_type(ALARM, COMPOSITE):
        for way in WAYS:
            actions = alarm.properties.get(way)
            if not isinstance(actions, list):
                continue
            if len(actions) > MOST_ACTIONS:
                given, allowed = f"{len(actions)} actions", f"at most {MOST_ACTIONS}"
                what = "the alarm does too many things"
                yield Problem(
                    resource=alarm.logical_id,
                    path=way,
                    what=what,
                    value=given,
                    allowed=allowed,
                    way_out="tell one topic",
                )
            for index, action in enumerate(actions):
                path, known = f"{way}[{index}]", text(action)
                if known is None or known in template.defaults:
                    continue
                match = ARN.match(known)
                if not known.startswith("arn:"):
                    what = "the action is named by no ARN"
                    yield Problem(
                        resource=alarm.logical_id,
                        path=path,
                        what=what,
                        value=known,
                        way_out="write its ARN",
                    )
                elif match is not None and region is not None and match[3] not in ("", region):
                    what = "CloudWatch tells nobody in another region"
                    yield Problem(
                        resource=alarm.logical_id,
                        path=path,
                        what=what,
                        value=shown(known),
                        allowed=region,
                        way_out="name one here",
                    )


def _units(alarm: Resource) -> Iterator[tuple[str, dict[str, object], str | None]]:
    yield "Unit", dict(alarm.properties), text(alarm.properties.get("Unit"))
    for index, query in objects(alarm.properties.get("Metrics")):
        stat = fields(query.get("MetricStat"))
        yield (
            f"Metrics[{index}].MetricStat.Unit",
            fields(stat.get("Metric")),
            text(stat.get("Unit")),
        )


def _balanced(expression: str) -> bool:
    opened: list[str] = []
    pairs = {")": "(", "]": "[", "}": "{"}
    for each in expression:
        if each in pairs.values():
            opened.append(each)
        elif each in pairs and (not opened or opened.pop() != pairs[each]):
            return False
    return not opened
