"""What a text generator's stack deploys, as plain data."""

from __future__ import annotations

import dataclasses
import json

import pytest

from stacks.generation.faults import generation_faults, generation_notes
from tests.synth.generation_cases import (
    FIXED,
    LEGAL,
    SCALED,
    WITHOUT_COMPONENTS,
    ZERO,
    generator,
    knee,
    resource,
    template,
)

pytestmark = pytest.mark.unit

NO_VALUE = {"Ref": "AWS::NoValue"}


@pytest.fixture(scope="module")
def generation():
    return generator(**SCALED)


def test_model_reads_the_checkpoint_of_its_key_as_files(generation):
    container = resource(generation, "Model")["PrimaryContainer"]
    key = generation.entry.checkpoint_key
    assert container["ModelDataSource"]["S3DataSource"] == {
        "S3Uri": f"s3://roundhouse-cloud-111122223333-us-east-1/checkpoints/{key}/",
        "S3DataType": "S3Prefix",
        "CompressionType": "None",
    }
    variables = container["Environment"]
    assert variables["STANDARD_AUTO_INSTALL_REQ"] == "false"
    assert variables["SM_VLLM_SERVED_MODEL_NAME"] == "chat"
    assert variables.items() >= dict(generation.container_environment).items()


def test_component_takes_the_gpus_of_its_tensor_parallel_size(generation):
    component = resource(generation, "InferenceComponent")
    assert component["InferenceComponentName"] == component["EndpointName"] == "cloud-chat"
    wanted = component["Specification"]["ComputeResourceRequirements"]
    assert wanted["NumberOfAcceleratorDevicesRequired"] == generation.candidate.tensor_parallel
    assert wanted["MinMemoryRequiredInMb"] == 8192
    assert component["Specification"]["ModelName"] == resource(generation, "Model")["ModelName"]


def test_config_of_components_names_a_role_and_no_model(generation):
    config = resource(generation, "EndpointConfig")
    (variant,) = config["ProductionVariants"]
    assert config["ExecutionRoleArn"] == {"Fn::GetAtt": ["Role", "Arn"]}
    assert "ModelName" not in variant
    assert variant["InferenceAmiVersion"] == "al2023-ami-sagemaker-inference-gpu-4-1"
    assert variant["ManagedInstanceScaling"] == {
        "Status": "ENABLED",
        "MinInstanceCount": 1,
        # Four copies of one GPU each, and two beside them while an update replaces half of them.
        "MaxInstanceCount": 6,
    }
    assert config["MetricsConfig"] == {"EnableDetailedObservability": True}


def test_another_checkpoint_changes_the_component_and_not_the_endpoint(generation):
    entry = generation.entry.model_copy(update={"checkpoint_key": "1" * 20})
    after = dataclasses.replace(generation, entry=entry)
    changed = {
        name
        for name, item in template(after)["Resources"].items()
        if item != template(generation)["Resources"].get(name)
    }
    assert {name for name in changed if "Policy" not in name} == {"Model", "InferenceComponent"}
    assert len([name for name in changed if name.startswith("VersionPolicy")]) == 1


def test_same_files_give_the_same_template():
    first, again = (json.dumps(template(generator(**SCALED)), sort_keys=True) for _ in range(2))
    assert first == again


def test_copies_are_set_in_a_new_component_alone_where_scaling_moves_them(generation):
    copies = resource(generation, "InferenceComponent")["RuntimeConfig"]
    assert copies == {"Fn::If": ["CopyCountIsSet", {"CopyCount": 1}, NO_VALUE]}
    assert template(generation)["Conditions"] == {
        "CopyCountIsSet": {"Fn::Equals": [{"Ref": "RetainCopyCount"}, "false"]}
    }
    fixed = generator(**FIXED)
    assert resource(fixed, "InferenceComponent")["RuntimeConfig"] == {"CopyCount": 2}
    assert (
        "Parameters" not in template(fixed) and "ScalableTarget" not in template(fixed)["Resources"]
    )


