"""Why a text generator's endpoint cannot be deployed, and what a person should know before it is.

`check` has refused what the model file alone decides; these need the plan, the lock, or AWS.
"""

from __future__ import annotations

from collections.abc import Iterator

from onboarding.aws_limits import (
    ENVIRONMENT_BYTES,
    ENVIRONMENT_VALUE_LENGTH,
    ENVIRONMENT_VARIABLE_COUNT,
)
from onboarding.nearest import comma_list
from onboarding.text_generation.generation_deployment import GenerationDeployment
from onboarding.text_generation.platforms import versions_with
from stacks.generation import sizes
from stacks.generation.properties import environment_variables

GIGABYTE = 10**9
DISK_SHARE = 0.8
"""Of an instance's NVMe disk that checkpoints may fill; the rest holds image and caches."""


def generation_faults(deployment: GenerationDeployment) -> tuple[str, ...]:
    """Return why an endpoint cannot be deployed, one sentence each; empty when it can."""
    if deployment.problem is not None:
        return (deployment.problem,)
    return (
        *_variables(deployment),
        *_disk(deployment),
    )


def generation_notes(deployment: GenerationDeployment) -> Iterator[str]:
    """Yield what a person may take otherwise than it is, one sentence each."""
    subject, known = f"Endpoint '{deployment.name}'", sizes.concurrency(deployment)
    if not known.is_measured:
        yield (
            f"{subject}: scaling and the bound of the queue follow {known.origin}, "
            f"{known.requests} requests a copy; measure it: `roundhouse bench {deployment.name} "
            "--write`."
        )
    if not sizes.bounds_queue(deployment):
        yield (
            f"{subject}: vLLM {deployment.engine_version} has no bound of its queue; "
            f"{comma_list(versions_with(sizes.QUEUE_ARGUMENT))} has one."
        )
    if deployment.spec.endpoint.copies.min == 0:
        yield (
            f"{subject}: it begins with {sizes.first_copies(deployment)} copies, since a component "
            "cannot be created without one, and the first request after a pause waits for an "
            "instance, the download and the start."
        )


def _variables(deployment: GenerationDeployment) -> Iterator[str]:
    variables = environment_variables(deployment)
    subject = f"The container of endpoint '{deployment.name}'"
    if "Ref" in variables:
        yield (
            f"{subject} has an environment variable Ref, which CloudFormation takes for a "
            "reference; give it another name in serving.environment."
        )
    if len(variables) > ENVIRONMENT_VARIABLE_COUNT:
        yield (
            f"{subject} has {len(variables)} environment variables, and SageMaker takes "
            f"{ENVIRONMENT_VARIABLE_COUNT}; take some out of serving.environment."
        )
    sizes_of = {name: len(name.encode()) + len(value.encode()) for name, value in variables.items()}
    for name, value in variables.items():
        if len(value.encode()) > ENVIRONMENT_VALUE_LENGTH:
            yield (
                f"{subject} has {len(value.encode())} bytes in {name}, and SageMaker takes "
                f"{ENVIRONMENT_VALUE_LENGTH}; name a file under /opt/ml/model in its place."
            )
    if sum(sizes_of.values()) > ENVIRONMENT_BYTES:
        yield (
            f"{subject} has an environment of {sum(sizes_of.values())} bytes, and SageMaker takes "
            f"{ENVIRONMENT_BYTES}; put long texts into files of the checkpoint."
        )


def _disk(deployment: GenerationDeployment) -> Iterator[str]:
    row = sizes.instance_type(deployment)
    if row.local_nvme_gb is None or deployment.entry is None:
        return
    size = sum(file.size_bytes for file in deployment.entry.files) / GIGABYTE
    limit_gb = row.local_nvme_gb * DISK_SHARE
    if size > limit_gb:
        yield (
            f"The checkpoint of endpoint '{deployment.name}' has {size:.0f} GB, and {row.name} has "
            f"a disk of {row.local_nvme_gb} GB; choose a larger instance type."
        )
