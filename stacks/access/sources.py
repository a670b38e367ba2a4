"""What the roles of builds may read outside the environment: buckets and secrets that it names."""

from __future__ import annotations

from onboarding.environment_spec import EnvironmentSpec
from onboarding.platform import aws_partition
from onboarding.source_access import SourceBucketSpec
from stacks.access.policies import Condition, Statement, allow


def source_reads(environment: EnvironmentSpec) -> tuple[Statement, ...]:
    """Read every source bucket and every secret that the environment names."""
    buckets = tuple(
        statement
        for number, bucket in enumerate(environment.source_buckets, 1)
        for statement in _bucket_reads(environment, bucket, "" if number == 1 else str(number))
    )
    return (*buckets, *_secret_reads(environment))


def source_bucket_arns(environment: EnvironmentSpec, bucket: SourceBucketSpec) -> tuple[str, str]:
    """Return the bucket's ARN, and that of the objects that builds read."""
    arn = f"arn:{aws_partition(environment.region)}:s3:::{bucket.bucket}"
    return arn, f"{arn}/{bucket.prefix}*"


def _bucket_reads(
    environment: EnvironmentSpec, bucket: SourceBucketSpec, number: str
) -> tuple[Statement, ...]:
    """Read the objects of one prefix, list it, and decrypt by the bucket's key through S3."""
    arn, objects = source_bucket_arns(environment, bucket)
    owner = {} if bucket.account is None else {"aws:ResourceAccount": bucket.account}
    of_owner: Condition | None = {"StringEquals": owner} if owner else None
    listing: Condition = {
        "StringLike": {"s3:prefix": f"{bucket.prefix}*"},
        **({"StringEquals": owner} if owner else {}),
    }
    through = {"kms:ViaService": f"s3.{environment.region}.amazonaws.com"}
    key = () if bucket.kms_key_arn is None else (bucket.kms_key_arn,)
    return (
        allow(f"ReadSources{number}", ["s3:GetObject"], [objects], of_owner),
        allow(f"ListSources{number}", ["s3:ListBucket"], [arn], listing),
        *(
            allow(f"DecryptSources{number}", ["kms:Decrypt"], [arn], {"StringEquals": through})
            for arn in key
        ),
    )


def _secret_reads(environment: EnvironmentSpec) -> tuple[Statement, ...]:
    """Read the secrets of private sources, and decrypt by their keys through Secrets Manager."""
    secrets = environment.source_secrets.secrets.values()
    arns = sorted({secret.secret_arn for secret in secrets})
    keys = sorted({secret.kms_key_arn for secret in secrets if secret.kms_key_arn is not None})
    through: Condition = {
        "StringEquals": {"kms:ViaService": f"secretsmanager.{environment.region}.amazonaws.com"}
    }
    return (
        *([allow("ReadSecrets", ["secretsmanager:GetSecretValue"], arns)] if arns else []),
        *([allow("DecryptSecrets", ["kms:Decrypt"], keys, through)] if keys else []),
    )
