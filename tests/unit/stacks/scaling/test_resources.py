"""CloudFormation resources of scaling: who scales, between which counts, on what."""

from __future__ import annotations

import json

import pytest

from onboarding.hosting_spec import AsynchronousSpec, ScheduledFloorSpec
from stacks.endpoint.warnings import scaling_warnings
from stacks.scaling.resources import scaling_resources
from stacks.scaling.targets import variant_id
from tests.synth.deployments import one, with_endpoint, with_locks, with_scaling
from tests.synth.scaled import variant, with_own, with_served, with_variant

pytestmark = pytest.mark.unit

POLICY = "AWS::ApplicationAutoScaling::ScalingPolicy"


def embedder():
    return one("dev", "sentence-embedder")


def asynchronous(**scaling):
    return with_scaling(with_endpoint(embedder(), asynchronous=AsynchronousSpec()), **scaling)


def properties(resources, logical_id):
    return resources[logical_id]["Properties"]


def tracking(resources, logical_id):
    return properties(resources, logical_id)["TargetTrackingScalingPolicyConfiguration"]


def test_own_variant_scales_under_ids_that_never_change():
    resources = scaling_resources(embedder())
    assert list(resources) == ["ScalableTarget", "InvocationsPolicy", "GpuPolicy"]
    target = properties(resources, "ScalableTarget")
    assert (target["MinCapacity"], target["MaxCapacity"]) == (1, 4)
    assert target["ResourceId"] == "endpoint/dev-sentence-embedder/variant/AllTraffic"
    assert "RoleARN" not in target and "ScheduledActions" not in target


def test_policies_wait_for_the_target_and_the_target_for_the_endpoint():
    resources = scaling_resources(embedder())
    assert resources["ScalableTarget"]["DependsOn"] == ["Endpoint"]
    assert all(
        resources[entry]["DependsOn"] == ["ScalableTarget"]
        for entry in ("InvocationsPolicy", "GpuPolicy")
    )


def test_cool_downs_are_those_of_the_file():
    resources = scaling_resources(
        with_scaling(embedder(), scale_out_cooldown_seconds=0, scale_in_cooldown_seconds=900)
    )
    for policy in ("InvocationsPolicy", "GpuPolicy"):
        found = tracking(resources, policy)
        assert (found["ScaleOutCooldown"], found["ScaleInCooldown"]) == (0, 900)


def test_each_policy_has_one_metric_of_its_own_variant():
    resources = scaling_resources(embedder())
    invocations, gpu = tracking(resources, "InvocationsPolicy"), tracking(resources, "GpuPolicy")
    assert invocations["PredefinedMetricSpecification"] == {
        "PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"
    }
    assert "CustomizedMetricSpecification" not in invocations
    metric = gpu["CustomizedMetricSpecification"]
    assert (metric["Namespace"], metric["MetricName"]) == (
        "/aws/sagemaker/Endpoints",
        "GPUUtilization",
    )
    assert metric["Dimensions"] == [
        {"Name": "EndpointName", "Value": "dev-sentence-embedder"},
        {"Name": "VariantName", "Value": "AllTraffic"},
    ]


def test_cpu_policy_follows_the_variants_own_cpu_at_a_share_of_its_vcpus():
    local = with_scaling(one("local", "sentence-embedder"), max=3, cpu_utilization_percent=70)
    resources = scaling_resources(local)
    found = tracking(resources, "CpuPolicy")
    metric = found["CustomizedMetricSpecification"]
    assert (found["TargetValue"], metric["MetricName"]) == (140, "CPUUtilization")
    assert (metric["Namespace"], metric["Statistic"]) == ("/aws/sagemaker/Endpoints", "Average")
    assert metric["Dimensions"][1] == {"Name": "VariantName", "Value": "AllTraffic"}
    assert resources["CpuPolicy"]["Properties"]["PolicyName"] == "local-sentence-embedder-cpu"
    without = with_scaling(local, cpu_utilization_percent=None)
    assert set(resources) - set(scaling_resources(without)) == {"CpuPolicy"}


