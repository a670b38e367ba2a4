"""CloudFormation properties of a text generator's model, endpoint config and components."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from onboarding import arns, names
from onboarding.aws_limits import DOWNLOAD_SECONDS, ROLLBACK_ALARM_COUNT
from onboarding.deployment import VARIANT
from onboarding.text_generation.arguments import VLLM_PREFIX
from onboarding.text_generation.checkpoint_key import checkpoint_prefix
from onboarding.text_generation.generation_deployment import GenerationDeployment
from onboarding.text_generation.spec import AdapterSpec
from stacks.endpoint.properties import RETAINED_PROPERTIES
from stacks.generation import sizes
from stacks.images import generation_image
from stacks.rollout import TERMINATION_SECONDS, WAIT_SECONDS
from stacks.template import Properties, content_name, vpc_config

KEEPS_COPIES, SETS_COPIES = "RetainCopyCount", "CopyCountIsSet"
"""A parameter, which `roundhouse deploy` sets with the first update of a component, and the
condition that it is still false: a new component has a count, which scaling moves from then on.
"""
ROUTING = {
    "least-outstanding": "LEAST_OUTSTANDING_REQUESTS",
    "random": "RANDOM",
    "prefix-aware": "PREFIX_AWARE",
}
"""CloudFormation's names."""


def component_name(deployment: GenerationDeployment) -> str:
    """Return the name of the inference component of the base model: that of the endpoint."""
    return names.endpoint_name(deployment.environment, deployment.name)


def environment_variables(deployment: GenerationDeployment) -> dict[str, str]:
    """Return the container's environment: the plan's, with a bound of the queue."""
    variables = dict(deployment.container_environment)
    if sizes.bounds_queue(deployment):
        name = f"{VLLM_PREFIX}{sizes.QUEUE_ARGUMENT.upper()}"
        variables.setdefault(name, str(sizes.most_requests(deployment)))
    return variables


def model_properties(
    deployment: GenerationDeployment, image_uris: Mapping[str, str]
) -> dict[str, Any]:
    """Return an `AWS::SageMaker::Model` without its name and role.

    The checkpoint's files come as they are, from a prefix that their content names.
    """
    assert deployment.entry is not None
    bucket = names.artifact_bucket(deployment.environment)
    source = {
        "S3Uri": f"s3://{bucket}/{checkpoint_prefix(deployment.entry.checkpoint_key)}",
        "S3DataType": "S3Prefix",
        "CompressionType": "None",
    }
    return {
        "PrimaryContainer": {
            "Image": image_uris[generation_image(deployment.platform)],
            "ModelDataSource": {"S3DataSource": source},
            "Environment": environment_variables(deployment),
        },
        "EnableNetworkIsolation": True,
        **vpc_config(deployment.environment.network),
    }


def model_name(deployment: GenerationDeployment, content: Mapping[str, Any]) -> str:
    """Return the model's name, by its content and its plan."""
    prefix = names.endpoint_name(deployment.environment, deployment.name)
    return content_name(prefix, {**content, "Plan": deployment.plan_key})


def endpoint_config_properties(deployment: GenerationDeployment, model: str) -> Properties:
    """Return an `AWS::SageMaker::EndpointConfig` without its name and role.

    Of inference components it names no model, so that another checkpoint changes nothing of it.
    """
    return {
        "ProductionVariants": [_variant(deployment, model)],
        "MetricsConfig": {"EnableDetailedObservability": True},
        "KmsKeyId": arns.key_id(deployment.environment),
        **(
            {"EnableNetworkIsolation": True, **vpc_config(deployment.environment.network)}
            if sizes.is_component(deployment)
            else {}
        ),
    }


def endpoint_properties(
    deployment: GenerationDeployment, config_name: str, alarms: Sequence[str]
) -> Properties:
    """Return an `AWS::SageMaker::Endpoint`; `alarms` are names of those that take an update back.

    The rollout of inference components is their own. One without them is updated all at once.
    """
    properties: Properties = {
        "EndpointName": names.endpoint_name(deployment.environment, deployment.name),
        "EndpointConfigName": config_name,
    }
    if sizes.is_component(deployment):
        return properties
    properties["DeploymentConfig"] = {
        "BlueGreenUpdatePolicy": {
            "TrafficRoutingConfiguration": {
                "Type": "ALL_AT_ONCE",
                "WaitIntervalInSeconds": WAIT_SECONDS,
            },
            "TerminationWaitInSeconds": TERMINATION_SECONDS,
            "MaximumExecutionTimeoutInSeconds": sizes.update_seconds(deployment, 1),
        },
        **_rollback(alarms),
    }
    return {**properties, **(RETAINED_PROPERTIES if sizes.scales(deployment) else {})}


