"""A plan is deployed as it was reviewed, or refused with what moved."""

from __future__ import annotations

import functools

import pytest

from onboarding.resolve import deployments
from onboarding.tree import read_tree
from roundhouse.errors import DeployFailedError, RoundhouseError
from roundhouse.gitops.compare import change_of, plan_against_deployed
from roundhouse.gitops.plan import environment_plan, observability_template
from roundhouse.gitops.stale import read_plan, refuse_unplanned_builds, require_planned
from roundhouse.paths import find_paths
from roundhouse.processes import Processes
from stacks.endpoint_stack import endpoint_template
from tests.unit.roundhouse.gitops.repository import ROOT

MODEL, OTHER = "models/model-001.yaml", "models/model-002.yaml"


@functools.cache
def image_uris_now():
    """What the code's own files are built into; no test changes them."""
    return change_of(find_paths(ROOT), read_tree(ROOT), "dev", None).image_uris


def templates(repository):
    """The endpoint stacks of the files as they are."""
    tree = read_tree(repository.root)
    found = deployments(tree, "dev")
    endpoints = {
        f"roundhouse-dev-endpoint-{item.name}": endpoint_template(item, image_uris_now())
        for item in found
    }
    return endpoints | observability_template(tree.environments["dev"], found)


@pytest.fixture
def reviewed(repository):
    """What is deployed, and the plan of a change of scaling."""
    deployed = templates(repository)
    repository.edit(MODEL, {"endpoint": {"scaling": {"max": 6}}})
    return deployed, repository.changes()


def test_accepts_the_deployment_that_was_planned(repository, reviewed):
    deployed, plan = reviewed
    repository.commit("an unrelated commit")
    require_planned(plan, deployed, templates(repository))


def test_plan_against_the_account_is_the_plan_against_git_where_main_is_deployed(
    repository, reviewed
):
    deployed, plan = reviewed
    tree = read_tree(repository.root)
    change = change_of(repository.paths, tree, "dev", None, deployed)
    assert environment_plan(change, lambda *_: {}).id == plan.id


@pytest.mark.parametrize(
    ("file", "changes", "words"),
    [
        (MODEL, {"endpoint": {"scaling": {"max": 7}}}, "endpoint-model-001 another template"),
        (MODEL, {"endpoint": {"scaling": {"max": 4}}}, "deployed as planned already"),
        (OTHER, {"endpoint": {"scaling": {"max": 7}}}, "endpoint-model-002 changes too"),
    ],
)
def test_refuses_other_files(repository, reviewed, file, changes, words):
    deployed, plan = reviewed
    repository.edit(file, changes)
    with pytest.raises(DeployFailedError, match=words):
        require_planned(plan, deployed, templates(repository))


def test_refuses_another_deployed_template(repository, reviewed):
    """Every resource of every stack, gone or with another property."""
    deployed, plan = reviewed
    wanted = templates(repository)
    for stack, template in deployed.items():
        for name, resource in template["Resources"].items():
            rest = {key: item for key, item in template["Resources"].items() if key != name}
            other = {**resource, "Properties": {**resource.get("Properties", {}), "ByHand": 1}}
            for resources in (rest, {**rest, name: other}):
                moved = {**deployed, stack: {**template, "Resources": resources}}
                with pytest.raises(
                    DeployFailedError, match=rf"{stack} (changed since|changes too)"
                ):
                    require_planned(plan, moved, wanted)


def test_refuses_an_edited_plan(repository, reviewed):
    deployed, plan = reviewed
    edited = plan.model_copy(update={"id": "f" * 12})
    with pytest.raises(DeployFailedError, match="its content was edited"):
        require_planned(edited, deployed, templates(repository))


def test_refuses_a_plan_whose_engines_are_not_built(repository):
    repository.edit(MODEL, {"accuracy": {"budget": {"mean": 0.995}}})
    with pytest.raises(
        DeployFailedError, match=r"engines of model-001 are missing.*roundhouse build"
    ):
        refuse_unplanned_builds(repository.changes(), [])


def test_refuses_a_plan_of_another_environment(repository, tmp_path):
    path = tmp_path / "plan.json"
    path.write_text(repository.plan().model_dump_json())
    with pytest.raises(RoundhouseError, match="no change of environment prod; it plans dev"):
        read_plan(path, "prod")


def test_plan_of_an_account_without_stacks_has_them_all_new(repository):
    plan = plan_against_deployed(repository.paths, "dev", {}, Processes())
    (environment,) = plan.environments
    assert [item.kind for item in environment.endpoints] == ["new", "new"]
    assert len(environment.stacks) == 4 and plan.base.ref == "deployed"
