"""Shared resources as they are, against how they were deployed."""

from __future__ import annotations

from functools import cache

import pytest
from aws_cdk import App
from aws_cdk.assertions import Template

from onboarding import arns
from onboarding.environment_spec import EnvironmentSpec
from roundhouse.gitops.drift.environment import drift_markdown
from roundhouse.gitops.drift.shared import shared_drift
from roundhouse.gitops.drift.stack import DeployedStack, Difference, differ_of
from roundhouse.gitops.markdown import MOST_CHARACTERS
from stacks.foundation_stack import FoundationStack

pytestmark = pytest.mark.unit

ENVIRONMENT = EnvironmentSpec.model_validate(
    {
        "name": "dev",
        "account": "111122223333",
        "region": "eu-central-1",
        "platform": "triton-26.05",
        "alarm_slack": {"workspace": "T0123ABCDEF", "channel": "C0123ABCDEF"},
    }
)
ARN = "arn:aws:chatbot::111122223333:chat-configuration/slack-channel/roundhouse-dev-alarms"
LIVE = {
    "ChatConfigurationArn": ARN,
    "SlackTeamId": "T0123ABCDEF",
    "SlackTeamName": "acme",
    "SlackChannelId": "C0123ABCDEF",
    "SlackChannelName": "alarms",
    "IamRoleArn": "arn:aws:iam::111122223333:role/slack",
    "SnsTopicArns": [arns.alarm_topic(ENVIRONMENT)],
    "GuardrailPolicyArns": ["arn:aws:iam::aws:policy/CloudWatchReadOnlyAccess"],
    "UserAuthorizationRequired": False,
}
"""As `DescribeSlackChannelConfigurations` answers; botocore's model of 2017-10-11."""


class Chatbot:
    """Lists configurations in pages of one, as the service may."""

    def __init__(self, *configurations):
        self.configurations = configurations

    def get_paginator(self, operation):
        assert operation == "describe_slack_channel_configurations"
        return self

    def paginate(self, **request):
        assert request == {"ChatConfigurationArn": ARN}
        return [{"SlackChannelConfigurations": [item]} for item in self.configurations]


@cache
def foundation():
    stack = FoundationStack(App(), "Foundation", environment=ENVIRONMENT)
    found = Template.from_stack(stack).to_json()["Resources"]
    return {"Resources": {name: found[name] for name in ("Slack", "SlackRole")}}


def differences(*configurations):
    stack = DeployedStack(
        name="roundhouse-dev-foundation",
        part="foundation",
        template=foundation(),
        environment=ENVIRONMENT,
        ids={"Slack": ARN, "SlackRole": "slack", "Alarms": arns.alarm_topic(ENVIRONMENT)},
        tags={},
        is_protected=True,
    )
    clients = {"chatbot": Chatbot(*configurations)}
    return {
        item.what: (item.deployed, item.live)
        for item in shared_drift(clients.__getitem__, stack, differ_of("foundation"))
    }


def test_slack_channel_as_deployed_is_no_drift():
    assert differences({**LIVE, "ChatConfigurationArn": "arn:other"}, LIVE) == {}


def test_slack_channel_with_another_guardrail_or_topic_is_drift():
    widened = {**LIVE, "GuardrailPolicyArns": ["arn:aws:iam::aws:policy/AdministratorAccess"]}
    (found,) = differences({**widened, "UserAuthorizationRequired": False})
    assert found.startswith("GuardrailPolicies of SlackChannelConfiguration")
    assert any("SnsTopicArns" in what for what in differences({**LIVE, "SnsTopicArns": []}))


def test_slack_channel_that_is_gone_is_drift():
    ((what, (_, live)),) = differences().items()
    assert what.startswith("SlackChannelConfiguration") and live is None


def test_drift_is_one_text_within_the_forges_limit():
    assert drift_markdown("dev", ()) == "dev is as deployed."
    given = {"endpoint": "tiny", "deployed": 1.0, "live": "@acme <b>"}
    found = [Difference(what=f"weight {number} " + "x" * 100, **given) for number in range(900)]
    text = drift_markdown("dev", found[:1])
    assert text.startswith("1 thing of dev changed by hand, or no file names any more.")
    assert f"| tiny | weight 0 {'x' * 100} | " in text
    assert "@acme" not in text and "<b>" not in text.replace("\\<", "")
    long = drift_markdown("dev", found)
    assert len(long) <= MOST_CHARACTERS and "cut at 65,000 characters" in long
