"""What the roles of builds may read outside the environment: the buckets that it names."""

from __future__ import annotations

from onboarding.environment_spec import EnvironmentSpec
from onboarding.platform import aws_partition
from onboarding.source_access import SourceBucketSpec
from stacks.access.policies import Condition, Statement, allow


def source_reads(environment: EnvironmentSpec) -> tuple[Statement, ...]:
    """Read every source bucket that the environment names."""
    return tuple(
        statement
        for number, bucket in enumerate(environment.source_buckets, 1)
        for statement in _bucket_reads(environment, bucket, "" if number == 1 else str(number))
    )


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
