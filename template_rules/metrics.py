"""The metrics that alarms and scaling policies name, and the quantities that they give."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from onboarding.metrics import HOST, METRICS, MetricFacts, metric_facts
from template_rules.hosting import ALARM, POLICY
from template_rules.templates import Assembly, Resource
from template_rules.values import boolean, dimensions, fields, known_text, objects

CUSTOMIZED = "TargetTrackingScalingPolicyConfiguration.CustomizedMetricSpecification"
UTILIZATION = re.compile(r"(CPU|GPU|GPUMemory|Memory|Disk)(Utilization|Reservation)")
RATIO = "ratio"
COUNT = "count"
MICROSECONDS = "microseconds"
SECONDS = "seconds"
PERCENT = "percent"
PRESENCE = "presence"
"""Quantities: a ratio is 0 to 1; presence is how often hosts reported."""
NUMBER, QUOTIENT = "number", "quotient"
LEAST_MICROSECONDS = 1000
"""No model responds faster than this."""


@dataclass(frozen=True, kw_only=True)
class MetricUse:
    """One metric as a template names it; unknown parts are None."""

    resource: Resource
    path: str
    namespace: str
    metric: str | None
    dimensions: dict[str, Any] | None
    statistic: str | None
    period: Any = None
    identifier: str | None = None

    @property
    def facts(self) -> MetricFacts | None:
        """Return what SageMaker documents of the metric."""
        return None if self.metric is None else metric_facts(self.namespace, self.metric)

    @property
    def quantity(self) -> str | None:
        """Return what the statistic of the metric gives; None for metrics not known here."""
        facts = self.facts
        if facts is None or self.statistic is None:
            return None
        if self.statistic == "SampleCount":
            return PRESENCE if self.namespace == HOST else COUNT
        if facts.unit == "share":
            return COUNT if self.statistic == "Sum" else RATIO
        units = {"microseconds": MICROSECONDS, "seconds": SECONDS, "count": COUNT}
        return units.get(facts.unit, PERCENT)

    @property
    def is_utilization(self) -> bool:
        """Return True for a metric that tells how much of a resource is in use."""
        return self.metric is not None and UTILIZATION.match(self.metric) is not None


def metric_uses(assembly: Assembly) -> Iterator[MetricUse]:
    """Yield every metric of SageMaker's namespaces that a template names."""
    for alarm in assembly.of_type(ALARM):
        yield from alarm_metrics(alarm)
    for policy in assembly.of_type(POLICY):
        customized = policy.at(CUSTOMIZED)
        if isinstance(customized, dict):
            yield from _use(policy, CUSTOMIZED, customized, customized.get("Statistic"))
            yield from _queries(policy, f"{CUSTOMIZED}.Metrics", customized.get("Metrics"))


def alarm_metrics(alarm: Resource) -> list[MetricUse]:
    """Return the metrics of an alarm: its own, or those of its metric math."""
    given = alarm.properties
    statistic = given.get("ExtendedStatistic", given.get("Statistic"))
    return [
        *_use(alarm, "", given, statistic, given.get("Period")),
        *_queries(alarm, "Metrics", given.get("Metrics")),
    ]


def compared_quantities(alarm: Resource) -> set[str]:
    """Return the quantities that an alarm compares with its threshold; empty when unknown."""
    queries = [query for _, query in objects(alarm.properties.get("Metrics"))]
    uses = alarm_metrics(alarm)
    if not queries:
        return {quantity for use in uses if (quantity := use.quantity) is not None}
    returned = [query for query in queries if boolean(query.get("ReturnData", True)) is not False]
    if len(returned) != 1:
        return set()
    quantities = {str(use.identifier): {use.quantity or "unknown"} for use in uses}
    identifier, expression = str(returned[0].get("Id")), known_text(returned[0].get("Expression"))
    if expression is None:
        return quantities.get(identifier, set()) - {"unknown"}
    return MetricMath(quantities).quantities(expression) - {NUMBER, QUOTIENT, "unknown"}


