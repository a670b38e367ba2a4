"""What survives every deployment: artifact bucket, keys, topics, image repositories; and Slack."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from aws_cdk import Annotations, CfnResource, Duration, RemovalPolicy
from aws_cdk import aws_chatbot as chatbot
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from constructs import Construct

from onboarding import arns, names
from onboarding.environment_spec import EnvironmentSpec, SlackSpec
from onboarding.platform import aws_partition
from onboarding.text_generation.checkpoint_key import CHECKPOINTS
from roundhouse_cdk.build_roles import signing_key_statements
from roundhouse_cdk.exact_role import ExactRole, add_metadata
from roundhouse_cdk.pipeline_roles import promotion_decryption, promotion_reads
from roundhouse_cdk.statements import allow

KEPT_IMAGES = 50
"""ECR cannot know which tags are deployed; fifty changes of an image ago is beyond any rollback."""
GUARDRAIL = "CloudWatchReadOnlyAccess"
"""AWS's policy that no one in the channel can exceed; left out, it is AdministratorAccess."""
KEPT = RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE
"""Contents stay; but what a failed first deployment made goes, so that it can be deployed again."""
CLOUDWATCH = "cloudwatch.amazonaws.com"


@dataclass(frozen=True, kw_only=True)
class ArtifactStoreProps:
    """`receivers` are the environments that promote from this one; other accounts' may read it.

    `bucket` and `key` are used where there are such already; default: they are made. A key's own
    policy must let CloudWatch and its logs use it: docs/security.md has the statements.
    """

    environment: EnvironmentSpec
    receivers: Sequence[EnvironmentSpec] = ()
    bucket: s3.IBucket | None = None
    key: kms.IKey | None = None


