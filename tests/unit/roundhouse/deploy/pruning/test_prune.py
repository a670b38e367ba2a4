"""Which engines are deployed, from the stacks that CloudFormation lists."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from onboarding.environment_spec import EnvironmentSpec
from roundhouse.deploy.prune import deployed_keys

pytestmark = pytest.mark.unit

KEY, CHECKPOINT = "0123456789abcdef0123", "00112233445566778899"
ENVIRONMENT = EnvironmentSpec(
    name="dev", account="111122223333", region="us-east-1", platform="triton-26.05"
)


class Formation:
    """Two stacks; the change set of one was never executed, so it has no template."""

    def get_paginator(self, name):
        stacks = [
            {"StackName": "roundhouse-dev-endpoint-a", "StackStatus": "UPDATE_COMPLETE"},
            {"StackName": "roundhouse-dev-endpoint-b", "StackStatus": "REVIEW_IN_PROGRESS"},
        ]
        return SimpleNamespace(paginate=lambda: [{"StackSummaries": stacks}])

    def get_template(self, StackName):
        assert StackName == "roundhouse-dev-endpoint-a"
        model = {"ModelDataUrl": f"s3://bucket/engines/{KEY}/model.tar.gz"}
        source = {"S3Uri": f"s3://bucket/checkpoints/{CHECKPOINT}/"}
        return {"TemplateBody": {"Model": model, "Chat": source}}


def test_a_stack_that_was_only_requested_has_no_engine_deployed():
    session = SimpleNamespace(environment=ENVIRONMENT, clients=lambda service: Formation())
    assert deployed_keys(session) == {KEY, CHECKPOINT}
