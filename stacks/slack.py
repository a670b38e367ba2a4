"""Alarms in a Slack channel, by Amazon Q Developer in chat applications (`AWS::Chatbot`).

The service subscribes itself to the topic by its service-linked role, and SNS decrypts what it
delivers: neither topic nor key needs a statement for it. Sources: its administrator guide,
`using-service-linked-roles`, `cross-service-confused-deputy-prevention`.
"""

from __future__ import annotations

from typing import Any

from onboarding.environment_spec import EnvironmentSpec
from onboarding.names import endpoint_name
from onboarding.platform import aws_partition
from stacks.access import arns
from stacks.access.policies import Statement, allow, exact_role
from stacks.suppressions import with_reasons
from stacks.template import Resources

CHATBOT = "chatbot.amazonaws.com"
GUARDRAIL = "CloudWatchReadOnlyAccess"
"""AWS's policy that no one in the channel can exceed; left out, it is AdministratorAccess."""


def slack_channel(environment: EnvironmentSpec, topic: dict[str, Any]) -> Resources:
    """Return the channel's configuration and its role; none where the environment names no channel.

    `topic` is the reference of the topic that is posted there.
    """
    slack = environment.alarm_slack
    if slack is None:
        return {}
    guardrail = f"arn:{aws_partition(environment.region)}:iam::aws:policy/{GUARDRAIL}"
    role = exact_role(environment, service=CHATBOT, statements=_statements(environment))
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


def _statements(environment: EnvironmentSpec) -> tuple[Statement, ...]:
    """An alarm's message has the picture of its metric, which is drawn in the role's name."""
    reads = ["cloudwatch:GetMetricData", "cloudwatch:GetMetricWidgetImage"]
    alarms = arns.arn(environment, "cloudwatch", f"alarm:{endpoint_name(environment, '*')}")
    return (
        allow("DescribeOwnAlarms", ["cloudwatch:DescribeAlarms"], [alarms]),
        allow("DrawMetrics", reads, ["*"]),
    )
