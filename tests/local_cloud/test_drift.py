"""Changes by hand are found, each by its part and name; what scaling does by itself is not."""

from __future__ import annotations

import pytest

from onboarding.names import artifact_bucket
from roundhouse.deploy.stacks import environment_templates
from roundhouse.gitops.drift.environment import environment_drift
from roundhouse.gitops.drift.stack import read_stack
from tests.local_cloud.account import MOMENT_SECONDS, until
from tests.local_cloud.tiny_session import (
    archive_bytes,
    deploy_all,
    lock_entry,
    publish,
    session_at,
    sound_network,
)

pytestmark = pytest.mark.local_cloud

TRACKING = "TargetTrackingScalingPolicyConfiguration"
METRIC = "SageMakerVariantConcurrentRequestsPerModelHighResolution"


class Account:
    """The deployed environment, through the clients that a person would use."""

    def __init__(self, session, templates, entry):
        self.session, self.clients, self.entry = session, session.clients, entry
        self.stacks = {
            name.removeprefix("roundhouse-local-").removeprefix("endpoint-"): read_stack(
                session.clients("cloudformation"), session.environment, name, name, template
            )
            for name, template in templates.items()
        }

    def resource(self, part, kind):
        """The first resource of a type: its physical id and properties."""
        return next(self.stacks[part].resources(f"AWS::{kind}"))

    def settled(self, endpoint):
        """Wait until an endpoint can be changed."""
        describe = self.clients("sagemaker").describe_endpoint
        assert until(
            lambda: describe(EndpointName=endpoint)["EndpointStatus"] == "InService",
            MOMENT_SECONDS,
        )


def scalable_target(endpoint):
    return {
        "ServiceNamespace": "sagemaker",
        "ResourceId": f"endpoint/local-{endpoint}/variant/AllTraffic",
        "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
    }


def change_scaling(account):
    scaling = account.clients("application-autoscaling")
    state = {"DynamicScalingInSuspended": True, "DynamicScalingOutSuspended": False,
             "ScheduledScalingSuspended": False}  # fmt: skip
    target = scalable_target("tiny")
    scaling.register_scalable_target(
        **target, MinCapacity=1, MaxCapacity=2, SuspendedState=state
    )  # fmt: skip
    yield ("tiny", "bounds of AllTraffic")
    yield ("tiny", "suspended scaling of AllTraffic")
    policies = scaling.describe_scaling_policies(ServiceNamespace="sagemaker")["ScalingPolicies"]
    by_name = {item["PolicyName"]: item[TRACKING] for item in policies}
    name, kind = "local-tiny-invocations", "TargetTrackingScaling"
    changed = by_name[name] | {"TargetValue": 5.0, "ScaleInCooldown": 7}
    added = changed | {"PredefinedMetricSpecification": {"PredefinedMetricType": METRIC}}
    for policy, configuration in ((name, changed), ("by-hand", added)):
        scaling.put_scaling_policy(
            PolicyName=policy, **target, PolicyType=kind, **{TRACKING: configuration}
        )
        yield ("tiny", f"scaling policy {policy}")
    scaling.deregister_scalable_target(**scalable_target("other"))
    for what in ("scaling of AllTraffic", "scaling policy local-other-invocations"):
        yield ("other", what)


def change_schedules(account):
    scaling = account.clients("application-autoscaling")
    actions = scaling.describe_scheduled_actions(ServiceNamespace="sagemaker")["ScheduledActions"]
    names = {item["ResourceId"].split("/")[1]: item["ScheduledActionName"] for item in actions}
    bounds = {"MinCapacity": 3, "MaxCapacity": 3}
    for name in (names["local-tiny"], "by-hand"):
        scaling.put_scheduled_action(
            ScheduledActionName=name, Schedule=actions[0]["Schedule"],
            ScalableTargetAction=bounds, **scalable_target("tiny"),
        )  # fmt: skip
        yield ("tiny", f"schedule {name} of AllTraffic")


def change_endpoints(account):
    sagemaker = account.clients("sagemaker")
    account.settled("local-tiny")
    sagemaker.update_endpoint_weights_and_capacities(
        EndpointName="local-tiny",
        DesiredWeightsAndCapacities=[{"VariantName": "AllTraffic", "DesiredWeight": 0.5}],
    )
    yield ("tiny", "weight of AllTraffic")
    _, config = account.resource("other", "SageMaker::EndpointConfig")
    other = {**config, "EndpointConfigName": "by-hand"}
    sagemaker.create_endpoint_config(**other)
    account.settled("local-other")
    sagemaker.update_endpoint(EndpointName="local-other", EndpointConfigName="by-hand")
    account.settled("local-other")
    yield ("other", "endpoint config")
    for endpoint in ("tiny", "other"):
        arn, _ = account.resource(endpoint, "SageMaker::Endpoint")
        if endpoint == "tiny":
            sagemaker.delete_tags(ResourceArn=arn, TagKeys=["roundhouse-endpoint"])
        else:
            sagemaker.add_tags(
                ResourceArn=arn, Tags=[{"Key": "roundhouse-endpoint", "Value": "mine"}]
            )
        yield (endpoint, "tag roundhouse-endpoint of endpoint")


