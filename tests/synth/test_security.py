"""Every template of every kind of environment, with everything switched on: who may do what."""

from __future__ import annotations

import json
import re

import pytest

from onboarding.environment_spec import EnvironmentSpec
from roundhouse_cdk.exact_role import WILDCARDS
from tests.synth import security
from tests.synth.assembly import Stacks
from tests.synth.deployments import ROOT
from tests.synth.full_stage import KINDS, OWN_KEY, SETTINGS, everything

pytestmark = pytest.mark.synth
Stage = tuple[EnvironmentSpec, Stacks]


@pytest.fixture(scope="module")
def stages(tmp_path_factory) -> dict[str, Stage]:
    """By kind; the CDK's own validation refuses what it would in `cdk synth`."""
    settings = {kind: SETTINGS + (OWN_KEY if kind == "queue" else "") for kind in KINDS}
    found = {
        kind: everything(
            tmp_path_factory.mktemp(kind),
            settings[kind],
            KINDS[kind],
            is_validated=kind in ("everything", "queue"),
        )
        for kind in KINDS
    }
    found["smallest"] = everything(tmp_path_factory.mktemp("smallest"), "name: cloud\n", {})
    return found


def statements(stage: Stage) -> list[dict]:
    return [item for stack in stage[1].values() for _, item in security.allowing(stack.template)]


@pytest.mark.parametrize("kind", [*KINDS, "smallest"])
def test_no_template_has_a_fault(stages, kind):
    environment, stacks = stages[kind]
    assert (kind == "smallest") == (environment.permissions_boundary_arn is None)
    found = {name: security.faults(item.template, environment) for name, item in stacks.items()}
    assert {name: faults for name, faults in found.items() if faults} == {}


def test_every_reasoned_wildcard_is_needed(stages):
    """An entry that no template needs any more would open what nobody uses."""
    found = {
        security.reason(item)
        for kind in ("everything", "queue", "pools")
        for item in statements(stages[kind])
    }
    assert {item.why for item in WILDCARDS} <= found


def test_no_role_hands_over_a_network_interface_of_another_network(stages):
    """CreateNetworkInterfacePermission gives an interface to another account or service."""
    action = "ec2:CreateNetworkInterfacePermission"
    found = [item for item in statements(stages["everything"]) if action in item["Action"]]
    assert {frozenset(item["Condition"]["StringEquals"]) for item in found} == {
        frozenset({"ec2:AuthorizedService", "ec2:Subnet"}),
        frozenset({"ec2:Vpc"}),
    }
    for item in found:
        assert list(security.items_of(item["Action"])) == [action]
        named = {
            value.partition(":111122223333:")[2]
            for key, given in item["Condition"]["StringEquals"].items()
            for value in security.items_of(given)
            if key != "ec2:AuthorizedService"
        }
        subnets = {f"subnet/subnet-0123456789abcdef{number}" for number in (0, 1)}
        assert named in (subnets, {"vpc/vpc-0123456789abcdef0"})


def test_a_log_group_is_named_as_iam_knows_it(stages):
    """IAM asks for `log-group:NAME:log-stream:` where a group is made or searched.

    The plain name is no match.
    """
    of_groups = {"logs:CreateLogGroup", "logs:DescribeLogStreams"}
    found = statements(stages["everything"])
    named = [item["Resource"] for item in found if of_groups & set(item["Action"])]
    assert len(named) >= 2
    for resources in named:
        groups = {
            resource
            for resource in resources
            if ":log-stream:" not in resource and not resource.endswith(":*")
        }
        assert groups and {f"{group}:*" for group in groups} <= set(resources)


def test_the_policy_for_a_key_of_your_own_allows_what_the_roles_ask_for(stages, tmp_path):
    """A key's policy that hands the account fewer actions than a role has makes the rest of the
    role's a dead letter.
    """
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    (policy,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    (given,) = (
        set(load["Action"]) for load in json.loads(policy) if load["Sid"] == "RolesOfThisAccount"
    )
    whole = everything(tmp_path, SETTINGS + OWN_KEY, KINDS["everything"])
    needed = {
        action
        for statement in (*statements(whole), *statements(stages["queue"]))
        for action in security.items_of(statement["Action"])
        # The signing key alone is known by its alias.
        if action.startswith("kms:")
        and "kms:ResourceAliases" not in security.condition_keys(statement)
    }
    assert needed == given
