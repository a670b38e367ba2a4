"""Endpoint stacks: what is deployed from a lock, what a change changes, what is refused."""

from __future__ import annotations

import dataclasses

import pytest

from onboarding.manifest import RuntimeIdentity
from onboarding.plugin_spec import PluginSpec
from tests.synth.assembly import Stacks, SynthesizedStack, synthesized
from tests.synth.deployments import (
    environment,
    locked,
    of_targets,
    one,
    unlocked,
    with_endpoint,
    with_engine_key,
    with_locks,
    with_scaling,
)

pytestmark = pytest.mark.synth

MODEL = "AWS::SageMaker::Model"
CONFIG = "AWS::SageMaker::EndpointConfig"
ENDPOINT = "AWS::SageMaker::Endpoint"
OWN, SHARED = "Endpoint-sentence-embedder", "Endpoint-text-shared"


@pytest.fixture(scope="module")
def dev(tmp_path_factory) -> Stacks:
    return synthesized(tmp_path_factory.mktemp("dev"), environment("dev"), locked("dev"))


def endpoint_stack(folder, deployment) -> SynthesizedStack:
    """The stack of one deployment."""
    return synthesized(folder, deployment.environment, [deployment])[f"Endpoint-{deployment.name}"]


def content_names(stack: SynthesizedStack) -> tuple[str, str]:
    """The names of model and endpoint config."""
    return stack.only(MODEL)["ModelName"], stack.only(CONFIG)["EndpointConfigName"]


def test_version_compatible_plans_are_loaded_only_where_the_model_sets_so(tmp_path, dev):
    flag = "--backend-config=tensorrt,version-compatible=true"
    plain = dev[OWN].only(MODEL)["PrimaryContainer"]["Environment"][
        "SAGEMAKER_TRITON_ADDITIONAL_ARGS"
    ]
    assert flag not in plain
    deployment = one("dev", "sentence-embedder")
    (target,) = deployment.targets
    engine = target.model.engine.model_copy(update={"version_compatible": True})
    compatible = dataclasses.replace(
        target, model=target.model.model_copy(update={"engine": engine})
    )
    stack = endpoint_stack(tmp_path, of_targets(deployment, (compatible,)))
    flags = stack.only(MODEL)["PrimaryContainer"]["Environment"]["SAGEMAKER_TRITON_ADDITIONAL_ARGS"]
    assert flags.split() == [*plain.split(), flag]


def test_plugins_of_a_model_are_loaded_by_triton(tmp_path):
    deployment = one("dev", "sentence-embedder")
    (target,) = deployment.targets
    plugin = PluginSpec(file="models/libscale.so", sha256="0" * 64, operators=("Scale",))
    engine = target.model.engine.model_copy(update={"plugins": (plugin,)})
    scaled = dataclasses.replace(target, model=target.model.model_copy(update={"engine": engine}))
    stack = endpoint_stack(tmp_path, of_targets(deployment, (scaled,)))
    flags = stack.only(MODEL)["PrimaryContainer"]["Environment"]["SAGEMAKER_TRITON_ADDITIONAL_ARGS"]
    assert "--backend-config=tensorrt,plugins=/opt/ml/model/libscale.so" in flags.split()


def test_outputs_name_the_endpoint_and_every_target_model(dev):
    outputs = dev[SHARED].template["Outputs"]
    keys = {target.model.name: target.engine_key for target in one("dev", "text-shared").targets}
    assert (
        outputs["TargetModelSentenceEmbedderFp32"]["Value"]
        == f"{keys['sentence-embedder-fp32']}/model.tar.gz"
    )
    assert (
        outputs["TargetModelSentenceEmbedderInt8"]["Value"]
        == f"{keys['sentence-embedder-int8']}/model.tar.gz"
    )
    assert outputs["EndpointName"]["Value"] == {"Fn::GetAtt": ["Endpoint", "EndpointName"]}
    assert dev[SHARED].only(ENDPOINT)["EndpointName"] == "dev-text-shared"


def test_scaling_change_changes_only_the_endpoint_stack_and_no_model_name(dev, tmp_path):
    more = [
        with_scaling(item, max=8) if item.name == "sentence-embedder" else item
        for item in locked("dev")
    ]
    after = synthesized(tmp_path, environment("dev"), more)
    assert {name for name in dev if dev[name].template != after[name].template} == {OWN}
    assert content_names(after[OWN]) == content_names(dev[OWN])


def test_engine_change_gives_new_model_and_config_names(dev, tmp_path):
    after = endpoint_stack(tmp_path, with_engine_key(one("dev", "sentence-embedder"), "b" * 20))
    assert not set(content_names(after)) & set(content_names(dev[OWN]))
    assert after.only(ENDPOINT)["EndpointName"] == dev[OWN].only(ENDPOINT)["EndpointName"]


def test_slo_change_keeps_the_model_and_the_endpoint_config(dev, tmp_path):
    after = endpoint_stack(
        tmp_path, with_endpoint(one("dev", "sentence-embedder"), latency_slo_ms=60)
    )
    assert content_names(after) == content_names(dev[OWN])
    assert after.template != dev[OWN].template


def test_missed_slo_is_a_warning_with_the_measurement(tmp_path):
    stack = endpoint_stack(
        tmp_path, with_endpoint(one("dev", "sentence-embedder"), latency_slo_ms=1)
    )
    assert stack.errors == ()
    assert len(stack.warnings) == 1 and "OVER the SLO of 1 ms" in stack.warnings[0]


def test_refuses_a_missing_lock_entry_with_the_command_that_builds_it(tmp_path):
    stacks = synthesized(tmp_path, environment("dev"), unlocked("dev"))
    (error,) = stacks[OWN].errors
    assert error.endswith("run: roundhouse build --env dev --model sentence-embedder")
    assert [error.rsplit(" ", 1)[1] for error in stacks[SHARED].errors] == [
        "sentence-embedder-fp32",
        "sentence-embedder-int8",
    ]
    assert all(stacks[name].errors == () for name in ("Foundation", "Builds", "Observability"))


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (
            "compute_capability",
            "8.9",
            "compute capability 8.9, and endpoint 'sentence-embedder' needs 8.6",
        ),
        (
            "runtime",
            RuntimeIdentity(name="tensorrt", version="10.0.0.1"),
            "runtime tensorrt 10.0.0.1",
        ),
        ("engine_key", "c" * 20, f"key {'c' * 20}"),
    ],
)
def test_refuses_a_foreign_engine(tmp_path, field, value, message):
    stack = endpoint_stack(tmp_path, with_locks(one("dev", "sentence-embedder"), **{field: value}))
    (error,) = stack.errors
    assert message in error and error.endswith(
        "roundhouse build --env dev --model sentence-embedder"
    )
    assert stack.properties(MODEL) == {}
