"""Who may publish to an environment's topic, and use the key that encrypts it."""

from __future__ import annotations

from typing import Any

from onboarding.environment_spec import EnvironmentSpec
from stacks.access import arns

CLOUDWATCH = "cloudwatch.amazonaws.com"


def topic_policy(environment: EnvironmentSpec) -> dict[str, Any]:
    """The topic's policy: CloudWatch for this account's alarms, and nobody in the clear.

    Step Functions and SageMaker publish in the name of a role of this account, whose own statement
    `topic_publish` allows it.
    """
    topic = arns.alarm_topic(environment)
    alarms = {
        "Sid": "AlarmsOfThisAccount",
        "Effect": "Allow",
        "Principal": {"Service": CLOUDWATCH},
        "Action": "sns:Publish",
    }
    plain = {"Sid": "OnlyEncrypted", "Effect": "Deny", "Principal": "*", "Action": "sns:Publish"}
    return {
        "Version": "2012-10-17",
        "Statement": [
            {**alarms, "Resource": topic, "Condition": of_alarms(environment)},
            {**plain, "Resource": topic, "Condition": {"Bool": {"aws:SecureTransport": "false"}}},
        ],
    }


def of_alarms(environment: EnvironmentSpec) -> dict[str, dict[str, str]]:
    """The condition that CloudWatch acts for an alarm of this environment's account and region."""
    return {
        "StringEquals": {"aws:SourceAccount": environment.account},
        "ArnLike": {"aws:SourceArn": arns.arn(environment, "cloudwatch", "alarm:*")},
    }
