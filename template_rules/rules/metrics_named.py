"""Rules of metrics wherever a template names one: alarms and scaling policies."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from onboarding.metrics import ENHANCED, FURTHER, METRICS, OTHER_NAMESPACES
from onboarding.nearest import comma_list, did_you_mean
from template_rules.hosting import ENDPOINT, config_of, is_multi_model, models_of, variants
from template_rules.metrics import MetricUse, metric_uses
from template_rules.rule import template_rule
from template_rules.templates import Assembly, Problem
from template_rules.values import boolean, is_known

NAMED_STATISTICS = ("Average", "Sum", "Minimum", "Maximum", "SampleCount", "IQM")
PERCENTILE = re.compile(r"(?:p|tm|tc|ts|wm)(\d{1,2}(?:\.\d+)?|100)")
TRIMMED = re.compile(r"(?:TM|TC|TS|WM|PR)\(.*:.*\)")


@template_rule("E9180", "Metric or namespace that SageMaker does not publish")
def unknown_metric(assembly: Assembly) -> Iterator[Problem]:
    """A SageMaker metric is one that SageMaker publishes, in its namespace."""
    for use in metric_uses(assembly):
        known = METRICS.get(use.namespace)
        sagemaker = re.match(r"(?i)/?aws/sagemaker", use.namespace) is not None
        if known is None and sagemaker and use.namespace not in OTHER_NAMESPACES:
            yield _problem(
                use,
                "Namespace",
                "SageMaker publishes nothing in this namespace",
                did_you_mean(use.namespace, [*METRICS], "name one of these"),
                value=use.namespace,
                allowed=comma_list(METRICS),
            )
        elif known is not None and use.metric is not None and use.metric not in known:
            elsewhere = [name for name, metrics in METRICS.items() if use.metric in metrics]
            way_out = did_you_mean(use.metric, known, "name one that it has")
            yield _problem(
                use,
                "MetricName",
                f"{use.namespace} has no such metric",
                f"its namespace is {elsewhere[0]}" if elsewhere else way_out,
                value=use.metric,
            )


@template_rule("E9181", "Statistic that the metric does not have")
def metric_statistic(assembly: Assembly) -> Iterator[Problem]:
    """A metric is read by a statistic that it has."""
    for use in metric_uses(assembly):
        statistic, facts = use.statistic, use.facts
        if statistic is None:
            continue
        named = statistic in NAMED_STATISTICS
        if not named and not PERCENTILE.fullmatch(statistic) and not TRIMMED.fullmatch(statistic):
            allowed = f"{comma_list(NAMED_STATISTICS)}, p0 to p100, tm99, TM(10%:90%)"
            what = "CloudWatch has no such statistic"
            yield _problem(
                use, "Statistic", what, "take one of these", value=statistic, allowed=allowed
            )
        elif facts is not None and (
            (not named and not facts.percentiles)
            or (named and facts.statistics and statistic not in facts.statistics)
        ):
            allowed = comma_list(facts.statistics or NAMED_STATISTICS)
            what = f"{use.metric} has no such statistic"
            yield _problem(
                use, "Statistic", what, "take one of these", value=statistic, allowed=allowed
            )


@template_rule("E9182", "Dimensions under which a metric is not published")
def metric_dimensions(assembly: Assembly) -> Iterator[Problem]:
    """A metric has the dimensions under which it is published, of an endpoint that exists."""
    for use in metric_uses(assembly):
        facts, given = use.facts, use.dimensions
        if facts is None or given is None or not all(map(is_known, given)):
            continue
        names = set(given)
        if not any(
            names >= set(allowed) and names - set(allowed) <= FURTHER
            for allowed in facts.dimensions
        ):
            yield _problem(
                use,
                "Dimensions",
                f"{use.metric} is not published under these dimensions",
                "name exactly those",
                value=", ".join(sorted(names)) or "none",
                allowed=" or ".join(", ".join(allowed) for allowed in facts.dimensions),
            )
        yield from _endpoint(assembly, use)


def _endpoint(assembly: Assembly, use: MetricUse) -> Iterator[Problem]:
    given = use.dimensions or {}
    name, variant = given.get("EndpointName"), given.get("VariantName")
    endpoint = assembly.find(name, ENDPOINT)
    endpoints = assembly.names(ENDPOINT)
    if endpoint is None:
        if endpoints and isinstance(name, str) and is_known(name) and all(map(is_known, endpoints)):
            what = "no endpoint of this template has the name"
            yield _problem(use, "Dimensions", what, value=name, allowed=endpoints)
        return
    config = config_of(assembly, endpoint)
    names = [found.name for found in variants(config)]
    if names and variant is not None and is_known(variant) and variant not in names:
        what, allowed = "the endpoint has no such variant", ", ".join(map(str, names))
        yield _problem(use, "Dimensions", what, value=variant, allowed=allowed)
    enhanced = ENHANCED & set(given)
    if enhanced and config is not None:
        on = config.at("MetricsConfig.EnableEnhancedMetrics")
        if boolean(on or False) is False:
            what = "these dimensions need MetricsConfig.EnableEnhancedMetrics"
            value = ", ".join(sorted(enhanced))
            yield _problem(use, "Dimensions", what, "set it to true", value=value)


@template_rule("E9184", "Metric of another kind of endpoint")
def metric_kind(assembly: Assembly) -> Iterator[Problem]:
    """A metric is one that this kind of endpoint publishes."""
    for use in metric_uses(assembly):
        endpoint = assembly.find((use.dimensions or {}).get("EndpointName"), ENDPOINT)
        config = config_of(assembly, endpoint)
        if use.facts is None or config is None:
            continue
        found = variants(config)
        models = [model for variant in found for model in models_of(assembly, variant)]
        asynchronous = "AsyncInferenceConfig" in config.properties
        serverless = any("ServerlessConfig" in variant.properties for variant in found)
        wrong = {
            "real-time": asynchronous,
            "asynchronous": not asynchronous,
            "serverless": not serverless,
            "multi-model": bool(models) and not any(map(is_multi_model, models)),
        }
        if wrong.get(use.facts.kind, False):
            what = f"only {use.facts.kind} endpoints publish {use.metric}"
            yield _problem(use, "MetricName", what, "take another metric")


def _problem(
    use: MetricUse,
    key: str,
    what: str,
    way_out: str = "name one of these",
    *,
    value: str | None = None,
    allowed: str | Iterable[object] | None = None,
) -> Problem:
    names = {"Statistic": "Stat"} if use.path.endswith("MetricStat") else {}
    inner = names.get(key, f"Metric.{key}") if names else key
    path = ".".join(filter(None, (use.path, inner)))
    return use.resource.problem(path, what, way_out, value=value, allowed=allowed)
