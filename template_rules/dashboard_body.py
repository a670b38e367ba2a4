"""A dashboard's body as CloudWatch reads it: widgets, metrics, expressions, alarms."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from template_rules.values import MARK, fields, is_known, is_unknown, items, objects

SEARCH = re.compile(r"SEARCH\(\s*'(?P<search>[^']*)'\s*,\s*'(?P<statistic>[^']*)'")
SCHEMA = re.compile(r"\{\s*\"?(?P<namespace>[^,}\"]+)\"?\s*(?P<dimensions>,[^}]*)?\}")
SEARCHED = re.compile(r"MetricName\s*=\s*\(?\s*\"?(?P<metric>[A-Za-z0-9_]+)")
MARKED = re.compile(f"{MARK}[^{MARK}]*{MARK}")


@dataclass(frozen=True, kw_only=True)
class DashboardMetric:
    """One metric of a widget, by its path in the body."""

    path: str
    namespace: Any
    metric: Any
    dimensions: dict[str, Any] | None
    statistic: Any
    options: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Widget:
    """One widget and its path."""

    path: str
    content: Mapping[str, Any]

    @property
    def properties(self) -> Mapping[str, Any]:
        """What a widget shows, and how."""
        return fields(self.content.get("properties"))


def body_of(value: Any) -> tuple[Any, str | None]:
    """Return a parsed body, or why it cannot be parsed; (None, None) when it is unknown."""
    if value is None or is_unknown(value):
        return None, None
    if isinstance(value, dict):
        return value, None
    return _parse(str(value))


@cache
def _parse(text: str) -> tuple[Any, str | None]:
    """Unknown parts may stand inside of texts, or be numbers of their own."""
    try:
        return json.loads(text, strict=False), None
    except (ValueError, RecursionError) as error:
        if is_known(text):
            return None, str(error)
    try:
        return json.loads(MARKED.sub("0", text), strict=False), None
    except (ValueError, RecursionError) as error:
        return None, str(error)


def widgets(value: Any) -> tuple[Widget, ...]:
    """Return the widgets of a readable body, with its pattern variables' defaults in place."""
    body, _ = body_of(value)
    found = with_defaults(fields(body))
    return tuple(
        Widget(path=f"widgets[{index}]", content=each)
        for index, each in objects(found.get("widgets"))
    )


def with_defaults(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """A body as it is when it is opened: a pattern variable changes every text of its widgets."""
    for _, variable in objects(body.get("variables")):
        pattern, default = variable.get("pattern"), variable.get("defaultValue")
        if (
            variable.get("type") == "pattern"
            and isinstance(pattern, str)
            and isinstance(default, str)
            and is_known(default)
        ):
            body = {**body, "widgets": _replace(body.get("widgets"), pattern, default)}
    return body


def _replace(value: Any, pattern: str, by: str) -> Any:
    if isinstance(value, str):
        try:
            return re.sub(pattern, lambda found: by, value)
        except re.error:
            return value
    if isinstance(value, dict):
        return {key: _replace(each, pattern, by) for key, each in value.items()}
    return [_replace(item, pattern, by) for item in value] if isinstance(value, list) else value


def dashboard_metrics(value: Any) -> Iterator[DashboardMetric]:
    """Every metric of a body, those of searches too."""
    for widget in widgets(value):
        yield from widget_metrics(widget)


def widget_metrics(widget: Widget) -> Iterator[DashboardMetric]:
    """Metrics of one widget, in order."""
    before: list[Any] = []
    default = widget.properties.get("stat", "Average")
    for index, row in enumerate(items(widget.properties.get("metrics"))):
        path = f"{widget.path}.properties.metrics[{index}]"
        if not isinstance(row, list):
            continue
        options = fields(row[-1]) if row else {}
        parts = _fill([part for part in row if not isinstance(part, dict)], before)
        if "expression" in options:
            yield from _searched(str(options["expression"]), path, options)
        elif len(parts) >= 2:
            before = parts
            yield DashboardMetric(
                path=path,
                namespace=parts[0],
                metric=parts[1],
                dimensions=dict(zip(map(str, parts[2::2]), parts[3::2], strict=False)),
                statistic=options.get("stat", default),
                options=options,
            )


def _fill(row: list[Any], before: list[Any]) -> list[Any]:
    """Return a row with `.` and `...` replaced by what they repeat of the row above."""
    if "..." in row:
        at = row.index("...")
        after = row[at + 1 :]
        row = [*row[:at], *before[at : len(before) - len(after)], *after]
    return [
        before[index] if each == "." and index < len(before) else each
        for index, each in enumerate(row)
    ]


def _searched(expression: str, path: str, options: Mapping[str, Any]) -> Iterator[DashboardMetric]:
    for match in SEARCH.finditer(expression):
        schema = SCHEMA.search(match["search"])
        if schema is None:
            continue
        names = [
            name.strip().strip('"')
            for name in (schema["dimensions"] or "").split(",")
            if name.strip()
        ]
        for found in SEARCHED.finditer(match["search"]):
            yield DashboardMetric(
                path=path,
                namespace=schema["namespace"].strip(),
                metric=found["metric"],
                dimensions=dict.fromkeys(names) or None,
                statistic=match["statistic"],
                options=options,
            )


def alarm_arns(value: Any) -> Iterator[tuple[str, ...]]:
    """Yield the ARN of each alarm that a body shows, for every value of its pattern variables."""
    body, _ = body_of(value)
    choices = [
        (
            str(variable["pattern"]),
            [str(fields(item).get("value")) for item in items(variable.get("values"))],
        )
        for _, variable in objects(fields(body).get("variables"))
        if variable.get("type") == "pattern" and "pattern" in variable
    ]
    for _, widget in objects(fields(body).get("widgets")):
        properties = fields(widget.get("properties"))
        for holder in (properties, fields(properties.get("annotations"))):
            for arn in items(holder.get("alarms")):
                found = [str(arn)]
                for pattern, values in choices:
                    found = [
                        text.replace(pattern, item)
                        for text in found
                        for item in values or [pattern]
                    ]
                yield tuple(found)
