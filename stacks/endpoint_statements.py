"""What an endpoint's role may do: pull its image, read its engines, write its log group."""

from __future__ import annotations

from onboarding import names
from onboarding.deployment import Deployment
from stacks.serving_image import serving_image
from stacks.statements import Statement, host_metrics, image_pull, key_use, log_writes, network_interfaces, object_reads


def endpoint_statements(deployment: Deployment) -> tuple[Statement, ...]:
    """Every statement of an endpoint's role."""
    environment = deployment.environment
    endpoint = names.endpoint_name(environment, deployment.name)
    return (
        *image_pull(environment, serving_image(deployment)),
        *object_reads(environment, [names.engine_archive_path(target.engine_key) for target in deployment.targets]),
        *key_use(environment, ["kms:Decrypt"]),
        *log_writes(environment, f"/aws/sagemaker/Endpoints/{endpoint}"),
        *host_metrics(),
        *network_interfaces(environment),
    )
