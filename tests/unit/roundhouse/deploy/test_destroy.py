"""Stacks are read, and deleted together, after an interruption too; nobody loses their engines."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from onboarding.promotion import Promotion, read_promotion, write_promotion
from onboarding.resolve import deployments
from onboarding.tree import read_tree
from roundhouse.deploy import stacks as module
from roundhouse.deploy.destroy import (
    delete_stacks,
    environment_stacks,
    kept_storage,
    require_received,
)
from roundhouse.deploy.stacks import deployed_templates
from roundhouse.errors import DeployFailedError
from tests.unit.roundhouse.deploy.whole_session import Account, whole_session

ENDPOINTS = ("roundhouse-dev-endpoint-a", "roundhouse-dev-endpoint-b")
SHARED = tuple(f"roundhouse-dev-{part}" for part in ("foundation", "builds", "images"))


class DeletingAccount(Account):
    """CloudFormation's deletions end at the second look; those of `stuck` fail."""

    def __init__(self, *stacks):
        super().__init__()
        self.stuck, self.statuses = set(), dict.fromkeys(stacks, "UPDATE_COMPLETE")

    def list_stacks(self):
        yield from super().list_stacks()
        for name, status in list(self.statuses.items()):
            if status == "DELETE_IN_PROGRESS":
                self.statuses[name] = "DELETE_FAILED" if name in self.stuck else "DELETE_COMPLETE"

    def delete_stack(self, StackName):
        self.did.append(f"deleted {StackName}")
        self.statuses[StackName] = "DELETE_IN_PROGRESS"

    def describe_stack_events(self, StackName):
        event = {"LogicalResourceId": "Endpoint", "ResourceStatus": "DELETE_FAILED"}
        return {"StackEvents": [{**event, "ResourceStatusReason": "it is in use"}]}


@pytest.fixture
def session(tmp_path):
    account = DeletingAccount(*ENDPOINTS, *SHARED, "roundhouse-prod-endpoint-a")
    return replace(whole_session(tmp_path), clients=account)


def delete(session, sleep=lambda seconds: None):
    delete_stacks(session, environment_stacks(session, builds=False), sleep)


def deletions(session):
    return [line for line in session.clients.did if line.startswith("deleted")]


def test_every_endpoint_goes_and_the_foundation_never(session):
    delete(session)
    assert deletions(session) == [f"deleted {name}" for name in ENDPOINTS]
    assert environment_stacks(session, builds=False) == ()
    whole = [stack.name for stack in environment_stacks(session, builds=True)]
    assert whole == ["roundhouse-dev-builds", "roundhouse-dev-images"]


def test_interrupted_deletion_is_waited_for_and_the_rest_deleted(session):
    def interrupt(seconds):
        raise KeyboardInterrupt

    session.clients.statuses[ENDPOINTS[0]] = "DELETE_IN_PROGRESS"
    with pytest.raises(KeyboardInterrupt):
        delete(session, interrupt)
    assert "the same command again" in session.report.console.file.getvalue()
    assert deletions(session) == [f"deleted {ENDPOINTS[1]}"]
    delete(session)
    assert deletions(session) == [f"deleted {ENDPOINTS[1]}"]
    assert environment_stacks(session, builds=False) == ()


def test_refuses_before_the_first_deletion_while_a_stack_is_updated(session):
    session.clients.statuses[ENDPOINTS[1]] = "UPDATE_IN_PROGRESS"
    with pytest.raises(DeployFailedError, match=r"Nothing was deleted: .*-b is UPDATE_IN_PROGRESS"):
        delete(session)
    assert deletions(session) == []


def test_one_that_cannot_be_deleted_is_named_after_the_others_are_gone(session):
    session.clients.stuck.add(ENDPOINTS[0])
    with pytest.raises(
        DeployFailedError, match=r"-a was not deleted: Endpoint: it is in use\. Rem"
    ):
        delete(session)
    assert [stack.name for stack in environment_stacks(session, builds=False)] == [ENDPOINTS[0]]


