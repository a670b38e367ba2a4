"""A plan is deployed as it was reviewed, or refused with what moved."""

from __future__ import annotations

import copy
import functools
from random import Random

import pytest
import yaml

from onboarding.prices import PriceList, price_list
from onboarding.resolve import deployments
from onboarding.tree import read_tree
from roundhouse.errors import DeployFailedError, RoundhouseError
from roundhouse.gitops.compare import change_of, plan_against_deployed
from roundhouse.gitops.plan import environment_plan, observability_template
from roundhouse.gitops.plan_document import plan_inputs
from roundhouse.gitops.stale import read_plan, refuse_unplanned_builds, require_planned
from roundhouse.paths import find_paths
from roundhouse.processes import Processes
from stacks.endpoint.template import endpoint_template
from tests.unit.roundhouse.gitops.repository import ROOT, git

pytestmark = pytest.mark.unit

MODEL, ENVIRONMENT, REGION = "models/model-001.yaml", "environments/dev.yaml", "us-east-1"
MOVES = 50
NUMBERS = (
    ("archive", "size_bytes"),
    ("manifest", "load_seconds"),
    ("manifest", "host_memory_mib"),
    ("manifest", "accuracy", 0, "mean"),
    ("manifest", "benchmark", 3, "p99_ms"),
    ("manifest", "benchmark", 0, "rows_per_second"),
    ("manifest", "speedups", 0, "ratio"),
)
SETTINGS = (
    {"alarm_email": "team@example.com"},
    {"gates": {"capacity_days": 7}},
    {"builds": {"at_once": 9}},
    {"unreferenced_engine_days": 30},
    {"permissions_boundary_arn": "arn:aws:iam::111122223333:policy/boundary"},
    {"kms_key_arn": "arn:aws:kms:us-east-1:111122223333:key/0f8fad5b-d9cb-469f-a165-70867728950e"},
    {"models": {"model-002": {"endpoint": {"scaling": {"max": 9}}}}},
    {"models": {"except": ["model-002"]}},
)


def inputs(repository, prices=None):
    """What else a plan of the files as they are follows from."""
    tree = read_tree(repository.root)
    return plan_inputs(tree.environments["dev"], deployments(tree, "dev"), prices=prices)


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
    require_planned(plan, deployed, templates(repository), inputs(repository))


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
        ("models/model-002.yaml", {"endpoint": {"scaling": {"max": 7}}},
         "endpoint-model-002 changes too"),
    ],
)  # fmt: skip
def test_refuses_other_files(repository, reviewed, file, changes, words):
    deployed, plan = reviewed
    repository.edit(file, changes)
    with pytest.raises(DeployFailedError, match=words):
        require_planned(plan, deployed, templates(repository), inputs(repository))


def test_refuses_another_deployed_template(repository, reviewed):
    deployed, plan = reviewed
    stack = "roundhouse-dev-endpoint-model-001"
    moved = {**deployed[stack], "Resources": {**deployed[stack]["Resources"]}}
    moved["Resources"].pop("Ceiling")
    with pytest.raises(DeployFailedError, match=r"the deployed template of stack .* changed since"):
        require_planned(plan, {**deployed, stack: moved}, templates(repository), inputs(repository))


def moved_template(random, template):
    """A deployed template in which one property of one resource is another, or one is gone."""
    found = copy.deepcopy(template)
    name = random.choice(sorted(found["Resources"]))
    properties = found["Resources"][name].get("Properties", {})
    if not properties or random.random() < 0.2:
        del found["Resources"][name]
        return found
    key = random.choice(sorted(properties))
    if isinstance(properties[key], int | float) and not isinstance(properties[key], bool):
        properties[key] += random.choice((-1, 1))
    else:
        properties[key] = random.choice(("by hand", {"Ref": "Other"}, [properties[key]]))
    return found


def moved_prices(random, region):
    """A price list in which a price, its date or a type is another."""
    prices = price_list()
    rows = prices.regions[region]
    name = random.choice(sorted(rows.hosting))
    changes = random.choice(
        ({"date": "2027-01-01"}, {"hosting": {**rows.hosting, name: rows.hosting[name] + 0.01}},
         {"codebuild": {}}, {"hosting": {key: usd for key, usd in rows.hosting.items()
                                         if key != name}})
    )  # fmt: skip
    return PriceList(regions={**prices.regions, region: rows.model_copy(update=changes)})


def move(random, repository, deployed):
    """Move one thing between plan and deploy; return what is deployed and the prices then."""
    kind = random.choice(("template", "lock", "environment", "prices"))
    if kind == "template":
        stack = random.choice(sorted(deployed))
        return {**deployed, stack: moved_template(random, deployed[stack])}, None
    if kind == "lock":
        path = repository.root / f"models/model-00{random.choice((1, 2))}.lock.yaml"
        lock = yaml.safe_load(path.read_text())
        (entry,) = lock["engines"].values()
        *parents, last = random.choice(NUMBERS)
        for step in parents:
            entry = entry[step]
        entry[last] += 1 if last == "size_bytes" else 0.001
        path.write_text(yaml.safe_dump(lock, sort_keys=False))
    elif kind == "environment":
        repository.edit(ENVIRONMENT, random.choice(SETTINGS))
    else:
        return deployed, moved_prices(random, REGION)
    return deployed, None


def test_refuses_whatever_moved_between_plan_and_deploy(repository, reviewed):
    deployed, plan = reviewed
    repository.commit()
    for seed in range(MOVES):
        random = Random(seed)
        before, prices = move(random, repository, deployed)
        with pytest.raises(
            DeployFailedError, match=r"is not what would happen now: .* Nothing was"
        ):
            require_planned(plan, before, templates(repository), inputs(repository, prices))
            pytest.fail(f"accepted what moved by seed {seed}")
        git(repository.root, "checkout", "-q", ".")
    (repository.root / "notes.md").write_text("an unrelated commit")
    repository.commit()
    require_planned(plan, deployed, templates(repository), inputs(repository))


def test_refuses_an_edited_plan(repository, reviewed):
    deployed, plan = reviewed
    edited = plan.model_copy(update={"id": "f" * 12})
    with pytest.raises(DeployFailedError, match="its content was edited"):
        require_planned(edited, deployed, templates(repository), inputs(repository))


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
