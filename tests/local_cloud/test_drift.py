"""Changes that a person makes by hand are found; what scaling does by itself is not."""

from __future__ import annotations

import pytest

from onboarding.names import artifact_bucket
from roundhouse.deploy.stacks import environment_templates
from roundhouse.gitops.drift import environment_drift
from tests.local_cloud.account import MOMENT_SECONDS, until
from tests.local_cloud.tiny_session import deploy_all, lock_entry, session_at, sound_network

pytestmark = pytest.mark.local_cloud

SCHEDULE = '[{schedule: "cron(0 7 1 1 ? 2090)", min: 2}]'
SCALING = f"{{min: 1, max: 3, schedule: {SCHEDULE}}}"
ENDPOINT = f"{{instance_type: ml.c7i.large, latency_slo_ms: 5000, scaling: {SCALING}}}"
SCALED = {
    "ServiceNamespace": "sagemaker",
    "ResourceId": "endpoint/local-tiny/variant/AllTraffic",
    "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    with session_at(tmp_path_factory.mktemp("session")) as tiny:
        session = tiny.start()
        tiny.write_model(sound_network(), endpoint=ENDPOINT)
        deploy_all(session)
        yield tiny


@pytest.fixture
def session(tiny):
    return tiny.start()


@pytest.fixture
def new_differences(session):
    """What differs now beside what differed before the test, by name."""

    def differences():
        templates = environment_templates(session)
        return {item.what: item for item in environment_drift(session, templates)}

    before = differences()
    return lambda: {what: item for what, item in differences().items() if what not in before}


def alarm(session, name, **changes):
    cloudwatch = session.clients("cloudwatch")
    (live,) = cloudwatch.describe_alarms(AlarmNames=[name])["MetricAlarms"]
    shape = cloudwatch.meta.service_model.operation_model("PutMetricAlarm").input_shape.members
    kept = {key: value for key, value in live.items() if key in shape}
    cloudwatch.put_metric_alarm(**{**kept, **changes})


def test_deployment_has_no_drift(session):
    assert environment_drift(session, environment_templates(session)) == ()


def test_count_within_the_bounds_is_scalings_own(session, new_differences):
    weights = [{"VariantName": "AllTraffic", "DesiredInstanceCount": 1}]
    session.clients("sagemaker").update_endpoint_weights_and_capacities(
        EndpointName="local-tiny", DesiredWeightsAndCapacities=weights
    )
    assert new_differences() == {}


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("local-tiny-latency", {"Threshold": 1.0}, "Threshold of alarm local-tiny-latency"),
        ("local-tiny-latency", {"EvaluationPeriods": 9}, "EvaluationPeriods of alarm "
         "local-tiny-latency"),
        ("local-tiny-disk", {"AlarmActions": []}, "AlarmActions of alarm local-tiny-disk"),
        ("local-tiny-disk", {"ActionsEnabled": False}, "ActionsEnabled of alarm local-tiny-disk"),
        ("local-tiny-host-memory", {"Statistic": "Average"}, "Statistic of alarm "
         "local-tiny-host-memory"),
        ("local-tiny-host-memory", {"TreatMissingData": "breaching"}, "TreatMissingData of alarm "
         "local-tiny-host-memory"),
    ],
)  # fmt: skip
def test_changed_alarm_is_found(session, new_differences, name, changes, expected):
    alarm(session, name, **changes)
    assert expected in new_differences()


def test_deleted_alarm_is_found(session, new_differences):
    session.clients("cloudwatch").delete_alarms(AlarmNames=["local-tiny-no-instances"])
    assert new_differences()["alarm local-tiny-no-instances"].live is None


def test_changed_bounds_of_scaling_are_found_and_a_schedules_are_not(session, new_differences):
    scaling = session.clients("application-autoscaling")
    scaling.register_scalable_target(**SCALED, MinCapacity=2, MaxCapacity=3)
    assert new_differences() == {}
    scaling.register_scalable_target(**SCALED, MinCapacity=1, MaxCapacity=2)
    assert new_differences()["bounds of AllTraffic"].live == [1, 2]


