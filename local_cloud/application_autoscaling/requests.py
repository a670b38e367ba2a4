"""Refusals of Application Auto Scaling beyond its API model, and its Describe actions; pure."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

from local_cloud.application_autoscaling.records import (
    CONFIGURATIONS,
    STEP,
    Description,
    Key,
    Policy,
)
from local_cloud.application_autoscaling.tracking import step_interval
from local_cloud.protocol.constraints import constraint_error, fault, null_fault
from local_cloud.protocol.errors import AwsError, Request, validation_error
from local_cloud.protocol.listing import page

NAMESPACE = "sagemaker"
DIMENSION = "sagemaker:variant:DesiredInstanceCount"
COMPONENT_DIMENSION = "sagemaker:inference-component:DesiredCopyCount"
RESOURCES = {
    DIMENSION: re.compile(r"endpoint/[^/]+/variant/[^/]+"),
    COMPONENT_DIMENSION: re.compile(r"inference-component/[^/]+"),
}
"""The form of a resource id, by scalable dimension."""
HIGHEST_TARGET = 2.0**360
VARIANT_METRICS = {
    "SageMakerVariantInvocationsPerInstance": ("InvocationsPerInstance", "Sum", 60),
    "SageMakerVariantConcurrentRequestsPerModelHighResolution": (
        "ConcurrentRequestsPerModel",
        "Average",
        10,
    ),
}
COMPONENT_METRICS = {
    "SageMakerInferenceComponentInvocationsPerCopy": ("InvocationsPerCopy", "Sum", 60),
    "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution": (
        "ConcurrentRequestsPerCopy",
        "Average",
        10,
    ),
}
PREDEFINED = {DIMENSION: VARIANT_METRICS, COMPONENT_DIMENSION: COMPONENT_METRICS}
"""The metric, statistic and period that a predefined metric tracks, by scalable dimension."""
PAGE = 50


def not_found(message: str) -> AwsError:
    """Return the refusal of a record that does not exist."""
    return AwsError("ObjectNotFoundException", message)


def key_of(request: Request) -> Key:
    """Return the scalable target of a request. Raises AwsError for other services."""
    key = Key(request["ServiceNamespace"], request["ResourceId"], request["ScalableDimension"])
    form = RESOURCES.get(key.dimension)
    if key.namespace != NAMESPACE or form is None or form.fullmatch(key.resource_id) is None:
        raise validation_error("Unsupported service namespace, resource type or scalable dimension")
    return key


def check_bounds(low: int | None, high: int | None) -> tuple[int, int]:
    """Return the bounds, unless they are missing, negative or crossed."""
    if low is None:
        raise validation_error("Minimum capacity must be specified")
    if high is None:
        raise validation_error("Maximum capacity must be specified")
    if low < 0:
        raise validation_error("Minimum capacity cannot be less than 0")
    if high < low:
        raise validation_error("Maximum capacity cannot be less than minimum capacity")
    return low, high


def check_policy(
    request: Request, kind: str, configuration: Request | None, others: Iterable[Policy]
) -> None:
    """Refuse a policy without a sound configuration, or whose metric another one tracks."""
    if kind not in CONFIGURATIONS:
        rule = f"Member must satisfy enum value set: [{', '.join(CONFIGURATIONS)}]"
        raise constraint_error(fault(kind, "policyType", rule))
    if configuration is None:
        raise validation_error(f"{CONFIGURATIONS[kind]} must be specified")
    for other, name in CONFIGURATIONS.items():
        if other != kind and request.get(name) is not None:
            raise validation_error(f"{kind} policies take {CONFIGURATIONS[kind]} only")
    if kind == STEP:
        _check_steps(configuration)
        return
    _check_tracking(configuration, request["ScalableDimension"])
    tracked = [_metrics(policy.configuration) for policy in others if policy.is_tracking]
    if _metrics(configuration) in tracked:
        raise validation_error(
            "Only one TargetTrackingScaling policy for a given metric specification is allowed."
        )


def _check_tracking(configuration: Request, dimension: str) -> None:
    target = configuration["TargetValue"]
    if not 0 < target <= HIGHEST_TARGET:
        raise validation_error(
            f"TargetValue must be greater than zero and at most 2^360, found {target}"
        )
    for name in ("ScaleInCooldown", "ScaleOutCooldown"):
        seconds = configuration.get(name)
        if seconds is not None and seconds < 0:
            raise validation_error(f"{name} must be greater than or equal to 0, found {seconds}")
    predefined, custom = _metrics(configuration)
    if (predefined is None) == (custom is None):
        raise validation_error(
            "Exactly one of PredefinedMetricSpecification and CustomizedMetricSpecification must "
            f"be specified, found {'neither' if predefined is None else 'both'}"
        )
    known = PREDEFINED[dimension]
    if predefined is not None and predefined["PredefinedMetricType"] not in known:
        raise validation_error(
            f"Scalable dimension {dimension} only supports the following predefined metric types: "
            f"{', '.join(known)}"
        )
    if custom is not None:
        _check_customized(custom)


def _metrics(configuration: Request) -> tuple[Request | None, Request | None]:
    return (
        configuration.get("PredefinedMetricSpecification"),
        configuration.get("CustomizedMetricSpecification"),
    )


def _check_customized(custom: Request) -> None:
    names = ("MetricName", "Namespace", "Statistic")
    single = [name for name in names if custom.get(name) is not None]
    if custom.get("Metrics") and single:
        raise validation_error(f"Metrics cannot be combined with {', '.join(single)}")
    if not custom.get("Metrics") and len(single) < len(names):
        raise validation_error(
            "A customized metric takes MetricName, Namespace and Statistic, or Metrics"
        )


def _check_steps(configuration: Request) -> None:
    if configuration.get("AdjustmentType") is None:
        raise constraint_error(null_fault("stepScalingPolicyConfiguration.adjustmentType"))
    intervals = sorted(map(step_interval, configuration.get("StepAdjustments") or ()))
    if not intervals:
        raise validation_error("At least one step adjustment must be specified")
    for low, high in intervals:
        if low >= high:
            raise validation_error(
                f"Step upper bound must exceed its lower bound, found {low:g} to {high:g}"
            )
    for (_, end), (begin, _) in itertools.pairwise(intervals):
        if end != begin:
            raise validation_error(
                f"Step adjustment intervals cannot overlap or have a gap, found one to {end:g} "
                f"and one from {begin:g}"
            )


def matching_records(request: Request, field: str, records: Iterable[Description]) -> Request:
    """Return a page of the records of a request's namespace, resource, dimension and names."""
    if request["ServiceNamespace"] != NAMESPACE:
        return {field: []}
    count = request.get("MaxResults")
    if count is not None and not 1 <= count <= PAGE:
        rule = f"Member must have value between 1 and {PAGE}"
        raise constraint_error(fault(count, "maxResults", rule))
    matching = [record for record in records if _matches(record, request)]
    return page(request, field, matching, PAGE if count is None else count)


def _matches(record: Description, request: Request) -> bool:
    single = all(
        request.get(field) in (None, record[field]) for field in ("ResourceId", "ScalableDimension")
    )
    return single and all(
        not request.get(f"{field}s") or record.get(field) in request[f"{field}s"]
        for field in ("ResourceId", "PolicyName", "ScheduledActionName")
    )
