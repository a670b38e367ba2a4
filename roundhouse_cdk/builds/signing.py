"""The function that signs engines, its key's policy, and what its role may do."""

from __future__ import annotations

from typing import Any

from onboarding import arns, names
from onboarding.environment_spec import EnvironmentSpec
from onboarding.platform import aws_partition
from onboarding.text_generation.checkpoint_key import CHECKPOINTS
from roundhouse_cdk.statements import (
    Statement,
    action_names,
    allow,
    bucket_listing,
    key_use,
    log_stream_writes,
    object_reads,
    write_once,
)

RUNTIME = "python3.14"
TIMEOUT_SECONDS = 900
"""The longest that Lambda knows; packing 5 GB, the most that one PUT takes, was 300 s here."""
DISK_MIB = 10_240
"""An archive before and after it is signed, each of 5 GB at most."""
MEMORY_MIB = 1_769
"""What comes with one whole CPU; compression knows no second (Lambda developer guide, "Memory")."""
SIGNING_ALGORITHM = "ECDSA_SHA_256"


def signer_statements(
    environment: EnvironmentSpec, *, has_checkpoints: bool = False
) -> tuple[Statement, ...]:
    """The signers': candidates, what is not published yet, one key, and their own logs."""
    published = [f"{names.ENGINES_PREFIX}/*"]
    functions = [names.signer(environment)]
    if has_checkpoints:
        published.append(f"{CHECKPOINTS}/*")
        functions.append(names.checkpoint_signer(environment))
    prefixes = [f"{names.CANDIDATES_PREFIX}/*", *published]
    keys = [arns.arn(environment, "kms", "key/*")]
    algorithm = {"kms:SigningAlgorithm": SIGNING_ALGORITHM}
    alias = {
        "ForAnyValue:StringEquals": {"kms:ResourceAliases": arns.signing_key_alias(environment)}
    }
    return (
        *object_reads(environment, prefixes),
        *bucket_listing(environment),
        *write_once(environment, published),
        *key_use(environment, ["kms:Decrypt", "kms:GenerateDataKey"]),
        allow("Sign", "kms:Sign", keys, {"StringEquals": algorithm, **alias}),
        allow("ReadPublicKey", "kms:GetPublicKey", keys, alias),
        *log_stream_writes(environment, *(f"/aws/lambda/{function}" for function in functions)),
    )


def function_arn(environment: EnvironmentSpec, function: str) -> str:
    """A signer, whom the state machine invokes."""
    return arns.arn(environment, "lambda", f"function:{function}")


def signing_key_statements(environment: EnvironmentSpec) -> list[dict[str, Any]]:
    """The key policy: the account administers the key, and the signer's role alone signs.

    IAM delegates what the account may do, so signing is the account's only as that role.
    """
    account = {"AWS": f"arn:{aws_partition(environment.region)}:iam::{environment.account}:root"}
    key = {"Effect": "Allow", "Principal": account, "Resource": "*"}
    return [
        {"Sid": "Administer", "Action": action_names(ADMINISTRATION), **key},
        {
            "Sid": "SignEngines",
            "Action": "kms:Sign",
            "Condition": {
                "ArnEquals": {"aws:PrincipalArn": arns.signer_role(environment)},
                "StringEquals": {"kms:SigningAlgorithm": SIGNING_ALGORITHM},
            },
            **key,
        },
    ]


ADMINISTRATION = (
    "kms:CancelKeyDeletion CreateAlias DeleteAlias DescribeKey DisableKey EnableKey GetKeyPolicy"
    " GetKeyRotationStatus GetPublicKey ListAliases ListGrants ListKeyPolicies ListResourceTags"
    " PutKeyPolicy ScheduleKeyDeletion TagResource UntagResource UpdateAlias UpdateKeyDescription"
    " Verify"
)
"""What IAM may allow of the key beside signing: no grant, which would carry signing to others."""