@pytest.fixture
def paths(session):
    """The paths of a tree whose prod promotes from dev, which has built everything."""
    folder = session.paths.tree / "environments"
    dev = (folder / "dev.yaml").read_text()
    prod = dev.replace("name: dev", "name: prod\nlocks: locks/prod\npromotes_from: dev")
    (folder / "prod.yaml").write_text(prod)
    return session.paths


def test_refuses_while_another_environment_is_still_to_receive_engines(paths):
    with pytest.raises(
        DeployFailedError,
        match=r"to be promoted to prod: .*`roundhouse promote --from dev --to prod`",
    ):
        require_received(paths, "dev")
    require_received(paths, "prod")


def test_what_a_promotion_names_was_copied(paths):
    needed = {
        target.engine_key: target.model.name
        for deployment in deployments(read_tree(paths.tree), "prod")
        for target in deployment.targets
    }
    promotion = Promotion(
        environment="prod", source="dev", commit="a" * 40, engines={},
        archives=dict.fromkeys(needed, "b" * 64), date="2026-11-22",
    )  # fmt: skip
    write_promotion(paths.tree, promotion)
    require_received(paths, "dev")
    key, model = needed.popitem()
    promotion.archives.pop(key)
    write_promotion(paths.tree, promotion)
    assert read_promotion(paths.tree, "prod").archives.keys() == needed.keys()
    with pytest.raises(DeployFailedError, match=f"to be promoted to prod: {model}"):
        require_received(paths, "dev")


def test_what_stays_is_named(session):
    bucket = "s3://roundhouse-dev-111122223333-us-east-1 with every engine"
    assert list(kept_storage(session.environment)) == [
        bucket, "container images in ECR", "the KMS key", "log groups",
    ]  # fmt: skip
    own = session.environment.model_copy(update={"kms_key_arn": "arn:aws:kms:a"})
    assert "the KMS key" not in list(kept_storage(own))


TEMPLATE = {
    "Resources": {
        "Role": {"Properties": {"Version": "2012-10-17", "Account": "000000000000", "Count": 1}}
    }
}


YAML = """\
Resources:
  Role:
    Properties:
      Version: "2012-10-17"
      Account: "000000000000"
      Count: 1
"""


@pytest.mark.parametrize("body", [TEMPLATE, json.dumps(TEMPLATE), YAML])
def test_template_is_read_however_it_was_sent(session, body):
    session.clients.stacks["a"] = body
    assert deployed_templates(session, ["a"]) == {"a": TEMPLATE}


def test_stack_that_was_never_deployed_has_none(session):
    never = ("REVIEW_IN_PROGRESS", "ROLLBACK_COMPLETE", "DELETE_COMPLETE", "CREATE_FAILED")
    session.clients.statuses |= {status: status for status in never}
    assert deployed_templates(session, [*never, "never-there"]) == {}


def test_stack_that_was_deleted_and_made_anew_is_the_new_one(session):
    newest_first = ("CREATE_COMPLETE", "DELETE_COMPLETE")
    stacks = [{"StackName": "a", "StackStatus": status} for status in newest_first]
    session.clients.list_stacks = lambda: iter([{"StackSummaries": stacks}])
    session.clients.stacks["a"] = TEMPLATE
    assert deployed_templates(session, ["a"]) == {"a": TEMPLATE}


def test_update_under_way_is_waited_for(session, monkeypatch):
    statuses = ["UPDATE_IN_PROGRESS", "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS", "UPDATE_COMPLETE"]

    def describe_stacks(StackName):
        return {"Stacks": [{"StackStatus": statuses.pop(0)}]}

    monkeypatch.setattr(module, "EVERY_SECONDS", 0.0)
    session.clients.describe_stacks = describe_stacks
    session.clients.stacks["a"], session.clients.statuses["a"] = TEMPLATE, "UPDATE_IN_PROGRESS"
    assert deployed_templates(session, ["a"]) == {"a": TEMPLATE}
    assert statuses == []
