"""Alarms in a Slack channel."""

from __future__ import annotations

from dataclasses import dataclass

from aws_cdk import aws_chatbot as chatbot
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from constructs import Construct

from onboarding import arns, names
from onboarding.environment_spec import EnvironmentSpec, SlackSpec
from onboarding.platform import aws_partition
from roundhouse_cdk.exact_role import ExactRole
from roundhouse_cdk.statements import allow

GUARDRAIL = "CloudWatchReadOnlyAccess"
"""AWS's policy that no one in the channel can exceed; left out, it is AdministratorAccess."""


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
