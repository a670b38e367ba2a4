"""Templates of stacks, written by the CDK in this process; importing this starts nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onboarding.deployment import Deployment
from onboarding.environment_spec import EnvironmentSpec
from onboarding.text_generation.generation_deployment import GenerationDeployment
from roundhouse import settings


def endpoint_template(
    endpoint: Deployment | GenerationDeployment, image_uris: Mapping[str, str]
) -> dict[str, Any]:
    """Return the template of an endpoint's stack; no resource where it cannot be deployed."""
    settings.quieten_cdk()
    from stacks import endpoint_stack

    return endpoint_stack.endpoint_template(endpoint, image_uris)


def observability_template(
    environment: EnvironmentSpec,
    deployments: Sequence[Deployment],
    generators: Sequence[GenerationDeployment],
) -> dict[str, Any]:
    """Return the template of the stack of an environment's dashboard."""
    settings.quieten_cdk()
    from stacks.endpoint_stack import synthesize
    from stacks.environment_stage import ObservabilityStack

    return synthesize(
        lambda app: ObservabilityStack(
            app,
            "Observability",
            environment=environment,
            deployments=deployments,
            generators=generators,
        )
    )
