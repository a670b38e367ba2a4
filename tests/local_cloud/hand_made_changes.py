"""Changes that a person makes by hand in an account, one kind each, and what drift calls them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from roundhouse.gitops.drift.stack import read_stack
from tests.local_cloud.account import MOMENT_SECONDS, until
from tests.local_cloud.tiny_session import archive_bytes, publish

TRACKING = "TargetTrackingScalingPolicyConfiguration"
METRIC = "SageMakerVariantConcurrentRequestsPerModelHighResolution"


@dataclass(frozen=True, kw_only=True)
class Found:
    """One difference that drift must report: under which part, and by which name."""

    part: str
    what: str


Change = Callable[["Account"], Iterator[Found]]


class Account:
    """The deployed environment, through the clients that a person would use."""

    def __init__(self, session: Any, templates: Any, entry: Any) -> None:
        self.session, self.clients, self.entry = session, session.clients, entry
        self.stacks = {
            name.removeprefix("roundhouse-local-").removeprefix("endpoint-"): read_stack(
                session.clients("cloudformation"), session.environment, name, name, template
            )
            for name, template in templates.items()
        }

    def resource(self, part: str, kind: str) -> tuple[str, dict[str, Any]]:
        """The first resource of a type: its physical id and properties."""
        return next(self.stacks[part].resources(f"AWS::{kind}"))

    def settled(self, endpoint: str) -> None:
        """Wait until an endpoint can be changed."""
        describe = self.clients("sagemaker").describe_endpoint
        assert until(
            lambda: describe(EndpointName=endpoint)["EndpointStatus"] == "InService",
            MOMENT_SECONDS,
        )


def scalable_target(endpoint: str) -> dict[str, str]:
    return {
        "ServiceNamespace": "sagemaker",
        "ResourceId": f"endpoint/local-{endpoint}/variant/AllTraffic",
        "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
    }


def change_scaling(account: Account) -> Iterator[Found]:
    scaling = account.clients("application-autoscaling")
    state = {"DynamicScalingInSuspended": True, "DynamicScalingOutSuspended": False,
             "ScheduledScalingSuspended": False}  # fmt: skip
    target = scalable_target("tiny")
    scaling.register_scalable_target(
        **target, MinCapacity=1, MaxCapacity=2, SuspendedState=state
    )  # fmt: skip
    yield Found(part="tiny", what="bounds of AllTraffic")
    yield Found(part="tiny", what="suspended scaling of AllTraffic")
    policies = scaling.describe_scaling_policies(ServiceNamespace="sagemaker")["ScalingPolicies"]
    by_name = {item["PolicyName"]: item[TRACKING] for item in policies}
    name, kind = "local-tiny-invocations", "TargetTrackingScaling"
    changed = by_name[name] | {"TargetValue": 5.0, "ScaleInCooldown": 7}
    added = changed | {"PredefinedMetricSpecification": {"PredefinedMetricType": METRIC}}
    for policy, configuration in ((name, changed), ("by-hand", added)):
        scaling.put_scaling_policy(
            PolicyName=policy, **target, PolicyType=kind, **{TRACKING: configuration}
        )
        yield Found(part="tiny", what=f"scaling policy {policy}")
    scaling.deregister_scalable_target(**scalable_target("other"))
    for what in ("scaling of AllTraffic", "scaling policy local-other-invocations"):
        yield Found(part="other", what=what)


def change_schedules(account: Account) -> Iterator[Found]:
    scaling = account.clients("application-autoscaling")
    actions = scaling.describe_scheduled_actions(ServiceNamespace="sagemaker")["ScheduledActions"]
    names = {item["ResourceId"].split("/")[1]: item["ScheduledActionName"] for item in actions}
    bounds = {"MinCapacity": 3, "MaxCapacity": 3}
    for name in (names["local-tiny"], "by-hand"):
        scaling.put_scheduled_action(
            ScheduledActionName=name, Schedule=actions[0]["Schedule"],
            ScalableTargetAction=bounds, **scalable_target("tiny"),
        )  # fmt: skip
        yield Found(part="tiny", what=f"schedule {name} of AllTraffic")


def change_endpoints(account: Account) -> Iterator[Found]:
    sagemaker = account.clients("sagemaker")
    account.settled("local-tiny")
    sagemaker.update_endpoint_weights_and_capacities(
        EndpointName="local-tiny",
        DesiredWeightsAndCapacities=[{"VariantName": "AllTraffic", "DesiredWeight": 0.5}],
    )
    yield Found(part="tiny", what="weight of AllTraffic")
    _, config = account.resource("other", "SageMaker::EndpointConfig")
    other = {**config, "EndpointConfigName": "by-hand"}
    sagemaker.create_endpoint_config(**other)
    account.settled("local-other")
    sagemaker.update_endpoint(EndpointName="local-other", EndpointConfigName="by-hand")
    account.settled("local-other")
    yield Found(part="other", what="endpoint config")
    for endpoint in ("tiny", "other"):
        arn, _ = account.resource(endpoint, "SageMaker::Endpoint")
        if endpoint == "tiny":
            sagemaker.delete_tags(ResourceArn=arn, TagKeys=["roundhouse-endpoint"])
        else:
            sagemaker.add_tags(
                ResourceArn=arn, Tags=[{"Key": "roundhouse-endpoint", "Value": "mine"}]
            )
        yield Found(part=endpoint, what="tag roundhouse-endpoint of endpoint")


def change_configs(account: Account) -> Iterator[Found]:
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
    yield Found(part="other", what=f"DataCaptureConfig of {name}")
    yield Found(part="other", what=f"MetricsConfig of {name}")
    yield Found(part="other", what=f"ProductionVariants of {name}")
    _, config = account.resource("tiny", "SageMaker::EndpointConfig")
    sagemaker.delete_endpoint_config(EndpointConfigName=config["EndpointConfigName"])
    yield Found(part="tiny", what=f"endpoint config {config['EndpointConfigName']}")


def change_models(account: Account) -> Iterator[Found]:
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
        yield Found(part="other", what=f"{what} of model {name}")
    _, model = account.resource("tiny", "SageMaker::Model")
    sagemaker.delete_model(ModelName=model["ModelName"])
    yield Found(part="tiny", what=f"model {model['ModelName']}")


def change_archive(account: Account) -> Iterator[Found]:
    data = archive_bytes(account.session, account.entry)
    publish(account.session, account.entry, data[:-1] + bytes([data[-1] ^ 1]))
    yield Found(part="tiny", what=f"sha256 of {account.entry.archive.path}")


def change_protection(account: Account) -> Iterator[Found]:
    for part in ("foundation", "other"):
        account.clients("cloudformation").update_termination_protection(
            StackName=account.stacks[part].name, EnableTerminationProtection=False
        )
        yield Found(part=part, what="termination protection")


CHANGES: tuple[Change, ...] = (
    change_scaling,
    change_schedules,
    change_endpoints,
    change_configs,
    change_models,
    change_archive,
    change_protection,
)
