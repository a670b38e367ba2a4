"""What survives every deployment: bucket, keys, image repositories, topics, VPC endpoints."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, cast

from aws_cdk import Annotations, CfnResource, Duration, RemovalPolicy
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from constructs import Construct

from onboarding import names
from onboarding.environment_spec import EnvironmentSpec
from onboarding.platform import aws_partition
from onboarding.text_generation.checkpoint_key import CHECKPOINTS
from roundhouse_cdk.metric_enrichment import MetricEnrichment
from stacks.access import arns
from stacks.access.policies import CLOUDWATCH, Statement, allow, exact_role, of_alarms, topic_policy
from stacks.builds.signing import signing_key_statements
from stacks.github.statements import promotion_decryption, promotion_reads
from stacks.images import DOCKERFILES
from stacks.resources import EnvironmentStack, add_resources
from stacks.suppressions import suppressions, with_reasons
from stacks.template import Resources
from stacks.vpc_endpoints import vpc_endpoints

KEPT = RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE
"""Contents stay; but what a failed first deployment made goes, so that it can be deployed again."""


class FoundationStack(EnvironmentStack):
    """Deploys first, changes rarely, and keeps its contents when it is deleted.

    `receivers` are the environments whose workflows promote from this one; those of other
    accounts may read them.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        environment: EnvironmentSpec,
        receivers: Sequence[EnvironmentSpec] = (),
    ) -> None:
        super().__init__(
            scope,
            construct_id,
            environment,
            part="foundation",
            description="foundation",
            is_protected=True,
        )
        key = self._key(environment)
        self._add_signing_key(environment)
        bucket = self._bucket(environment, key)
        far = [receiver for receiver in receivers if receiver.account != environment.account]
        if far:
            for statement in promotion_reads(environment, far):
                bucket.add_to_resource_policy(iam.PolicyStatement.from_json(statement))
            key.add_to_resource_policy(
                iam.PolicyStatement.from_json(promotion_decryption(environment, far)),
                allow_no_op=True,
            )
        for image in DOCKERFILES:
            self._repository(environment, image.title().replace("-", ""), image)
        self._add_topics(environment, key)
        add_resources(self, vpc_endpoints(environment))
        if environment.otel_enrichment == "create":
            MetricEnrichment(self, "MetricEnrichment")

    def _key(self, environment: EnvironmentSpec) -> kms.IKey:
        if environment.kms_key_arn is not None:
            sentence = (
                f"its policy must let {CLOUDWATCH} use it, or no alarm arrives: docs/security.md"
                " has the statement"
            )
            Annotations.of(self).add_info(f"{environment.kms_key_arn}: {sentence}")
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
        cast("CfnResource", key.node.find_child("Alias").node.default_child).apply_removal_policy(
            KEPT
        )
        key.add_to_resource_policy(
            iam.PolicyStatement(
                sid="AlarmsToTheTopic",
                principals=[iam.ServicePrincipal(CLOUDWATCH)],
                actions=["kms:Decrypt", "kms:GenerateDataKey*"],
                resources=["*"],
                conditions=of_alarms(environment),
            )
        )
        return key

    def _add_signing_key(self, environment: EnvironmentSpec) -> None:
        statements = signing_key_statements(environment)
        document = iam.PolicyDocument.from_json({"Statement": statements})
        key = kms.Key(
            self,
            "SigningKey",
            alias=arns.signing_key_alias(environment),
            description=f"Roundhouse signatures of engines of {environment.name}",
            key_spec=kms.KeySpec.ECC_NIST_P256,
            key_usage=kms.KeyUsage.SIGN_VERIFY,
            policy=document,
            removal_policy=KEPT,
        )
        # What it signed stays trusted, and the signer knows it by its alias.
        alias = cast("CfnResource", key.node.find_child("Alias").node.default_child)
        alias.apply_removal_policy(KEPT)

    def _bucket(self, environment: EnvironmentSpec, key: kms.IKey) -> s3.Bucket:
        bucket = s3.Bucket(
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
            lifecycle_rules=bucket_rules(environment),
            removal_policy=KEPT,
        )
        if bucket.policy is not None:
            bucket.policy.apply_removal_policy(KEPT)
        cast("CfnResource", bucket.node.default_child).add_metadata(
            "cdk_nag", suppressions(S1="access is logged by CloudTrail data events of the account")
        )
        return bucket

    def _repository(self, environment: EnvironmentSpec, construct_id: str, image: str) -> None:
        ecr.Repository(
            self,
            construct_id,
            repository_name=names.repository(environment, image),
            image_tag_mutability=ecr.TagMutability.IMMUTABLE,
            image_scan_on_push=True,
            # Images hold public libraries and this repository's code, no data; under a key that is
            # one day disabled no endpoint could start another instance. And a repository's
            # encryption can never be changed.
            encryption=ecr.RepositoryEncryption.AES_256,
            lifecycle_rules=image_rules(),
            removal_policy=KEPT,
        )

    def _add_topics(self, environment: EnvironmentSpec, key: kms.IKey) -> None:
        alarms = self._add_topic("Alarms", arns.alarm_topic_name(environment), key)
        policy = topic_policy(arns.alarm_topic(environment), of_alarms(environment))
        sns.CfnTopicPolicy(self, "AlarmsPolicy", topics=[alarms], policy_document=policy)
        if environment.alarm_email is not None:
            sns.CfnSubscription(
                self,
                "AlarmEmail",
                topic_arn=alarms,
                protocol="email",
                endpoint=environment.alarm_email,
            )
        for address in environment.alarm_https:
            digest = hashlib.sha256(address.encode()).hexdigest()[:8]
            sns.CfnSubscription(
                self,
                f"AlarmHttps{digest}",
                topic_arn=alarms,
                protocol="https",
                endpoint=address,
            )
        add_resources(self, slack_channel(environment, {"Ref": "Alarms"}))
        answers = self._add_topic("Answers", arns.answer_topic_name(environment), key)
        policy = topic_policy(arns.answer_topic(environment))
        sns.CfnTopicPolicy(self, "AnswersPolicy", topics=[answers], policy_document=policy)

    def _add_topic(self, logical_id: str, name: str, key: kms.IKey) -> str:
        # Not AWS's own alias/aws/sns: CloudWatch may not use it, and every alarm would be lost.
        return sns.CfnTopic(self, logical_id, topic_name=name, kms_master_key_id=key.key_arn).ref


