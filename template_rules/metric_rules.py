"""Rules of metrics wherever a template names one: alarms, scaling policies, dashboards."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from onboarding.nearest import comma_list, did_you_mean
from template_rules import hosting
from template_rules.dashboard_body import body_of
from template_rules.finding import Problem
from template_rules.metric_facts import ENHANCED, FURTHER, METRICS, OTHER_NAMESPACES, metric_facts
from template_rules.metric_uses import MetricUse, metric_uses
from template_rules.rule import rule
from template_rules.template import Template
from template_rules.values import at, boolean, fields, is_known, items, shown

NAMED_STATISTICS = ("Average", "Sum", "Minimum", "Maximum", "SampleCount", "IQM")
PERCENTILE = re.compile(r"(?:p|tm|tc|ts|wm)(\d{1,3}(?:\.\d+)?)")
TRIMMED = re.compile(r"(?:TM|TC|TS|WM|PR)\(.*:.*\)")


@rule("RH180", "a SageMaker metric is one that SageMaker publishes, in its namespace")
def unknown_metric(template: Template) -> Iterator[Problem]:
    for use in metric_uses(template):
        known = METRICS.get(use.namespace)
        if known is None:
            yield from _unknown_namespace(use)
        elif use.metric is not None and use.metric not in known:
            elsewhere = [
                namespace for namespace, metrics in METRICS.items() if use.metric in metrics
            ]
            way_out = (
                f"its namespace is {elsewhere[0]}"
                if elsewhere
                else did_you_mean(use.metric, known, "name one of these")
            )
            yield Problem(
                resource=use.resource.logical_id,
                path=_at(use, "MetricName"),
                what=f"{use.namespace} has no such metric",
                value=use.metric,
                allowed=None if elsewhere else comma_list(sorted(known)),
                way_out=way_out,
            )


@rule("RH181", "a metric is asked for a statistic that it has")
def statistic_not_there(template: Template) -> Iterator[Problem]:
    for use in metric_uses(template):
        if use.statistic is None:
            continue
        problem = partial(
            Problem,
            resource=use.resource.logical_id,
            path=_at(use, "Statistic"),
            value=use.statistic,
        )
        if not _is_statistic(use.statistic):
            allowed = (
                f"{comma_list(NAMED_STATISTICS)}, p0 to p100, tm99, TM(10%:90%) and their kind"
            )
            yield problem(what="there is no such statistic", allowed=allowed, way_out="name one")
            continue
        facts = None if use.metric is None else metric_facts(use.namespace, use.metric)
        if facts is None:
            continue
        if use.statistic not in NAMED_STATISTICS and not facts.percentiles:
            yield problem(
                what=f"{use.metric} has no percentiles, so that this never has a value",
                allowed=comma_list(facts.statistics or NAMED_STATISTICS),
                way_out="take one of these",
            )
        elif (
            facts.statistics
            and use.statistic in NAMED_STATISTICS
            and use.statistic not in facts.statistics
        ):
            allowed, what = (
                comma_list(facts.statistics),
                f"{use.metric} means something only as {' or '.join(facts.statistics)}",
            )
            yield problem(what=what, allowed=allowed, way_out="take that")


@rule("RH182", "a metric is asked for by the dimensions under which it is published")
def dimensions_not_there(template: Template) -> Iterator[Problem]:
    for use in metric_uses(template):
        facts = None if use.metric is None else metric_facts(use.namespace, use.metric)
        if (
            facts is None
            or use.dimensions is None
            or not all(is_known(name) for name in use.dimensions)
        ):
            continue
        given = set(use.dimensions)
        if not any(
            given >= set(each) and given - set(each) <= FURTHER for each in facts.dimensions
        ):
            yield Problem(
                resource=use.resource.logical_id,
                path=_at(use, "Dimensions"),
                what=f"{use.metric} is not published under these dimensions",
                value=", ".join(sorted(given)) or "none",
                allowed=" or ".join(", ".join(each) for each in facts.dimensions),
                way_out="name exactly those",
            )


@rule("RH183", "a metric's endpoint and variant are there, when the template makes endpoints")
def metric_of_another_endpoint(template: Template) -> Iterator[Problem]:
    if not hosting.knows_every_endpoint(template):
        return
    for use in metric_uses(template):
        dimensions = (
            {} if use.dimensions is None or use.namespace not in METRICS else use.dimensions
        )
        name, variant = dimensions.get("EndpointName"), dimensions.get("VariantName")
        if not isinstance(name, str) or not is_known(name):
            continue
        where = partial(Problem, resource=use.resource.logical_id, path=_at(use, "Dimensions"))
        endpoint = hosting.endpoint_named(template, name)
        if endpoint is None:
            allowed = ", ".join(sorted(template.names(hosting.ENDPOINT)))
            what = "no endpoint of this template has the name"
            yield where(what=what, value=name, allowed=allowed, way_out="name one of these")
            continue
        config = hosting.config_of(template, endpoint)
        names = [each.name for each in hosting.variants(config)] if config is not None else []
        if (
            names
            and isinstance(variant, str)
            and is_known(variant)
            and all(map(is_known, names))
            and variant not in names
        ):
            what = f"endpoint {name} has no such variant"
            yield where(
                what=what,
                value=variant,
                allowed=", ".join(map(shown, names)),
                way_out="name one of these",
            )


@rule("RH184", "a metric is one that this kind of endpoint publishes")
def metric_of_another_kind(template: Template) -> Iterator[Problem]:
    for use in metric_uses(template):
        facts = None if use.metric is None else metric_facts(use.namespace, use.metric)
        endpoint = hosting.endpoint_named(template, (use.dimensions or {}).get("EndpointName"))
        config = None if endpoint is None else hosting.config_of(template, endpoint)
        if facts is None or config is None or _is_chosen(use):
            continue
        is_asynchronous = "AsyncInferenceConfig" in config.properties
        serverless = any(each.is_serverless for each in hosting.variants(config))
        models = [
            model
            for each in hosting.variants(config)
            for model in hosting.models_of(template, each)
        ]
        multi = any(hosting.mode_of(model) == "MultiModel" for model in models)
        refused = {
            "real-time": is_asynchronous and "an asynchronous endpoint",
            "asynchronous": not is_asynchronous and "an endpoint that answers at once",
            "serverless": not serverless and "an endpoint with instances",
            "multi-model": bool(models) and not multi and "an endpoint of one model",
            "any": False,
        }[facts.kind]
        if refused:
            what = f"{refused} does not publish {use.metric}"
            yield Problem(
                resource=use.resource.logical_id,
                path=_at(use, "MetricName"),
                what=what,
                way_out="take another metric",
            )


@rule("RH185", "a metric of one instance or GPU is asked for where enhanced metrics are on")
def enhanced_metric_without_them(template: Template) -> Iterator[Problem]:
    for use in metric_uses(template):
        given = ENHANCED.intersection(use.dimensions or ())
        endpoint = hosting.endpoint_named(template, (use.dimensions or {}).get("EndpointName"))
        config = None if endpoint is None else hosting.config_of(template, endpoint)
        if not given or config is None or use.namespace not in METRICS:
            continue
        if (
            boolean(at(config.properties, "MetricsConfig", "EnableEnhancedMetrics") or False)
            is False
        ):
            what = "metrics by these dimensions are published only with EnableEnhancedMetrics"
            way_out = f"set MetricsConfig.EnableEnhancedMetrics of {config.logical_id} to true"
            yield Problem(
                resource=use.resource.logical_id,
                path=_at(use, "Dimensions"),
                what=what,
                value=", ".join(sorted(given)),
                way_out=way_out,
            )


def _is_chosen(use: MetricUse) -> bool:
    """True on a dashboard whose reader chooses the endpoint, so that a graph is for any kind."""
    body, _ = body_of(use.resource.properties.get("DashboardBody"))
    return bool(items(fields(body).get("variables")))


def _unknown_namespace(use: MetricUse) -> Iterator[Problem]:
    if (
        use.namespace in OTHER_NAMESPACES
        or "sagemaker" not in use.namespace.lower()
        or "/data-metric" in use.namespace
    ):
        return
    known = [*METRICS, *OTHER_NAMESPACES]
    if use.namespace.startswith(("AWS/", "/aws/", "aws/")):
        yield Problem(
            resource=use.resource.logical_id,
            path=_at(use, "Namespace"),
            what="SageMaker publishes nothing in this namespace",
            value=use.namespace,
            allowed=comma_list(METRICS),
            way_out=did_you_mean(use.namespace, known, "name one of these"),
        )


def _at(use: MetricUse, name: str) -> str:
    """Dashboards name a metric as one list, so that the path ends there."""
    if use.path.startswith("DashboardBody"):
        return use.path
    return f"{use.path}.{name}" if use.path else name


def _is_statistic(word: str) -> bool:
    match = PERCENTILE.fullmatch(word)
    if match is not None:
        return float(match.group(1)) <= 100
    return word in NAMED_STATISTICS or TRIMMED.fullmatch(word) is not None
