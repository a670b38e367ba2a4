"""Who may publish to an environment's topic, and use the key that encrypts it."""

from __future__ import annotations

from onboarding.environment_spec import EnvironmentSpec
from stacks.access import arns
from stacks.template import Properties

CLOUDWATCH = "cloudwatch.amazonaws.com"


def topic_policy(topic_arn: str, alarms: Properties | None = None) -> Properties:
    """Return a topic's policy: nobody in the clear, and CloudWatch on the condition `alarms`.

    Step Functions and SageMaker publish in the name of a role of this account, whose own statement
    `topic_publish` allows it.
    """
    plain = {"Sid": "OnlyEncrypted", "Effect": "Deny", "Principal": "*", "Action": "sns:Publish"}
    statements: list[Properties] = [
        {**plain, "Resource": topic_arn, "Condition": {"Bool": {"aws:SecureTransport": "false"}}}
    ]
    if alarms is not None:
        cloudwatch = {"Principal": {"Service": CLOUDWATCH}, "Action": "sns:Publish"}
        allowed = {"Sid": "AlarmsOfThisAccount", "Effect": "Allow", **cloudwatch}
        statements.insert(0, {**allowed, "Resource": topic_arn, "Condition": alarms})
    return {"Version": "2012-10-17", "Statement": statements}


def of_alarms(environment: EnvironmentSpec) -> Properties:
    """The condition that CloudWatch acts for an alarm of this environment's account and region."""
    return {
        "StringEquals": {"aws:SourceAccount": environment.account},
        "ArnLike": {"aws:SourceArn": arns.arn(environment, "cloudwatch", "alarm:*")},
    }