SOURCE_DAYS = 90
"""A build's source is its content's address: whoever needs one again uploads it again."""
CAPTURE_DAYS = 30
"""Captures are requests of users: kept as long as a drift review needs, no longer."""
ANSWER_DAYS = 7
"""Clients of an asynchronous endpoint fetch the answer within a week; the request goes with it."""
JOB_DAYS = 30
"""What an interrupted training job left is looked into within days; the next one begins anew."""
CANDIDATE_DAYS = 30
"""A candidate that was signed is an engine; one that was refused is looked into within days."""
NONCURRENT_DAYS = 30
"""The way back: what was deleted, or written over, can be restored for so long."""
PRIVATE_NONCURRENT_DAYS = 1
"""What users sent and got is gone when it is deleted: a day is the least that S3 knows."""
UPLOAD_DAYS = 7
UNTAGGED_IMAGE_DAYS = 7
KEPT_IMAGES = 50
"""ECR cannot know which tags are deployed; fifty changes of an image ago is beyond any rollback."""


def bucket_rules(environment: EnvironmentSpec) -> list[s3.LifecycleRule]:
    """Rules of the artifact bucket.

    An engine, network or checkpoint expires only under the mark of `roundhouse prune`. S3 counts
    the days from an object's creation, not from its tag: so prune marks by a copy in place, which
    begins anew.
    """
    tag, value = names.UNREFERENCED_TAG
    marked = {"tag_filters": {tag: value}}
    private = {"noncurrent_version_expiration": Duration.days(PRIVATE_NONCURRENT_DAYS)}
    unreferenced = environment.unreferenced_engine_days
    expiring: tuple[tuple[str, str, int, dict[str, Any]], ...] = (
        ("Sources", names.SOURCES_PREFIX, SOURCE_DAYS, {}),
        ("Jobs", names.JOBS_PREFIX, JOB_DAYS, {}),
        ("Candidates", names.CANDIDATES_PREFIX, CANDIDATE_DAYS, {}),
        ("UnreferencedEngines", names.ENGINES_PREFIX, unreferenced, marked),
        ("UnreferencedNetworks", names.NETWORKS_PREFIX, unreferenced, marked),
        ("UnreferencedCheckpoints", CHECKPOINTS, unreferenced, marked),
        ("Captures", names.CAPTURES_PREFIX, CAPTURE_DAYS, private),
        ("Answers", names.ANSWERS_PREFIX, ANSWER_DAYS, private),
        ("Requests", names.REQUESTS_PREFIX, ANSWER_DAYS, private),
    )
    days = Duration.days
    return [
        *(
            s3.LifecycleRule(id=id, prefix=f"{prefix}/", expiration=days(age), **more)
            for id, prefix, age, more in expiring
        ),
        s3.LifecycleRule(id="Noncurrent", noncurrent_version_expiration=days(NONCURRENT_DAYS)),
        s3.LifecycleRule(
            id="Uploads",
            abort_incomplete_multipart_upload_after=days(UPLOAD_DAYS),
            expired_object_delete_marker=True,
        ),
    ]


