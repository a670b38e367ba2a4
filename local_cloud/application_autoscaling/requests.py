"""Refusals of Application Auto Scaling, in its own words where they are known; pure."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from local_cloud.application_autoscaling.records import (
    SUSPENSIONS,
    Key,
    Policy,
)
from local_cloud.protocol.errors import AwsError, Request
from local_cloud.sagemaker.checks import number

NAMESPACE, DIMENSION = "sagemaker", "sagemaker:variant:DesiredInstanceCount"
VARIANT = re.compile(r"endpoint/[^/]+/variant/[^/]+")
HIGHEST_TARGET = 2.0**360
TRACKING, STEP = "TargetTrackingScaling", "StepScaling"
CONFIGURATIONS = {
    TRACKING: "TargetTrackingScalingPolicyConfiguration",
    STEP: "StepScalingPolicyConfiguration",
}
KNOWN_METRICS = frozenset(
    {
        "DynamoDBReadCapacityUtilization",
        "DynamoDBWriteCapacityUtilization",
        "ALBRequestCountPerTarget",
        "RDSReaderAverageCPUUtilization",
        "RDSReaderAverageDatabaseConnections",
        "EC2SpotFleetRequestAverageCPUUtilization",
        "EC2SpotFleetRequestAverageNetworkIn",
        "EC2SpotFleetRequestAverageNetworkOut",
        "SageMakerVariantInvocationsPerInstance",
        "ECSServiceAverageCPUUtilization",
        "ECSServiceAverageMemoryUtilization",
        "AppStreamAverageCapacityUtilization",
        "ComprehendInferenceUtilization",
        "LambdaProvisionedConcurrencyUtilization",
        "CassandraReadCapacityUtilization",
        "CassandraWriteCapacityUtilization",
        "KafkaBrokerStorageUtilization",
        "SageMakerVariantProvisionedConcurrencyUtilization",
        "SageMakerInferenceComponentInvocationsPerCopy",
        "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution",
        "SageMakerVariantConcurrentRequestsPerModelHighResolution",
    }
)
VARIANT_METRICS = {
    "SageMakerVariantInvocationsPerInstance": ("InvocationsPerInstance", "Sum", 60),
    "SageMakerVariantConcurrentRequestsPerModelHighResolution": (
        "ConcurrentRequestsPerModel",
        "Average",
        10,
    ),
}
"""The metric, statistic and period that a predefined metric of a variant tracks."""


def refusal(message: str) -> AwsError:
    """Application Auto Scaling's usual refusal."""
    return AwsError("ValidationException", message)


def not_found(message: str) -> AwsError:
    """A refusal of what is not there."""
    return AwsError("ObjectNotFoundException", message)


def constraint(value: object, place: str, rule: str) -> AwsError:
    """A refusal by the API's own model."""
    shown = "null" if value is None else f"'{value}'"
    return refusal(
        f"1 validation error detected: Value {shown} at '{place}' failed to satisfy constraint: "
        f"{rule}"
    )


def key_of(request: Request) -> Key:
    """The scalable target that a request names. Raises AwsError for other services."""
    for name in ("ServiceNamespace", "ResourceId", "ScalableDimension"):
        if request.get(name) is None:
            raise constraint(None, name[0].lower() + name[1:], "Member must not be null")
    key = Key(
        str(request["ServiceNamespace"]),
        str(request["ResourceId"]),
        str(request["ScalableDimension"]),
    )
    if (
        key.namespace != NAMESPACE
        or key.dimension != DIMENSION
        or VARIANT.fullmatch(key.resource_id) is None
    ):
        raise refusal("Unsupported service namespace, resource type or scalable dimension")
    return key


def whole(request: Request, name: str) -> int | None:
    """A whole number, which a template may have given as text; None when it is not given."""
    return None if request.get(name) is None else int(number(request[name]))


def check_bounds(low: int | None, high: int | None) -> tuple[int, int]:
    """The bounds, unless they are missing, negative or crossed."""
    if low is None:
        raise refusal("Minimum capacity must be specified")
    if high is None:
        raise refusal("Maximum capacity must be specified")
    if low < 0:
        raise refusal("Minimum capacity cannot be less than 0")
    if high < low:
        raise refusal("Maximum capacity cannot be less than minimum capacity")
    return low, high


def suspensions(request: Request) -> dict[str, bool]:
    """What a request suspends or resumes."""
    given = request.get("SuspendedState") or {}
    return {
        name: str(given[name]).lower() == "true"
        for name in SUSPENSIONS
        if given.get(name) is not None
    }


def check_policy(
    request: Request, kind: str, configuration: Request | None, others: Iterable[Policy]
) -> None:
    """Refuses a policy that Application Auto Scaling refuses.

    Its configuration is missing, its metric cannot be tracked, or another policy tracks the same
    metric.
    """
    if kind not in CONFIGURATIONS:
        raise constraint(
            kind, "policyType", f"Member must satisfy enum value set: [{', '.join(CONFIGURATIONS)}]"
        )
    if configuration is None:
        raise refusal(f"{CONFIGURATIONS[kind]} must be specified")
    if any(
        request.get(name) is not None for other, name in CONFIGURATIONS.items() if other != kind
    ):
        raise refusal(f"{kind} policies take {CONFIGURATIONS[kind]} only")
    if kind == STEP:
        _check_steps(configuration)
        return
    _check_tracking(configuration)
    if any(
        _metric(configuration) == _metric(other.configuration)
        for other in others
        if other.is_tracking
    ):
        raise refusal(
            "Only one TargetTrackingScaling policy for a given metric specification is allowed."
        )