class MetricMath:
    """Derives the quantity of a metric math expression, and notes what does not fit together."""

    def __init__(self, quantities: dict[str, set[str]]) -> None:
        self._quantities = quantities
        self.faults: list[str] = []

    def quantities(self, expression: str) -> set[str]:
        """Return the quantities that an expression may give; faults are noted."""
        text = re.sub(r"\bIF\b", "IF_", expression).replace("&&", " and ").replace("||", " or ")
        text = re.sub(r"\bAND\b", "and", re.sub(r"\bOR\b", "or", text))
        try:
            return self._of(ast.parse(text.strip(), mode="eval").body)
        except (SyntaxError, ValueError, RecursionError):
            return {"unknown"}

    def _of(self, node: ast.expr) -> set[str]:
        match node:
            case ast.Constant():
                return {NUMBER}
            case ast.Name(id=name):
                return self._quantities.get(name, {"unknown"})
            case ast.BinOp(left=left, op=operator, right=right):
                return self._arithmetic(operator, self._of(left), self._of(right))
            case ast.UnaryOp(operand=operand):
                return self._of(operand)
            case ast.BoolOp(values=values):
                set().union(*map(self._of, values))
                return {NUMBER}
            case ast.Compare(left=left, comparators=[right]):
                self._compare(left, right)
                return {NUMBER}
            case ast.Call(func=ast.Name(id=name), args=arguments):
                found = [self._of(argument) for argument in arguments]
                if name == "IF_" and len(found) == 3:
                    chosen = (found[1] | found[2]) - {NUMBER}
                    if len(chosen - {QUOTIENT, "unknown"}) > 1:
                        self.faults.append(f"gives {' or '.join(sorted(chosen))}")
                    return chosen or {NUMBER}
                return found[0] if found else {"unknown"}
        return {"unknown"}

    def _arithmetic(self, operator: ast.operator, left: set[str], right: set[str]) -> set[str]:
        units = (left | right) - {NUMBER, "unknown"}
        if isinstance(operator, ast.Add | ast.Sub):
            if len(units - {QUOTIENT}) > 1:
                self.faults.append(f"adds or subtracts {' and '.join(sorted(units))}")
            return units or {NUMBER}
        if isinstance(operator, ast.Div) and NUMBER not in right:
            return {QUOTIENT}
        return {QUOTIENT} if units else {NUMBER}

    def _compare(self, left: ast.expr, right: ast.expr) -> None:
        quantities = self._of(left) | self._of(right)
        for side in (left, right):
            constant = side.value if isinstance(side, ast.Constant) else None
            if not isinstance(constant, int | float):
                continue
            if RATIO in quantities and constant > 1:
                self.faults.append(f"compares a ratio of 0 to 1 with {constant!r}")
            if MICROSECONDS in quantities and 0 < constant < LEAST_MICROSECONDS:
                self.faults.append(f"compares microseconds with {constant!r}")
        if len(quantities - {NUMBER, QUOTIENT, "unknown"}) > 1:
            self.faults.append(f"compares {' with '.join(sorted(quantities))}")


def _queries(resource: Resource, path: str, queries: Any) -> Iterator[MetricUse]:
    for index, query in objects(queries):
        stat = fields(query.get("MetricStat"))
        place, period = f"{path}[{index}].MetricStat", stat.get("Period")
        metric = fields(stat.get("Metric"))
        yield from _use(resource, place, metric, stat.get("Stat"), period, str(query.get("Id")))


def _use(
    resource: Resource,
    path: str,
    holder: dict[str, Any],
    statistic: Any,
    period: Any = None,
    identifier: str | None = None,
) -> Iterator[MetricUse]:
    namespace = known_text(holder.get("Namespace"))
    if namespace is None:
        return
    given = holder.get("Dimensions")
    yield MetricUse(
        resource=resource,
        path=path,
        namespace=namespace,
        metric=known_text(holder.get("MetricName")),
        dimensions=None if isinstance(given, str) else dimensions(given),
        statistic=known_text(statistic),
        period=period,
        identifier=identifier,
    )


def is_of_sagemaker(use: MetricUse) -> bool:
    """Return True for a metric of an endpoint."""
    return use.namespace in METRICS
