"""The resources of one endpoint's stack, as plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onboarding import names
from onboarding.deployment import Deployment
from onboarding.memory_findings import memory_faults
from stacks.access.exact_role import exact_role
from stacks.alarms.properties import alarms, rollback_alarm_ids
from stacks.content_name import content_name
from stacks.dashboards.endpoint import endpoint_dashboard
from stacks.endpoint.engine_faults import engine_faults
from stacks.endpoint.models import MODEL, variant_models
from stacks.endpoint.outputs import endpoint_outputs
from stacks.endpoint.properties import Models, endpoint_config_properties, endpoint_properties
from stacks.endpoint.signature_faults import signature_faults
from stacks.endpoint.statements import endpoint_statements, version_policy
from stacks.rollout import deployment_config
from stacks.scaling.held_counts import held_counts
from stacks.scaling.properties import scaling_resources
from stacks.template import Resource, Resources, Template


def endpoint_faults(deployment: Deployment) -> tuple[str, ...]:
    """Why an endpoint cannot be deployed, one sentence each; empty when it can."""
    return (*engine_faults(deployment), *signature_faults(deployment), *memory_faults(deployment))


def endpoint_template(deployment: Deployment, image_uris: Mapping[str, str]) -> Template:
    """Return what an endpoint's stack deploys; one that cannot be deployed has no resource."""
    if endpoint_faults(deployment):
        return {"Resources": {}}
    return {
        "Resources": endpoint_resources(deployment, image_uris),
        "Outputs": endpoint_outputs(deployment),
    }


def endpoint_resources(deployment: Deployment, image_uris: Mapping[str, str]) -> Resources:
    """Return every resource of an endpoint's stack; `image_uris` names every image it may run.

    The endpoint has no `endpoint_faults`.
    """
    statements = endpoint_statements(deployment)
    role = exact_role(
        deployment.environment, service="sagemaker.amazonaws.com", statements=statements
    )
    models = {
        variant.name: variant_models(deployment, variant, image_uris)
        for variant in deployment.variants
    }
    scaling, version = (
        {**held_counts(deployment), **scaling_resources(deployment)},
        version_policy(deployment),
    )
    return {
        "Role": {"Type": "AWS::IAM::Role", "Properties": role},
        **version,
        **_model_resources(models, waits_for=sorted(version)),
        **_hosting(deployment, models, counts_move=bool(scaling)),
        **scaling,
        **endpoint_dashboard(deployment),
    }


def _model_resources(models: Models, *, waits_for: Sequence[str]) -> Resources:
    """Waiting is no property: another policy alone makes no other model."""
    role = {"ExecutionRoleArn": {"Fn::GetAtt": ["Role", "Arn"]}}
    waits = {"DependsOn": list(waits_for)}
    return {
        model.logical_id: {
            "Type": MODEL,
            **waits,
            "Properties": {"ModelName": model.name, **role, **model.properties},
        }
        for of_variant in models.values()
        for model in of_variant
    }


def _hosting(deployment: Deployment, models: Models, *, counts_move: bool) -> Resources:
    """The config, the endpoint, and its alarms: those that take a rollout back are there before it,
    the others watch it.
    """
    content = endpoint_config_properties(deployment, models)
    watching, rollback = alarms(deployment), rollback_alarm_ids(deployment)
    rollout = deployment_config(deployment, [watching[alarm]["AlarmName"] for alarm in rollback])
    # SageMaker takes another DeploymentConfig with another endpoint config only.
    config_name = content_name(
        names.endpoint_name(deployment.environment, deployment.name),
        {**content, "DeploymentConfig": rollout},
    )
    return {
        "EndpointConfig": {
            "Type": "AWS::SageMaker::EndpointConfig",
            "DependsOn": sorted(
                {model.logical_id for of_variant in models.values() for model in of_variant}
            ),
            # What the images hold, for the template rules: a digest does not say which CUDA.
            "Metadata": {"Roundhouse": {"platform": deployment.platform.name}},
            "Properties": {"EndpointConfigName": config_name, **content},
        },
        **{
            alarm: _alarm(properties, waits=alarm not in rollback)
            for alarm, properties in watching.items()
        },
        "Endpoint": {
            "Type": "AWS::SageMaker::Endpoint",
            "DependsOn": sorted(["EndpointConfig", *rollback]),
            "Properties": endpoint_properties(
                deployment, config_name, rollout, counts_move=counts_move
            ),
        },
    }


def _alarm(properties: dict[str, Any], *, waits: bool) -> Resource:
    """An alarm that waits for the endpoint does not cry before there is an instance."""
    return {
        "Type": "AWS::CloudWatch::Alarm",
        **({"DependsOn": ["Endpoint"]} if waits else {}),
        "Properties": properties,
    }
