"""The endpoint config that an endpoint serves, compared with the one that its stack deployed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onboarding.deployment import DeployedEndpoint
from onboarding.names import endpoint_name
from roundhouse.aws.clients import Clients, calling
from roundhouse.deploy.stacks import endpoint_stack_name
from roundhouse.errors import DeployFailedError

CONFIG, MODEL = "AWS::SageMaker::EndpointConfig", "AWS::SageMaker::Model"
COMPONENT = "AWS::SageMaker::InferenceComponent"


@dataclass(frozen=True, kw_only=True)
class LiveConfig:
    """The endpoint config that an endpoint serves, and that of its stack; None: there is none."""

    endpoint: str
    status: str
    live: str | None
    deployed: str | None
    failure_reason: str

    @property
    def is_as_deployed(self) -> bool:
        """Return whether the endpoint serves what its stack says; names of AWS ignore case."""
        return self.deployed is None or self.deployed.lower() == str(self.live).lower()


def live_config(clients: Clients, deployment: DeployedEndpoint) -> LiveConfig:
    """Return what an endpoint serves and what its stack deployed."""
    name, stack = (
        endpoint_name(deployment.environment, deployment.name),
        endpoint_stack_name(deployment),
    )
    with calling(f"Endpoint {name}"):
        endpoint = clients("sagemaker").describe_endpoint(EndpointName=name)
    return LiveConfig(
        endpoint=name,
        status=str(endpoint["EndpointStatus"]),
        live=endpoint.get("EndpointConfigName"),
        deployed=deployed_config(clients, stack),
        failure_reason=str(endpoint.get("FailureReason") or ""),
    )


def deployed_config(clients: Clients, stack: str) -> str | None:
    """Return the name of the endpoint config that a stack holds."""
    return _deployed_name(clients, stack, CONFIG)


def deployed_model(clients: Clients, stack: str) -> str | None:
    """Return the name of the SageMaker model that a text generator's stack holds."""
    return _deployed_name(clients, stack, MODEL)


def _deployed_name(clients: Clients, stack: str, resource_type: str) -> str | None:
    """Return the name of the one resource of a type that a stack holds."""
    with calling(f"Looking at the resources of stack {stack}"):
        answer = clients("cloudformation").describe_stack_resources(StackName=stack)
    found = [
        str(resource["PhysicalResourceId"]).rpartition("/")[2]
        for resource in answer["StackResources"]
        if resource["ResourceType"] == resource_type and "PhysicalResourceId" in resource
    ]
    return found[0] if len(found) == 1 else None


def require_live_config(clients: Clients, deployment: DeployedEndpoint) -> None:
    """Raise DeployFailedError when an endpoint does not serve the config that its stack deployed.

    SageMaker goes back to the old config when a rollback alarm goes to ALARM, and the endpoint is
    InService then; CloudFormation does not always learn of it.
    """
    config = live_config(clients, deployment)
    if config.is_as_deployed:
        return
    alarms = alarms_in_alarm(clients, config.endpoint)
    causes = [
        *([f"FailureReason: {config.failure_reason.rstrip('.')}"] if config.failure_reason else []),
        *([f"in ALARM: {', '.join(alarms)}"] if alarms else []),
    ]
    because = f" ({'; '.join(causes)})" if causes else " (a rollback alarm, or a change by hand)"
    raise DeployFailedError(
        f"Endpoint {config.endpoint} is {config.status} and serves endpoint config {config.live}, "
        f"not {config.deployed}, which its stack {endpoint_stack_name(deployment)} deployed: "
        f"SageMaker went back{because}. Deploying the same files again changes nothing. Correct "
        "the model file and deploy, or revert the commit and deploy; once the cause is gone, "
        f"`aws sagemaker update-endpoint --endpoint-name {config.endpoint} --endpoint-config-name "
        f"{config.deployed}` rolls the same config out again."
    )


def require_live_component(clients: Clients, deployment: DeployedEndpoint) -> None:
    """Raise DeployFailedError when a text generator's copies do not run the stack's model.

    SageMaker goes back to the model before when a rollback alarm goes to ALARM; the component is
    InService then.
    """
    stack = endpoint_stack_name(deployment)
    component = _deployed_name(clients, stack, COMPONENT)
    if component is None:
        return
    wanted = deployed_model(clients, stack)
    with calling(f"Inference component {component}"):
        live = clients("sagemaker").describe_inference_component(InferenceComponentName=component)
    runs = live.get("Specification", {}).get("ModelName")
    if runs is None or runs == wanted:
        return
    name = endpoint_name(deployment.environment, deployment.name)
    alarms = alarms_in_alarm(clients, name)
    causes = f" (in ALARM: {', '.join(alarms)})" if alarms else ""
    raise DeployFailedError(
        f"Inference component {component} is {live['InferenceComponentStatus']} and runs model "
        f"{runs}, not {wanted}, which its stack {stack} deployed: SageMaker went back{causes}. "
        "Correct the model file and deploy, or revert the commit and deploy."
    )


def alarms_in_alarm(clients: Clients, endpoint: str) -> tuple[str, ...]:
    """Return the names of the alarms of an endpoint that are in ALARM."""
    with calling(f"Looking at the alarms of {endpoint}"):
        pages = clients("cloudwatch").get_paginator("describe_alarms").paginate(StateValue="ALARM")
        return tuple(
            alarm["AlarmName"]
            for page in pages
            for alarm in page["MetricAlarms"]
            if _watches(alarm, endpoint)
        )


def _watches(alarm: dict[str, Any], endpoint: str) -> bool:
    """Return whether an alarm has a metric of an endpoint: on its own or in metric math."""
    metrics = [
        alarm,
        *(query.get("MetricStat", {}).get("Metric", {}) for query in alarm.get("Metrics", ())),
    ]
    return any(
        dimension == {"Name": "EndpointName", "Value": endpoint}
        for metric in metrics
        for dimension in metric.get("Dimensions", ())
    )
