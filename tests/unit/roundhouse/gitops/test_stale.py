"""A plan is deployed as it was reviewed, or refused with what moved."""

from __future__ import annotations

import pytest

from onboarding import prices
from onboarding.resolve import deployments
from onboarding.tree import read_tree
from roundhouse.errors import DeployFailedError, RoundhouseError
from roundhouse.gitops.compare import change_of, plan_against_deployed
from roundhouse.gitops.plan import environment_plan, observability_template
from roundhouse.gitops.stale import read_plan, refuse_unplanned_builds, require_planned
from roundhouse.processes import Processes
from stacks.endpoint.template import endpoint_template

pytestmark = pytest.mark.unit

MODEL, REGION = "models/model-001.yaml", "us-east-1"


def templates(repository):
    """The endpoint stacks of the files as they are."""
    tree = read_tree(repository.root)
    uris = change_of(repository.paths, tree, "dev", None).image_uris
    found = deployments(tree, "dev")
    endpoints = {
        f"roundhouse-dev-endpoint-{item.name}": endpoint_template(item, uris) for item in found
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
    require_planned(plan, deployed, templates(repository), REGION)


def test_plan_against_the_account_is_the_plan_against_git_where_main_is_deployed(
    repository, reviewed
):
    deployed, plan = reviewed
    tree = read_tree(repository.root)
    change = change_of(repository.paths, tree, "dev", None, deployed)
    assert environment_plan(change, lambda _: {}).id == plan.id


@pytest.mark.parametrize(
    ("file", "changes", "words"),
    [
        (MODEL, {"endpoint": {"scaling": {"max": 7}}}, "endpoint-model-001 another template"),
        (MODEL, {"endpoint": {"scaling": {"max": 4}}}, "deployed as planned already"),
        ("models/model-002.yaml", {"endpoint": {"scaling": {"max": 7}}},
         "endpoint-model-002 changes too"),
    ],
)  # fmt: skip
def test_refuses_other_files(repository, reviewed, file, changes, words):
    deployed, plan = reviewed
    repository.edit(file, changes)
    with pytest.raises(DeployFailedError, match=words):
        require_planned(plan, deployed, templates(repository), REGION)


def test_refuses_another_deployed_template(repository, reviewed):
    deployed, plan = reviewed
    stack = "roundhouse-dev-endpoint-model-001"
    moved = {**deployed[stack], "Resources": {**deployed[stack]["Resources"]}}
    moved["Resources"].pop("Ceiling")
    with pytest.raises(DeployFailedError, match=r"the deployed template of stack .* changed since"):
        require_planned(plan, {**deployed, stack: moved}, templates(repository), REGION)


def test_refuses_other_prices(repository, reviewed, monkeypatch):
    deployed, plan = reviewed
    monkeypatch.setattr(prices, "price_list", lambda: prices.PriceList(regions={}))
    with pytest.raises(DeployFailedError, match="prices were of 2025-04-11 and are of None"):
        require_planned(plan, deployed, templates(repository), REGION)


def test_refuses_an_edited_plan(repository, reviewed):
    deployed, plan = reviewed
    edited = plan.model_copy(update={"id": "f" * 12})
    with pytest.raises(DeployFailedError, match="its content was edited"):
        require_planned(edited, deployed, templates(repository), REGION)


def test_refuses_a_plan_whose_engines_are_not_built(repository):
    repository.edit(MODEL, {"accuracy": {"budget": {"mean": 0.995}}})
    with pytest.raises(
        DeployFailedError, match=r"engines of model-001 are missing.*roundhouse build"
    ):
        refuse_unplanned_builds(repository.changes(), [])


@pytest.mark.parametrize(
    ("content", "environment", "words"),
    [
        (None, "dev", "cannot be read"),
        ("{}", "dev", "is no plan of this version"),
        ("plan", "prod", "plans no change of environment prod; it plans dev"),
    ],
)
def test_refuses_a_file_that_is_no_plan_of_the_environment(
    repository, tmp_path, content, environment, words
):
    path = tmp_path / "plan.json"
    if content is not None:
        path.write_text(repository.plan().model_dump_json() if content == "plan" else content)
    with pytest.raises(RoundhouseError, match=words):
        read_plan(path, environment)


def test_plan_of_an_account_without_stacks_has_them_all_new(repository):
    plan = plan_against_deployed(repository.paths, "dev", {}, Processes())
    (environment,) = plan.environments
    assert [item.kind for item in environment.endpoints] == ["new", "new"]
    assert len(environment.stacks) == 4 and plan.base.ref == "deployed"
