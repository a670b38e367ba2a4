"""Endpoint stacks: what is deployed from a lock, what a change changes, what is refused."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest

from onboarding import names
from onboarding.environment_spec import NetworkSpec
from onboarding.manifest import RuntimeIdentity
from tests.synth.assembly import Stacks, SynthesizedStack, synthesized
from tests.synth.deployments import (
    changed,
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


@pytest.fixture(scope="module")
def local(tmp_path_factory) -> Stacks:
    return synthesized(tmp_path_factory.mktemp("local"), environment("local"), locked("local"))


def endpoint_stack(folder, deployment) -> SynthesizedStack:
    """The stack of one deployment."""
    return synthesized(folder, deployment.environment, [deployment])[f"Endpoint-{deployment.name}"]


def content_names(stack: SynthesizedStack) -> tuple[str, str]:
    """The names of model and endpoint config."""
    return stack.only(MODEL)["ModelName"], stack.only(CONFIG)["EndpointConfigName"]


def test_single_model_container_names_its_engine_by_key_and_digest(dev):
    (target,) = one("dev", "sentence-embedder").targets
    container = dev[OWN].only(MODEL)["PrimaryContainer"]
    assert container["Mode"] == "SingleModel"
    bucket = names.artifact_bucket(environment("dev"))
    assert container["ModelDataUrl"] == f"s3://{bucket}/engines/{target.engine_key}/model.tar.gz"
    assert (
        container["Environment"]["ROUNDHOUSE_MANIFEST_SHA256"]
        == target.lock_entry.archive.manifest_sha256
    )
    assert container["Environment"]["SAGEMAKER_TRITON_DEFAULT_MODEL_NAME"] == "sentence-embedder"
    assert re.fullmatch(
        r"111122223333\.dkr\.ecr\.us-east-1\.amazonaws\.com/roundhouse-dev/triton:[0-9a-f]{20}",
        container["Image"],
    )


def test_version_compatible_plans_are_loaded_only_where_they_are_asked_for(tmp_path, dev):
    flag = "--backend-config=tensorrt,version-compatible=true"
    plain = dev[OWN].only(MODEL)["PrimaryContainer"]["Environment"][
        "SAGEMAKER_TRITON_ADDITIONAL_ARGS"
    ]
    assert flag not in plain
    deployment = one("dev", "sentence-embedder")
    (target,) = deployment.targets
    engine = target.model.engine.model_copy(update={"version_compatible": True})
    asked = dataclasses.replace(target, model=target.model.model_copy(update={"engine": engine}))
    stack = endpoint_stack(tmp_path, of_targets(deployment, (asked,)))
    flags = stack.only(MODEL)["PrimaryContainer"]["Environment"]["SAGEMAKER_TRITON_ADDITIONAL_ARGS"]
    assert flags.split() == [*plain.split(), flag]


def test_multi_model_container_points_at_the_engines_prefix(dev):
    container = dev[SHARED].only(MODEL)["PrimaryContainer"]
    assert container["Mode"] == "MultiModel"
    assert container["ModelDataUrl"] == f"s3://{names.artifact_bucket(environment('dev'))}/engines/"
    assert "ROUNDHOUSE_MANIFEST_SHA256" not in container["Environment"]


def test_python_server_gets_its_image_and_no_triton_variable(local):
    container = local[OWN].only(MODEL)["PrimaryContainer"]
    assert "/python-server:" in container["Image"]
    assert set(container["Environment"]) == {"ROUNDHOUSE_MANIFEST_SHA256"}


def test_gpu_variant_pins_its_host_image_and_a_cpu_one_has_none(dev, local):
    (gpu,) = dev[OWN].only(CONFIG)["ProductionVariants"]
    (cpu,) = local[OWN].only(CONFIG)["ProductionVariants"]
    assert gpu["InferenceAmiVersion"] == "al2023-ami-sagemaker-inference-gpu-4-1"
    assert gpu["InstanceType"] == "ml.g5.xlarge"
    assert "InferenceAmiVersion" not in cpu


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


def test_model_is_isolated_from_the_network(dev, local):
    assert all(
        stack.only(MODEL)["EnableNetworkIsolation"] is True
        for stack in (dev[OWN], dev[SHARED], local[OWN])
    )


def test_latency_alarm_is_in_microseconds_and_reaches_the_topic(dev):
    alarm = dev[OWN].properties("AWS::CloudWatch::Alarm")["Latency"]
    stats = {
        query["MetricStat"]["Metric"]["MetricName"]
        for query in alarm["Metrics"]
        if "MetricStat" in query
    }
    assert (stats, alarm["Threshold"]) == ({"ModelLatency"}, 50_000)
    (topic,) = alarm["AlarmActions"]
    assert topic == "arn:aws:sns:us-east-1:111122223333:roundhouse-dev-alarms"
    topics = dev["Foundation"].properties("AWS::SNS::Topic")
    assert topics["Alarms"]["TopicName"] == topic.split(":")[-1]


def test_rollback_alarms_are_there_before_the_endpoint(dev, local):
    for stack in (dev[OWN], dev[SHARED], local[OWN]):
        endpoint = stack.template["Resources"]["Endpoint"]
        rollback = endpoint["Properties"]["DeploymentConfig"]["AutoRollbackConfiguration"]
        wanted = {alarm["AlarmName"] for alarm in rollback["Alarms"]}
        alarms = stack.properties("AWS::CloudWatch::Alarm")
        waited_for = {alarms[each]["AlarmName"] for each in endpoint["DependsOn"] if each in alarms}
        assert wanted and wanted == waited_for
        assert all(
            each["TreatMissingData"] == "notBreaching"
            for each in alarms.values()
            if each["AlarmName"] in wanted
        )


def test_scaling_target_names_a_variant_that_is_there(dev):
    target = dev[OWN].only("AWS::ApplicationAutoScaling::ScalableTarget")
    (variant,) = dev[OWN].only(CONFIG)["ProductionVariants"]
    assert (
        target["ResourceId"]
        == f"endpoint/{dev[OWN].only(ENDPOINT)['EndpointName']}/variant/{variant['VariantName']}"
    )
    assert (target["MinCapacity"], target["MaxCapacity"]) == (1, 4)


def test_invocations_target_is_derived_from_the_lock(dev):
    policy = dev[OWN].template["Resources"]["InvocationsPolicy"]
    # Batch 8 in 20 ms is 400 rows/s and within 50 ms; batch 32 in 90 ms is not.
    assert (
        policy["Properties"]["TargetTrackingScalingPolicyConfiguration"]["TargetValue"]
        == 400 * 60 * 0.5
    )
    assert "400 rows/s measured" in policy["Metadata"]["Derivation"]["TargetValue"]


def test_fixed_instance_count_has_no_scaling(local):
    assert local[OWN].properties("AWS::ApplicationAutoScaling::ScalableTarget") == {}


def test_scaling_change_changes_only_the_endpoint_stack_and_no_model_name(dev, tmp_path):
    more = [
        with_scaling(each, max=8) if each.name == "sentence-embedder" else each
        for each in locked("dev")
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


def test_engine_without_benchmark_warns_and_scales_on_the_gpu_alone(tmp_path):
    stack = endpoint_stack(tmp_path, with_locks(one("dev", "sentence-embedder"), benchmark=()))
    assert set(stack.properties("AWS::ApplicationAutoScaling::ScalingPolicy")) == {"GpuPolicy"}
    assert "no benchmark of its own engine" in stack.warnings[0]


def test_refuses_a_missing_lock_entry_with_the_command_that_builds_it(tmp_path):
    stacks = synthesized(tmp_path, environment("dev"), unlocked("dev"))
    (error,) = stacks[OWN].errors
    assert error.endswith("run: roundhouse build --env dev --model sentence-embedder")
    assert [error.rsplit(" ", 1)[1] for error in stacks[SHARED].errors] == [
        "sentence-embedder-fp32",
        "sentence-embedder-int8",
    ]
    assert all(stacks[name].errors == () for name in ("Foundation", "Builds", "Observability"))


def test_refuses_a_missing_engine_in_cloudformation_too(tmp_path):
    template = synthesized(tmp_path, environment("dev"), unlocked("dev"))[OWN].template
    assert [resource["Type"] for resource in template["Resources"].values()] == [
        "AWS::CloudFormation::WaitConditionHandle"
    ]
    (assertion,) = template["Rules"]["EngineIsBuilt"]["Assertions"]
    assert assertion["Assert"] == {"Fn::Equals": [{"Ref": "AWS::Region"}, "engine not built"]}


@pytest.mark.parametrize(
    ("field", "value", "said"),
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
def test_refuses_a_foreign_engine(tmp_path, field, value, said):
    stack = endpoint_stack(tmp_path, with_locks(one("dev", "sentence-embedder"), **{field: value}))
    (error,) = stack.errors
    assert said in error and error.endswith("roundhouse build --env dev --model sentence-embedder")
    assert stack.properties(MODEL) == {}


def test_vpc_boundary_and_key_of_the_environment_are_used(tmp_path):
    network = {"vpc_id": "vpc-0a", "subnet_ids": ("subnet-0a",), "security_group_ids": ("sg-0a",)}
    fields = {
        "network": NetworkSpec(**network),
        "permissions_boundary_arn": "arn:aws:iam::111122223333:policy/boundary",
        "kms_key_arn": (
            "arn:aws:kms:us-east-1:111122223333:key/00000000-0000-0000-0000-000000000000"
        ),
    }
    secured = environment("dev").model_copy(update=fields)
    stacks = synthesized(
        tmp_path, secured, [changed(each, environment=secured) for each in locked("dev")]
    )
    assert stacks[OWN].only(MODEL)["VpcConfig"] == {
        "Subnets": ["subnet-0a"],
        "SecurityGroupIds": ["sg-0a"],
    }
    roles = [
        role for stack in stacks.values() for role in stack.properties("AWS::IAM::Role").values()
    ]
    assert len(roles) >= 4
    assert all(role["PermissionsBoundary"] == fields["permissions_boundary_arn"] for role in roles)
    assert stacks["Foundation"].properties("AWS::KMS::Key") == {}
    assert fields["kms_key_arn"] in json.dumps(stacks["Foundation"].only("AWS::S3::Bucket"))
