"""IAM policy statements, each no wider than its sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
    actions: str,
    resources: Sequence[str | dict[str, Any]],
    condition: Condition | None = None,
) -> Statement:
    """A statement that allows actions, in the words of `action_names`, on resources."""
    statement: Statement = {"Sid": sid, "Effect": "Allow", "Action": action_names(actions)}
    statement["Resource"] = list(resources)
    return statement if condition is None else {**statement, "Condition": condition}


REGISTRY_LOG_IN = allow("LogInToRegistry", "ecr:GetAuthorizationToken", ["*"])
"""The registry knows no resource."""
HOST_METRICS = allow(
    "PublishHostMetrics",
    "cloudwatch:PutMetricData",
    ["*"],
    {"StringLike": {"cloudwatch:namespace": "/aws/sagemaker/*"}},
)
"""The action knows no resource, so the namespace narrows it."""


def pass_role(role: str | dict[str, Any]) -> Statement:
    """Pass one role, by its ARN or the `Fn::GetAtt` of it, to SageMaker."""
    condition = {"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}}
    return allow("PassRole", "iam:PassRole", [role], condition)


def source_bucket_arns(environment: EnvironmentSpec, bucket: SourceBucketSpec) -> tuple[str, str]:
    """Return the bucket's ARN, and that of the objects that builds read."""
    arn = f"arn:{aws_partition(environment.region)}:s3:::{bucket.bucket}"
    return arn, f"{arn}/{bucket.prefix}*"


