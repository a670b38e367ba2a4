"""Compares what runs with the templates that were deployed: what a person changed by hand.

CloudFormation's own drift detection does not read endpoint configs, endpoints' variants or scaling
policies. What scaling and schedules change by themselves is no drift.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from onboarding.names import artifact_bucket, stack_name
from roundhouse.aws.clients import Client, Clients, calling
from roundhouse.gitops.endpoint_facts import CONFIG, ENDPOINT, POLICY, TARGET, resources_of
from roundhouse.gitops.template_changes import Template
from roundhouse.session import Session

ALARM = "AWS::CloudWatch::Alarm"
NAMESPACE = "sagemaker"
ALARMS_A_CALL = 100
ALARM_DEFAULTS: dict[str, Any] = {"ActionsEnabled": True, "OKActions": [], "AlarmActions": []}


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One thing that is not as deployed; None: it is not there."""

    endpoint: str
    what: str
    deployed: Any
    live: Any

    def as_dict(self) -> dict[str, Any]:
        """Return the difference as plain JSON."""
        return asdict(self)


def environment_drift(
    session: Session, templates: Mapping[str, Template]
) -> tuple[Difference, ...]:
    """Return every difference of the environment's endpoints, and what no file names any more.

    `templates`: those that are deployed, by stack name.
    """
    prefix = stack_name(session.environment, "endpoint-")
    wanted = {deployment.name: deployment for deployment in session.deployments()}
    found: list[Difference] = []
    for stack, template in sorted(templates.items()):
        if not stack.startswith(prefix):
            continue
        endpoint = stack.removeprefix(prefix)
        if endpoint not in wanted:
            found.append(
                Difference(endpoint=endpoint, what="stack", deployed=stack, live="no file names it")
            )
        found += endpoint_drift(session.clients, endpoint, template)
    archives = session.clients("s3"), artifact_bucket(session.environment)
    for name, deployment in wanted.items():
        for target in deployment.targets:
            entry = target.lock_entry
            if entry is not None and f"{prefix}{name}" in templates:
                found += _archive(*archives, name, entry.archive.path, entry.archive.size_bytes)
    return tuple(found)


def endpoint_drift(clients: Clients, endpoint: str, template: Template) -> Iterator[Difference]:
    """Yield what differs of one endpoint: config, variants, scaling, schedules, alarms."""

    def differ(what: str, deployed: Any, live: Any) -> Iterator[Difference]:
        if deployed != live:
            yield Difference(endpoint=endpoint, what=what, deployed=deployed, live=live)

    for item in resources_of(template, ENDPOINT):
        yield from _variants(clients("sagemaker"), item["Properties"], template, differ)
    scaling = clients("application-autoscaling")
    for item in resources_of(template, TARGET):
        yield from _scalable_target(scaling, item["Properties"], differ)
    policies = [item["Properties"] for item in resources_of(template, POLICY)]
    for resource in sorted(
        {item["Properties"]["ResourceId"] for item in resources_of(template, TARGET)}
    ):
        own = [policy for policy in policies if policy["ResourceId"] == resource]
        yield from _policies(scaling, resource, own, differ)
    alarms = [item["Properties"] for item in resources_of(template, ALARM)]
    yield from _alarms(clients("cloudwatch"), alarms, differ)


Differ = Callable[[str, Any, Any], Iterator[Difference]]


def _variants(
    sagemaker: Client, endpoint: Mapping[str, Any], template: Template, differ: Differ
) -> Iterator[Difference]:
    from botocore.exceptions import ClientError

    name = endpoint["EndpointName"]
    with calling(f"Endpoint {name}"):
        try:
            live = sagemaker.describe_endpoint(EndpointName=name)
        except ClientError as error:
            if "Could not find" not in str(error):
                raise
            yield from differ("endpoint", name, None)
            return
    yield from differ("endpoint config", endpoint["EndpointConfigName"], live["EndpointConfigName"])
    bounds = {
        _variant(item["Properties"]["ResourceId"]): _bounds(item["Properties"])
        for item in resources_of(template, TARGET)
    }
    running = {item["VariantName"]: item for item in live.get("ProductionVariants", ())}
    for config in resources_of(template, CONFIG):
        for variant in config["Properties"]["ProductionVariants"]:
            name = variant["VariantName"]
            now = running.get(name)
            if now is None:
                yield from differ(f"variant {name}", name, None)
                continue
            weight = float(variant["InitialVariantWeight"])
            yield from differ(f"weight of {name}", weight, float(now["CurrentWeight"]))
            count = int(now["DesiredInstanceCount"])
            if name in bounds:
                least, most = (min(low for low, _ in bounds[name]), max(h for _, h in bounds[name]))
                if not least <= count <= most:
                    yield from differ(f"instances of {name}", f"{least} to {most}", count)
            else:
                yield from differ(
                    f"instances of {name}", int(variant["InitialInstanceCount"]), count
                )


