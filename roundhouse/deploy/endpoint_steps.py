"""Changes of endpoints that AWS takes in several updates only: every update before the last one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from onboarding.deployment import DeployedEndpoint
from onboarding.names import RETAINED_COPIES, endpoint_name
from roundhouse.aws.clients import Clients, calling, pages
from roundhouse.deploy import cdk
from roundhouse.deploy.cdk import StackArtifact, write_assembly
from roundhouse.deploy.stacks import Template, deployed_templates, endpoint_stack_name
from roundhouse.errors import DeployFailedError
from roundhouse.session import Session
from stacks.endpoint.change import (
    UpdateStep,
    hosting_fault,
    update_steps,
    updates_component,
    with_held_resources,
)

CONFIG, MODEL = "AWS::SageMaker::EndpointConfig", "AWS::SageMaker::Model"
COMPONENT = "AWS::SageMaker::InferenceComponent"


def take_first_steps(
    session: Session,
    deployments: Sequence[DeployedEndpoint],
    before: Mapping[str, Template],
    artifacts: Mapping[str, StackArtifact],
) -> None:
    """Deploy what must come before the last update of these endpoints.

    `before`: templates that are deployed now, by stack. An endpoint that is not deployed yet, or
    that changes in a way that AWS takes at once, needs no first step.
    """
    steps = {}
    for deployment in deployments:
        name = endpoint_stack_name(deployment)
        if name not in before or name not in artifacts:
            continue
        fault = hosting_fault(before[name], artifacts[name].template)
        if fault is not None:
            raise DeployFailedError(f"Refused before deploying: {fault}")
        first = update_steps(before[name], artifacts[name].template)[:-1]
        if first:
            steps[name] = first
            reasons = ", and ".join(str(step.reason) for step in first)
            session.report.print(
                f"– {deployment.name} takes {len(first) + 1} updates: {reasons}. "
                "If this is interrupted, deploy again."
            )
    title = "Deploying what must come before the last update"
    for templates in _rounds(steps):
        _deploy(session, title, artifacts, templates, retention_parameters(before, templates))


def retention_parameters(
    before: Mapping[str, Template], after: Mapping[str, Template]
) -> tuple[str, ...]:
    """Return the parameters by which updates of stacks keep the copies that they find.

    Their value changes only together with the inference component. From then on CloudFormation
    keeps it.
    """
    return tuple(
        f"{name}:{RETAINED_COPIES}=true"
        for name in sorted(before.keys() & after.keys())
        if RETAINED_COPIES in after[name].get("Parameters", {})
        and updates_component(before[name], after[name])
    )


def restore_held_resources(
    session: Session,
    deployments: Sequence[DeployedEndpoint],
    artifacts: Mapping[str, StackArtifact],
) -> None:
    """Deploy what a first update took away, scaling and adapters, where the last update failed."""
    deployed = deployed_templates(session, list(map(endpoint_stack_name, deployments)))
    restored = {name: with_held_resources(template) for name, template in deployed.items()}
    templates = {
        name: template
        for name, template in restored.items()
        if template is not None and name in artifacts
    }
    if templates:
        title = "Restoring scaling and adapters of endpoints that stay as they were"
        _deploy(session, title, artifacts, templates)


def _deploy(
    session: Session,
    title: str,
    artifacts: Mapping[str, StackArtifact],
    templates: Mapping[str, Template],
    parameters: Sequence[str] = (),
) -> None:
    folder = session.paths.build / "cdk" / f"{session.environment.name}-steps"
    write_assembly(folder, artifacts, templates)
    with session.report.step(f"{title} (cdk deploy)") as step:
        cdk.deploy(
            session,
            folder,
            ("--all",),
            parameters=parameters,
            on_line=lambda line: cdk.show_line(step, line),
        )
        step.finish(", ".join(templates))


def _rounds(steps: Mapping[str, Sequence[UpdateStep]]) -> Iterator[dict[str, Template]]:
    """Return the templates of every stack's first step, then of the second where there is one."""
    for row in zip_longest(*steps.values()):
        yield {
            name: step.template for name, step in zip(steps, row, strict=True) if step is not None
        }


def deployed_name(clients: Clients, stack: str, resource_type: str) -> str | None:
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
    name, stack = (
        endpoint_name(deployment.environment, deployment.name),
        endpoint_stack_name(deployment),
    )
    with calling(f"Endpoint {name}"):
        endpoint = clients("sagemaker").describe_endpoint(EndpointName=name)
        live, status = endpoint.get("EndpointConfigName"), endpoint["EndpointStatus"]
    deployed = deployed_name(clients, stack, CONFIG)
    # AWS ignores case.
    if deployed is None or deployed.lower() == str(live).lower():
        return
    reason, alarms = str(endpoint.get("FailureReason") or ""), alarms_in_alarm(clients, name)
    causes = [
        *([f"FailureReason: {reason.rstrip('.')}"] if reason else []),
        *([f"in ALARM: {', '.join(alarms)}"] if alarms else []),
    ]
    because = f" ({'; '.join(causes)})" if causes else " (a rollback alarm, or a change by hand)"
    raise DeployFailedError(
        f"Endpoint {name} is {status} and serves endpoint config {live}, not {deployed}, which its "
        f"stack {stack} deployed: SageMaker went back{because}. Deploying the same files again "
        "changes nothing. Correct the model file and deploy, or revert the commit and deploy; once "
        f"the cause is gone, `aws sagemaker update-endpoint --endpoint-name {name} "
        f"--endpoint-config-name {deployed}` rolls the same config out again."
    )


def require_live_component(clients: Clients, deployment: DeployedEndpoint) -> None:
    """Raise DeployFailedError when a component's copies do not run the stack's model.

    SageMaker goes back to the model before when a rollback alarm goes to ALARM; the component is
    InService then.
    """
    stack = endpoint_stack_name(deployment)
    component = deployed_name(clients, stack, COMPONENT)
    if component is None:
        return
    wanted = deployed_name(clients, stack, MODEL)
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
        alarms = pages(clients("cloudwatch"), "describe_alarms", "MetricAlarms", StateValue="ALARM")
        return tuple(alarm["AlarmName"] for alarm in alarms if _watches(alarm, endpoint))


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