def image_rules() -> list[ecr.LifecycleRule]:
    """Rules of an image repository."""
    return [
        ecr.LifecycleRule(
            rule_priority=1,
            description="What lost its tag is a push that did not end",
            tag_status=ecr.TagStatus.UNTAGGED,
            max_image_age=Duration.days(UNTAGGED_IMAGE_DAYS),
        ),
        ecr.LifecycleRule(
            rule_priority=2,
            description=f"The newest {KEPT_IMAGES}",
            tag_status=ecr.TagStatus.TAGGED,
            tag_pattern_list=["*"],
            max_image_count=KEPT_IMAGES,
        ),
    ]


CHATBOT = "chatbot.amazonaws.com"
GUARDRAIL = "CloudWatchReadOnlyAccess"
"""AWS's policy that no one in the channel can exceed; left out, it is AdministratorAccess."""


def slack_channel(environment: EnvironmentSpec, topic: dict[str, Any]) -> Resources:
    """Return the channel's configuration and its role; none where the environment names no channel.

    Amazon Q Developer in chat applications (`AWS::Chatbot`) subscribes itself to the topic by its
    service-linked role, and SNS decrypts what it delivers: neither topic nor key needs a statement
    for it. Sources: its administrator guide, `using-service-linked-roles`,
    `cross-service-confused-deputy-prevention`.

    `topic` is the reference of the topic that is posted there.
    """
    slack = environment.alarm_slack
    if slack is None:
        return {}
    guardrail = f"arn:{aws_partition(environment.region)}:iam::aws:policy/{GUARDRAIL}"
    role = exact_role(environment, service=CHATBOT, statements=_slack_statements(environment))
    return {
        "SlackRole": with_reasons({"Type": "AWS::IAM::Role", "Properties": role}),
        "Slack": {
            "Type": "AWS::Chatbot::SlackChannelConfiguration",
            "Properties": {
                "ConfigurationName": arns.alarm_topic_name(environment),
                "SlackWorkspaceId": slack.workspace,
                "SlackChannelId": slack.channel,
                "IamRoleArn": {"Fn::GetAtt": ["SlackRole", "Arn"]},
                "GuardrailPolicies": [guardrail],
                "SnsTopicArns": [topic],
                "UserRoleRequired": False,
            },
        },
    }


def _slack_statements(environment: EnvironmentSpec) -> tuple[Statement, ...]:
    """An alarm's message has the picture of its metric, which is drawn in the role's name."""
    alarms = arns.arn(environment, "cloudwatch", f"alarm:{names.endpoint_name(environment, '*')}")
    return (
        allow("DescribeOwnAlarms", "cloudwatch:DescribeAlarms", [alarms]),
        allow("DrawMetrics", "cloudwatch:GetMetricData GetMetricWidgetImage", ["*"]),
    )
