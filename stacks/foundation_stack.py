"""What survives every deployment: the artifact bucket and its key, the image repositories, the alarm topic."""

from __future__ import annotations

from aws_cdk import Duration, Environment, RemovalPolicy, Stack
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from constructs import Construct

from onboarding import names
from onboarding.environment_spec import EnvironmentSpec
from stacks import arns

REPOSITORIES = {
    "PythonServer": "python-server",
    "PythonServerGpu": "python-server-gpu",
    "Triton": "triton",
    "BuilderCpu": "builder-cpu",
    "BuilderGpu": "builder-gpu",
}
SOURCE_DAYS = 90


class FoundationStack(Stack):
    """Deploys first, changes rarely, and keeps its contents when it is deleted."""

    def __init__(self, scope: Construct, construct_id: str, *, environment: EnvironmentSpec) -> None:
        super().__init__(
            scope,
            construct_id,
            stack_name=names.stack_name(environment, "foundation"),
            env=Environment(account=environment.account, region=environment.region),
            description=f"Roundhouse: foundation of {environment.name}",
            tags={"roundhouse-environment": environment.name},
        )
        self._bucket(environment, self._key(environment))
        for construct_id, image in REPOSITORIES.items():
            self._repository(environment, construct_id, image)
        self._topic(environment)

    def _key(self, environment: EnvironmentSpec) -> kms.IKey:
        if environment.kms_key_arn is not None:
            return kms.Key.from_key_arn(self, "Key", environment.kms_key_arn)
        return kms.Key(
            self,
            "Key",
            alias=arns.key_alias(environment),
            description=f"Roundhouse artifacts of {environment.name}",
            enable_key_rotation=True,
            removal_policy=RemovalPolicy.RETAIN,
        )

    def _bucket(self, environment: EnvironmentSpec, key: kms.IKey) -> None:
        expiry = s3.LifecycleRule(id="Sources", prefix=f"{names.SOURCES_PREFIX}/", expiration=Duration.days(SOURCE_DAYS))
        # Engines and networks never expire here: a lock may name any of them.
        uploads = s3.LifecycleRule(id="Uploads", abort_incomplete_multipart_upload_after=Duration.days(7))
        s3.Bucket(
            self,
            "Artifacts",
            bucket_name=names.artifact_bucket(environment),
            versioned=True,
            encryption=s3.BucketEncryption.KMS,
            encryption_key=key,
            bucket_key_enabled=True,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            enforce_ssl=True,
            lifecycle_rules=[expiry, uploads],
            removal_policy=RemovalPolicy.RETAIN,
        )

    def _repository(self, environment: EnvironmentSpec, construct_id: str, image: str) -> None:
        ecr.Repository(
            self,
            construct_id,
            repository_name=names.repository(environment, image),
            image_tag_mutability=ecr.TagMutability.IMMUTABLE,
            image_scan_on_push=True,
            removal_policy=RemovalPolicy.RETAIN,
        )

    def _topic(self, environment: EnvironmentSpec) -> None:
        # Without the bucket's key: under a customer's key whose policy forgets CloudWatch, every alarm would be lost in silence.
        topic = sns.CfnTopic(self, "Alarms", topic_name=arns.alarm_topic_name(environment))
        if environment.alarm_email is not None:
            sns.CfnSubscription(self, "AlarmEmail", topic_arn=topic.ref, protocol="email", endpoint=environment.alarm_email)
