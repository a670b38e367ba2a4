"""What a text generator's endpoint calls its component, and gives its container."""

from __future__ import annotations

from onboarding import names
from onboarding.text_generation.arguments import VLLM_PREFIX
from onboarding.text_generation.generation_deployment import GenerationDeployment
from stacks.generation import sizes


def component_name(deployment: GenerationDeployment) -> str:
    """Return the name of the inference component of the base model: that of the endpoint."""
    return names.endpoint_name(deployment.environment, deployment.name)


def environment_variables(deployment: GenerationDeployment) -> dict[str, str]:
    """Return the container's environment: the plan's, with a bound of the queue."""
    variables = dict(deployment.container_environment)
    if sizes.bounds_queue(deployment):
        name = f"{VLLM_PREFIX}{sizes.QUEUE_ARGUMENT.upper()}"
        variables.setdefault(name, str(sizes.most_requests(deployment)))
    return variables
