"""The wildcards that may stand in policies of keys, buckets and VPC endpoints, with reasons.

Those of roles stand in stacks/suppressions.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from stacks.builds.signing import ADMINISTRATION
from stacks.suppressions import OBJECTS, Wildcard


@dataclass(frozen=True, kw_only=True)
class Reasoned(Wildcard):
    """A wildcard in a policy of a resource of these types."""

    only_in: frozenset[str]


REASONED = (
    Reasoned(
        why="a key's own policy is about that key alone; one role, and the bucket's objects",
        resource=r"\*",
        actions=frozenset({"kms:Decrypt"}),
        conditions=frozenset({"aws:PrincipalArn", "kms:EncryptionContext:aws:s3:arn"}),
        only_in=frozenset({"AWS::KMS::Key"}),
    ),
    Reasoned(
        why="what is promoted, for one role that promotes it to another account",
        resource=r"arn:aws:s3:::roundhouse-[a-z0-9-]+/(checkpoints|engines|networks)/\*",
        actions=frozenset({"s3:GetObject"}),
        conditions=frozenset({"aws:PrincipalArn"}),
        only_in=frozenset({"AWS::S3::BucketPolicy"}),
    ),
    Reasoned(
        why=(
            "a key's own policy is about that key alone, and without its account nobody could ever"
            " manage it"
        ),
        resource=r"\*",
        actions=frozenset({"kms:*"}),
        only_in=frozenset({"AWS::KMS::Key"}),
    ),
    Reasoned(
        why="the signing key's own policy: what the account may do with it, signing left out",
        resource=r"\*",
        actions=frozenset(ADMINISTRATION),
        only_in=frozenset({"AWS::KMS::Key"}),
    ),
    Reasoned(
        why="the signing key's own policy: one role signs, by one algorithm",
        resource=r"\*",
        actions=frozenset({"kms:Sign"}),
        conditions=frozenset({"aws:PrincipalArn", "kms:SigningAlgorithm"}),
        only_in=frozenset({"AWS::KMS::Key"}),
    ),
    Reasoned(
        why=(
            "a key's own policy is about that key alone; AWS's documented statement for alarms to"
            " an encrypted topic"
        ),
        resource=r"\*",
        actions=frozenset({"kms:Decrypt", "kms:GenerateDataKey*"}),
        conditions=frozenset({"aws:SourceAccount", "aws:SourceArn"}),
        only_in=frozenset({"AWS::KMS::Key"}),
    ),
    Reasoned(
        why=(
            "an endpoint's policy only narrows what the roles that use it may do, to this account's"
            " principals"
        ),
        resource=r"\*",
        actions=frozenset({"*"}),
        conditions=frozenset({"aws:PrincipalAccount"}),
        only_in=frozenset({"AWS::EC2::VPCEndpoint"}),
    ),
    Reasoned(
        why=(
            "the way into the VPC opens the artifact bucket's objects, which the roles' own"
            " statements narrow"
        ),
        resource=r"arn:aws:s3:::roundhouse-[a-z0-9-]+/\*",
        actions=frozenset({*OBJECTS, "s3:GetBucketLocation", "s3:ListBucket"}),
        conditions=frozenset({"aws:PrincipalAccount"}),
        only_in=frozenset({"AWS::EC2::VPCEndpoint"}),
    ),
    Reasoned(
        why="the same way opens what the environment names of buckets of others, read only",
        resource=r"arn:aws:s3:::company-models/nlp/\*",
        actions=frozenset({"s3:GetObject", "s3:ListBucket"}),
        conditions=frozenset({"aws:PrincipalAccount"}),
        only_in=frozenset({"AWS::EC2::VPCEndpoint"}),
    ),
    Reasoned(
        why="layers of images lie in ECR's own bucket, under names that ECR alone knows",
        resource=r"arn:aws:s3:::prod-[a-z0-9-]+-starport-layer-bucket/\*",
        actions=frozenset({"s3:GetObject"}),
        only_in=frozenset({"AWS::EC2::VPCEndpoint"}),
    ),
    Reasoned(
        why=(
            "a build in the VPC fetches CodeBuild's agent from CodeBuild's own bucket, under names"
            " that CodeBuild alone knows"
        ),
        resource=r"arn:aws:s3:::codefactory-[a-z0-9-]+-prod-default-build-agent-executor/\*",
        actions=frozenset({"s3:GetObject"}),
        only_in=frozenset({"AWS::EC2::VPCEndpoint"}),
    ),
)
