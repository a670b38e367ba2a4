"""Changes of endpoints that AWS takes in several updates only: all of them but the last, and the
way back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from onboarding import names
from onboarding.deployment import Deployment
from onboarding.platform import serving_platforms
from roundhouse.deploy import cdk
from roundhouse.deploy.assembly import StackArtifact, stack_artifacts, write_assembly
from roundhouse.deploy.deployed_templates import deployed_templates
from roundhouse.session import Session
from stacks.endpoint.change import UpdateStep, update_steps, with_scaling_again
from stacks.endpoint.template import endpoint_template
from stacks.images.builds import base_image
from stacks.images.tag import image_tags, read_image_files

Template = Mapping[str, Any]
Steps = Mapping[str, Sequence[UpdateStep]]


def take_first_steps(session: Session, deployments: Sequence[Deployment]) -> tuple[str, ...]:
    """Deploys whatever must come before the last update of these endpoints; the stacks it changed,
    in order.

    An endpoint that is not deployed yet, or that changes in a way that AWS takes at once, needs
    none.
    """
    stacks = {stack_name(each): each for each in deployments}
    before = deployed_templates(session, list(stacks))
    wanted = _wanted(session, {name: stacks[name] for name in before})
    many = {
        name: len(steps)
        for name in before
        if (steps := update_steps(before[name], wanted[name])[:-1])
    }
    if not many:
        return ()
    artifacts = _artifacts(session, [stacks[name] for name in many])
    first = {name: update_steps(before[name], artifacts[name].template)[:-1] for name in many}
    for name, steps in first.items():
        reasons = ", and ".join(str(step.reason) for step in steps)
        session.report.print(
            f"– {stacks[name].name} takes {len(steps) + 1} updates: {reasons}. Broken off between, deploy again."
        )
    title = "Deploying what must come before the last update"
    return tuple(
        name
        for templates in _rounds(first)
        for name in _deploy(session, title, artifacts, templates)
    )


def give_scaling_back(session: Session, deployments: Sequence[Deployment]) -> tuple[str, ...]:
    """Deploys the scaling that a first update took away, of the endpoints whose last update failed;
    the stacks it changed.
    """
    stacks = {stack_name(each): each for each in deployments}
    found = {
        name: with_scaling_again(template)
        for name, template in deployed_templates(session, list(stacks)).items()
    }
    templates = {name: template for name, template in found.items() if template is not None}
    if not templates:
        return ()
    artifacts = _artifacts(session, [stacks[name] for name in templates])
    return _deploy(
        session, "Giving endpoints that stay as they were their scaling back", artifacts, templates
    )


def stack_name(deployment: Deployment) -> str:
    """The name of an endpoint's stack."""
    return names.stack_name(deployment.environment, f"endpoint-{deployment.name}")


def construct_path(deployment: Deployment) -> str:
    """How an endpoint's stack is named to the cdk command line."""
    return f"*/Endpoint-{deployment.name}"


def _artifacts(session: Session, deployments: Sequence[Deployment]) -> dict[str, StackArtifact]:
    with session.report.step("Synthesising (cdk synth)") as step:
        artifacts = stack_artifacts(
            cdk.synthesise(session, endpoints=[each.name for each in deployments])
        )
        step.done(", ".join(each.name for each in deployments))
    return artifacts


def _deploy(
    session: Session,
    title: str,
    artifacts: Mapping[str, StackArtifact],
    templates: Mapping[str, Template],
) -> tuple[str, ...]:
    folder = session.paths.build / "cdk" / f"{session.environment.name}-steps"
    write_assembly(folder, artifacts, templates)
    with session.report.step(f"{title} (cdk deploy)") as step:
        cdk.deploy(session, assembly=folder, on_line=lambda line: cdk.tell(step, line))
        step.done(", ".join(templates))
    return tuple(templates)


def _wanted(session: Session, stacks: Mapping[str, Deployment]) -> dict[str, Template]:
    """The template that each stack is to have."""
    if not stacks:
        return {}
    tags = image_tags(
        read_image_files(session.paths.code),
        base_image(serving_platforms()[session.environment.platform]),
    )
    uris = {image: names.image_uri(session.environment, image, tag) for image, tag in tags.items()}
    return {name: endpoint_template(deployment, uris) for name, deployment in stacks.items()}


def _rounds(steps: Steps) -> Iterator[dict[str, Template]]:
    """The templates of every stack's first step, then of the second where there is one."""
    for each in zip_longest(*steps.values()):
        yield {
            name: step.template for name, step in zip(steps, each, strict=True) if step is not None
        }
