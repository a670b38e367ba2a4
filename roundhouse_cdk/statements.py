"""IAM policy statements, each no wider than its sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onboarding import arns
from onboarding.environment_spec import EnvironmentSpec
from onboarding.platform import aws_partition
from onboarding.source_spec import SourceBucketSpec

Statement = dict[str, Any]
Statements = tuple[Statement, ...]
Condition = Mapping[str, Mapping[str, str | list[str]]]

TRAINING_LOG_GROUP = "/aws/sagemaker/TrainingJobs"
"""SageMaker's own; a stream begins with its job's name."""
LOG_ACTIONS = "logs:CreateLogGroup CreateLogStream DescribeLogStreams PutLogEvents"
ATTACH_NETWORK = (
    "ec2:CreateNetworkInterface DeleteNetworkInterface DeleteNetworkInterfacePermission"
)
HAND_INTERFACE = "ec2:CreateNetworkInterfacePermission"
DESCRIBE_NETWORK = (
    "ec2:DescribeDhcpOptions DescribeNetworkInterfaces DescribeSecurityGroups DescribeSubnets"
    " DescribeVpcs"
)
PULL = "ecr:BatchCheckLayerAvailability BatchGetImage GetDownloadUrlForLayer"


def action_names(words: str) -> list[str]:
    """Return the actions that words name, as IAM spells them.

    One without a service is of the service before it: `s3:GetObject PutObject`.
    """
    found, service = [], ""
    for word in words.split():
        service = word.partition(":")[0] if ":" in word else service
        found.append(word if ":" in word else f"{service}:{word}")
    return found


def allow(
    sid: str,
    actions: str | Sequence[str],
    resources: Sequence[str | dict[str, Any]],
    condition: Condition | None = None,
) -> Statement:
    """A statement that allows actions, given as a list or in words, on resources."""
    statement: Statement = {
        "Sid": sid,
        "Effect": "Allow",
        "Action": action_names(actions) if isinstance(actions, str) else list(actions),
        "Resource": list(resources),
    }
    return statement if condition is None else {**statement, "Condition": condition}


REGISTRY_LOG_IN = allow("LogInToRegistry", ["ecr:GetAuthorizationToken"], ["*"])
"""The registry knows no resource."""
HOST_METRICS = allow(
    "PublishHostMetrics",
    ["cloudwatch:PutMetricData"],
    ["*"],
    {"StringLike": {"cloudwatch:namespace": "/aws/sagemaker/*"}},
)
"""The action knows no resource, so the namespace narrows it."""


def object_reads(
    environment: EnvironmentSpec, paths: Sequence[str], sid: str = "ReadObjects"
) -> Statements:
    """Read these objects."""
    objects = arns.bucket_objects(environment, paths)
    return (allow(sid, ["s3:GetObject", "s3:GetObjectVersion"], objects),)


def bucket_listing(environment: EnvironmentSpec) -> Statements:
    """List the bucket, which makes a missing object a 404 instead of a 403."""
    return (allow("ListBucket", "s3:GetBucketLocation ListBucket", [arns.bucket(environment)]),)


def object_writes(environment: EnvironmentSpec, paths: Sequence[str]) -> Statements:
    """Write these objects."""
    objects = arns.bucket_objects(environment, paths)
    return (allow("WriteObjects", ["s3:AbortMultipartUpload", "s3:PutObject"], objects),)


def write_once(environment: EnvironmentSpec, paths: Sequence[str]) -> Statements:
    """Write these objects where none is: S3 then refuses to replace one (`If-None-Match`)."""
    objects = arns.bucket_objects(environment, paths)
    condition = {"Null": {"s3:if-none-match": "false"}}
    return (allow("WriteOnce", ["s3:PutObject"], objects, condition),)


def key_use(
    environment: EnvironmentSpec, actions: Sequence[str], service: str = "s3"
) -> Statements:
    """Use the environment's key through one service only."""
    sid = "UseKey" if service == "s3" else f"UseKeyThrough{service.capitalize()}"
    through = {"kms:ViaService": f"{service}.{environment.region}.amazonaws.com"}
    return (_allow_key(environment, sid, actions, {"StringEquals": through}),)


def volume_key_grant(environment: EnvironmentSpec) -> Statements:
    """Let SageMaker give the host's volume the environment's key.

    Who assumes a role calls KMS without a service in between, so the condition is that the grant is
    for an AWS resource (KMS developer guide, `kms:GrantIsForAWSResource`).
    """
    grant = {"Bool": {"kms:GrantIsForAWSResource": "true"}}
    return (
        _allow_key(environment, "GrantKey", ["kms:CreateGrant"], grant),
        _allow_key(environment, "ReadKey", ["kms:DescribeKey"], {}),
    )


