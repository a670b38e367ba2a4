"""Single faults of an endpoint: its dependencies, its rollout and its scaling."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

from tests.synth.template_rules.fault import EMBEDDER, EXAMPLE, add, at, update
from tests.synth.template_rules.stacks import (
    ALARM,
    CONFIG,
    ENDPOINT,
    MODEL,
    POLICY,
    TARGET,
    Document,
    Stacks,
    alarm,
    one,
    resources,
)


def without_dependency(template: Document, kind: str, other: str, text: str = "") -> None:
    """Take the dependencies on a type away from every resource of a type."""
    gone = {key for key, item in template["Resources"].items() if item["Type"] == other}
    for resource in resources(template, kind, text):
        given = resource.get("DependsOn", [])
        given = [given] if isinstance(given, str) else given
        resource["DependsOn"] = [name for name in given if name not in gone]


order_fault_dev = partial(add, "order", "dev")
for kind, other, text in (
    (MODEL, "AWS::IAM::Policy", ""),
    (CONFIG, MODEL, ""),
    (ENDPOINT, CONFIG, ""),
    (ENDPOINT, ALARM, ""),
    (TARGET, ENDPOINT, ""),
    (POLICY, TARGET, ""),
    (ALARM, ENDPOINT, "no-instances"),
    (ALARM, ENDPOINT, "-drift"),
):
    noun, needed = kind.rsplit("::", 1)[-1], other.rsplit("::", 1)[-1]

    def order(s: Stacks, k: str = kind, o: str = other, t: str = text) -> None:
        without_dependency(s[EMBEDDER], k, o, t)

    order_fault_dev(f"{noun} {text} without {needed}", order)

ROUTING = ("DeploymentConfig", "BlueGreenUpdatePolicy", "TrafficRoutingConfiguration")
rollout_dev = partial(add, "rollout", "dev")


def endpoint_fault(name: str, *path: str, value: Any, assembly: str = "dev") -> None:
    """Add a fault that sets a property of an endpoint."""

    def change(s: Stacks) -> None:
        at(one(s[EMBEDDER], ENDPOINT), *path[:-1])[path[-1]] = value

    add("rollout", assembly, name, change)


def canary(percent: int = 50, wait: int = 300) -> Document:
    """Return how a canary shifts traffic."""
    size = {"Type": "CAPACITY_PERCENT", "Value": percent}
    return {"Type": "CANARY", "CanarySize": size, "WaitIntervalInSeconds": wait}


endpoint_fault("canary without a wait", *ROUTING, value=canary(wait=0))
endpoint_fault("old fleet ends at once", *ROUTING[:2], "TerminationWaitInSeconds", value=0)
endpoint_fault("canary of 80 %", *ROUTING, value=canary(percent=80))
endpoint_fault(
    "time shorter than its waits", *ROUTING[:2], "MaximumExecutionTimeoutInSeconds", value=600
)
endpoint_fault("canary shorter than its alarms", *ROUTING, value=canary(wait=60))


def rollback_name(s: Stacks, name: str) -> None:
    """Roll back by another alarm."""
    config = one(s[EMBEDDER], ENDPOINT)["DeploymentConfig"]["AutoRollbackConfiguration"]
    config["Alarms"][0]["AlarmName"] = name


rollout_dev(
    "alarm of another endpoint", lambda s: rollback_name(s, "dev-text-shared-server-errors")
)
rollout_dev("alarm that no stack has", lambda s: rollback_name(s, "dev-sentence-embedder-5xx"))
rollout_dev(
    "alarm by its ARN",
    lambda s: rollback_name(s, "arn:aws:cloudwatch:us-east-1:111122223333:alarm:a"),
)


def long_period(s: Stacks) -> None:
    """Look at the rollback alarm's metrics by the hour."""
    for query in alarm(s[EMBEDDER], "-server-errors")["Metrics"]:
        if "MetricStat" in query:
            query["MetricStat"]["Period"] = 3600


rollout_dev("alarm of a long period", long_period)
rollout_dev(
    "alarm of many periods",
    lambda s: alarm(s[EMBEDDER], "-server-errors").update(
        EvaluationPeriods=30, DatapointsToAlarm=30
    ),
)


def other_dimensions(s: Stacks) -> None:
    """Watch another endpoint under this endpoint's name."""
    properties = alarm(s[EMBEDDER], "-server-errors")
    text = json.dumps(properties["Metrics"])
    properties["Metrics"] = json.loads(text.replace("dev-sentence-embedder", "dev-text-shared"))


rollout_dev("alarm that watches another endpoint", other_dimensions)
rollout_dev(
    "no rollback",
    lambda s: one(s[EMBEDDER], ENDPOINT)["DeploymentConfig"].pop("AutoRollbackConfiguration"),
)

scaling_dev = partial(add, "scaling", "dev")
update_scaling_dev = partial(update, "scaling", "dev")
scaling_everything = partial(add, "scaling", "everything")


def action(s: Stacks, index: int = 0) -> Document:
    """Return a scheduled action of the example endpoint."""
    return one(s[EXAMPLE], TARGET)["ScheduledActions"][index]


def policy_name(s: Stacks) -> None:
    """Give two policies of a variant one name."""
    name = one(s[EMBEDDER], POLICY)["PolicyName"]
    one(s[EMBEDDER], POLICY, "GPUUtilization")["PolicyName"] = name


def target_a_second(s: Stacks) -> None:
    """Scale on requests a second."""
    tracking = one(s[EMBEDDER], POLICY)["TargetTrackingScalingPolicyConfiguration"]
    tracking["TargetValue"] = 200


scaling_dev("two policies of one name", policy_name)
scaling_dev("target of requests a second", target_a_second)
scaling_everything("unknown time zone", lambda s: action(s).update(Timezone="Europe/Belrin"))
scaling_everything("abbreviated time zone", lambda s: action(s).update(Timezone="CEST"))
scaling_everything(
    "two actions of one name",
    lambda s: action(s, 1).update(ScheduledActionName=action(s)["ScheduledActionName"]),
)
scaling_everything("cron of five fields", lambda s: action(s).update(Schedule="cron(0 7 * * *)"))
scaling_everything("action without bounds", lambda s: action(s).update(ScalableTargetAction={}))
scaling_everything(
    "floor above ceiling in a schedule",
    lambda s: action(s)["ScalableTargetAction"].update(MinCapacity=9),
)
scaling_dev(
    "first count above the maximum",
    lambda s: one(s[EMBEDDER], CONFIG)["ProductionVariants"][0].update(InitialInstanceCount=9),
)
update_scaling_dev("floor above ceiling", EMBEDDER, TARGET, MinCapacity=9)
update_scaling_dev("floor of zero", EMBEDDER, TARGET, MinCapacity=0)
update_scaling_dev(
    "update that resets counts",
    EMBEDDER,
    ENDPOINT,
    RetainAllVariantProperties=False,
    ExcludeRetainedVariantProperties=[],
)
update_scaling_dev(
    "update that excludes the count",
    EMBEDDER,
    ENDPOINT,
    RetainAllVariantProperties=True,
    ExcludeRetainedVariantProperties=[{"VariantPropertyType": "DesiredInstanceCount"}],
)
update_scaling_dev(
    "target of another variant",
    EMBEDDER,
    TARGET,
    ResourceId="endpoint/dev-sentence-embedder/variant/Blue",
)
update_scaling_dev(
    "policy of another endpoint",
    EMBEDDER,
    POLICY,
    ResourceId="endpoint/dev-text-shared/variant/AllTraffic",
)
