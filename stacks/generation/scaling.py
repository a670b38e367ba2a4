"""CloudFormation resources of a text generator's scaling, by logical id.

Source: AWS's notebook scale_down_to_zero of sagemaker-genai-hosting-examples (step policy, alarm).
"""

from __future__ import annotations

from typing import Any

from onboarding import names
from onboarding.deployment import VARIANT
from onboarding.metrics import INVOCATIONS
from onboarding.text_generation.generation_deployment import GenerationDeployment
from stacks.alarms.alarm import AT_LEAST, alarm_name
from stacks.generation import sizes
from stacks.generation.alarms import component_dimensions
from stacks.generation.properties import component_name
from stacks.scaling.resources import POLICY, TARGET, Resource

SCALE_OUT_SECONDS, SCALE_IN_SECONDS = 60, 300
FROM_ZERO_SECONDS, FROM_ZERO_PERIOD = 60, 30
COMPONENT_METRIC = "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution"
VARIANT_METRIC = "SageMakerVariantConcurrentRequestsPerModelHighResolution"


def scaling_resources(deployment: GenerationDeployment) -> dict[str, Resource]:
    """Return the scalable target, the policies, and the alarm that brings the first copy back.

    None where the number of copies is fixed.
    """
    if not sizes.scales(deployment):
        return {}
    copies = deployment.spec.endpoint.copies
    waits_for = "InferenceComponent" if sizes.is_component(deployment) else "Endpoint"
    found: dict[str, Resource] = {
        "ScalableTarget": {
            "Type": TARGET,
            "DependsOn": [waits_for],
            "Properties": {
                **_scaled_resource(deployment),
                "MinCapacity": copies.min,
                "MaxCapacity": copies.max,
            },
        },
        "ConcurrencyPolicy": _tracking(deployment),
    }
    if copies.min == 0:
        found["FromZeroPolicy"] = _from_zero_policy(deployment)
        found["FromZeroAlarm"] = _from_zero_alarm(deployment)
    return found


def _tracking(deployment: GenerationDeployment) -> Resource:
    target = sizes.target(deployment)
    metric = COMPONENT_METRIC if sizes.is_component(deployment) else VARIANT_METRIC
    configuration = {
        "TargetValue": target.value,
        "PredefinedMetricSpecification": {"PredefinedMetricType": metric},
        "ScaleOutCooldown": SCALE_OUT_SECONDS,
        "ScaleInCooldown": SCALE_IN_SECONDS,
    }
    derivation = {"TargetValue": target.derivation}
    return _policy(deployment, "concurrency", "TargetTracking", configuration, derivation)


def _from_zero_policy(deployment: GenerationDeployment) -> Resource:
    configuration = {
        "AdjustmentType": "ChangeInCapacity",
        "MetricAggregationType": "Maximum",
        "Cooldown": FROM_ZERO_SECONDS,
        "StepAdjustments": [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 1}],
    }
    derivation = {"ScalingAdjustment": "one copy, once a request finds none"}
    return _policy(deployment, "from-zero", "Step", configuration, derivation)


def _from_zero_alarm(deployment: GenerationDeployment) -> Resource:
    name = alarm_name(deployment, "from-zero")
    return {
        "Type": "AWS::CloudWatch::Alarm",
        "Properties": {
            "AlarmName": name,
            "AlarmDescription": f"{name}: a request finds no copy; adds one",
            "Namespace": INVOCATIONS,
            "MetricName": "NoCapacityInvocationFailures",
            "Dimensions": component_dimensions(deployment),
            "Statistic": "Maximum",
            "Period": FROM_ZERO_PERIOD,
            "EvaluationPeriods": 1,
            "DatapointsToAlarm": 1,
            "Threshold": 1,
            "ComparisonOperator": AT_LEAST,
            "TreatMissingData": "notBreaching",
            "AlarmActions": [{"Ref": "FromZeroPolicy"}],
        },
    }


def _policy(
    deployment: GenerationDeployment,
    name: str,
    kind: str,
    configuration: dict[str, Any],
    derivation: dict[str, str],
) -> Resource:
    endpoint = names.endpoint_name(deployment.environment, deployment.name)
    return {
        "Type": POLICY,
        "DependsOn": ["ScalableTarget"],
        "Metadata": {"Derivation": derivation},
        "Properties": {
            "PolicyName": f"{endpoint}-{name}",
            "PolicyType": f"{kind}Scaling",
            **_scaled_resource(deployment),
            f"{kind}ScalingPolicyConfiguration": configuration,
        },
    }


def _scaled_resource(deployment: GenerationDeployment) -> dict[str, str]:
    if sizes.is_component(deployment):
        dimension = "inference-component:DesiredCopyCount"
        resource = f"inference-component/{component_name(deployment)}"
    else:
        dimension = "variant:DesiredInstanceCount"
        endpoint = names.endpoint_name(deployment.environment, deployment.name)
        resource = f"endpoint/{endpoint}/variant/{VARIANT}"
    return {
        "ServiceNamespace": "sagemaker",
        "ScalableDimension": f"sagemaker:{dimension}",
        "ResourceId": resource,
    }