class ArtifactStore(Construct):
    """Deploys bucket, encryption key, signing key and topics, whose contents stay when it goes.

    Raises ValueError for a bucket of another name than the environment's: servers, builds and
    commands know it by that.
    """

    def __init__(self, scope: Construct, construct_id: str, *, props: ArtifactStoreProps) -> None:
        super().__init__(scope, construct_id)
        environment = self._environment = props.environment
        expected = names.artifact_bucket(environment)
        if props.bucket is not None and props.bucket.bucket_name != expected:
            raise ValueError(
                f"{self.node.path}: bucket {props.bucket.bucket_name} is not this environment's;"
                f" allowed: {expected}; give that one, or none, and it is made"
            )
        self.key = self._key() if props.key is None else props.key
        self.signing_key = self._signing_key()
        self.bucket = self._bucket() if props.bucket is None else props.bucket
        self._allow_promotions(props.receivers)
        self.alarm_topic = self._topic("Alarms", arns.alarm_topic_name(environment), alarms=True)
        self._subscribe()
        self.answer_topic = self._topic("Answers", arns.answer_topic_name(environment))

    def _key(self) -> kms.IKey:
        environment = self._environment
        if environment.kms_key_arn is not None:
            Annotations.of(self).add_info(
                f"{environment.kms_key_arn}: its policy must let {CLOUDWATCH} use it, or no alarm"
                " arrives, and CloudWatch Logs, or no log group is made: docs/security.md has the"
                " statements"
            )
            return kms.Key.from_key_arn(self, "Key", environment.kms_key_arn)
        key = kms.Key(
            self,
            "Key",
            alias=arns.key_alias(environment),
            description=f"Roundhouse artifacts of {environment.name}",
            enable_key_rotation=True,
            removal_policy=KEPT,
        )
        # Roles know the key by its alias: without it no endpoint that is left could start another
        # instance.
        _keep(key.node.find_child("Alias"))
        actions = ["kms:Decrypt", "kms:GenerateDataKey*"]
        key.add_to_resource_policy(
            self._of_alarms("AlarmsToTheTopic", actions=actions, resources=["*"])
        )
        return key

    def _signing_key(self) -> kms.Key:
        environment = self._environment
        statements = signing_key_statements(environment)
        key = kms.Key(
            self,
            "SigningKey",
            alias=arns.signing_key_alias(environment),
            description=f"Roundhouse signatures of engines of {environment.name}",
            key_spec=kms.KeySpec.ECC_NIST_P256,
            key_usage=kms.KeyUsage.SIGN_VERIFY,
            policy=iam.PolicyDocument.from_json({"Statement": statements}),
            removal_policy=KEPT,
        )
        # What it signed stays trusted, and the signer knows it by its alias.
        _keep(key.node.find_child("Alias"))
        return key

    def _bucket(self) -> s3.Bucket:
        bucket = s3.Bucket(
            self,
            "Artifacts",
            bucket_name=names.artifact_bucket(self._environment),
            versioned=True,
            encryption=s3.BucketEncryption.KMS,
            encryption_key=self.key,
            bucket_key_enabled=True,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            enforce_ssl=True,
            lifecycle_rules=bucket_rules(self._environment),
            removal_policy=KEPT,
        )
        if bucket.policy is not None:
            bucket.policy.apply_removal_policy(KEPT)
        add_metadata(bucket, S1="access is logged by CloudTrail data events of the account")
        return bucket

    def _allow_promotions(self, receivers: Sequence[EnvironmentSpec]) -> None:
        environment = self._environment
        far = [receiver for receiver in receivers if receiver.account != environment.account]
        if not far:
            return
        for statement in promotion_reads(environment, far):
            self.bucket.add_to_resource_policy(iam.PolicyStatement.from_json(statement))
        self.key.add_to_resource_policy(
            iam.PolicyStatement.from_json(promotion_decryption(environment, far)), allow_no_op=True
        )

    def _topic(self, construct_id: str, name: str, *, alarms: bool = False) -> sns.Topic:
        """Make a topic on which nobody publishes in the clear; with `alarms` CloudWatch does.

        Step Functions and SageMaker publish in the name of a role of this account, whose own
        statement allows it. It has not AWS's own alias/aws/sns: CloudWatch may not use it, and
        every alarm would be lost.
        """
        topic = sns.Topic(self, construct_id, topic_name=name, master_key=self.key)
        document = sns.TopicPolicy(self, f"{construct_id}Policy", topics=[topic]).document
        publish: dict[str, Any] = {"actions": ["sns:Publish"], "resources": [topic.topic_arn]}
        if alarms:
            document.add_statements(self._of_alarms("AlarmsOfThisAccount", **publish))
        document.add_statements(
            iam.PolicyStatement(
                sid="OnlyEncrypted",
                effect=iam.Effect.DENY,
                principals=[iam.StarPrincipal()],
                conditions={"Bool": {"aws:SecureTransport": "false"}},
                **publish,
            )
        )
        return topic

    def _subscribe(self) -> None:
        environment = self._environment
        protocol = sns.SubscriptionProtocol
        receivers = {}
        for address in environment.alarm_https:
            digest = hashlib.sha256(address.encode()).hexdigest()[:8]
            receivers[f"AlarmHttps{digest}"] = (protocol.HTTPS, address)
        if environment.alarm_email is not None:
            receivers["AlarmEmail"] = (protocol.EMAIL, environment.alarm_email)
        for construct_id, (by, address) in receivers.items():
            topic = self.alarm_topic
            sns.Subscription(self, construct_id, topic=topic, protocol=by, endpoint=address)

    def _of_alarms(self, sid: str, **allowed: Any) -> iam.PolicyStatement:
        """Return the statement of CloudWatch for an alarm of this environment's account."""
        return iam.PolicyStatement(
            sid=sid,
            principals=[iam.ServicePrincipal(CLOUDWATCH)],
            conditions={
                "StringEquals": {"aws:SourceAccount": self._environment.account},
                "ArnLike": {"aws:SourceArn": arns.arn(self._environment, "cloudwatch", "alarm:*")},
            },
            **allowed,
        )


def _keep(construct: Any) -> None:
    cast("CfnResource", construct.node.default_child).apply_removal_policy(KEPT)


def bucket_rules(environment: EnvironmentSpec) -> list[s3.LifecycleRule]:
    """Rules of the artifact bucket.

    An engine, network or checkpoint expires only under the mark of `roundhouse prune`. S3 counts
    the days from an object's creation, not from its tag: so prune marks by a copy in place, which
    begins anew.
    """
    tag, value = names.UNREFERENCED_TAG
    marked = {"tag_filters": {tag: value}}
    # What users sent and got is gone when it is deleted: a day is the least that S3 knows.
    private = {"noncurrent_version_expiration": Duration.days(1)}
    unreferenced = environment.unreferenced_engine_days
    expiring: tuple[tuple[str, str, int, dict[str, Any]], ...] = (
        # A build's source is its content's address: whoever needs one again uploads it again.
        ("Sources", names.SOURCES_PREFIX, 90, {}),
        # What an interrupted training job left is looked into within days; the next begins anew.
        ("Jobs", names.JOBS_PREFIX, 30, {}),
        # A candidate that was signed is an engine; one that was refused is looked into within days.
        ("Candidates", names.CANDIDATES_PREFIX, 30, {}),
        ("UnreferencedEngines", names.ENGINES_PREFIX, unreferenced, marked),
        ("UnreferencedNetworks", names.NETWORKS_PREFIX, unreferenced, marked),
        ("UnreferencedCheckpoints", CHECKPOINTS, unreferenced, marked),
        # Requests of users, kept as long as a drift review needs, no longer.
        ("Captures", names.CAPTURES_PREFIX, 30, private),
        # Clients fetch the answer of a queue within a week; the request goes with it.
        ("Answers", names.ANSWERS_PREFIX, 7, private),
        ("Requests", names.REQUESTS_PREFIX, 7, private),
    )
    days = Duration.days
    return [
        *(
            s3.LifecycleRule(id=id, prefix=f"{prefix}/", expiration=days(age), **more)
            for id, prefix, age, more in expiring
        ),
        # The way back: what was deleted, or written over, can be restored for so long.
        s3.LifecycleRule(id="Noncurrent", noncurrent_version_expiration=days(30)),
        s3.LifecycleRule(
            id="Uploads",
            abort_incomplete_multipart_upload_after=days(7),
            expired_object_delete_marker=True,
        ),
    ]


