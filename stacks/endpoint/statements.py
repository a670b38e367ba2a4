"""What an endpoint's role may do.

Pull its images, read its engines, write its log group, its captures and its answers. A version is
what must be there for an instance to start: its images and, of one model, its archives. While a
rollout is under way instances of both versions may have to start, those of the old one when it is
taken back. So what a version needs stands in a policy of its own beside the role, under an id of
its content: CloudFormation makes the new one before the endpoint's update, and deletes the old one
after it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from onboarding import arns, names
from onboarding.deployment import Deployment
from roundhouse_cdk.statements import (
    Statement,
    alarm_looks,
    bucket_listing,
    host_metrics,
    image_pull,
    key_use,
    log_writes,
    network_interfaces,
    object_reads,
    object_writes,
    policy_document,
    registry_log_in,
    topic_publish,
    volume_key_grant,
)
from roundhouse_cdk.wildcards import with_reasons
from stacks.alarms.properties import watched_alarm_names
from stacks.images import serving_images

MOST_NAMED_ENGINES = 37
"""IAM takes 10,240 characters of a role's own policies; an archive's name takes 96 of them."""
MOST_NAMED_OF_A_VERSION = 20
"""During a rollout the policies of two versions stand beside the role."""
POLICY = "AWS::IAM::Policy"
DIGITS = 8


def endpoint_statements(deployment: Deployment) -> tuple[Statement, ...]:
    """The role's own statements, of whatever version."""
    environment, asynchronous = deployment.environment, deployment.endpoint.asynchronous
    read, written = tuple(_read(deployment)), tuple(_write_statements(deployment))
    return (
        *registry_log_in(),
        *(object_reads(environment, read) if read else ()),
        *bucket_listing(environment),
        *(object_writes(environment, written) if written else ()),
        *key_use(environment, ["kms:Decrypt", *(("kms:GenerateDataKey",) if written else ())]),
        *volume_key_grant(environment),
        *(
            topic_publish(environment, arns.answer_topic(environment))
            if asynchronous is not None and asynchronous.notify
            else ()
        ),
        *log_writes(
            environment,
            f"/aws/sagemaker/Endpoints/{names.endpoint_name(environment, deployment.name)}",
        ),
        *host_metrics(),
        *alarm_looks(environment, watched_alarm_names(deployment)),
        *network_interfaces(environment),
    )


def version_statements(deployment: Deployment) -> tuple[Statement, ...]:
    """What an instance of this version must have to start.

    Engines of a multi-model endpoint come and go without a rollout.
    """
    environment = deployment.environment
    images = image_pull(environment, *serving_images(deployment))
    if deployment.multi_model:
        return images
    return (
        *images,
        *object_reads(environment, _archives(deployment, MOST_NAMED_OF_A_VERSION), "ReadEngines"),
    )


def version_policy(deployment: Deployment) -> dict[str, dict[str, Any]]:
    """The `AWS::IAM::Policy` of this version, by a logical id of its statements."""
    return named_policy(version_statements(deployment))


def named_policy(statements: Sequence[Statement]) -> dict[str, dict[str, Any]]:
    """The `AWS::IAM::Policy` of these statements beside `Role`, by a logical id of its content."""
    document = policy_document(statements)
    digest = hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:DIGITS]
    properties = {
        "PolicyName": f"version-{digest}",
        "PolicyDocument": document,
        "Roles": [{"Ref": "Role"}],
    }
    return {f"VersionPolicy{digest}": with_reasons({"Type": POLICY, "Properties": properties})}


def _read(deployment: Deployment) -> Iterator[str]:
    """The archives of a multi-model endpoint's engines; and the requests of a queue."""
    if deployment.multi_model:
        yield from _archives(deployment, MOST_NAMED_ENGINES)
    if deployment.endpoint.asynchronous is not None:
        yield f"{names.requests_prefix(deployment.environment, deployment.name)}/*"


def _archives(deployment: Deployment, most: int) -> tuple[str, ...]:
    """The archive of every engine, once, or all archives where they are too many to name."""
    archives = tuple(
        dict.fromkeys(names.engine_archive_path(target.engine_key) for target in deployment.targets)
    )
    return archives if len(archives) <= most else (f"{names.ENGINES_PREFIX}/*",)


def _write_statements(deployment: Deployment) -> Iterator[str]:
    """Whatever SageMaker writes in the name of the role, under this endpoint's own prefixes."""
    if deployment.endpoint.data_capture is not None:
        yield f"{names.captures_prefix(deployment.environment, deployment.name)}/*"
    if deployment.endpoint.asynchronous is not None:
        yield f"{names.answers_prefix(deployment.environment, deployment.name)}/*"
