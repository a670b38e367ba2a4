"""Which stacks have a template that stands, and how it is read."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from onboarding.tree import read_tree
from roundhouse.deploy import stacks as module
from roundhouse.deploy.stacks import deployed_templates
from roundhouse.paths import Paths
from roundhouse.report import Report
from roundhouse.session import Session
from tests.unit.roundhouse.engines import REPOSITORY

TEMPLATE = {
    "Resources": {
        "Role": {"Properties": {"Version": "2012-10-17", "Account": "000000000000", "Count": 1}}
    }
}


class CloudFormation:
    """Stacks by name, each with the statuses that it has one after the other."""

    def __init__(self, listed, bodies):
        self.listed, self.bodies, self.names = listed, bodies, []

    def get_paginator(self, name):
        return self

    def paginate(self):
        for name, statuses in self.listed:
            yield {"StackSummaries": [{"StackName": name, "StackStatus": statuses[0]}]}

    def describe_stacks(self, StackName):
        self.names.append(StackName)
        statuses = dict(self.listed)[StackName]
        return {"Stacks": [{"StackStatus": statuses[min(len(self.names), len(statuses) - 1)]}]}

    def get_template(self, StackName):
        return {"TemplateBody": self.bodies[StackName]}


@pytest.fixture
def session_of(monkeypatch):
    def session(formation):
        return Session(
            paths=Paths(code=REPOSITORY, tree=REPOSITORY, build=REPOSITORY / "build"),
            environment=read_tree(REPOSITORY).environments["dev"],
            variables={},
            clients=lambda service: formation,
            run=lambda command, on_line=None: None,
            report=Report(console=Console(file=io.StringIO())),
        )

    monkeypatch.setattr(module, "EVERY_SECONDS", 0.0)
    return session


YAML = """\
Resources:
  Role:
    Properties:
      Version: "2012-10-17"
      Account: "000000000000"
      Count: 1
"""


@pytest.mark.parametrize("body", [TEMPLATE, json.dumps(TEMPLATE), YAML])
def test_template_is_read_however_it_was_sent(session_of, body):
    formation = CloudFormation([("a", ["UPDATE_COMPLETE"])], {"a": body})
    assert deployed_templates(session_of(formation), ["a"]) == {"a": TEMPLATE}


def test_stack_that_was_never_deployed_has_none(session_of):
    statuses = ("REVIEW_IN_PROGRESS", "ROLLBACK_COMPLETE", "DELETE_COMPLETE", "CREATE_FAILED")
    formation = CloudFormation(
        [(f"s{number}", [status]) for number, status in enumerate(statuses)], {}
    )
    assert deployed_templates(session_of(formation), ["s0", "s1", "s2", "s3", "never-there"]) == {}


def test_stack_that_was_deleted_and_made_anew_is_the_new_one(session_of):
    formation = CloudFormation(
        [("a", ["CREATE_COMPLETE"]), ("a", ["DELETE_COMPLETE"])], {"a": TEMPLATE}
    )
    assert deployed_templates(session_of(formation), ["a"]) == {"a": TEMPLATE}


def test_update_under_way_is_waited_for(session_of):
    busy = [
        "UPDATE_IN_PROGRESS",
        "UPDATE_IN_PROGRESS",
        "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS",
        "UPDATE_COMPLETE",
    ]
    formation = CloudFormation([("a", busy)], {"a": TEMPLATE})
    assert deployed_templates(session_of(formation), ["a"]) == {"a": TEMPLATE}
    assert formation.names == ["a", "a", "a"]


def test_no_endpoint_asks_nothing(session_of):
    assert deployed_templates(session_of(None), []) == {}