def test_copies_roll_over_in_batches_that_alarms_stop(generation):
    update = resource(generation, "InferenceComponent")["DeploymentConfig"]
    policy = update["RollingUpdatePolicy"]
    assert policy["MaximumBatchSize"] == {"Type": "CAPACITY_PERCENT", "Value": 50}
    assert policy["WaitIntervalInSeconds"] == 300
    alarms = [item["AlarmName"] for item in update["AutoRollbackConfiguration"]["Alarms"]]
    assert alarms == [
        "cloud-chat-server-errors",
        "cloud-chat-no-answers",
        "cloud-chat-stream-errors",
        "cloud-chat-first-token",
    ]
    waits = template(generation)["Resources"]["InferenceComponent"]["DependsOn"]
    assert {"ServerErrors", "NoAnswers", "StreamErrors", "FirstToken"} <= set(waits)


def test_scaling_holds_each_copy_at_a_share_of_its_knee(generation):
    policy = template(generation)["Resources"]["ConcurrencyPolicy"]
    tracking = policy["Properties"]["TargetTrackingScalingPolicyConfiguration"]
    assert tracking["PredefinedMetricSpecification"]["PredefinedMetricType"] == (
        "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution"
    )
    planned = generation.candidate.expected_requests
    assert tracking["TargetValue"] == pytest.approx(planned * 0.7, abs=0.1)
    assert "the plan's estimate" in policy["Metadata"]["Derivation"]["TargetValue"]
    chosen = generation.candidate.instance_type
    measured = generator(**SCALED, entry={"knee": knee(10, chosen)})
    assert (
        resource(measured, "ConcurrencyPolicy")["TargetTrackingScalingPolicyConfiguration"][
            "TargetValue"
        ]
        == 7.0
    )
    assert not any("the plan's estimate" in note for note in generation_notes(measured))


def test_queue_is_bounded_by_the_file_or_by_the_knee():
    given = generator()
    name = "SM_VLLM_MAX_NUM_QUEUED_REQS"
    assert resource(given, "Model")["PrimaryContainer"]["Environment"][name] == "64"
    derived = generator(
        serving={"max_num_queued_reqs": None},
        entry={"knee": knee(10, given.candidate.instance_type)},
    )
    # 2,000 ms to the first token of 2,000 + 400 x 80 ms of an answer: 5.9 % of 10 may wait.
    assert resource(derived, "Model")["PrimaryContainer"]["Environment"][name] == "11"


def test_scale_to_zero_has_a_way_back():
    zero = generator(**ZERO)
    resources = template(zero)["Resources"]
    (variant,) = resources["EndpointConfig"]["Properties"]["ProductionVariants"]
    assert variant["ManagedInstanceScaling"]["MinInstanceCount"] == 0
    assert resources["ScalableTarget"]["Properties"]["MinCapacity"] == 0
    steps = resources["FromZeroPolicy"]["Properties"]["StepScalingPolicyConfiguration"]
    assert steps["StepAdjustments"] == [{"MetricIntervalLowerBound": 0, "ScalingAdjustment": 1}]
    assert (steps["AdjustmentType"], steps["Cooldown"]) == ("ChangeInCapacity", 60)
    alarm = resources["FromZeroAlarm"]["Properties"]
    assert alarm["MetricName"] == "NoCapacityInvocationFailures"
    assert (alarm["Period"], alarm["EvaluationPeriods"], alarm["DatapointsToAlarm"]) == (30, 1, 1)
    assert alarm["AlarmActions"] == [{"Ref": "FromZeroPolicy"}]
    first = resources["InferenceComponent"]["Properties"]["RuntimeConfig"]["Fn::If"][1]
    assert first["CopyCount"] >= 1
    assert "NoInstances" not in resources


