"""Rules of metric math in alarms: ids, the returned metric, and quantities that fit together."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from template_rules.hosting import ALARM
from template_rules.metrics import MetricMath, alarm_metrics
from template_rules.rule import resource_rule
from template_rules.templates import Problem, Resource
from template_rules.values import boolean, known_text, objects


@resource_rule("E9198", "Metric math that contradicts itself", ALARM)
def alarm_metric_math(alarm: Resource) -> Iterator[Problem]:
    """Metric math names ids that exist, returns one of them, and compares like with like."""
    queries = [query for _, query in objects(alarm.properties.get("Metrics"))]
    ids = [str(query.get("Id")) for query in queries]
    for name in (name for name, count in Counter(ids).items() if count > 1):
        yield alarm.problem("Metrics", "two metrics have one Id", "rename one", value=name)
    band = alarm.properties.get("ThresholdMetricId")
    watched = [query for query in queries if band is None or query.get("Id") != band]
    returned = [item for item in watched if boolean(item.get("ReturnData", True)) is not False]
    if queries and len(returned) != 1:
        what, value = "an alarm watches one returned metric", f"{len(returned)}"
        yield alarm.problem("Metrics", what, "set ReturnData: false on the others", value=value)
    uses = alarm_metrics(alarm)
    quantities = {str(use.identifier): {use.quantity or "unknown"} for use in uses}
    for query in queries:
        expression = known_text(query.get("Expression"))
        if expression is None:
            continue
        for name in sorted(unknown_ids(expression, ids)):
            what, allowed = "no metric has the Id", ", ".join(ids)
            yield alarm.problem("Metrics", what, value=name, allowed=allowed)
        math = MetricMath(quantities)
        math.quantities(expression)
        for fault in math.faults:
            way_out = "take the statistic that gives what the expression expects"
            yield alarm.problem("Metrics", f"the expression {fault}", way_out, value=expression)


def unknown_ids(expression: str, ids: list[str]) -> set[str]:
    """Return the lower case names in an expression that no metric has as its Id."""
    if re.search(r"\bSELECT\b|\bSEARCH\(", expression):
        return set()
    bare = re.sub(r"'[^']*'|\"[^\"]*\"", "", expression)
    return set(re.findall(r"(?<![\w.])[a-z]\w*", bare)) - set(ids)