def change_configs(account):
    """Neither configs nor models can be updated: a person deletes one and creates it again."""
    sagemaker = account.clients("sagemaker")
    _, config = account.resource("other", "SageMaker::EndpointConfig")
    name = config["EndpointConfigName"]
    sagemaker.delete_endpoint_config(EndpointConfigName=name)
    capture = {**config["DataCaptureConfig"], "InitialSamplingPercentage": 99}
    (variant,) = config["ProductionVariants"]
    metrics = {**config["MetricsConfig"], "EnableDetailedObservability": False}
    sagemaker.create_endpoint_config(**{
        **config, "DataCaptureConfig": capture, "MetricsConfig": metrics,
        "ProductionVariants": [{**variant, "InstanceType": "ml.c7i.xlarge"}],
    })  # fmt: skip
    yield ("other", f"DataCaptureConfig of {name}")
    yield ("other", f"MetricsConfig of {name}")
    yield ("other", f"ProductionVariants of {name}")
    _, config = account.resource("tiny", "SageMaker::EndpointConfig")
    sagemaker.delete_endpoint_config(EndpointConfigName=config["EndpointConfigName"])
    yield ("tiny", f"endpoint config {config['EndpointConfigName']}")


def change_models(account):
    sagemaker = account.clients("sagemaker")
    _, model = account.resource("other", "SageMaker::Model")
    name, image = model["ModelName"], "000000000000.dkr.ecr.us-east-1.amazonaws.com/mine:1"
    changes = {"Environment": {"BY_HAND": "1"}, "Image": image}
    container = {**model["PrimaryContainer"], **changes}
    sagemaker.delete_model(ModelName=name)
    sagemaker.create_model(**{
        **model, "PrimaryContainer": container, "EnableNetworkIsolation": False
    })  # fmt: skip
    for what in (*changes, "EnableNetworkIsolation"):
        yield ("other", f"{what} of model {name}")
    _, model = account.resource("tiny", "SageMaker::Model")
    sagemaker.delete_model(ModelName=model["ModelName"])
    yield ("tiny", f"model {model['ModelName']}")


def change_archive(account):
    data = archive_bytes(account.session, account.entry)
    publish(account.session, account.entry, data[:-1] + bytes([data[-1] ^ 1]))
    yield ("tiny", f"sha256 of {account.entry.archive.path}")


def change_protection(account):
    for part in ("foundation", "other"):
        account.clients("cloudformation").update_termination_protection(
            StackName=account.stacks[part].name, EnableTerminationProtection=False
        )
        yield (part, "termination protection")


CHANGES = (
    change_scaling,
    change_schedules,
    change_endpoints,
    change_configs,
    change_models,
    change_archive,
    change_protection,
)


SCHEDULE = '[{schedule: "cron(0 7 1 1 ? 2090)", min: 2}]'
SCALING = f"scaling: {{min: 1, max: 3, schedule: {SCHEDULE}}}"
ENDPOINT = "{instance_type: ml.c7i.large, latency_slo_ms: 5000, %s, " + SCALING + "}"
KINDS = 23


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    with session_at(tmp_path_factory.mktemp("session")) as tiny:
        session = tiny.start()
        tiny.write_model(sound_network(), endpoint=ENDPOINT % "dashboard: true")
        tiny.write_like(
            "other",
            ENDPOINT % "data_capture: {percent: 20}, metrics: {detailed: true}",
            serving="{server: python}",
        )
        deploy_all(session)
        yield tiny


@pytest.fixture
def session(tiny):
    return tiny.start()


def differences(session):
    """What differs, by part and name."""
    found = environment_drift(session, environment_templates(session))
    return {(item.endpoint, item.what): item for item in found}


def test_deployment_has_no_drift(session):
    assert differences(session) == {}


def test_what_scaling_and_schedules_change_is_no_drift(session):
    session.clients("sagemaker").update_endpoint_weights_and_capacities(
        EndpointName="local-tiny",
        DesiredWeightsAndCapacities=[{"VariantName": "AllTraffic", "DesiredInstanceCount": 1}],
    )
    session.clients("application-autoscaling").register_scalable_target(
        **scalable_target("tiny"), MinCapacity=2, MaxCapacity=3
    )
    assert differences(session) == {}


def test_every_kind_of_change_by_hand_is_found_and_nothing_else(tiny, session):
    account = Account(session, environment_templates(session), lock_entry(tiny))
    expected = [found for change in CHANGES for found in change(account)]
    found = differences(session)
    assert set(expected) - found.keys() == set()
    assert found.keys() - set(expected) == set()
    assert len(expected) >= KINDS
    assert all(item.deployed != item.live for item in found.values())


def test_what_is_gone_or_no_file_names_is_found(tiny, session):
    path = lock_entry(tiny).archive.path
    session.clients("s3").delete_object(Bucket=artifact_bucket(session.environment), Key=path)
    session.clients("sagemaker").delete_endpoint(EndpointName="local-tiny")
    assert until(lambda: ("tiny", "endpoint") in differences(session), MOMENT_SECONDS)
    assert differences(session)["tiny", f"bytes of {path}"].live is None
    stacks, name = session.clients("cloudformation"), "roundhouse-local-endpoint-other"
    stacks.delete_stack(StackName=name)
    stacks.get_waiter("stack_delete_complete").wait(StackName=name, WaiterConfig={"Delay": 1})
    assert differences(session)["other", "stack"].live is None
    (tiny.paths.tree / "models" / "tiny.yaml").unlink()
    assert differences(session)["tiny", "stack"].live == "no file names it"