def component_properties(
    deployment: GenerationDeployment, model: str, alarms: Sequence[str]
) -> Properties:
    """Return the `AWS::SageMaker::InferenceComponent` of the base model.

    The number of copies stands in a new one; later updates leave it to scaling.
    """
    endpoint = deployment.spec.endpoint
    copies = {"CopyCount": sizes.first_copies(deployment)}
    percent = sizes.batch_percent(deployment)
    batch = {"Type": "CAPACITY_PERCENT", "Value": percent}
    runtime: dict[str, Any] = copies
    if sizes.scales(deployment):
        runtime = {"Fn::If": [SETS_COPIES, copies, {"Ref": "AWS::NoValue"}]}
    return {
        "InferenceComponentName": component_name(deployment),
        "EndpointName": names.endpoint_name(deployment.environment, deployment.name),
        "VariantName": VARIANT,
        "Specification": {
            "ModelName": model,
            "ComputeResourceRequirements": {
                "NumberOfAcceleratorDevicesRequired": deployment.candidate.tensor_parallel,
                "MinMemoryRequiredInMb": sizes.memory_mib(deployment),
            },
            "StartupParameters": {
                "ModelDataDownloadTimeoutInSeconds": DOWNLOAD_SECONDS.most,
                "ContainerStartupHealthCheckTimeoutInSeconds": endpoint.start_up_seconds,
            },
        },
        "RuntimeConfig": runtime,
        "DeploymentConfig": {
            "RollingUpdatePolicy": {
                "MaximumBatchSize": batch,
                "RollbackMaximumBatchSize": dict(batch),
                "WaitIntervalInSeconds": WAIT_SECONDS,
                "MaximumExecutionTimeoutInSeconds": sizes.update_seconds(
                    deployment, math.ceil(100 / percent)
                ),
            },
            **_rollback(alarms),
        },
    }


def adapter_properties(deployment: GenerationDeployment, adapter: AdapterSpec) -> Properties:
    """Return the `AWS::SageMaker::InferenceComponent` of a LoRA adapter.

    It runs in the copies of the base component.
    """
    bucket = names.artifact_bucket(deployment.environment)
    archive = names.adapter_path(deployment.adapters[adapter.name])
    return {
        "InferenceComponentName": names.adapter_component(
            deployment.environment, deployment.name, adapter.name
        ),
        "EndpointName": names.endpoint_name(deployment.environment, deployment.name),
        "Specification": {
            "BaseInferenceComponentName": component_name(deployment),
            "Container": {"ArtifactUrl": f"s3://{bucket}/{archive}"},
        },
    }


def _variant(deployment: GenerationDeployment, model: str) -> Properties:
    endpoint = deployment.spec.endpoint
    copies = sizes.first_copies(deployment)
    properties: Properties = {
        "VariantName": VARIANT,
        "InstanceType": deployment.candidate.instance_type,
        "InitialInstanceCount": sizes.instances_for(deployment, copies),
        "RoutingConfig": {"RoutingStrategy": ROUTING[endpoint.routing]},
    }
    if deployment.inference_ami_version is not None:
        properties["InferenceAmiVersion"] = deployment.inference_ami_version
    if sizes.is_component(deployment):
        properties["ManagedInstanceScaling"] = {
            "Status": "ENABLED",
            "MinInstanceCount": sizes.least_instances(deployment),
            "MaxInstanceCount": sizes.most_instances(deployment),
        }
        return properties
    return {
        **properties,
        "ModelName": model,
        "InitialVariantWeight": 1,
        "ModelDataDownloadTimeoutInSeconds": DOWNLOAD_SECONDS.most,
        "ContainerStartupHealthCheckTimeoutInSeconds": endpoint.start_up_seconds,
    }


def _rollback(alarms: Sequence[str]) -> Properties:
    listed = [{"AlarmName": name} for name in alarms[:ROLLBACK_ALARM_COUNT]]
    return {"AutoRollbackConfiguration": {"Alarms": listed}}
