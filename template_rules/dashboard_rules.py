"""Rules of CloudWatch dashboards: a body that CloudWatch reads, widgets on its grid, graphs in one
unit.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

from template_rules.alarm_rules import unknown_ids
from template_rules.dashboard_body import Widget, body_of, widget_metrics, widgets
from template_rules.finding import Problem, Severity
from template_rules.metric_facts import metric_facts
from template_rules.rule import rule
from template_rules.template import Resource, Template
from template_rules.values import at, fields, is_known, items, number, objects, text

DASHBOARD = "AWS::CloudWatch::Dashboard"
KINDS = ("metric", "text", "log", "alarm", "explorer", "custom")
COLUMNS, MOST_WIDGETS, MOST_METRICS = 24, 500, 500
MILLISECONDS = re.compile(r"\bms\b|milliseconds?", re.IGNORECASE)


@rule("RH210", "a dashboard's body is JSON with a list of widgets")
def body_not_json(template: Template) -> Iterator[Problem]:
    for dashboard in template.of_type(DASHBOARD):
        body, fault = body_of(dashboard.properties.get("DashboardBody"))
        where = partial(Problem, resource=dashboard.logical_id, path="DashboardBody")
        if fault is not None:
            yield where(
                what=f"the body is no JSON: {fault}", way_out="write it with a JSON library"
            )
        elif body is not None and not isinstance(fields(body).get("widgets"), list):
            yield where(
                what="the body has no list of widgets",
                allowed='{"widgets": [...]}',
                way_out="write one",
            )


@rule("RH211", "a widget is of a kind that CloudWatch has, and shows something")
def unknown_widget(template: Template) -> Iterator[Problem]:
    for dashboard, widget in _widgets(template):
        kind = text(widget.content.get("type"))
        where = partial(Problem, resource=dashboard.logical_id)
        if kind not in KINDS:
            path = f"DashboardBody.{widget.path}.type"
            given = "nothing" if kind is None else kind
            what = "the widget's kind is unknown"
            yield where(
                path=path, what=what, value=given, allowed=", ".join(KINDS), way_out="name one"
            )
        elif kind == "metric" and not {"metrics", "annotations"} & set(widget.properties):
            path = f"DashboardBody.{widget.path}.properties"
            yield where(path=path, what="the graph has no metrics", way_out="name some")


@rule("RH212", "widgets lie on a grid of 24 columns, and none on another")
def off_the_grid(template: Template) -> Iterator[Problem]:
    for dashboard in template.of_type(DASHBOARD):
        taken: list[tuple[Widget, tuple[float, ...]]] = []
        for widget in widgets(dashboard.properties.get("DashboardBody")):
            where = partial(
                Problem, resource=dashboard.logical_id, path=f"DashboardBody.{widget.path}"
            )
            x, y, width, height = (
                number(widget.content.get(name)) for name in ("x", "y", "width", "height")
            )
            if width is not None and (not 1 <= width <= COLUMNS or (x or 0) + width > COLUMNS):
                given, allowed = f"x {x or 0:g}, width {width:g}", f"x + width at most {COLUMNS}"
                what = "the widget does not fit into the columns"
                severity: Severity = "warning" if 1 <= width <= COLUMNS else "error"
                yield where(
                    what=what, value=given, allowed=allowed, way_out="move it", severity=severity
                )
            if x is None or y is None or width is None or height is None:
                continue
            box = (x, y, x + width, y + height)
            other = next((each for each, held in taken if _overlap(box, held)), None)
            if other is not None:
                yield where(
                    what=f"the widget lies on {other.path}", way_out="move it", severity="warning"
                )
            taken.append((widget, box))


@rule("RH213", "metrics of a graph have ids of their own, and its expressions name those")
def graph_contradicts_itself(template: Template) -> Iterator[Problem]:
    for dashboard, widget in _widgets(template):
        options = [
            fields(row[-1])
            for row in items(widget.properties.get("metrics"))
            if isinstance(row, list) and row
        ]
        ids = [str(each["id"]) for each in options if "id" in each]
        where = partial(
            Problem,
            resource=dashboard.logical_id,
            path=f"DashboardBody.{widget.path}.properties.metrics",
        )
        for name in (name for name, count in Counter(ids).items() if count > 1):
            yield where(
                what="two metrics of the graph have one id", value=name, way_out="rename one"
            )
        for each in options:
            for name in sorted(unknown_ids(each.get("expression"), ids)):
                what = "an expression names an id that the graph has not"
                yield where(
                    what=what,
                    value=name,
                    allowed=", ".join(ids) or None,
                    way_out="name one of its metrics",
                )


@rule("RH214", "a graph in milliseconds shows no metric in microseconds", "warning")
def graph_in_another_unit(template: Template) -> Iterator[Problem]:
    for dashboard, widget in _widgets(template):
        properties = widget.properties
        words = [
            properties.get("title"),
            at(properties, "yAxis", "left", "label"),
            at(properties, "yAxis", "right", "label"),
        ]
        if not any(isinstance(each, str) and MILLISECONDS.search(each) for each in words):
            continue
        for metric in widget_metrics(widget):
            facts = metric_facts(str(metric.namespace), str(metric.metric))
            if (
                facts is not None
                and facts.unit == "microseconds"
                and metric.options.get("visible", True)
                and "expression" not in metric.options
            ):
                yield Problem(
                    resource=dashboard.logical_id,
                    path=f"DashboardBody.{metric.path}",
                    what=f"the graph is in milliseconds, and {metric.metric} in microseconds",
                    way_out='hide it ("visible": false) and show an expression that divides it by 1000',
                )


@rule("RH215", "a dashboard keeps CloudWatch's limits of number")
def dashboard_too_large(template: Template) -> Iterator[Problem]:
    for dashboard in template.of_type(DASHBOARD):
        found = widgets(dashboard.properties.get("DashboardBody"))
        if len(found) > MOST_WIDGETS:
            given, allowed = f"{len(found)} widgets", f"at most {MOST_WIDGETS}"
            what = "the dashboard has too many widgets"
            yield Problem(
                resource=dashboard.logical_id,
                path="DashboardBody",
                what=what,
                value=given,
                allowed=allowed,
                way_out="split it",
            )
        for widget in found:
            count = len(items(widget.properties.get("metrics")))
            if count > MOST_METRICS:
                path = f"DashboardBody.{widget.path}"
                given, allowed = f"{count} metrics", f"at most {MOST_METRICS}"
                what = "the graph has too many metrics"
                yield Problem(
                    resource=dashboard.logical_id,
                    path=path,
                    what=what,
                    value=given,
                    allowed=allowed,
                    way_out="split it",
                )


@rule(
    "RH216",
    "what a dashboard's variable changes is in the dashboard, and its default is one of its values",
)
def variable_changes_nothing(template: Template) -> Iterator[Problem]:
    for dashboard in template.of_type(DASHBOARD):
        body, _ = body_of(dashboard.properties.get("DashboardBody"))
        found = fields(body).get("widgets")
        for index, variable in objects(fields(body).get("variables")):
            where = partial(
                Problem, resource=dashboard.logical_id, path=f"DashboardBody.variables[{index}]"
            )
            changed = variable.get("property" if variable.get("type") == "property" else "pattern")
            if (
                isinstance(changed, str)
                and is_known(changed)
                and found is not None
                and not _occurs(changed, found)
            ):
                what = "nothing in the dashboard has what the variable changes"
                yield where(
                    what=what,
                    value=changed,
                    way_out="name a dimension or a text that the widgets have",
                )
            values = [fields(each).get("value") for each in items(variable.get("values"))]
            default = variable.get("defaultValue")
            if (
                values
                and default is not None
                and all(map(is_known, (*values, default)))
                and default not in values
            ):
                what = "the default is none of the variable's values"
                yield where(
                    what=what,
                    value=str(default),
                    allowed=", ".join(map(str, values[:12])),
                    way_out="take one of these",
                )


def _widgets(template: Template) -> Iterator[tuple[Resource, Widget]]:
    for dashboard in template.of_type(DASHBOARD):
        for widget in widgets(dashboard.properties.get("DashboardBody")):
            yield dashboard, widget


def _overlap(box: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return box[0] < other[2] and other[0] < box[2] and box[1] < other[3] and other[1] < box[3]


def _occurs(word: str, value: Any) -> bool:
    if isinstance(value, str):
        return word in value
    if isinstance(value, dict):
        return any(_occurs(word, key) or _occurs(word, each) for key, each in value.items())
    return any(_occurs(word, each) for each in value) if isinstance(value, list) else False
