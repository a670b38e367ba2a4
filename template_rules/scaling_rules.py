"""Rules of Application Auto Scaling: what is scaled, between which bounds, by which metric and
target.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from template_rules import hosting
from template_rules.finding import Problem
from template_rules.metric_facts import HOST, metric_facts
from template_rules.rule import rule
from template_rules.template import Resource, Template
from template_rules.values import (
    at,
    dimensions,
    fields,
    is_known,
    is_wholly_unknown,
    masked,
    number,
    shown,
    surely_has,
    text,
)

TARGET = "AWS::ApplicationAutoScaling::ScalableTarget"
POLICY = "AWS::ApplicationAutoScaling::ScalingPolicy"
VARIANT_DIMENSIONS = (
    "sagemaker:variant:DesiredInstanceCount",
    "sagemaker:variant:DesiredProvisionedConcurrency",
)
COMPONENT_DIMENSION = "sagemaker:inference-component:DesiredCopyCount"
VARIANT_ID = re.compile(r"endpoint/(?P<endpoint>[^/]+)/variant/(?P<variant>[^/]+)")
COMPONENT_ID = re.compile(r"inference-component/[^/]+")
TRACKING = "TargetTrackingScalingPolicyConfiguration"
METRIC_KINDS = ("PredefinedMetricSpecification", "CustomizedMetricSpecification")


@rule("RH161", "a ResourceId has the form that its scalable dimension needs")
def ill_formed_resource_id(template: Template) -> Iterator[Problem]:
    for resource in template.of_type(TARGET, POLICY):
        name, dimension = (
            resource.properties.get("ResourceId"),
            text(resource.properties.get("ScalableDimension")),
        )
        namespace = text(resource.properties.get("ServiceNamespace"))
        where = partial(Problem, resource=resource.logical_id)
        if dimension is not None and namespace is not None and dimension.split(":")[0] != namespace:
            what = f"the dimension is none of namespace {namespace}"
            yield where(
                path="ScalableDimension",
                what=what,
                value=dimension,
                way_out="make both those of one service",
            )
        if not isinstance(name, str) or is_wholly_unknown(name) or dimension is None:
            continue
        pattern, allowed = (
            (VARIANT_ID, "endpoint/<endpoint name>/variant/<variant name>")
            if dimension in VARIANT_DIMENSIONS
            else (COMPONENT_ID, "inference-component/<name>")
        )
        if (
            dimension in (*VARIANT_DIMENSIONS, COMPONENT_DIMENSION)
            and pattern.fullmatch(masked(name)) is None
        ):
            what = f"{dimension} does not scale such a thing"
            yield where(
                path="ResourceId",
                what=what,
                value=shown(name),
                allowed=allowed,
                way_out="write it so",
            )


@rule("RH162", "what is scaled is an endpoint's variant that is there")
def scaled_thing_missing(template: Template) -> Iterator[Problem]:
    for resource in template.of_type(TARGET, POLICY):
        match = variant_id(resource)
        if match is None:
            continue
        where = partial(
            Problem,
            resource=resource.logical_id,
            path="ResourceId",
            value=shown(resource.properties["ResourceId"]),
        )
        endpoint = hosting.endpoint_named(template, match["endpoint"])
        if endpoint is None:
            if hosting.knows_every_endpoint(template) and is_known(match["endpoint"]):
                allowed = ", ".join(sorted(template.names(hosting.ENDPOINT)))
                what = f"no endpoint of this template is named {match['endpoint']}"
                yield where(what=what, allowed=allowed, way_out="name one of these")
            continue
        config = hosting.config_of(template, endpoint)
        names = [
            each.name
            for each in (() if config is None else hosting.variants(config))
            if not each.shadow
        ]
        if (
            names
            and is_known(match["variant"])
            and all(map(is_known, names))
            and match["variant"] not in names
        ):
            what = f"endpoint {shown(match['endpoint'])} has no variant {match['variant']}"
            yield where(
                what=what, allowed=", ".join(map(shown, names)), way_out="name one of these"
            )


@rule("RH163", "a policy scales a registered target")
def policy_without_target(template: Template) -> Iterator[Problem]:
    targets = list(template.of_type(TARGET))
    registered = [scaled_thing(target) for target in targets]
    for policy in template.of_type(POLICY):
        if (
            not targets
            or "ResourceId" not in policy.properties
            or not all(is_known(part) for part in scaled_thing(policy))
        ):
            continue
        if scaled_thing(policy) not in registered and all(
            is_known(part) for each in registered for part in each
        ):
            yield Problem(
                resource=policy.logical_id,
                path="ResourceId",
                what="no scalable target of this template registers what the policy scales",
                value=", ".join(shown(part) for part in scaled_thing(policy)),
                allowed="; ".join(", ".join(map(shown, each)) for each in registered),
                way_out="make the three the same, or name the target by ScalingTargetId",
            )


@rule("RH164", "a target tracking policy tracks one metric: predefined or customized")
def two_metric_kinds(template: Template) -> Iterator[Problem]:
    for policy in template.of_type(POLICY):
        tracking = policy.properties.get(TRACKING)
        perhaps = [kind for kind in METRIC_KINDS if kind in fields(tracking)]
        there = [kind for kind in perhaps if surely_has(tracking, kind)]
        if isinstance(tracking, dict) and (len(there) > 1 or not perhaps):
            what = (
                "the policy names no metric"
                if not there
                else "the policy names both kinds of metric"
            )
            yield Problem(
                resource=policy.logical_id,
                path=TRACKING,
                what=what,
                allowed=f"one of {', '.join(METRIC_KINDS)}",
                way_out="keep one",
            )


@rule("RH165", "a policy's configuration is that of its type")
def policy_of_another_type(template: Template) -> Iterator[Problem]:
    needed = {"TargetTrackingScaling": TRACKING, "StepScaling": "StepScalingPolicyConfiguration"}
    for policy in template.of_type(POLICY):
        kind = text(policy.properties.get("PolicyType"))
        for name, configuration in needed.items():
            if kind == name and configuration not in policy.properties:
                what = f"a {name} policy has no {configuration}"
                yield Problem(
                    resource=policy.logical_id, path=configuration, what=what, way_out="write it"
                )
            if kind is not None and kind != name and surely_has(policy.properties, configuration):
                what = f"a {kind} policy does not read {configuration}"
                yield Problem(
                    resource=policy.logical_id, path=configuration, what=what, way_out="take it out"
                )


@rule("RH166", "a predefined metric is one of the thing that is scaled")
def predefined_metric_of_another_thing(template: Template) -> Iterator[Problem]:
    for policy in template.of_type(POLICY):
        dimension = text(policy.properties.get("ScalableDimension"))
        metric = text(
            at(policy.properties, TRACKING, "PredefinedMetricSpecification", "PredefinedMetricType")
        )
        if (
            dimension is None
            or metric is None
            or not (dimension.startswith("sagemaker:") or metric.startswith("SageMaker"))
        ):
            continue
        allowed = PREDEFINED.get(dimension, ())
        if metric not in allowed:
            yield Problem(
                resource=policy.logical_id,
                path=f"{TRACKING}.PredefinedMetricSpecification.PredefinedMetricType",
                what=f"{dimension} has no such metric",
                value=metric,
                allowed=", ".join(allowed) or "none of SageMaker's",
                way_out="take one of these",
            )


PREDEFINED = {
    VARIANT_DIMENSIONS[0]: (
        "SageMakerVariantInvocationsPerInstance",
        "SageMakerVariantConcurrentRequestsPerModelHighResolution",
    ),
    VARIANT_DIMENSIONS[1]: ("SageMakerVariantProvisionedConcurrencyUtilization",),
    COMPONENT_DIMENSION: (
        "SageMakerInferenceComponentInvocationsPerCopy",
        "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution",
    ),
}


@rule(
    "RH167",
    "a target of GPU use is a percentage times the number of GPUs: the metric counts 100 for each",
)
def gpu_target_notscaled_thing(template: Template) -> Iterator[Problem]:
    for policy in template.of_type(POLICY):
        metric = fields(at(policy.properties, TRACKING, "CustomizedMetricSpecification"))
        facts = metric_facts(str(metric.get("Namespace")), str(metric.get("MetricName")))
        target = number(at(policy.properties, TRACKING, "TargetValue"))
        if (
            facts is None
            or facts.unit != "gpu percent"
            or metric.get("Namespace") != HOST
            or target is None
        ):
            continue
        given = dimensions(metric.get("Dimensions"))
        variant = hosting.variant_named(
            template, given.get("EndpointName"), given.get("VariantName")
        )
        if variant is not None:
            problem = gpu_percentage_problem(variant, target, str(metric.get("MetricName")))
            if problem is not None:
                yield replace(problem, resource=policy.logical_id, path=f"{TRACKING}.TargetValue")


def gpu_percentage_problem(
    variant: hosting.VariantView, value: float, metric: str
) -> Problem | None:
    """What is wrong with a share of GPU use on a variant, for a rule to place; None when all is
    well, or GPUs are unknown.
    """
    facts = [(name, hosting.instance_facts(name)) for _, name in variant.instance_types]
    counts = {name: each.gpu_count for name, each in facts if each is not None}
    if not counts or len(counts) < len(facts):
        return None
    name, gpus = min(counts.items(), key=lambda pair: pair[1])
    given = f"{value:g}"
    if gpus == 0:
        return Problem(
            what=f"{name} has no GPU, and no {metric}", value=given, way_out="take a CPU metric"
        )
    if value > 100 * gpus:
        what, allowed = f"{metric} of {name} never comes so far", f"at most {100 * gpus}"
        return Problem(
            what=what, value=given, allowed=allowed, way_out=f"write a percentage x {gpus}"
        )
    if gpus > 1 and value <= 100:
        what = f"{metric} counts 100 for each of the {gpus} GPUs of {name}, so that this is {value / gpus:g} %"
        return Problem(
            what=what,
            value=given,
            allowed=f"above 100, at most {100 * gpus}",
            way_out=f"write {value * gpus:g}",
        )
    return None


@rule("RH168", "a target value is above zero")
def target_not_positive(template: Template) -> Iterator[Problem]:
    for policy in template.of_type(POLICY):
        target = number(at(policy.properties, TRACKING, "TargetValue"))
        if target is not None and target <= 0:
            path = f"{TRACKING}.TargetValue"
            what = "the target is not above zero"
            yield Problem(
                resource=policy.logical_id,
                path=path,
                what=what,
                value=f"{target:g}",
                way_out="write one above 0",
            )


@rule("RH169", "a cool-down is not negative")
def negative_cool_down(template: Template) -> Iterator[Problem]:
    for policy in template.of_type(POLICY):
        for holder in (TRACKING, "StepScalingPolicyConfiguration"):
            for name in ("ScaleInCooldown", "ScaleOutCooldown", "Cooldown"):
                seconds = number(at(policy.properties, holder, name))
                if seconds is not None and seconds < 0:
                    what, path = f"{name} is negative", f"{holder}.{name}"
                    yield Problem(
                        resource=policy.logical_id,
                        path=path,
                        what=what,
                        value=f"{seconds:g} s",
                        way_out="write 0 or more",
                    )


def variant_id(resource: Resource) -> re.Match[str] | None:
    """Endpoint and variant of a ResourceId, perhaps marked texts; None for another thing."""
    name = resource.properties.get("ResourceId")
    return VARIANT_ID.fullmatch(name) if isinstance(name, str) else None


def scaled_thing(resource: Resource) -> tuple[Any, ...]:
    """The three properties that say what is scaled."""
    return tuple(
        resource.properties.get(name)
        for name in ("ServiceNamespace", "ScalableDimension", "ResourceId")
    )
