"""`serving.runtime`: what executes and builds a model, and the server of one that joins."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onboarding.document import Document, Place
from onboarding.platform import build_route, instance_types, serving_platforms
from onboarding.resolve import deployments
from onboarding.rules.rule import EngineCase
from onboarding.rules.runtime_rules import driver_runs_the_baseline
from onboarding.tree import read_tree
from tests.unit.onboarding.trees import tree_root

BESIDE = """
name: rival
task: text-embedding
source: {python_package: example-model==1.0.0}
engine: {precision: fp32, optimization_profiles: [{batch: [1, 4, 8], sequence: [8, 16, 32]}]}
accuracy: {dataset: models/data/validation.txt}
serving: {runtime: %s}
endpoint: {joins: example, role: %s}
"""


def beside(tmp_path, runtime="pytorch", role="variant", **changes):
    return read_tree(tree_root(tmp_path, {"models/rival.yaml": BESIDE % (runtime, role)} | changes))


@pytest.mark.parametrize("role", ["variant", "shadow"])
@pytest.mark.parametrize("runtime", ["pytorch", "pytorch-compile", "onnxruntime-cuda"])
def test_baseline_joins_an_endpoint_of_triton_with_a_server_of_its_own(tmp_path, role, runtime):
    tree = beside(tmp_path, runtime, role)
    assert tree.faults == ()
    (deployment,) = deployments(tree, "cloud", only=["example"])
    own, rival = deployment.variants
    assert (deployment.server, own.server, rival.server) == ("triton", "triton", "python")
    assert (own.targets[0].runtime, rival.targets[0].runtime) == ("tensorrt", runtime)
    assert deployment.variant_of(rival.targets[0]) is rival


def test_refuses_triton_in_words_for_a_baseline_that_joins(tmp_path):
    text = BESIDE.replace("runtime: %s", "server: triton, runtime: %s")
    root = tree_root(tmp_path, {"models/rival.yaml": text % ("pytorch", "variant")})
    (fault,) = read_tree(root).faults
    assert "'serving.runtime' pytorch is the Python server's" in str(fault)


def test_baseline_of_a_gpu_is_built_on_a_cpu_and_runs_on_any_gpu_model(tmp_path):
    (deployment,) = deployments(beside(tmp_path), "cloud", only=["example"])
    plan, rival = (variant.targets[0] for variant in deployment.variants)
    assert (plan.build_capability, plan.plan_gpu) == ("8.6", "A10G")
    assert (rival.build_capability, rival.plan_gpu) == ("cpu", None)
    assert build_route(rival.build_capability, codebuild_gpu=True) == "cpu"
    assert plan.engine_key != rival.engine_key
    assert plan.network_keys["float"] == rival.network_keys["float"]


def test_refuses_a_baseline_behind_a_shared_endpoint(tmp_path):
    text = BESIDE.replace("{joins: example, role: %s}", "shared")
    (fault,) = read_tree(tree_root(tmp_path, {"models/rival.yaml": text % "pytorch"})).faults
    assert "cannot share an endpoint" in str(fault)
    assert "{joins: NAME}" in str(fault)


def test_refuses_a_driver_that_is_older_than_a_baselines_cuda(tmp_path):
    tree = beside(tmp_path)
    platform = serving_platforms()["triton-26.05"]
    place = Place(file="models/rival.yaml", line=7)
    case = EngineCase(
        spec=tree.models["rival"],
        document=Document(file=place.file, data={}, places={(): place}),
        platform=platform.model_copy(update={"minimum_driver": 535}),
        instance=instance_types()["ml.g5.xlarge"],
        instances=(),
        server="python",
        driver=550,
    )
    (fault,) = driver_runs_the_baseline.faults(case)
    assert "needs NVIDIA driver 580, and the host image has 550" in str(fault)
    assert list(driver_runs_the_baseline.faults(replace(case, driver=580))) == []
    assert list(driver_runs_the_baseline.faults(replace(case, platform=platform))) == []
