"""Changes of endpoints that AWS takes in several updates only: every update before the last one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from onboarding.deployment import DeployedEndpoint
from roundhouse.deploy import cdk
from roundhouse.deploy.assembly import StackArtifact, write_assembly
from roundhouse.deploy.stacks import deployed_templates, endpoint_stack_name
from roundhouse.session import Session
from stacks.endpoint.change import (
    UpdateStep,
    update_steps,
    updates_component,
    updates_config,
    with_held_resources,
)
from stacks.endpoint.properties import RETAINS
from stacks.generation.properties import KEEPS_COPIES

Template = Mapping[str, Any]


def take_first_steps(
    session: Session,
    deployments: Sequence[DeployedEndpoint],
    before: Mapping[str, Template],
    artifacts: Mapping[str, StackArtifact],
) -> tuple[str, ...]:
    """Deploy what must come before the last update of these endpoints; return the stacks changed.

    `before`: templates that are deployed now, by stack. An endpoint that is not deployed yet, or
    that changes in a way that AWS takes at once, needs no first step.
    """
    steps = {}
    for deployment in deployments:
        name = endpoint_stack_name(deployment)
        if name not in before or name not in artifacts:
            continue
        first = update_steps(before[name], artifacts[name].template)[:-1]
        if first:
            steps[name] = first
            reasons = ", and ".join(str(step.reason) for step in first)
            session.report.print(
                f"– {deployment.name} takes {len(first) + 1} updates: {reasons}. "
                "If this is interrupted, deploy again."
            )
    title = "Deploying what must come before the last update"
    return tuple(
        name
        for templates in _rounds(steps)
        for name in _deploy(
            session, title, artifacts, templates, retention_parameters(before, templates)
        )
    )


def retention_parameters(
    before: Mapping[str, Template], after: Mapping[str, Template]
) -> tuple[str, ...]:
    """Return the parameters by which updates of stacks keep the counts that they find.

    Their value changes only together with the endpoint config: SageMaker refuses an update of an
    endpoint that names the config it has. That of copies changes with the inference component. From
    then on CloudFormation keeps the value.
    """
    return tuple(
        f"{name}:{parameter}=true"
        for name in sorted(before.keys() & after.keys())
        for parameter, updates in ((RETAINS, updates_config), (KEEPS_COPIES, updates_component))
        if parameter in after[name].get("Parameters", {}) and updates(before[name], after[name])
    )


def restore_held_resources(
    session: Session,
    deployments: Sequence[DeployedEndpoint],
    artifacts: Mapping[str, StackArtifact],
) -> tuple[str, ...]:
    """Deploy what a first update took away, scaling and adapters, where the last update failed.

    Returns the stacks changed.
    """
    deployed = deployed_templates(session, list(map(endpoint_stack_name, deployments)))
    restored = {name: with_held_resources(template) for name, template in deployed.items()}
    templates = {
        name: template
        for name, template in restored.items()
        if template is not None and name in artifacts
    }
    if not templates:
        return ()
    title = "Restoring scaling and adapters of endpoints that stay as they were"
    return _deploy(session, title, artifacts, templates)


def _deploy(
    session: Session,
    title: str,
    artifacts: Mapping[str, StackArtifact],
    templates: Mapping[str, Template],
    parameters: Sequence[str] = (),
) -> tuple[str, ...]:
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
    return tuple(templates)


def _rounds(steps: Mapping[str, Sequence[UpdateStep]]) -> Iterator[dict[str, Template]]:
    """Return the templates of every stack's first step, then of the second where there is one."""
    for row in zip_longest(*steps.values()):
        yield {
            name: step.template for name, step in zip(steps, row, strict=True) if step is not None
        }