def _check_tracking(configuration: Request) -> None:
    if configuration.get("TargetValue") is None:
        raise constraint(
            None, "targetTrackingScalingPolicyConfiguration.targetValue", "Member must not be null"
        )
    if not 0 < number(configuration["TargetValue"]) <= HIGHEST_TARGET:
        raise refusal(
            "TargetValue must be greater than zero and at most 2^360, found "
            f"{configuration['TargetValue']}"
        )
    for name in ("ScaleInCooldown", "ScaleOutCooldown"):
        if (whole(configuration, name) or 0) < 0:
            raise refusal(f"{name} must be greater than or equal to 0, found {configuration[name]}")
    predefined, custom = (
        configuration.get(f"{kind}MetricSpecification") for kind in ("Predefined", "Customized")
    )
    if (predefined is None) == (custom is None):
        raise refusal(
            (
                "Exactly one of PredefinedMetricSpecification and CustomizedMetricSpecification "
                "must "
                "be specified, found "
            )
            + ("neither" if predefined is None else "both")
        )
    if predefined is not None:
        _check_predefined(str(predefined.get("PredefinedMetricType")))
    if custom is not None:
        _check_customized(custom)


def _check_predefined(name: str) -> None:
    if name not in KNOWN_METRICS:
        place = (
            "targetTrackingScalingPolicyConfiguration.predefinedMetricSpecification."
            "predefinedMetricType"
        )
        raise constraint(
            name, place, f"Member must satisfy enum value set: [{', '.join(sorted(KNOWN_METRICS))}]"
        )
    if name not in VARIANT_METRICS:
        allowed = ", ".join(VARIANT_METRICS)
        raise refusal(
            f"Scalable dimension {DIMENSION} only supports the following predefined metric "
            f"types: {allowed}"
        )


def _check_customized(custom: Request) -> None:
    single = [
        name for name in ("MetricName", "Namespace", "Statistic") if custom.get(name) is not None
    ]
    if custom.get("Metrics") and single:
        raise refusal(f"Metrics cannot be combined with {', '.join(single)}")
    if not custom.get("Metrics") and len(single) < 3:
        raise refusal("A customized metric takes MetricName, Namespace and Statistic, or Metrics")


def _check_steps(configuration: Request) -> None:
    kinds = ("ChangeInCapacity", "PercentChangeInCapacity", "ExactCapacity")
    if configuration.get("AdjustmentType") not in kinds:
        place = "stepScalingPolicyConfiguration.adjustmentType"
        raise constraint(
            configuration.get("AdjustmentType"),
            place,
            f"Member must satisfy enum value set: [{', '.join(kinds)}]",
        )
    steps = configuration.get("StepAdjustments") or ()
    if not steps:
        raise refusal("At least one step adjustment must be specified")
    spans = sorted(_bounds(step) for step in steps)
    for low, high in spans:
        if low >= high:
            raise refusal(
                f"Step upper bound must exceed its lower bound, found {low:g} to {high:g}"
            )
    for (_, end), (begin, _) in itertools.pairwise(spans):
        if end != begin:
            raise refusal(
                f"Step adjustment intervals cannot overlap or have a gap, found one to {end:g} "
                f"and one from {begin:g}"
            )


def _bounds(step: Request) -> tuple[float, float]:
    low, high = step.get("MetricIntervalLowerBound"), step.get("MetricIntervalUpperBound")
    if low is None and high is None:
        return float("-inf"), float("inf")
    return float("-inf") if low is None else number(low), float("inf") if high is None else number(
        high
    )


def _metric(configuration: Request) -> str:
    """A tracked metric in one spelling."""
    kept = {
        name: configuration.get(name)
        for name in ("PredefinedMetricSpecification", "CustomizedMetricSpecification")
    }
    return json.dumps(kept, sort_keys=True, default=str)


def moment(value: object) -> datetime | None:
    """A time of a request: seconds since the epoch, or text that begins with a date."""
    if value is None:
        return None
    if isinstance(value, int | float):
        return datetime.fromtimestamp(value, UTC)
    try:
        found = datetime.fromisoformat(str(value).replace("Z", "+00:00"))
    except ValueError as error:
        raise refusal(f"{value} is no time: use yyyy-mm-ddThh:mm:ssZ") from error
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


WHOLE = frozenset(
    {
        "ScaleInCooldown",
        "ScaleOutCooldown",
        "Cooldown",
        "MinAdjustmentMagnitude",
        "ScalingAdjustment",
    }
)


FRACTIONS = frozenset({"TargetValue", "MetricIntervalLowerBound", "MetricIntervalUpperBound"})


TRUTHS = frozenset({"DisableScaleIn", "ReturnData"})


def with_numbers(value: Any) -> Any:
    """The same configuration with its known numbers and truths typed."""
    if isinstance(value, list | tuple):
        return [with_numbers(item) for item in value]
    if isinstance(value, Mapping):
        return {
            name: _typed_value(str(name), each) for name, each in value.items() if each is not None
        }
    return value


def _typed_value(name: str, value: Any) -> Any:
    if name in WHOLE:
        return int(number(value))
    if name in FRACTIONS:
        return number(value)
    return str(value).lower() == "true" if name in TRUTHS else with_numbers(value)
