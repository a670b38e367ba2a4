"""Alarms on what DCGM says of each GPU: temperature, power, ECC errors, whatever the file limits.

SageMaker's detailed observability publishes these metrics by OpenTelemetry, so that PromQL alone
reads them. Sources: SageMaker developer guide, inference-monitoring (labels);
CloudWatch user guide, alarm-promql; NVIDIA dcgm-exporter, default-counters.csv (names).
"""

from __future__ import annotations

from typing import Any

from onboarding import names
from onboarding.deployment import VARIANT, DeployedEndpoint, Deployment, Variant
from stacks.access import arns
from stacks.alarms.alarm import alarm_name
from stacks.scaling.targets import variant_id

EVALUATION_SECONDS, PENDING_SECONDS, RECOVERY_SECONDS = 60, 180, 300
"""How often the query runs, and how long a GPU is over or under its limit until the state moves."""


def gpu_alarms(deployment: Deployment) -> dict[str, dict[str, Any]]:
    """Return an `AWS::CloudWatch::Alarm` for each limit of each variant, by logical id.

    Each GPU over its limit is a contributor of the alarm.
    """
    metrics = deployment.endpoint.metrics
    limits = {} if metrics is None else metrics.gpu_limits
    return {
        variant_id(variant, _part(field)): _properties(deployment, variant, field, limit)
        for variant in deployment.variants
        for field, limit in limits.items()
    }


def _properties(
    deployment: Deployment, variant: Variant, field: str, limit: float
) -> dict[str, Any]:
    endpoint = names.endpoint_name(deployment.environment, deployment.name)
    subject = endpoint if variant.name == VARIANT else f"{endpoint}, {variant.name}"
    labels = {"aws.sagemaker.endpoint.name": endpoint, "aws.sagemaker.variant.name": variant.name}
    matchers = ", ".join(f'"{label}"="{value}"' for label, value in labels.items())
    return query_alarm(
        deployment,
        alarm_name(deployment, field.lower().replace("_", "-"), variant),
        f"{subject}: {field} of a GPU is over {limit:g}",
        f'{{"{field}", {matchers}}} > {limit:.10g}',
    )


def query_alarm(
    deployment: DeployedEndpoint, name: str, description: str, query: str
) -> dict[str, Any]:
    """Return an `AWS::CloudWatch::Alarm` on whatever a PromQL query returns."""
    return {
        "AlarmName": name,
        "AlarmDescription": description,
        "EvaluationCriteria": {
            "PromQLCriteria": {
                "Query": query,
                "PendingPeriod": PENDING_SECONDS,
                "RecoveryPeriod": RECOVERY_SECONDS,
            }
        },
        "EvaluationInterval": EVALUATION_SECONDS,
        "AlarmActions": [arns.alarm_topic(deployment.environment)],
    }


def _part(field: str) -> str:
    """`DCGM_FI_DEV_GPU_TEMP` is `DcgmFiDevGpuTemp`."""
    return "".join(word.capitalize() for word in field.split("_"))
