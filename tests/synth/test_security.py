"""Every template of every kind of environment, with everything switched on, and faults that each
check must refuse.
"""

from __future__ import annotations

import copy
import json
import re

import pytest

from onboarding.environment_spec import EnvironmentSpec, NetworkSpec
from stacks.suppressions import WILDCARDS
from tests.synth import security
from tests.synth.assembly import Stacks, lint
from tests.synth.deployments import ROOT
from tests.synth.full_stage import KINDS, OWN_KEY, SETTINGS, everything
from tests.synth.reasoned_wildcards import REASONED
from tests.synth.security_mutations import FAULTS, FOUNDATION, IMAGES

pytestmark = pytest.mark.synth


@pytest.fixture(
    scope="module",
    params=[("everything", ""), ("queue", OWN_KEY), ("pools", ""), ("volume", "")],
    ids=lambda fault: fault[0],
)
def stage(request, tmp_path_factory) -> tuple[EnvironmentSpec, Stacks]:
    kind, key = request.param
    folder = tmp_path_factory.mktemp(kind)
    return everything(folder, SETTINGS + key, KINDS[kind], is_validated=True)


@pytest.fixture(scope="module")
def full(tmp_path_factory) -> tuple[EnvironmentSpec, Stacks]:
    return everything(tmp_path_factory.mktemp("full"), SETTINGS, KINDS["everything"])


@pytest.fixture(scope="module")
def queue(tmp_path_factory) -> tuple[EnvironmentSpec, Stacks]:
    return everything(tmp_path_factory.mktemp("queued"), SETTINGS, KINDS["queue"])


def test_no_template_has_a_fault(stage):
    environment, stacks = stage
    assert {
        name: found
        for name, stack in stacks.items()
        if (found := security.faults(stack.template, environment))
    } == {}


def test_foundation_and_images_pass_cfn_lint_with_every_setting(stage):
    for name in (FOUNDATION, IMAGES):
        assert lint(stage[1][name].path.read_text(encoding="utf-8")) == []


def test_the_smallest_environment_has_no_fault(tmp_path):
    environment, stacks = everything(tmp_path, "name: cloud\n", {})
    assert environment.permissions_boundary_arn is environment.network is None
    assert {
        name: found
        for name, stack in stacks.items()
        if (found := security.faults(stack.template, environment))
    } == {}


def test_the_templates_hold_what_the_checks_look_for(full):
    _, stacks = full
    found = {
        resource["Type"]
        for stack in stacks.values()
        for resource in stack.template["Resources"].values()
    }
    assert found >= security.KNOWN_TYPES - {"AWS::SNS::Subscription"}
    assert sum(1 for stack in stacks.values() for _ in security.allowing(stack.template)) > 40


def test_every_reasoned_wildcard_is_needed(full, queue):
    """An entry that no template needs any more is a door left open."""
    found = {
        security.reason(
            kind,
            frozenset(security.items_of(statement["Action"])),
            resource,
            security.condition_keys(statement),
        )
        for stack in (*full[1].values(), *queue[1].values())
        for kind, _, statement in security.allowing(stack.template)
        for resource in map(security.text, security.items_of(statement["Resource"]))
    }
    assert {item.why for item in (*WILDCARDS, *REASONED)} <= found


@pytest.mark.parametrize(("check", "stack", "change"), FAULTS)
def test_refuses(full, check, stack, change):
    environment, stacks = full
    templates = {name: copy.deepcopy(item.template) for name, item in stacks.items()}
    assert security.faults(templates[stack], environment) == []
    change(templates)
    found = security.faults(templates[stack], environment)
    assert any(sentence.startswith(f"{check}: ") for sentence in found), found


def test_a_log_group_is_named_as_iam_knows_it(full):
    """IAM asks for `log-group:NAME:log-stream:` where a group is made or searched.

    The plain name is no match.
    """
    of_groups = {"logs:CreateLogGroup", "logs:DescribeLogStreams"}
    found = [item for stack in full[1].values() for _, _, item in security.allowing(stack.template)]
    named = [
        entry["Resource"] for entry in found if of_groups & set(security.items_of(entry["Action"]))
    ]
    assert len(named) >= 2
    for resources in named:
        groups = {
            resource
            for resource in resources
            if ":log-stream:" not in resource and not resource.endswith(":*")
        }
        assert groups and {f"{group}:*" for group in groups} <= set(resources)


def test_every_check_refuses_a_mutation():
    assert {check.__name__ for check in security.CHECKS} == {check for check, *_ in FAULTS}


def test_the_policy_for_a_key_of_your_own_allows_what_the_roles_ask_for(tmp_path_factory):
    """A key's policy that hands the account fewer actions than a role has makes the rest of the
    role's a dead letter.
    """
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    (policy,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    (given,) = (
        set(load["Action"]) for load in json.loads(policy) if load["Sid"] == "RolesOfThisAccount"
    )
    stages = [
        everything(tmp_path_factory.mktemp(kind), SETTINGS + OWN_KEY, KINDS[kind])[1]
        for kind in KINDS
    ]
    templates = [stack.template for stacks in stages for stack in stacks.values()]
    statements = [
        element
        for template in templates
        for kind, _, element in security.allowing(template)
        if kind.startswith("AWS::IAM::")
    ]
    actions_of_key = {
        action
        for statement in statements
        for action in security.items_of(statement["Action"])
        if action.startswith("kms:") and not is_of_alias(statement)
    }
    assert actions_of_key == given


def is_of_alias(statement):
    """Whether a statement is about a key of ours: here the signing key alone."""
    return "kms:ResourceAliases" in security.condition_keys(statement)


def test_settings_name_a_whole_network():
    assert set(NetworkSpec.model_fields) <= {
        line.split(":")[0].strip() for line in SETTINGS.splitlines()
    }
