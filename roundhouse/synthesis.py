"""Templates of stacks, written by the CDK in this process; importing this starts nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from onboarding.deployment import Deployment
from onboarding.environment_spec import EnvironmentSpec
from onboarding.names import stack_name
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
    environment: EnvironmentSpec, endpoints: Collection[Deployment | GenerationDeployment]
) -> dict[str, Mapping[str, Any]]:
    """Return the stack of an environment's dashboard, by its name; none without an endpoint."""
    if not endpoints:
        return {}
    settings.quieten_cdk()
    from stacks.endpoint_stack import synthesize
    from stacks.environment_stage import ObservabilityStack

    template = synthesize(
        lambda app: ObservabilityStack(
            app,
            "Observability",
            environment=environment,
            deployments=[item for item in endpoints if isinstance(item, Deployment)],
            generators=[item for item in endpoints if isinstance(item, GenerationDeployment)],
        )
    )
    return {stack_name(environment, "observability"): template}
