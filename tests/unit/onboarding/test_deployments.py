"""What an environment deploys: its endpoints, their hardware, and the engine each model needs."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from onboarding.dataset import Datasets
from onboarding.fault import FaultsError
from onboarding.lock import write_lock_entry
from onboarding.memory import memory_findings
from onboarding.platform import serving_platforms
from onboarding.resolve import deployments, target
from onboarding.rules.cases import engine_cases, placements
from onboarding.rules.placement_rules import driver_is_new_enough
from onboarding.rules.runtime_rules import driver_runs_the_baseline
from onboarding.tree import read_tree
from tests.unit.onboarding.manifests import lock_entry
from tests.unit.onboarding.trees import tree_root

ROOT = Path(__file__).parents[3]
MODEL, CLOUD, SHARED, JOINER = (
    "models/example.yaml",
    "environments/cloud.yaml",
    "endpoints/shared.yaml",
    "models/joiner.yaml",
)


def test_deployments_are_each_model_s_own_endpoint_and_the_shared_ones(tmp_path):
    own, shared = deployments(read_tree(tree_root(tmp_path, {})), "cloud")
    assert (own.name, own.multi_model, own.server, own.instance_type.name) == (
        "example",
        False,
        "triton",
        "ml.g5.xlarge",
    )
    assert (shared.name, shared.multi_model, [target.model.name for target in shared.targets]) == (
        "shared",
        True,
        ["joiner"],
    )
    assert own.inference_ami_version == "al2023-ami-sagemaker-inference-gpu-4-1"
    assert own.missing == own.targets


@pytest.mark.parametrize(
    ("models", "deployed"),
    [
        ("{}", ["example", "shared"]),
        ("{only: [example]}", ["example"]),
        ("{except: [joiner]}", ["example"]),
        ("{only: [team=search]}", ["shared"]),
        ("{except: [team=search]}", ["example"]),
        ("{only: [example, team=search]}", ["example", "shared"]),
    ],
)
def test_environment_deploys_the_models_that_it_chooses_by_name_or_label(
    models, deployed, tmp_path
):
    changes = {
        CLOUD: {"name: cloud": f"name: cloud\nmodels: {models}"},
        JOINER: {"name: joiner": "name: joiner\nlabels: {team: search}"},
    }
    tree = read_tree(tree_root(tmp_path, changes))
    assert tree.faults == ()
    assert [deployment.name for deployment in deployments(tree, "cloud")] == deployed


@pytest.mark.parametrize("resolve", [target, lambda *names: deployments(*names[:2], names[2:])])
def test_refuses_a_model_that_the_environment_leaves_out(resolve, tmp_path):
    root = tree_root(tmp_path, {CLOUD: {"name: cloud": "name: cloud\nmodels: {only: [joiner]}"}})
    with pytest.raises(FaultsError, match="leaves this model out"):
        resolve(read_tree(root), "cloud", "example")


PROD = """
name: prod
account: "444455556666"
region: eu-west-1
platform: triton-26.05
locks: locks/prod
promotes_from: cloud
"""


def test_environment_receives_the_engines_of_the_one_that_it_promotes_from(tmp_path):
    root = tree_root(tmp_path, {"environments/prod.yaml": PROD})
    (own, _) = deployments(read_tree(root), "cloud")
    (target_of_cloud,) = own.targets
    write_lock_entry(root / "models", "example", lock_entry("example", target_of_cloud.engine_key))
    (target_of_prod,) = deployments(read_tree(root), "prod")[0].targets
    assert (target_of_prod.engine_key, target_of_prod.held_by) == (
        own.targets[0].engine_key,
        "cloud",
    )
    assert target_of_prod.lock_entry is not None
    write_lock_entry(
        root / "locks" / "prod", "example", lock_entry("example", target_of_cloud.engine_key)
    )
    assert deployments(read_tree(root), "prod")[0].targets[0].held_by is None


def test_refuses_a_key_that_two_environments_claim_with_different_archives(tmp_path):
    root = tree_root(tmp_path, {"environments/prod.yaml": PROD})
    (own, _) = deployments(read_tree(root), "cloud")
    entry = lock_entry("example", own.targets[0].engine_key)
    other = entry.archive.model_copy(update={"sha256": "2" * 64})
    write_lock_entry(root / "models", "example", entry)
    write_lock_entry(root / "locks/prod", "example", entry.model_copy(update={"archive": other}))
    with pytest.raises(FaultsError) as error:
        deployments(read_tree(root), "prod")
    assert error.value.faults == memory_findings(read_tree(root)).faults
    assert str(error.value).startswith(
        f"models/example.lock.yaml: engine {entry.manifest.engine_key} has sha256 111111111111…, "
        "and the lock of prod says 222222222222…, so cloud and prod claim one key; take the entry"
    )
    assert deployments(read_tree(root), "cloud")[0].targets[0].lock_entry == entry


@pytest.fixture
def root(tmp_path):
    for folder in ("models", "endpoints", "environments"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    (tmp_path / "environments" / "local.yaml").unlink()
    shared = (tmp_path / "endpoints" / "text-shared.yaml").read_text()
    (tmp_path / "endpoints" / "alone.yaml").write_text(shared.replace("text-shared", "alone"))
    return tmp_path


@pytest.mark.parametrize(
    ("resolve", "words"),
    [
        (
            lambda tree: deployments(tree, "def"),
            "unknown environment, given def; allowed: dev; did you mean 'dev'?",
        ),
        (
            lambda tree: target(tree, "dev", "sentence-embeder"),
            "unknown model, given sentence-embeder; allowed: sentence-embedder-fp32, "
            "sentence-embedder-int8, sentence-embedder; did you mean 'sentence-embedder'?",
        ),
        (
            lambda tree: deployments(tree, "dev", ("sentence-embeder", "text-shared")),
            "models: unknown endpoint, given sentence-embeder; allowed: sentence-embedder, "
            "text-shared; did you mean 'sentence-embedder'?",
        ),
        # No model joins it.
        (lambda tree: deployments(tree, "dev", ("alone",)), "unknown endpoint, given alone"),
    ],
)
def test_refuses_a_name_that_is_unknown_and_names_the_nearest(resolve, words, root):
    with pytest.raises(FaultsError) as refused:
        resolve(read_tree(root))
    assert words in str(refused.value)


MODEL, BESIDE = "models/example.yaml", "models/beside.yaml"
POOLS = {
    "  scaling:": "  instance_pools: [{instance_type: ml.g6.xlarge}, "
    "{instance_type: ml.g4dn.xlarge}]\n  scaling:"
}
JOINS = """name: beside
task: text-embedding
source: {python_package: beside-model==1.0.0}
engine: {precision: fp16, optimization_profiles: [{batch: [1, 4, 8], sequence: [8, 16, 32]}]}
accuracy: {dataset: models/data/validation.txt}
endpoint: {joins: example, %s}
"""


def test_view_names_the_instance_types_of_pools_and_joins_too(tmp_path):
    joins = JOINS % "instance_type: ml.g5.2xlarge"
    tree = read_tree(tree_root(tmp_path, {MODEL: POOLS, BESIDE: joins}))
    named = {"ml.g5.xlarge", "ml.g6.xlarge", "ml.g4dn.xlarge", "ml.g5.2xlarge"}
    assert tree.views["cloud"].instance_types == named


def test_deployment_has_an_engine_for_every_gpu_generation_in_the_order_of_priorities(tmp_path):
    tree = read_tree(tree_root(tmp_path, {MODEL: POOLS, BESIDE: JOINS % "role: shadow"}))
    own = next(
        deployment for deployment in deployments(tree, "cloud") if deployment.name == "example"
    )
    assert [(pool.priority, pool.instance_type.name) for pool in own.own.pools] == [
        (1, "ml.g5.xlarge"),
        (2, "ml.g6.xlarge"),
        (3, "ml.g4dn.xlarge"),
    ]
    assert len({target.engine_key for target in own.targets}) == 4
    assert [(variant.name, variant.role) for variant in own.variants] == [
        ("AllTraffic", "variant"),
        ("beside", "shadow"),
    ]
    assert target(tree, "cloud", "example", "7.5")[1].instance_type.name == "ml.g4dn.xlarge"


RIVAL = """
name: rival
task: text-embedding
source: {python_package: example-model==1.0.0}
engine: {precision: fp32, optimization_profiles: [{batch: [1, 4, 8], sequence: [8, 16, 32]}]}
accuracy: {dataset: models/data/validation.txt}
serving: {runtime: %s}
endpoint: {joins: example, role: %s}
"""


def with_rival(tmp_path, runtime="pytorch", role="variant", **changes):
    return read_tree(tree_root(tmp_path, {"models/rival.yaml": RIVAL % (runtime, role)} | changes))


@pytest.mark.parametrize("role", ["variant", "shadow"])
@pytest.mark.parametrize("runtime", ["pytorch", "pytorch-compile", "onnxruntime-cuda"])
def test_baseline_joins_an_endpoint_of_triton_with_a_server_of_its_own(tmp_path, role, runtime):
    tree = with_rival(tmp_path, runtime, role)
    assert tree.faults == ()
    (deployment,) = deployments(tree, "cloud", only=["example"])
    own, rival = deployment.variants
    assert (deployment.server, own.server, rival.server) == ("triton", "triton", "python")
    assert (own.targets[0].runtime, rival.targets[0].runtime) == ("tensorrt", runtime)
    assert deployment.variant_of(rival.targets[0]) is rival


def test_refuses_a_driver_that_is_older_than_a_baselines_cuda(tmp_path):
    tree = with_rival(tmp_path)
    platform = serving_platforms()["triton-26.05"]
    cases = engine_cases(tree.views["cloud"], Datasets(tree.root))
    case = next(case for case in cases if case.model.spec.name == "rival")
    older = replace(case, platform=platform.model_copy(update={"minimum_driver": 535}), driver=550)
    (fault,) = driver_runs_the_baseline(older)
    assert "needs NVIDIA driver 580, and the host image has 550" in str(fault)
    assert list(driver_runs_the_baseline(replace(older, driver=580))) == []
    assert list(driver_runs_the_baseline(replace(older, platform=platform))) == []


def test_refuses_a_platform_that_leaves_the_host_image_open(tmp_path):
    """No platform does today, so no file of tests/fixtures has this fault."""
    case = next(placements(read_tree(tree_root(tmp_path, {})).views["cloud"]))
    open_platform = case.platform.model_copy(update={"inference_ami_version": None})
    (fault,) = driver_is_new_enough(replace(case, platform=open_platform))
    assert fault.line == 4 and "inference_ami_version" in fault.way_out
    assert list(driver_is_new_enough(case)) == []
