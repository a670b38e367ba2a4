"""Cases cover every instance type that may serve a model: own, pools, joined."""

from __future__ import annotations

import pytest

from onboarding import checks
from onboarding.dataset import Datasets
from onboarding.deployment import pool_priorities
from onboarding.hosting_spec import InstancePoolSpec
from onboarding.model_spec import EndpointSpec
from onboarding.resolve import deployments, target
from onboarding.tree import read_tree
from tests.unit.onboarding.trees import tree_root

MODEL, CLOUD, BESIDE = "models/example.yaml", "environments/cloud.yaml", "models/beside.yaml"
POOLS = {
    "  scaling:": "  instance_pools: [{instance_type: ml.g6.xlarge, priority: 4}, "
    "{instance_type: ml.g4dn.xlarge}]\n  scaling:"
}
JOINS = """name: beside
task: text-embedding
source: {python_package: beside-model==1.0.0}
engine: {precision: fp16, optimization_profiles: [{batch: [1, 4, 8], sequence: [8, 16, 32]}]}
accuracy: {dataset: models/data/validation.txt}
endpoint: {joins: example, %s}
"""


def view(tmp_path, changes):
    return read_tree(tree_root(tmp_path, changes)).views["cloud"]


def test_placements_are_every_pool_and_every_joined_type(tmp_path):
    found = view(tmp_path, changes={MODEL: POOLS, BESIDE: JOINS % "instance_type: ml.g5.2xlarge"})
    placed = {
        (case.document.file, case.instance_path[-1], case.instance.name)
        for case in checks.placements(found)
    }
    assert placed == {
        (MODEL, "instance_type", "ml.g5.xlarge"),
        (MODEL, "instance_type", "ml.g6.xlarge"),
        (MODEL, "instance_type", "ml.g4dn.xlarge"),
        (BESIDE, "instance_type", "ml.g5.2xlarge"),
        ("endpoints/shared.yaml", "instance_type", "ml.g5.2xlarge"),
    }


def test_placement_of_a_pool_points_at_the_pool(tmp_path):
    paths = {
        case.instance.name: case.instance_path
        for case in checks.placements(view(tmp_path, changes={MODEL: POOLS}))
    }
    assert paths["ml.g4dn.xlarge"] == ("endpoint", "instance_pools", 1, "instance_type")


def test_engine_cases_are_every_pool_and_the_inherited_type_of_a_join(tmp_path):
    found = view(tmp_path, changes={MODEL: POOLS, BESIDE: JOINS % "weight: 0.5"})
    built = {
        (case.spec.name, case.instance.name)
        for _, case in checks.engine_cases(found, Datasets(tmp_path))
    }
    assert built == {
        ("example", "ml.g5.xlarge"),
        ("example", "ml.g6.xlarge"),
        ("example", "ml.g4dn.xlarge"),
        ("beside", "ml.g5.xlarge"),
        ("joiner", "ml.g5.2xlarge"),
    }


def test_engine_cases_of_a_join_follow_the_override_of_the_joined_model(tmp_path):
    override = "name: cloud\nmodels: {example: {endpoint: {instance_type: ml.c7i.large}}}"
    found = view(
        tmp_path, changes={BESIDE: JOINS % "weight: 0.5", CLOUD: {"name: cloud": override}}
    )
    assert {
        case.instance.name
        for _, case in checks.engine_cases(found, Datasets(tmp_path))
        if case.spec.name == "beside"
    } == {"ml.c7i.large"}


def test_server_of_a_joined_placement_is_the_endpoints(tmp_path):
    changes = {
        MODEL: {"server: triton": "server: python"},
        BESIDE: JOINS % "instance_type: ml.g5.2xlarge",
    }
    servers = {
        case.document.file: case.server
        for case in checks.placements(view(tmp_path, changes=changes))
    }
    assert servers[BESIDE] == "python"


@pytest.mark.parametrize(
    ("written", "priorities"),
    [((None, None), (1, 2, 3)), ((4, None), (1, 4, 5)), ((3, 2), (1, 3, 2)), ((), (1,))],
)
def test_priority_of_a_pool_is_its_own_or_after_those_before_it(written, priorities):
    types = ("ml.g6.xlarge", "ml.g4dn.xlarge")
    pools = tuple(
        InstancePoolSpec(instance_type=name, priority=priority)
        for name, priority in zip(types, written, strict=False)
    )
    found = pool_priorities(EndpointSpec(instance_type="ml.g5.xlarge", instance_pools=pools))
    assert tuple(priority for priority, _ in found) == priorities


def test_deployment_has_an_engine_for_every_gpu_generation_in_the_order_of_priorities(tmp_path):
    tree = read_tree(tree_root(tmp_path, {MODEL: POOLS, BESIDE: JOINS % "role: shadow"}))
    own = next(
        deployment for deployment in deployments(tree, "cloud") if deployment.name == "example"
    )
    assert [(pool.priority, pool.instance_type.name) for pool in own.own.pools] == [
        (1, "ml.g5.xlarge"),
        (4, "ml.g6.xlarge"),
        (5, "ml.g4dn.xlarge"),
    ]
    assert len({target.engine_key for target in own.targets}) == 4
    assert [(variant.name, variant.role) for variant in own.variants] == [
        ("AllTraffic", "variant"),
        ("beside", "shadow"),
    ]
    assert target(tree, "cloud", "example", "7.5")[1].instance_type.name == "ml.g4dn.xlarge"


def test_host_image_is_named_where_a_joined_variant_alone_has_a_gpu(tmp_path):
    changes = {
        MODEL: {"ml.g5.xlarge": "ml.c7i.large"},
        BESIDE: JOINS % "instance_type: ml.g5.2xlarge",
    }
    own = next(
        deployment
        for deployment in deployments(read_tree(tree_root(tmp_path, changes)), "cloud")
        if deployment.name == "example"
    )
    assert own.inference_ami_version == "al2023-ami-sagemaker-inference-gpu-4-1"
