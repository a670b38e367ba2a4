"""What an endpoint's role may do: pull its images, read its engines, write its log group, its captures and its answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from onboarding import names
from onboarding.deployment import Deployment
from stacks.endpoint_properties import takes_volume_key
from stacks.serving_image import serving_images
from stacks.statements import (
    Statement,
    host_metrics,
    image_pull,
    key_use,
    log_writes,
    network_interfaces,
    object_reads,
    object_writes,
    topic_publish,
)

MOST_NAMED_ENGINES = 60
"""IAM takes 10,240 characters of a role's own policies; an archive's name takes 96 of them."""


def endpoint_statements(deployment: Deployment) -> tuple[Statement, ...]:
    """Every statement of an endpoint's role."""
    environment, asynchronous = deployment.environment, deployment.endpoint.asynchronous
    written = tuple(_written(deployment))
    return (
        *_merged(statement for image in serving_images(deployment) for statement in image_pull(environment, image)),
        *object_reads(environment, tuple(_read(deployment))),
        *(object_writes(environment, written) if written else ()),
        *key_use(environment, ["kms:Decrypt", *(("kms:GenerateDataKey",) if written else ())]),
        *(key_use(environment, ["kms:CreateGrant", "kms:DescribeKey"], "sagemaker") if takes_volume_key(deployment) else ()),
        *(topic_publish(environment) if asynchronous is not None and asynchronous.notify else ()),
        *log_writes(environment, f"/aws/sagemaker/Endpoints/{names.endpoint_name(environment, deployment.name)}"),
        *host_metrics(),
        *network_interfaces(environment),
    )


def _read(deployment: Deployment) -> Iterator[str]:
    """The archive of every engine, once, or all archives where they are too many to name; and the requests of a queue."""
    archives = dict.fromkeys(names.engine_archive_path(target.engine_key) for target in deployment.targets)
    yield from archives if len(archives) <= MOST_NAMED_ENGINES else (f"{names.ENGINES_PREFIX}/*",)
    if deployment.endpoint.asynchronous is not None:
        yield f"{names.requests_prefix(deployment.environment, deployment.name)}/*"


def _written(deployment: Deployment) -> Iterator[str]:
    """Whatever SageMaker writes in the name of the role, under this endpoint's own prefixes."""
    if deployment.endpoint.data_capture is not None:
        yield f"{names.captures_prefix(deployment.environment, deployment.name)}/*"
    if deployment.endpoint.asynchronous is not None:
        yield f"{names.answers_prefix(deployment.environment, deployment.name)}/*"


def _merged(statements: Iterable[Statement]) -> tuple[Statement, ...]:
    """Statements of one id as one, about the resources of them all: an id stands in a policy once."""
    found: dict[str, Statement] = {}
    for statement in statements:
        known = found.get(statement["Sid"])
        resources = statement["Resource"] if known is None else [*known["Resource"], *statement["Resource"]]
        found[statement["Sid"]] = {**statement, "Resource": list(dict.fromkeys(resources))}
    return tuple(found.values())
