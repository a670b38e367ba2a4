"""The resources of a text generator's stack, and what its role may do, as plain data.

What a version needs to start stands in a policy of its own beside the role:
stacks/endpoint/statements.py says why.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from onboarding import arns, names
from onboarding.text_generation.checkpoint_key import checkpoint_prefix
from onboarding.text_generation.generation_deployment import GenerationDeployment
from onboarding.text_generation.spec import AdapterSpec
from roundhouse_cdk.statements import (
    Statement,
    alarm_looks,
    allow,
    exact_role,
    host_metrics,
    image_pull,
    key_use,
    log_writes,
    network_interfaces,
    object_reads,
    registry_log_in,
    volume_key_grant,
)
from roundhouse_cdk.wildcards import with_reasons
from stacks.alarms.alarm import alarm_resources
from stacks.endpoint.properties import RETAINED, RETAINS
from stacks.endpoint.statements import named_policy
from stacks.generation import sizes
from stacks.generation.alarms import alarms, rollback_alarm_ids, rollback_alarm_names
from stacks.generation.dashboard import generation_dashboard
from stacks.generation.faults import generation_faults
from stacks.generation.properties import (
    KEEPS_COPIES,
    SETS_COPIES,
    adapter_properties,
    component_name,
    component_properties,
    endpoint_config_properties,
    endpoint_properties,
    model_name,
    model_properties,
)
from stacks.generation.scaling import scaling_resources
from stacks.images import GENERATION_IMAGE
from stacks.template import Resources, Template, content_name, retention

COMPONENT = "AWS::SageMaker::InferenceComponent"
ROLE_ARN = {"Fn::GetAtt": ["Role", "Arn"]}


def generation_template(
    deployment: GenerationDeployment, image_uris: Mapping[str, str]
) -> Template:
    """Return what a stack deploys; one that cannot be deployed has no resource."""
    if generation_faults(deployment):
        return {"Resources": {}}
    return {
        **_retention(deployment),
        "Resources": generation_resources(deployment, image_uris),
        "Outputs": generation_outputs(deployment),
    }


def _retention(deployment: GenerationDeployment) -> Template:
    """None where nothing moves the number of copies."""
    if not sizes.scales(deployment):
        return {}
    if sizes.is_component(deployment):
        return retention(KEEPS_COPIES, SETS_COPIES, "false", "the number of copies")
    return retention(RETAINS, RETAINED, "true", "instance counts")


def generation_resources(
    deployment: GenerationDeployment, image_uris: Mapping[str, str]
) -> Resources:
    """Return every resource of a stack without `generation_faults`.

    The model is another with another checkpoint, and the component rolls its copies over to it.
    """
    role = exact_role(
        deployment.environment,
        service="sagemaker.amazonaws.com",
        statements=generation_statements(deployment),
    )
    version, content = (
        named_policy(version_statements(deployment)),
        model_properties(deployment, image_uris),
    )
    model = model_name(deployment, content)
    watching, rollback = alarms(deployment), rollback_alarm_ids(deployment)
    rolling_back = [str(watching[alarm]["AlarmName"]) for alarm in rollback]
    is_component = sizes.is_component(deployment)
    waits_for = "InferenceComponent" if is_component else "Endpoint"
    config = endpoint_config_properties(deployment, model)
    endpoint = endpoint_properties(deployment, "", rolling_back)
    config_name = content_name(
        names.endpoint_name(deployment.environment, deployment.name),
        {**config, "DeploymentConfig": endpoint.get("DeploymentConfig")},
    )
    role_of_config = {"ExecutionRoleArn": ROLE_ARN} if is_component else {}
    return {
        "Role": with_reasons({"Type": "AWS::IAM::Role", "Properties": role}),
        **version,
        "Model": {
            "Type": "AWS::SageMaker::Model",
            "DependsOn": sorted(version),
            "Properties": {"ModelName": model, "ExecutionRoleArn": ROLE_ARN, **content},
        },
        "EndpointConfig": {
            "Type": "AWS::SageMaker::EndpointConfig",
            **({} if is_component else {"DependsOn": ["Model"]}),
            "Properties": {"EndpointConfigName": config_name, **role_of_config, **config},
        },
        "Endpoint": {
            "Type": "AWS::SageMaker::Endpoint",
            "DependsOn": ["EndpointConfig", *([] if is_component else rollback)],
            "Properties": {**endpoint, "EndpointConfigName": config_name},
        },
        **(_components(deployment, model, rolling_back) if is_component else {}),
        **alarm_resources(watching, rollback, waits_for),
        **scaling_resources(deployment),
        **generation_dashboard(deployment),
    }


def generation_outputs(deployment: GenerationDeployment) -> dict[str, dict[str, Any]]:
    """Return the `Outputs` of a stack."""
    values: dict[str, Any] = {"EndpointName": {"Fn::GetAtt": ["Endpoint", "EndpointName"]}}
    if sizes.is_component(deployment):
        values["InferenceComponentName"] = component_name(deployment)
    return {output: {"Value": value} for output, value in values.items()}


def _components(deployment: GenerationDeployment, model: str, rolling_back: list[str]) -> Resources:
    """Return the base component and those of adapters, which come after it.

    Alarms that take its updates back are there before it.
    """
    rollback = rollback_alarm_ids(deployment)
    return {
        "InferenceComponent": {
            "Type": COMPONENT,
            "DependsOn": sorted(["Endpoint", "Model", *rollback]),
            "Properties": component_properties(deployment, model, rolling_back),
        },
        **{
            _adapter_id(adapter): {
                "Type": COMPONENT,
                "DependsOn": ["InferenceComponent"],
                "Properties": adapter_properties(deployment, adapter),
            }
            for adapter in deployment.spec.serving.adapters
        },
    }


def _adapter_id(adapter: AdapterSpec) -> str:
    """Return the logical id of an adapter's component; no two names share it."""
    return f"Adapter{hashlib.sha256(adapter.name.encode()).hexdigest()[:8]}"


