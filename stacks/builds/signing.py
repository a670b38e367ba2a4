"""The function that signs engines, its key's policy, its role, and the states that call it."""

from __future__ import annotations

from typing import Any

from onboarding import names
from onboarding.environment_spec import EnvironmentSpec
from onboarding.platform import aws_partition
from stacks.access import arns
from stacks.access.policies import (
    Statement,
    allow,
    bucket_listing,
    exact_role,
    key_use,
    log_stream_writes,
    object_reads,
    write_once,
)
from stacks.builds.job import CANDIDATE, refusal
from stacks.builds.language import BRIEFLY, State, choice, jsonata, literal, with_fields
from stacks.template import Properties, Resources, log_group

RUNTIME = "python3.14"
TIMEOUT_SECONDS = 900
"""The longest that Lambda knows; packing 5 GB, the most that one PUT takes, was 300 s here."""
DISK_MIB = 10_240
"""An archive before and after it is signed, each of 5 GB at most."""
MEMORY_MIB = 1_769
"""What comes with one whole CPU; compression knows no second (Lambda developer guide, "Memory")."""
SIGNING_ALGORITHM = "ECDSA_SHA_256"


def signing_states(environment: EnvironmentSpec) -> dict[str, State]:
    """From Sign on: the signer publishes what a build left, or says why it does not."""
    log = f'"of function {names.signer(environment)}, log group {log_group_name(environment)}"'
    payload = "$states.result.Payload"
    output = {"signed": f"{payload}.status", "reason": f"{payload}.reason", "log": log}
    return {
        "Sign": {
            "Type": "Task",
            "QueryLanguage": "JSONata",
            "Resource": f"arn:{aws_partition(environment.region)}:states:::lambda:invoke",
            "Arguments": {
                "FunctionName": function_arn(environment),
                "Payload": {
                    "engineKey": jsonata("$states.input.engine.engineKey"),
                    "model": jsonata("$states.input.engine.model"),
                    "candidate": jsonata(CANDIDATE),
                    "source": jsonata("$states.input.source"),
                    "commit": jsonata("$states.input.commit"),
                    "execution": jsonata("$states.input.execution"),
                },
            },
            "Output": with_fields(output),
            "Retry": BRIEFLY,
            "Catch": [refusal(environment, lasts=True, log=log)],
            "Next": "Signed",
        },
        "Signed": choice(
            {f"$states.input.signed = {literal('signed')}": "Built"}, default="TellFailure"
        ),
    }


def signer_resources(environment: EnvironmentSpec, program: str) -> Resources:
    """Return the function, its log and its role; `program` is its whole code.

    It stands in no VPC: it reaches S3 and KMS alone, and runs nothing of what a build brings.
    """
    role = exact_role(
        environment, service="lambda.amazonaws.com", statements=signer_statements(environment)
    )
    function: Properties = {
        "FunctionName": names.signer(environment),
        "Description": f"Signs and publishes engines of {environment.name}",
        "Runtime": RUNTIME,
        "Handler": "index.handler",
        "Code": {"ZipFile": program},
        "Role": {"Fn::GetAtt": ["SignerRole", "Arn"]},
        "Timeout": TIMEOUT_SECONDS,
        "MemorySize": MEMORY_MIB,
        "EphemeralStorage": {"Size": DISK_MIB},
        "LoggingConfig": {"LogGroup": log_group_name(environment)},
        "Environment": {
            "Variables": {
                "BUCKET": names.artifact_bucket(environment),
                "SIGNING_KEY": arns.signing_key_alias(environment),
                "BUILDER": arns.arn(
                    environment, "states", f"stateMachine:{names.build_machine(environment)}"
                ),
            }
        },
    }
    return {
        "SignerLogs": {
            "Type": "AWS::Logs::LogGroup",
            "Properties": log_group(log_group_name(environment)),
        },
        "SignerRole": {
            "Type": "AWS::IAM::Role",
            # The key's policy knows the role by its name, before there is one.
            "Properties": {"RoleName": names.signer(environment), **role},
        },
        "Signer": {"Type": "AWS::Lambda::Function", "Properties": function},
    }


def signer_statements(environment: EnvironmentSpec) -> tuple[Statement, ...]:
    """The signer's: candidates, engines that are not there yet, one key, and its own log."""
    prefixes = [f"{names.CANDIDATES_PREFIX}/*", f"{names.ENGINES_PREFIX}/*"]
    alias = {"kms:ResourceAliases": arns.signing_key_alias(environment)}
    return (
        *object_reads(environment, prefixes),
        *bucket_listing(environment),
        *write_once(environment, [f"{names.ENGINES_PREFIX}/*"]),
        *key_use(environment, ["kms:Decrypt", "kms:GenerateDataKey"]),
        allow(
            "Sign",
            ["kms:Sign"],
            [arns.arn(environment, "kms", "key/*")],
            {
                "StringEquals": {"kms:SigningAlgorithm": SIGNING_ALGORITHM},
                "ForAnyValue:StringEquals": alias,
            },
        ),
        allow(
            "ReadPublicKey",
            ["kms:GetPublicKey"],
            [arns.arn(environment, "kms", "key/*")],
            {"ForAnyValue:StringEquals": alias},
        ),
        *log_stream_writes(environment, log_group_name(environment)),
    )


def function_arn(environment: EnvironmentSpec) -> str:
    """The signer, whom the state machine invokes."""
    return arns.arn(environment, "lambda", f"function:{names.signer(environment)}")


def log_group_name(environment: EnvironmentSpec) -> str:
    """The signer's log group."""
    return f"/aws/lambda/{names.signer(environment)}"


def signing_key_statements(environment: EnvironmentSpec) -> list[dict[str, Any]]:
    """The key policy: the account administers the key, and the signer's role alone signs.

    IAM delegates what the account may do, so signing is the account's only as that role.
    """
    account = {"AWS": f"arn:{aws_partition(environment.region)}:iam::{environment.account}:root"}
    key = {"Effect": "Allow", "Principal": account, "Resource": "*"}
    return [
        {"Sid": "Administer", "Action": list(ADMINISTRATION), **key},
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
    "kms:CancelKeyDeletion",
    "kms:CreateAlias",
    "kms:DeleteAlias",
    "kms:DescribeKey",
    "kms:DisableKey",
    "kms:EnableKey",
    "kms:GetKeyPolicy",
    "kms:GetKeyRotationStatus",
    "kms:GetPublicKey",
    "kms:ListAliases",
    "kms:ListGrants",
    "kms:ListKeyPolicies",
    "kms:ListResourceTags",
    "kms:PutKeyPolicy",
    "kms:ScheduleKeyDeletion",
    "kms:TagResource",
    "kms:UntagResource",
    "kms:UpdateAlias",
    "kms:UpdateKeyDescription",
    "kms:Verify",
)
"""What IAM may allow of the key beside signing: no grant, which would carry signing to others."""
