"""What the role of a text generator's endpoint may do.

Pull the image, read one checkpoint, write logs and metrics. What a version needs to start stands in
a policy of its own beside the role: stacks/endpoint/statements.py says why.
"""

from __future__ import annotations

from typing import Any

from onboarding import names
from onboarding.text_generation.checkpoint_key import checkpoint_prefix
from onboarding.text_generation.generation_deployment import GenerationDeployment
from stacks.access import arns
from stacks.access.policies import (
    Statement,
    alarm_looks,
    allow,
    host_metrics,
    image_pull,
    key_use,
    log_writes,
    network_interfaces,
    object_reads,
    registry_log_in,
    volume_key_grant,
)
from stacks.endpoint.statements import named_policy
from stacks.generation.alarms import rollback_alarm_names
from stacks.generation.properties import component_name
from stacks.images import GENERATION_IMAGE


def generation_statements(deployment: GenerationDeployment) -> tuple[Statement, ...]:
    """Return the role's own statements, of whatever checkpoint."""
    environment = deployment.environment
    return (
        *registry_log_in(),
        allow("LocateBucket", ["s3:GetBucketLocation"], [arns.bucket(environment)]),
        *key_use(environment, ["kms:Decrypt"]),
        *volume_key_grant(environment),
        *log_writes(environment, *_log_groups(deployment)),
        *host_metrics(),
        *alarm_looks(environment, rollback_alarm_names(deployment)),
        *network_interfaces(environment),
    )


def version_statements(deployment: GenerationDeployment) -> tuple[Statement, ...]:
    """Return what a copy of this version must have to start: its image and its checkpoint."""
    assert deployment.entry is not None
    environment = deployment.environment
    files = f"{checkpoint_prefix(deployment.entry.checkpoint_key)}*"
    listed = {"StringLike": {"s3:prefix": [files]}}
    adapters = list(map(names.adapter_path, deployment.adapters.values()))
    return (
        *image_pull(environment, GENERATION_IMAGE),
        *object_reads(environment, [files, *adapters], "ReadCheckpoint"),
        allow("ListCheckpoint", ["s3:ListBucket"], [arns.bucket(environment)], listed),
    )


def version_policy(deployment: GenerationDeployment) -> dict[str, dict[str, Any]]:
    """Return the `AWS::IAM::Policy` of this version, by a logical id of its statements."""
    return named_policy(version_statements(deployment))


def _log_groups(deployment: GenerationDeployment) -> tuple[str, ...]:
    """Return SageMaker's log groups of the endpoint, and of its components where it has some."""
    endpoint = names.endpoint_name(deployment.environment, deployment.name)
    groups = [f"/aws/sagemaker/Endpoints/{endpoint}"]
    if deployment.spec.endpoint.kind == "inference-component":
        groups.append(f"/aws/sagemaker/InferenceComponents/{component_name(deployment)}")
    return tuple(groups)