def generation_statements(deployment: GenerationDeployment) -> tuple[Statement, ...]:
    """Return the role's own statements, of whatever checkpoint."""
    environment = deployment.environment
    return (
        *registry_log_in(),
        allow("LocateBucket", ["s3:GetBucketLocation"], [arns.bucket(environment)]),
        *key_use(environment, ["kms:Decrypt"]),
        *volume_key_grant(environment),
        *log_writes(environment, *_log_groups(deployment)),
        *host_metrics(),
        *alarm_looks(environment, rollback_alarm_names(deployment)),
        *network_interfaces(environment),
    )


def version_statements(deployment: GenerationDeployment) -> tuple[Statement, ...]:
    """Return what a copy of this version must have to start: its image and its checkpoint."""
    assert deployment.entry is not None
    environment = deployment.environment
    files = f"{checkpoint_prefix(deployment.entry.checkpoint_key)}*"
    listed = {"StringLike": {"s3:prefix": [files]}}
    adapters = list(map(names.adapter_path, deployment.adapters.values()))
    return (
        *image_pull(environment, GENERATION_IMAGE),
        *object_reads(environment, [files, *adapters], "ReadCheckpoint"),
        allow("ListCheckpoint", ["s3:ListBucket"], [arns.bucket(environment)], listed),
    )


def _log_groups(deployment: GenerationDeployment) -> tuple[str, ...]:
    """Return SageMaker's log groups of the endpoint, and of its components where it has some."""
    endpoint = names.endpoint_name(deployment.environment, deployment.name)
    groups = [f"/aws/sagemaker/Endpoints/{endpoint}"]
    if deployment.spec.endpoint.kind == "inference-component":
        groups.append(f"/aws/sagemaker/InferenceComponents/{component_name(deployment)}")
    return tuple(groups)