@dataclass(frozen=True, kw_only=True)
class EngineImagesProps:
    """`images` are names such as triton, each of which gets a repository."""

    environment: EnvironmentSpec
    images: Sequence[str]


class EngineImages(Construct):
    """Deploys a repository for each image; `repositories` has them by the image's name."""

    def __init__(self, scope: Construct, construct_id: str, *, props: EngineImagesProps) -> None:
        super().__init__(scope, construct_id)
        self.repositories = {
            image: self._repository(image, names.repository(props.environment, image))
            for image in props.images
        }

    def _repository(self, image: str, name: str) -> ecr.Repository:
        return ecr.Repository(
            self,
            image.title().replace("-", ""),
            repository_name=name,
            image_tag_mutability=ecr.TagMutability.IMMUTABLE,
            image_scan_on_push=True,
            # Images hold public libraries and this repository's code, no data; under a key that is
            # one day disabled no endpoint could start another instance. And a repository's
            # encryption can never be changed.
            encryption=ecr.RepositoryEncryption.AES_256,
            lifecycle_rules=[
                ecr.LifecycleRule(
                    rule_priority=1,
                    description="What lost its tag is a push that did not end",
                    tag_status=ecr.TagStatus.UNTAGGED,
                    max_image_age=Duration.days(7),
                ),
                ecr.LifecycleRule(
                    rule_priority=2,
                    description=f"The newest {KEPT_IMAGES}",
                    tag_status=ecr.TagStatus.TAGGED,
                    tag_pattern_list=["*"],
                    max_image_count=KEPT_IMAGES,
                ),
            ],
            removal_policy=KEPT,
        )


@dataclass(frozen=True, kw_only=True)
class SlackAlarmsProps:
    """`topic` is posted in `slack`, whose workspace the account has authorized in the console."""

    environment: EnvironmentSpec
    slack: SlackSpec
    topic: sns.ITopic


class SlackAlarms(Construct):
    """Deploys the channel's configuration and its role.

    Amazon Q Developer in chat applications (`AWS::Chatbot`) subscribes itself to the topic by its
    service-linked role, and SNS decrypts what it delivers: neither topic nor key needs a statement
    for it. Sources: its administrator guide, `using-service-linked-roles`,
    `cross-service-confused-deputy-prevention`.
    """

    def __init__(self, scope: Construct, construct_id: str, *, props: SlackAlarmsProps) -> None:
        super().__init__(scope, construct_id)
        environment = props.environment
        alarms = f"alarm:{names.endpoint_name(environment, '*')}"
        # An alarm's message has the picture of its metric, which is drawn in the role's name.
        own = [arns.arn(environment, "cloudwatch", alarms)]
        statements = (
            allow("DescribeOwnAlarms", "cloudwatch:DescribeAlarms", own),
            allow("DrawMetrics", "cloudwatch:GetMetricData GetMetricWidgetImage", ["*"]),
        )
        guardrail = f"arn:{aws_partition(environment.region)}:iam::aws:policy/{GUARDRAIL}"
        self.role = ExactRole(
            self, "SlackRole", environment=environment, trusts="chatbot", statements=statements
        )
        self.channel = chatbot.SlackChannelConfiguration(
            self,
            "Slack",
            slack_channel_configuration_name=arns.alarm_topic_name(environment),
            slack_workspace_id=props.slack.workspace,
            slack_channel_id=props.slack.channel,
            role=self.role.exact,
            guardrail_policies=[
                iam.ManagedPolicy.from_managed_policy_arn(self, "Guardrail", guardrail)
            ],
            notification_topics=[props.topic],
            user_role_required=False,
        )
