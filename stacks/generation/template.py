"""The resources of a text generator's stack, as plain data."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from onboarding import names
from onboarding.text_generation.generation_deployment import GenerationDeployment
from onboarding.text_generation.spec import AdapterSpec
from stacks.access.policies import exact_role
from stacks.endpoint.properties import RETAINED, RETAINS
from stacks.generation import sizes
from stacks.generation.alarms import alarms, rollback_alarm_ids
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
from stacks.generation.statements import generation_statements, version_policy
from stacks.suppressions import with_reasons
from stacks.template import Properties, Resources, Template, content_name

COMPONENT = "AWS::SageMaker::InferenceComponent"
ROLE_ARN = {"Fn::GetAtt": ["Role", "Arn"]}


def generation_template(
    deployment: GenerationDeployment, image_uris: Mapping[str, str]
) -> Template:
    """Return what a stack deploys; one that cannot be deployed has no resource."""
    if generation_faults(deployment):
        return {"Resources": {}}
    return {
        **retention(deployment),
        "Resources": generation_resources(deployment, image_uris),
        "Outputs": generation_outputs(deployment),
    }


def retention(deployment: GenerationDeployment) -> Template:
    """Return the parameter and the condition by which updates keep the copies that they find.

    None where nothing moves their number.
    """
    if not sizes.scales(deployment):
        return {}
    is_component = sizes.is_component(deployment)
    parameter, condition = (KEEPS_COPIES, SETS_COPIES) if is_component else (RETAINS, RETAINED)
    value = "false" if is_component else "true"
    return {
        "Parameters": {parameter: {"Type": "String", "Default": "false"}},
        "Conditions": {condition: {"Fn::Equals": [{"Ref": parameter}, value]}},
    }


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
    version, content = version_policy(deployment), model_properties(deployment, image_uris)
    model = model_name(deployment, content)
    watching, rollback = alarms(deployment), rollback_alarm_ids(deployment)
    rolling_back = [str(watching[alarm]["AlarmName"]) for alarm in rollback]
    is_component = sizes.is_component(deployment)
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
            # What the image holds, for the template rules: its tag does not say which CUDA.
            "Metadata": {"Roundhouse": {"platform": deployment.platform.name}},
            "Properties": {"EndpointConfigName": config_name, **role_of_config, **config},
        },
        "Endpoint": {
            "Type": "AWS::SageMaker::Endpoint",
            "DependsOn": ["EndpointConfig", *([] if is_component else rollback)],
            "Properties": {**endpoint, "EndpointConfigName": config_name},
        },
        **(_components(deployment, model, rolling_back) if is_component else {}),
        **_alarm_resources(deployment, watching),
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


def _alarm_resources(
    deployment: GenerationDeployment, watching: Mapping[str, Properties]
) -> Resources:
    """Return the alarms; those that take nothing back wait for what they watch."""
    rollback = rollback_alarm_ids(deployment)
    waits_for = "InferenceComponent" if sizes.is_component(deployment) else "Endpoint"
    return {
        alarm: {
            "Type": "AWS::CloudWatch::Alarm",
            **({} if alarm in rollback else {"DependsOn": [waits_for]}),
            "Properties": content,
        }
        for alarm, content in watching.items()
    }
