"""An endpoint that does not serve what its stack deployed ends the deployment."""

from __future__ import annotations

import pytest

from roundhouse.deploy.endpoint_steps import alarms_in_alarm, require_live_config
from roundhouse.errors import DeployFailedError
from tests.unit.roundhouse.engines import copied_tree, local_deployments

DIMENSIONS = [{"Name": "EndpointName", "Value": "local-a"}]
OWN = {"Dimensions": DIMENSIONS}


class Account:
    """One endpoint, the resources of its stack, and the alarms in ALARM."""

    def __init__(self, live, deployed, reason=None):
        self.live, self.deployed, self.reason = live, deployed, reason
        self.alarms = [
            {"AlarmName": "own", "Dimensions": DIMENSIONS},
            {"AlarmName": "math", "Metrics": [{"MetricStat": {"Metric": OWN}}]},
            {"AlarmName": "of-another", "Dimensions": []},
        ]  # fmt: skip

    def __call__(self, service):
        return self

    def describe_endpoint(self, EndpointName):
        reason = {} if self.reason is None else {"FailureReason": self.reason}
        return {"EndpointStatus": "InService", "EndpointConfigName": self.live, **reason}

    def describe_stack_resources(self, StackName):
        arn = f"arn:aws:sagemaker:us-east-1:1:endpoint-config/{self.deployed}"
        kind = "AWS::SageMaker::EndpointConfig"
        return {"StackResources": [{"ResourceType": kind, "PhysicalResourceId": arn}]}

    def get_paginator(self, name):
        return self

    def paginate(self, StateValue):
        assert StateValue == "ALARM"
        yield {"MetricAlarms": self.alarms}


@pytest.fixture(scope="module")
def deployment(tmp_path_factory):
    return local_deployments(copied_tree(tmp_path_factory.mktemp("tree")))[0]


@pytest.mark.parametrize("live", ["config-1", "Config-1"])
def test_an_endpoint_that_serves_its_stacks_config_passes(deployment, live):
    require_live_config(Account(live, "config-1"), deployment)


def test_refuses_an_endpoint_that_went_back_and_names_the_way_out(deployment):
    account = Account("config-1", "config-2", reason="Alarms rang.")
    account.alarms[0]["Dimensions"] = [
        {"Name": "EndpointName", "Value": f"local-{deployment.name}"}
    ]
    with pytest.raises(DeployFailedError) as caught:
        require_live_config(account, deployment)
    text = str(caught.value)
    assert "serves endpoint config config-1, not config-2" in text
    assert "FailureReason: Alarms rang; in ALARM: own" in text
    assert "update-endpoint" in text and "--endpoint-config-name config-2" in text


def test_refuses_an_endpoint_that_went_back_without_a_reason(deployment):
    account = Account("config-1", "config-2")
    account.alarms.clear()
    with pytest.raises(DeployFailedError, match="a rollback alarm, or a change by hand"):
        require_live_config(account, deployment)


def test_alarms_of_an_endpoint_are_those_on_its_metrics_and_metric_math():
    assert alarms_in_alarm(Account("", ""), "local-a") == ("own", "math")