def _scalable_target(
    scaling: Client, target: Mapping[str, Any], differ: Differ
) -> Iterator[Difference]:
    resource = target["ResourceId"]
    variant = _variant(resource)
    selected = {
        "ServiceNamespace": NAMESPACE,
        "ScalableDimension": target["ScalableDimension"],
    }
    with calling(f"Scaling of {resource}"):
        found = scaling.describe_scalable_targets(ResourceIds=[resource], **selected)
        actions = scaling.describe_scheduled_actions(ResourceId=resource, **selected)
    targets = found["ScalableTargets"]
    if not targets:
        yield from differ(f"scaling of {variant}", resource, None)
        return
    live = (targets[0]["MinCapacity"], targets[0]["MaxCapacity"])
    if live not in _bounds(target):
        first = (target["MinCapacity"], target["MaxCapacity"])
        yield from differ(f"bounds of {variant}", list(first), list(live))
    suspended = [key for key, value in targets[0].get("SuspendedState", {}).items() if value]
    yield from differ(f"suspended scaling of {variant}", [], suspended)
    wanted = {
        item["ScheduledActionName"]: _action(item) for item in target.get("ScheduledActions", ())
    }
    there = {item["ScheduledActionName"]: _action(item) for item in actions["ScheduledActions"]}
    for name in sorted(wanted.keys() | there.keys()):
        yield from differ(f"schedule {name} of {variant}", wanted.get(name), there.get(name))


def _policies(
    scaling: Client, resource: str, wanted: Sequence[Mapping[str, Any]], differ: Differ
) -> Iterator[Difference]:
    kinds = ("TargetTrackingScalingPolicyConfiguration", "StepScalingPolicyConfiguration")
    with calling(f"Scaling policies of {resource}"):
        found = scaling.describe_scaling_policies(ServiceNamespace=NAMESPACE, ResourceId=resource)
    live = {item["PolicyName"]: item for item in found["ScalingPolicies"]}
    deployed = {item["PolicyName"]: item for item in wanted}
    for name in sorted(live.keys() | deployed.keys()):
        sides = [
            None if side is None else {kind: _plain(side[kind]) for kind in kinds if kind in side}
            for side in (deployed.get(name), live.get(name))
        ]
        yield from differ(f"scaling policy {name}", *sides)


def _alarms(
    cloudwatch: Client, wanted: Sequence[Mapping[str, Any]], differ: Differ
) -> Iterator[Difference]:
    names = sorted(alarm["AlarmName"] for alarm in wanted)
    live: dict[str, Any] = {}
    for begin in range(0, len(names), ALARMS_A_CALL):
        with calling("Alarms"):
            page = cloudwatch.describe_alarms(AlarmNames=names[begin : begin + ALARMS_A_CALL])
        live |= {alarm["AlarmName"]: alarm for alarm in page["MetricAlarms"]}
    for alarm in sorted(wanted, key=lambda item: str(item["AlarmName"])):
        name = alarm["AlarmName"]
        if name not in live:
            yield from differ(f"alarm {name}", name, None)
            continue
        properties = {**ALARM_DEFAULTS, **alarm}
        for key, value in sorted(properties.items()):
            if not _has_reference(value):
                now = live[name].get(key, ALARM_DEFAULTS.get(key))
                yield from differ(f"{key} of alarm {name}", _plain(value), _plain(now))


def _archive(s3: Client, bucket: str, endpoint: str, key: str, size: int) -> Iterator[Difference]:
    from botocore.exceptions import ClientError

    with calling(f"s3://{bucket}/{key}"):
        try:
            live: int | None = s3.head_object(Bucket=bucket, Key=key)["ContentLength"]
        except ClientError as error:
            if error.response["Error"]["Code"] not in ("404", "NoSuchKey"):
                raise
            live = None
    if live != size:
        yield Difference(endpoint=endpoint, what=f"bytes of {key}", deployed=size, live=live)


def _bounds(target: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Return every (fewest, most) that the target or one of its schedules sets."""
    first = (int(target["MinCapacity"]), int(target["MaxCapacity"]))
    actions = [item["ScalableTargetAction"] for item in target.get("ScheduledActions", ())]
    scheduled = [
        (int(item.get("MinCapacity", first[0])), int(item.get("MaxCapacity", first[1])))
        for item in actions
    ]
    return [first, *scheduled]


def _action(item: Mapping[str, Any]) -> dict[str, Any]:
    kept = ("Schedule", "Timezone", "ScalableTargetAction")
    return {key: _plain(item[key]) for key in kept if item.get(key) is not None}


def _variant(resource: str) -> str:
    return resource.rsplit("/", 1)[-1]


def _has_reference(value: Any) -> bool:
    """True when a value is known to CloudFormation alone."""
    if isinstance(value, Mapping):
        return (
            "Ref" in value
            or any(key.startswith("Fn::") for key in value)
            or any(map(_has_reference, value.values()))
        )
    return isinstance(value, list) and any(map(_has_reference, value))


def _plain(value: Any) -> Any:
    """Return a value in the one way that both sides are compared in.

    Numbers are floats, lists are in order, and what a service adds as false or empty is left out.
    """
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items() if item not in (False, [], None)}
    if isinstance(value, list | tuple):
        return sorted(map(_plain, value), key=lambda item: json.dumps(item, sort_keys=True))
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else value
