"""The resources of one endpoint's stack, as plain data."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from onboarding import names
from onboarding.deployment import Deployment
from onboarding.memory_findings import memory_faults
from roundhouse_cdk.statements import exact_role
from roundhouse_cdk.wildcards import with_reasons
from stacks.alarms.alarm import alarm_resources
from stacks.alarms.properties import alarms, rollback_alarm_ids
from stacks.dashboards.endpoint import endpoint_dashboard
from stacks.endpoint.findings import engine_faults, signature_faults
from stacks.endpoint.properties import (
    RETAINED,
    RETAINS,
    Models,
    endpoint_config_properties,
    endpoint_properties,
    variant_models,
)
from stacks.endpoint.statements import endpoint_statements, version_policy
from stacks.rollout import deployment_config
from stacks.scaling.resources import held_counts, scaling_resources
from stacks.template import Resources, Template, content_name, retention


def endpoint_faults(deployment: Deployment) -> tuple[str, ...]:
    """Why an endpoint cannot be deployed, one sentence each; empty when it can."""
    return (*engine_faults(deployment), *signature_faults(deployment), *memory_faults(deployment))


def endpoint_template(deployment: Deployment, image_uris: Mapping[str, str]) -> Template:
    """Return what an endpoint's stack deploys; one that cannot be deployed has no resource."""
    if endpoint_faults(deployment):
        return {"Resources": {}}
    resources = endpoint_resources(deployment, image_uris)
    retains = "RetainAllVariantProperties" in resources["Endpoint"]["Properties"]
    return {
        **(retention(RETAINS, RETAINED, "true", "instance counts") if retains else {}),
        "Resources": resources,
        "Outputs": endpoint_outputs(deployment),
    }


def endpoint_resources(deployment: Deployment, image_uris: Mapping[str, str]) -> Resources:
    """Return every resource of an endpoint's stack; `image_uris` names every image it may run.

    The endpoint has no `endpoint_faults`.
    """
    role = exact_role(
        deployment.environment,
        service="sagemaker.amazonaws.com",
        statements=endpoint_statements(deployment),
    )
    models = {
        variant.name: variant_models(deployment, variant, image_uris)
        for variant in deployment.variants
    }
    scaling = {**held_counts(deployment), **scaling_resources(deployment)}
    version = version_policy(deployment)
    return {
        "Role": with_reasons({"Type": "AWS::IAM::Role", "Properties": role}),
        **version,
        **_model_resources(models, waits_for=sorted(version)),
        **_hosting(deployment, models, counts_move=bool(scaling)),
        **scaling,
        **endpoint_dashboard(deployment),
    }


def _model_resources(models: Models, *, waits_for: Sequence[str]) -> Resources:
    """Waiting is no property: another policy alone makes no other model."""
    role = {"ExecutionRoleArn": {"Fn::GetAtt": ["Role", "Arn"]}}
    return {
        model.logical_id: {
            "Type": "AWS::SageMaker::Model",
            "DependsOn": list(waits_for),
            "Properties": {"ModelName": model.name, **role, **model.properties},
        }
        for of_variant in models.values()
        for model in of_variant
    }


def _hosting(deployment: Deployment, models: Models, *, counts_move: bool) -> Resources:
    """The config, the endpoint, and its alarms."""
    content = endpoint_config_properties(deployment, models)
    watching, rollback = alarms(deployment), rollback_alarm_ids(deployment)
    rollout = deployment_config(deployment, [watching[alarm]["AlarmName"] for alarm in rollback])
    # SageMaker takes another DeploymentConfig with another endpoint config only.
    config_name = content_name(
        names.endpoint_name(deployment.environment, deployment.name),
        {**content, "DeploymentConfig": rollout},
    )
    model_ids = {model.logical_id for of_variant in models.values() for model in of_variant}
    return {
        "EndpointConfig": {
            "Type": "AWS::SageMaker::EndpointConfig",
            "DependsOn": sorted(model_ids),
            "Properties": {"EndpointConfigName": config_name, **content},
        },
        **alarm_resources(watching, rollback, "Endpoint"),
        "Endpoint": {
            "Type": "AWS::SageMaker::Endpoint",
            "DependsOn": sorted(["EndpointConfig", *rollback]),
            "Properties": endpoint_properties(
                deployment, config_name, rollout, counts_move=counts_move
            ),
        },
    }


def endpoint_outputs(deployment: Deployment) -> dict[str, dict[str, Any]]:
    """The `Outputs` of an endpoint's template."""
    environment, endpoint = deployment.environment, deployment.endpoint
    values: dict[str, Any] = {"EndpointName": {"Fn::GetAtt": ["Endpoint", "EndpointName"]}}
    if deployment.multi_model:
        ids = target_model_ids([target.model.name for target in deployment.targets])
        for target in deployment.targets:
            values[ids[target.model.name]] = names.target_model(target.engine_key)
    prefixes = []
    if endpoint.asynchronous is not None:
        prefixes += [("Requests", names.requests_prefix), ("Answers", names.answers_prefix)]
    if endpoint.data_capture is not None:
        prefixes.append(("Captures", names.captures_prefix))
    bucket = names.artifact_bucket(environment)
    for noun, prefix in prefixes:
        values[f"{noun}Prefix"] = f"s3://{bucket}/{prefix(environment, deployment.name)}/"
    return {output: {"Value": value} for output, value in values.items()}


def target_model_ids(models: list[str]) -> dict[str, str]:
    """The output of each target model: `TargetModelSentenceEmbedder`.

    Names that PascalCase cannot tell apart (`a-1` and `a1`) get six digits of their digest, each of
    them: whoever read the output that stood for one of them must not read the other's.
    """
    plain = {model: output_id(model) for model in models}
    count = Counter(plain.values())
    return {
        model: output
        if count[output] == 1
        else output + hashlib.sha256(model.encode()).hexdigest()[:6]
        for model, output in plain.items()
    }


def output_id(model: str) -> str:
    """Output name of a target model, such as `TargetModelSentenceEmbedder`."""
    return "TargetModel" + "".join(part[:1].upper() + part[1:] for part in model.split("-"))