def test_derivation_stands_at_each_policy():
    resources = scaling_resources(with_served(embedder(), 310.0, gpu_utilization_percent=80.0))
    assert (
        "310 requests/s served"
        in resources["InvocationsPolicy"]["Metadata"]["Derivation"]["TargetValue"]
    )
    assert (
        "80 % (measured at the knee"
        in resources["GpuPolicy"]["Metadata"]["Derivation"]["TargetValue"]
    )


def test_fixed_count_has_no_scaling_and_a_schedule_has():
    fixed = with_scaling(embedder(), min=2, max=2)
    assert scaling_resources(fixed) == {}
    floor = ScheduledFloorSpec(
        schedule="cron(0 7 ? * MON-FRI *)", min=4, max=6, timezone="Europe/Berlin"
    )
    night = ScheduledFloorSpec(schedule="cron(0 19 ? * MON-FRI *)", min=2)
    target = properties(
        scaling_resources(with_scaling(fixed, schedule=(floor, night))), "ScalableTarget"
    )
    assert target["ScheduledActions"] == [
        {
            "ScheduledActionName": "floor-1",
            "Schedule": "cron(0 7 ? * MON-FRI *)",
            "Timezone": "Europe/Berlin",
            "ScalableTargetAction": {"MinCapacity": 4, "MaxCapacity": 6},
        },
        {
            "ScheduledActionName": "floor-2",
            "Schedule": "cron(0 19 ? * MON-FRI *)",
            "ScalableTargetAction": {"MinCapacity": 2, "MaxCapacity": 2},
        },
    ]


def test_joined_variant_scales_by_itself_and_a_shadow_does_not():
    scaling = embedder().own.scaling.model_copy(update={"min": 2, "max": 3})
    deployment = with_variant(embedder(), "new-model", scaling=scaling)
    resources = scaling_resources(with_variant(deployment, "copy", role="shadow"))
    assert set(resources) == {
        *("ScalableTarget", "InvocationsPolicy", "GpuPolicy"),
        *("ScalableTargetNewModel", "InvocationsPolicyNewModel", "GpuPolicyNewModel"),
    }
    joined = properties(resources, "ScalableTargetNewModel")
    assert joined["ResourceId"] == "endpoint/dev-sentence-embedder/variant/new-model"
    assert (joined["MinCapacity"], joined["MaxCapacity"]) == (2, 3)
    assert resources["GpuPolicyNewModel"]["DependsOn"] == ["ScalableTargetNewModel"]
    metric = tracking(resources, "GpuPolicyNewModel")["CustomizedMetricSpecification"]
    assert metric["Dimensions"][1] == {"Name": "VariantName", "Value": "new-model"}
    policies = [
        resource["Properties"]["PolicyName"]
        for resource in resources.values()
        if resource["Type"] == POLICY
    ]
    assert len(set(policies)) == len(policies)


def test_resource_ids_differ_where_sagemaker_names_differ():
    deployment = embedder()
    for name in ("a-1", "a1", "a-b", "ab", "a-b-c", "a-bc", "A-B"):
        deployment = with_variant(deployment, name)
    ids = [variant_id(item, "ScalableTarget") for item in deployment.variants]
    assert len(set(ids)) == len(ids)
    assert all(element.isalnum() for element in ids)
    assert variant_id(variant(deployment, "a-b"), "GpuPolicy") == "GpuPolicyAB"


def test_unmeasured_engine_has_no_invocations_policy_and_a_warning():
    unmeasured = with_locks(embedder(), benchmark=())
    assert list(scaling_resources(unmeasured)) == ["ScalableTarget", "GpuPolicy"]
    (warning,) = scaling_warnings(unmeasured)
    assert "no benchmark of its own engine" in warning and "variant AllTraffic" in warning


def test_unmeasured_variant_that_joins_is_noted_and_a_shadow_is_not():
    unmeasured = with_locks(embedder(), benchmark=()).own.pools
    deployment = with_variant(
        with_variant(embedder(), "b", pools=unmeasured), "c", pools=unmeasured, role="shadow"
    )
    (warning,) = scaling_warnings(deployment)
    assert "variant b" in warning