def test_endpoint_without_components_names_its_model_and_keeps_counts():
    plain = generator(**WITHOUT_COMPONENTS)
    resources = template(plain)["Resources"]
    (variant,) = resources["EndpointConfig"]["Properties"]["ProductionVariants"]
    assert variant["ModelName"] == resources["Model"]["Properties"]["ModelName"]
    assert "ManagedInstanceScaling" not in variant
    assert not {"InferenceComponent"} & resources.keys()
    assert "ExecutionRoleArn" not in resources["EndpointConfig"]["Properties"]
    retained = resources["Endpoint"]["Properties"]["RetainAllVariantProperties"]
    assert retained == {"Fn::If": ["VariantPropertiesAreRetained", True, NO_VALUE]}
    target = resources["ScalableTarget"]["Properties"]
    assert target["ResourceId"] == "endpoint/cloud-chat/variant/AllTraffic"


def test_prefix_aware_routing_is_cloudformations(generation):
    routed = generator(endpoint={"routing": "prefix-aware"})
    (variant,) = resource(routed, "EndpointConfig")["ProductionVariants"]
    assert variant["RoutingConfig"] == {"RoutingStrategy": "PREFIX_AWARE"}


def test_engines_own_series_are_read_by_promql(generation):
    query = resource(generation, "TokenTime")["EvaluationCriteria"]["PromQLCriteria"]["Query"]
    assert query == (
        'histogram_quantile(0.95, sum(rate({"vllm:inter_token_latency_seconds", '
        '"aws.sagemaker.endpoint.name"="cloud-chat", '
        '"aws.sagemaker.inference_component.name"="cloud-chat"}[5m]))) > 0.08'
    )


@pytest.mark.parametrize(
    ("serving", "most"),
    [({}, 10), ({"max_num_queued_reqs": 8}, 7), ({"max_num_queued_reqs": 1}, 1)],
)
def test_alarm_on_answers_under_way_fires_below_the_bound_of_the_queue(serving, most):
    """vLLM's own queue stays nearly empty where the server before it refuses what would wait."""
    measured = generator(entry={"knee": knee(10, "ml.g6e.2xlarge")}, serving=serving)
    query = resource(measured, "Waiting")["EvaluationCriteria"]["PromQLCriteria"]["Query"]
    assert query == (
        '{"roundhouse_front_sequences", "aws.sagemaker.endpoint.name"="cloud-chat", '
        f'"aws.sagemaker.inference_component.name"="cloud-chat"}} > {most}'
    )


def test_role_reads_one_checkpoint(generation):
    (policy,) = (
        item for name, item in template(generation)["Resources"].items() if "VersionPolicy" in name
    )
    statements = {item["Sid"]: item for item in policy["Properties"]["PolicyDocument"]["Statement"]}
    bucket = "arn:aws:s3:::roundhouse-cloud-111122223333-us-east-1"
    files = f"checkpoints/{generation.entry.checkpoint_key}/*"
    assert statements["ReadCheckpoint"]["Resource"] == [f"{bucket}/{files}"]
    assert statements["ListCheckpoint"]["Condition"] == {"StringLike": {"s3:prefix": [files]}}


def test_an_adapter_is_a_component_in_the_copies_of_its_base():
    generation = generator(**LEGAL)
    resources = template(generation)["Resources"]
    (name,) = (item for item in resources if item.startswith("Adapter"))
    archive = f"adapters/{generation.adapters['legal'][:20]}/adapter.tar.gz"
    bucket = "roundhouse-cloud-111122223333-us-east-1"
    assert resources[name]["DependsOn"] == ["InferenceComponent"]
    assert resources[name]["Properties"] == {
        "InferenceComponentName": "cloud-chat-legal",
        "EndpointName": "cloud-chat",
        "Specification": {
            "BaseInferenceComponentName": "cloud-chat",
            "Container": {"ArtifactUrl": f"s3://{bucket}/{archive}"},
        },
    }
    assert generation_faults(generation) == ()


def test_refuses_a_checkpoint_that_is_not_built():
    (fault,) = generation_faults(generator(build=False))
    assert "`roundhouse build --env cloud --model chat`" in fault
    assert template(generator(build=False)) == {"Resources": {}}