def test_suspended_scaling_is_found(session, new_differences):
    state = {
        "DynamicScalingInSuspended": True,
        "DynamicScalingOutSuspended": False,
        "ScheduledScalingSuspended": False,
    }
    scaling = session.clients("application-autoscaling")
    scaling.register_scalable_target(**SCALED, SuspendedState=state)
    assert new_differences()["suspended scaling of AllTraffic"].live == [
        "DynamicScalingInSuspended"
    ]


def test_changed_added_and_deleted_policies_are_found(session, new_differences):
    scaling = session.clients("application-autoscaling")
    (policy,) = scaling.describe_scaling_policies(ServiceNamespace="sagemaker")["ScalingPolicies"]
    key = "TargetTrackingScalingPolicyConfiguration"
    put = {**SCALED, "PolicyType": "TargetTrackingScaling"}
    changed = {**policy[key], "TargetValue": 5.0}
    metric = "SageMakerVariantConcurrentRequestsPerModelHighResolution"
    other = {**changed, "PredefinedMetricSpecification": {"PredefinedMetricType": metric}}
    scaling.put_scaling_policy(PolicyName="another", **put, **{key: other})
    assert new_differences()["scaling policy another"].deployed is None
    scaling.put_scaling_policy(PolicyName=policy["PolicyName"], **put, **{key: changed})
    name = f"scaling policy {policy['PolicyName']}"
    assert new_differences()[name].live[key]["TargetValue"] == 5.0
    scaling.delete_scaling_policy(PolicyName=policy["PolicyName"], **SCALED)
    assert new_differences()[name].live is None


def test_changed_and_added_schedules_are_found(session, new_differences):
    scaling = session.clients("application-autoscaling")
    (action,) = scaling.describe_scheduled_actions(ServiceNamespace="sagemaker")["ScheduledActions"]
    bounds = {"MinCapacity": 3, "MaxCapacity": 3}
    for name in (action["ScheduledActionName"], "by-hand"):
        scaling.put_scheduled_action(
            ScheduledActionName=name,
            Schedule=action["Schedule"],
            ScalableTargetAction=bounds,
            **SCALED,
        )
    assert {f"schedule {action['ScheduledActionName']} of AllTraffic",
            "schedule by-hand of AllTraffic"} <= new_differences().keys()  # fmt: skip


def test_changed_weight_is_found(session, new_differences):
    weights = [{"VariantName": "AllTraffic", "DesiredWeight": 0.5}]
    sagemaker = session.clients("sagemaker")
    status = "EndpointStatus"
    assert until(
        lambda: sagemaker.describe_endpoint(EndpointName="local-tiny")[status] == "InService",
        MOMENT_SECONDS,
    )
    sagemaker.update_endpoint_weights_and_capacities(
        EndpointName="local-tiny", DesiredWeightsAndCapacities=weights
    )
    assert new_differences()["weight of AllTraffic"].live == 0.5


def test_archive_that_is_gone_is_found(tiny, session, new_differences):
    path = lock_entry(tiny).archive.path
    session.clients("s3").delete_object(Bucket=artifact_bucket(session.environment), Key=path)
    assert new_differences()[f"bytes of {path}"].live is None


def test_endpoint_that_is_gone_is_found(session, new_differences):
    session.clients("sagemaker").delete_endpoint(EndpointName="local-tiny")
    assert until(lambda: "endpoint" in new_differences(), MOMENT_SECONDS)


def test_stack_that_no_file_names_is_found(tiny, new_differences):
    tiny.write_like("other", "{instance_type: ml.c7i.large}")
    (tiny.paths.tree / "models" / "tiny.yaml").unlink()
    assert new_differences()["stack"].live == "no file names it"