def test_schedule_that_nothing_takes_back_is_noted():
    day, night = (
        ScheduledFloorSpec(schedule=f"cron(0 {hour} * * ? *)", min=count)
        for hour, count in ((7, 4), (19, 1))
    )
    cpu = with_locks(one("local", "sentence-embedder"), benchmark=())
    (_, explanation) = scaling_warnings(with_scaling(cpu, min=1, max=6, schedule=(day, night)))
    assert (
        "variant AllTraffic: its schedule raises the count to 4, and nothing takes it back"
        in explanation
    )
    lowered = night.model_copy(update={"max": 1})
    for spared in (
        with_scaling(cpu, min=1, max=6, schedule=(day, lowered)),
        with_scaling(cpu, min=1, max=6, schedule=(day,)),
        with_scaling(cpu, min=1, max=6),
    ):
        assert len(scaling_warnings(spared)) == 1
    assert scaling_warnings(with_scaling(embedder(), min=1, max=6, schedule=(day, night))) == ()


def test_asynchronous_endpoint_scales_on_its_queue_alone():
    resources = scaling_resources(asynchronous(min=1, max=4))
    assert list(resources) == ["ScalableTarget", "BacklogPolicy"]
    found = tracking(resources, "BacklogPolicy")
    metric = found["CustomizedMetricSpecification"]
    assert (metric["Namespace"], metric["MetricName"]) == (
        "AWS/SageMaker",
        "ApproximateBacklogSizePerInstance",
    )
    assert metric["Dimensions"] == [{"Name": "EndpointName", "Value": "dev-sentence-embedder"}]
    assert found["TargetValue"] == 400 * 60 * 0.5


def test_asynchronous_endpoint_comes_up_from_zero_by_a_step():
    resources = scaling_resources(asynchronous(min=0, max=4))
    assert list(resources) == ["ScalableTarget", "BacklogPolicy", "FromZeroPolicy", "FromZeroAlarm"]
    assert properties(resources, "ScalableTarget")["MinCapacity"] == 0
    step = properties(resources, "FromZeroPolicy")
    assert step["PolicyType"] == "StepScaling"
    assert "TargetTrackingScalingPolicyConfiguration" not in step
    assert step["StepScalingPolicyConfiguration"]["StepAdjustments"] == [
        {"MetricIntervalLowerBound": 0, "ScalingAdjustment": 1}
    ]
    alarm = properties(resources, "FromZeroAlarm")
    assert (alarm["MetricName"], alarm["Threshold"]) == ("HasBacklogWithoutCapacity", 1)
    assert alarm["AlarmActions"] == [{"Ref": "FromZeroPolicy"}]


def test_asynchronous_endpoint_that_a_schedule_empties_comes_up_too():
    night = ScheduledFloorSpec(schedule="cron(0 19 * * ? *)", min=0)
    assert "FromZeroPolicy" in scaling_resources(asynchronous(min=1, max=4, schedule=(night,)))


def test_unmeasured_asynchronous_endpoint_still_comes_up_from_zero():
    deployment = with_locks(asynchronous(min=0, max=4), benchmark=())
    assert list(scaling_resources(deployment)) == [
        "ScalableTarget",
        "FromZeroPolicy",
        "FromZeroAlarm",
    ]
    unmeasured, stays = scaling_warnings(deployment)
    assert "no benchmark" in unmeasured
    assert "brings one instance, and nothing takes it back to 0" in stays
    assert scaling_warnings(asynchronous(min=0, max=4)) == ()


def test_cpu_endpoint_scales_on_invocations_alone():
    local = with_scaling(one("local", "sentence-embedder"), min=1, max=2)
    assert list(scaling_resources(local)) == ["ScalableTarget", "InvocationsPolicy"]


def test_resources_are_plain_json():
    deployment = with_own(asynchronous(min=0, max=4))
    assert json.loads(json.dumps(scaling_resources(deployment))) == scaling_resources(deployment)