def output_key_encryption(environment: EnvironmentSpec) -> Statements:
    """Statement to encrypt a job's output with the environment's key.

    SageMaker needs it of the job's role itself, not through S3 (API reference, `OutputDataConfig`).
    """
    return (_allow_key(environment, "EncryptOutput", ["kms:Encrypt"], {}),)


def _allow_key(
    environment: EnvironmentSpec, sid: str, actions: Sequence[str], condition: Condition
) -> Statement:
    """Allow actions on the environment's own key, or on the one behind the foundation's alias."""
    if environment.kms_key_arn is not None:
        return allow(sid, actions, [environment.kms_key_arn], condition or None)
    # The key's id is known only after its creation; the alias pins it without an export that would
    # tie the stacks together.
    alias = {"ForAnyValue:StringEquals": {"kms:ResourceAliases": arns.key_alias(environment)}}
    return allow(sid, actions, [arns.arn(environment, "kms", "key/*")], {**condition, **alias})


def topic_publish(environment: EnvironmentSpec, topic_arn: str) -> Statements:
    """Publish to a topic that is encrypted: SNS needs a data key in the publisher's name."""
    return (
        allow("PublishToTopic", ["sns:Publish"], [topic_arn]),
        *key_use(environment, ["kms:Decrypt", "kms:GenerateDataKey"], service="sns"),
    )


def pass_role(role: str | dict[str, Any], service: str) -> Statements:
    """Statement to pass one role to one service such as sagemaker.amazonaws.com.

    `role` is an ARN or the `Fn::GetAtt` of one.
    """
    condition = {"StringEquals": {"iam:PassedToService": service}}
    return (allow("PassRole", ["iam:PassRole"], [role], condition),)


def log_stream_writes(environment: EnvironmentSpec, *groups: str) -> Statements:
    """Write log groups that the stack itself makes, so that nobody else need be able to."""
    streams = [f"{arns.log_group(environment, group)}:log-stream:*" for group in groups]
    return (allow("WriteLogs", ["logs:CreateLogStream", "logs:PutLogEvents"], streams),)


def network_interfaces(
    environment: EnvironmentSpec, authorized_service: str | None = None
) -> Statements:
    """Attach to the environment's VPC, if it names one; EC2's describe actions know no resource.

    Interfaces of that VPC alone are handed over; where the service documents its principal, as
    CodeBuild does and SageMaker does not, those of the named subnets to `authorized_service`.
    """
    network = environment.network
    if network is None:
        return ()
    interfaces = arns.arn(environment, "ec2", "network-interface/*")
    subnets = [arns.arn(environment, "ec2", f"subnet/{name}") for name in network.subnet_ids]
    groups = [
        arns.arn(environment, "ec2", f"security-group/{name}")
        for name in network.security_group_ids
    ]
    attach = ["ec2:CreateNetworkInterface", "ec2:DeleteNetworkInterface"]
    condition: dict[str, str | list[str]] = {"ec2:Subnet": subnets}
    if authorized_service is None:
        attach.append("ec2:DeleteNetworkInterfacePermission")
        condition = {"ec2:Vpc": arns.arn(environment, "ec2", f"vpc/{network.vpc_id}")}
    else:
        condition["ec2:AuthorizedService"] = authorized_service
    return (
        allow("DescribeNetwork", DESCRIBE_NETWORK, ["*"]),
        allow("AttachToNetwork", attach, [interfaces, *subnets, *groups]),
        allow("HandInterfaces", HAND_INTERFACE, [interfaces], {"StringEquals": condition}),
    )


def source_reads(environment: EnvironmentSpec) -> Statements:
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
) -> Statements:
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


def _secret_reads(environment: EnvironmentSpec) -> Statements:
    """Read the secrets of private sources, and decrypt by their keys through Secrets Manager."""
    secrets = environment.source_secrets.secrets.values()
    named = sorted({secret.secret_arn for secret in secrets})
    keys = sorted({secret.kms_key_arn for secret in secrets if secret.kms_key_arn is not None})
    through: Condition = {
        "StringEquals": {"kms:ViaService": f"secretsmanager.{environment.region}.amazonaws.com"}
    }
    return (
        *([allow("ReadSecrets", ["secretsmanager:GetSecretValue"], named)] if named else []),
        *([allow("DecryptSecrets", ["kms:Decrypt"], keys, through)] if keys else []),
    )
