"""Rules of CloudWatch dashboards: their JSON, widgets, ids, units, limits and variables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from onboarding.metrics import metric_facts
from template_rules.dashboard_body import Widget, body_of, widget_metrics, widgets
from template_rules.metrics import DASHBOARD
from template_rules.rule import resource_rule
from template_rules.rules.metric_math import unknown_ids
from template_rules.templates import Problem, Resource
from template_rules.values import at, fields, is_known, items, known_text, number, objects

KINDS = ("metric", "text", "log", "alarm", "explorer", "custom", "trace")
COLUMNS, MOST_WIDGETS, MOST_METRICS = 24, 500, 500
MILLISECONDS = re.compile(r"\bms\b|milliseconds?", re.IGNORECASE)


@resource_rule("E9210", "Dashboard body that PutDashboard refuses", DASHBOARD)
def dashboard_body(dashboard: Resource) -> Iterator[Problem]:
    """A dashboard's body is JSON with widgets of kinds that CloudWatch has, within its limits."""
    body, fault = body_of(dashboard.properties.get("DashboardBody"))
    if fault is not None:
        what = f"the body is no JSON: {fault}"
        yield dashboard.problem("DashboardBody", what, "write it with a JSON library")
    elif body is not None and not isinstance(fields(body).get("widgets"), list):
        what = "the body has no list of widgets"
        yield dashboard.problem("DashboardBody", what, 'write {"widgets": [...]}')
    found = widgets(dashboard.properties.get("DashboardBody"))
    if len(found) > MOST_WIDGETS:
        what, value = "the dashboard has too many widgets", len(found)
        yield dashboard.problem(
            "DashboardBody", what, "split it", value=value, allowed=f"{MOST_WIDGETS}"
        )
    for widget in found:
        yield from _widget_problems(dashboard, widget)


def _widget_problems(dashboard: Resource, widget: Widget) -> Iterator[Problem]:
    kind = known_text(widget.content.get("type"))
    rows = items(widget.properties.get("metrics"))
    if kind not in KINDS:
        what = f"{widget.path} is of no kind that CloudWatch has"
        yield dashboard.problem(
            "DashboardBody", what, "take one of these", value=kind, allowed=KINDS
        )
    elif kind == "metric" and not {"metrics", "annotations"} & set(widget.properties):
        yield dashboard.problem("DashboardBody", f"{widget.path} shows no metric", "name some")
    if len(rows) > MOST_METRICS:
        what = f"{widget.path} has too many metrics"
        yield dashboard.problem("DashboardBody", what, "split it", value=len(rows))
    x, width = (number(widget.content.get(key)) or 0 for key in ("x", "width"))
    if x + width > COLUMNS:
        what, value = f"{widget.path} does not fit into 24 columns", f"x {x:g}, width {width:g}"
        yield dashboard.problem("DashboardBody", what, "move it", value=value)
    options = [fields(row[-1]) for row in rows if isinstance(row, list) and row]
    ids = [str(option["id"]) for option in options if "id" in option]
    for name in (name for name, count in Counter(ids).items() if count > 1):
        what = f"two metrics of {widget.path} have one id"
        yield dashboard.problem("DashboardBody", what, "rename one", value=name)
    for option in options:
        expression = known_text(option.get("expression"))
        for name in sorted(unknown_ids(expression, ids)) if expression else ():
            what = f"an expression of {widget.path} names an id that no metric has"
            yield dashboard.problem("DashboardBody", what, "name one that it has", value=name)


@resource_rule("E9214", "Graph in another unit than its metric", DASHBOARD)
def dashboard_units(dashboard: Resource) -> Iterator[Problem]:
    """A graph in milliseconds shows no metric in microseconds, and no latency by Sum."""
    for widget in widgets(dashboard.properties.get("DashboardBody")):
        labels = [at(widget.properties, "yAxis", side, "label") for side in ("left", "right")]
        labels.append(widget.properties.get("title"))
        if not any(isinstance(text, str) and MILLISECONDS.search(text) for text in labels):
            continue
        for metric in widget_metrics(widget):
            facts = metric_facts(str(metric.namespace), str(metric.metric))
            drawn = metric.options.get("visible", True)
            plain = "expression" not in metric.options
            if facts is not None and facts.unit == "microseconds" and drawn and plain:
                what = f"{metric.path} is in microseconds, and its graph in milliseconds"
                way_out = "hide it, and show an expression that divides it by 1000"
                yield dashboard.problem("DashboardBody", what, way_out, value=metric.metric)


@resource_rule("E9216", "Dashboard variable without effect", DASHBOARD)
def dashboard_variables(dashboard: Resource) -> Iterator[Problem]:
    """What a dashboard's variable changes is in the dashboard; its default is one of its values."""
    body, _ = body_of(dashboard.properties.get("DashboardBody"))
    content = fields(body).get("widgets")
    for _, variable in objects(fields(body).get("variables")):
        kind = "property" if variable.get("type") == "property" else "pattern"
        changed, default = known_text(variable.get(kind)), variable.get("defaultValue")
        if changed is not None and content is not None and not _occurs(changed, content):
            what = "no widget has what the variable changes"
            yield dashboard.problem("DashboardBody", what, "name it", value=changed)
        values = [fields(value).get("value") for value in items(variable.get("values"))]
        known = all(map(is_known, (*values, default)))
        if values and default is not None and known and default not in values:
            what = "the default is none of the variable's values"
            yield dashboard.problem("DashboardBody", what, "take one", value=default)


def _occurs(word: str, value: Any) -> bool:
    if isinstance(value, str):
        return word in value
    if isinstance(value, dict):
        return any(_occurs(word, key) or _occurs(word, item) for key, item in value.items())
    return any(_occurs(word, item) for item in value) if isinstance(value, list) else False