class Permissions:
    """Statements that let a role use what belongs to one environment."""

    def __init__(self, environment: EnvironmentSpec) -> None:
        self._environment = environment

    def read(self, paths: Sequence[str], sid: str = "ReadObjects") -> Statement:
        """Read these objects of the bucket."""
        objects = arns.bucket_objects(self._environment, paths)
        return allow(sid, "s3:GetObject GetObjectVersion", objects)

    def list_bucket(self) -> Statement:
        """List the bucket, which makes a missing object a 404 instead of a 403."""
        bucket = arns.bucket(self._environment)
        return allow("ListBucket", "s3:GetBucketLocation ListBucket", [bucket])

    def write(self, paths: Sequence[str]) -> Statement:
        """Write these objects."""
        objects = arns.bucket_objects(self._environment, paths)
        return allow("WriteObjects", "s3:AbortMultipartUpload PutObject", objects)

    def write_once(self, paths: Sequence[str]) -> Statement:
        """Write these objects where none is: S3 then refuses to replace one (`If-None-Match`)."""
        objects = arns.bucket_objects(self._environment, paths)
        condition = {"Null": {"s3:if-none-match": "false"}}
        return allow("WriteOnce", "s3:PutObject", objects, condition)

    def use_key(self, *, writes: bool, service: str = "s3") -> Statement:
        """Use the environment's key through one service only."""
        sid = "UseKey" if service == "s3" else f"UseKeyThrough{service.capitalize()}"
        actions = "kms:Decrypt GenerateDataKey" if writes else "kms:Decrypt"
        return self._allow_key(sid, actions, {"StringEquals": self._through(service)})

    def grant_volume_key(self) -> Statements:
        """Let SageMaker give the host's volume the environment's key.

        Who assumes a role calls KMS without a service in between, so the condition is that the
        grant is for an AWS resource (KMS developer guide, `kms:GrantIsForAWSResource`).
        """
        grant = {"Bool": {"kms:GrantIsForAWSResource": "true"}}
        return (
            self._allow_key("GrantKey", "kms:CreateGrant", grant),
            self._allow_key("ReadKey", "kms:DescribeKey", {}),
        )

    def encrypt_output(self) -> Statement:
        """Encrypt a job's output with the environment's key.

        SageMaker needs it of the job's role itself, not through S3 (API reference,
        `OutputDataConfig`).
        """
        return self._allow_key("EncryptOutput", "kms:Encrypt", {})

    def publish(self, topic_arn: str) -> Statements:
        """Publish to a topic that is encrypted: SNS needs a data key in the publisher's name."""
        topic = allow("PublishToTopic", "sns:Publish", [topic_arn])
        return (topic, self.use_key(writes=True, service="sns"))

    def write_logs(self, *groups: str) -> Statement:
        """Write log groups that the stack itself makes, so that nobody else need be able to."""
        arn = arns.log_group
        streams = [f"{arn(self._environment, group)}:log-stream:*" for group in groups]
        return allow("WriteLogs", "logs:CreateLogStream PutLogEvents", streams)

    def attach_network(self, authorized_service: str | None = None) -> Statements:
        """Attach to the environment's VPC, if it names one; EC2's describe calls know no resource.

        Interfaces of that VPC alone are handed over; where the service documents its principal, as
        CodeBuild does and SageMaker does not, those of the named subnets to `authorized_service`.
        """
        network = self._environment.network
        if network is None:
            return ()
        interfaces = self._ec2("network-interface/*")
        subnets = [self._ec2(f"subnet/{name}") for name in network.subnet_ids]
        groups = [self._ec2(f"security-group/{name}") for name in network.security_group_ids]
        attach = "ec2:CreateNetworkInterface DeleteNetworkInterface"
        condition: dict[str, str | list[str]] = {"ec2:Subnet": subnets}
        if authorized_service is None:
            attach += " DeleteNetworkInterfacePermission"
            condition = {"ec2:Vpc": self._ec2(f"vpc/{network.vpc_id}")}
        else:
            condition["ec2:AuthorizedService"] = authorized_service
        hand = "ec2:CreateNetworkInterfacePermission"
        return (
            allow("DescribeNetwork", DESCRIBE_NETWORK, ["*"]),
            allow("AttachToNetwork", attach, [interfaces, *subnets, *groups]),
            allow("HandInterfaces", hand, [interfaces], {"StringEquals": condition}),
        )

    def read_sources(self) -> Iterator[Statement]:
        """Yield reads of every source bucket and every secret that the environment names.

        Of a bucket one prefix; each is decrypted by its own key through its service.
        """
        environment = self._environment
        for count, bucket in enumerate(environment.source_buckets, 1):
            number = "" if count == 1 else str(count)
            arn, objects = source_bucket_arns(environment, bucket)
            owner: Condition = {}
            if bucket.account is not None:
                owner = {"StringEquals": {"aws:ResourceAccount": bucket.account}}
            listed = {"StringLike": {"s3:prefix": f"{bucket.prefix}*"}, **owner}
            yield allow(f"ReadSources{number}", "s3:GetObject", [objects], owner or None)
            yield allow(f"ListSources{number}", "s3:ListBucket", [arn], listed)
            if bucket.kms_key_arn is not None:
                yield self._decrypt(f"DecryptSources{number}", [bucket.kms_key_arn], "s3")
        secrets = environment.source_secrets.secrets.values()
        keys = {secret.kms_key_arn for secret in secrets if secret.kms_key_arn is not None}
        if secrets:
            named = sorted({secret.secret_arn for secret in secrets})
            yield allow("ReadSecrets", "secretsmanager:GetSecretValue", named)
        if keys:
            yield self._decrypt("DecryptSecrets", sorted(keys), "secretsmanager")

    def _decrypt(self, sid: str, keys: Sequence[str], service: str) -> Statement:
        return allow(sid, "kms:Decrypt", keys, {"StringEquals": self._through(service)})

    def _allow_key(self, sid: str, actions: str, condition: Condition) -> Statement:
        """Allow actions on the environment's own key, or the one behind the foundation's alias."""
        environment = self._environment
        if environment.kms_key_arn is not None:
            return allow(sid, actions, [environment.kms_key_arn], condition or None)
        # The key's id is known only after its creation; the alias pins it without an export that
        # would tie the stacks together.
        alias = {"ForAnyValue:StringEquals": {"kms:ResourceAliases": arns.key_alias(environment)}}
        return allow(sid, actions, [arns.arn(environment, "kms", "key/*")], {**condition, **alias})

    def _through(self, service: str) -> dict[str, str]:
        return {"kms:ViaService": f"{service}.{self._environment.region}.amazonaws.com"}

    def _ec2(self, resource: str) -> str:
        return arns.arn(self._environment, "ec2", resource)
