"""Refusals of Application Auto Scaling beyond its API model, and its Describe actions; pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from local_cloud.application_autoscaling.records import (
    CONFIGURATIONS,
    STEP,
    Description,
    Key,
    Policy,
)
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
ADJUSTMENT = "ChangeInCapacity"
"""How the stacks' step policies scale."""
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
    """Refuse a policy that nothing here runs, or whose metric another one tracks."""
    if configuration is None:
        raise validation_error(f"{CONFIGURATIONS.get(kind, kind)} must be specified")
    if kind == STEP:
        if configuration.get("AdjustmentType") != ADJUSTMENT:
            raise validation_error(
                f"The local cloud scales by AdjustmentType {ADJUSTMENT}, not by "
                f"{configuration.get('AdjustmentType')}."
            )
        return
    if configuration["TargetValue"] <= 0:
        raise validation_error("TargetValue must be greater than zero")
    predefined, custom = _metrics(configuration)
    if (predefined is None) == (custom is None):
        raise validation_error(
            "Exactly one of PredefinedMetricSpecification and CustomizedMetricSpecification must "
            f"be specified, found {'neither' if predefined is None else 'both'}"
        )
    dimension = request["ScalableDimension"]
    known = PREDEFINED[dimension]
    if predefined is not None and predefined["PredefinedMetricType"] not in known:
        raise validation_error(
            f"Scalable dimension {dimension} only supports the following predefined metric types: "
            f"{', '.join(known)}"
        )
    if custom is not None and custom.get("Metrics"):
        raise validation_error("The local cloud tracks one metric, not metric math.")
    tracked = [_metrics(policy.configuration) for policy in others if policy.is_tracking]
    if (predefined, custom) in tracked:
        raise validation_error(
            "Only one TargetTrackingScaling policy for a given metric specification is allowed."
        )


def _metrics(configuration: Request) -> tuple[Request | None, Request | None]:
    return (
        configuration.get("PredefinedMetricSpecification"),
        configuration.get("CustomizedMetricSpecification"),
    )


def matching_records(request: Request, field: str, records: Iterable[Description]) -> Request:
    """Return a page of the records of a request's namespace, resource, dimension and names."""
    if request["ServiceNamespace"] != NAMESPACE:
        return {field: []}
    matching = [record for record in records if _matches(record, request)]
    return page(request, field, matching, min(int(request.get("MaxResults") or PAGE), PAGE))


def _matches(record: Description, request: Request) -> bool:
    single = all(
        request.get(field) in (None, record[field]) for field in ("ResourceId", "ScalableDimension")
    )
    return single and all(
        not request.get(f"{field}s") or record.get(field) in request[f"{field}s"]
        for field in ("ResourceId", "PolicyName", "ScheduledActionName")
    )
