"""What an environment's bucket and key allow the workflows that promote its engines elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from onboarding import names
from onboarding.environment_spec import EnvironmentSpec
from stacks.access import arns
from stacks.access.policies import Condition, Statement, allow
from stacks.github.statements import PROMOTED, source_key_condition


def promotion_reads(
    environment: EnvironmentSpec, receivers: Sequence[EnvironmentSpec]
) -> tuple[Statement, ...]:
    """Return the bucket policy's statements for the promote roles of other accounts.

    A role that does not exist yet could not be a principal, so its account is, on the condition
    that it is that role.
    """
    objects = [arns.bucket_object(environment, path) for path in PROMOTED]
    return (
        {
            **allow("ReadPromoted", ["s3:GetObject"], objects),
            **_of_roles(receivers),
        },
        {
            **allow("ListPromoted", ["s3:ListBucket"], [arns.bucket(environment)]),
            **_of_roles(receivers, {"StringLike": {"s3:prefix": list(PROMOTED)}}),
        },
    )


def promotion_decryption(
    environment: EnvironmentSpec, receivers: Sequence[EnvironmentSpec]
) -> Statement:
    """Return the key policy's statement: objects of the bucket, through S3, for those roles."""
    return {
        **allow("DecryptPromoted", ["kms:Decrypt"], ["*"]),
        **_of_roles(receivers, source_key_condition(environment)),
    }


def _of_roles(
    receivers: Sequence[EnvironmentSpec], condition: Condition | None = None
) -> Statement:
    """Return principal and condition of a statement for the receivers' promote roles."""
    roles = [names.pipeline_role_arn(receiver, "promote") for receiver in receivers]
    roots = [f"{role.partition(':role/')[0]}:root" for role in roles]
    return {
        "Principal": {"AWS": roots},
        "Condition": {"ArnEquals": {"aws:PrincipalArn": roles}, **(condition or {})},
    }
