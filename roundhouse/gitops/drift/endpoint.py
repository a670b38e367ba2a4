"""Endpoints as deployed: config, models, variants, tags. CloudFormation reads none of these.

What scaling and schedules change by themselves is no drift.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError

from roundhouse.aws.clients import Client, calling
from roundhouse.gitops.drift.stack import (
    DeployedStack,
    Differ,
    Difference,
    common_part,
    has_reference,
    plain,
)
from roundhouse.gitops.endpoint_facts import CONFIG, ENDPOINT, POLICY, TARGET, resources_of
from roundhouse.gitops.template_changes import Template

MODEL = "AWS::SageMaker::Model"
CONFIG_PROPERTIES = (
    "ProductionVariants",
    "ShadowProductionVariants",
    "KmsKeyId",
    "AsyncInferenceConfig",
    "DataCaptureConfig",
)
COMPONENT = "AWS::SageMaker::InferenceComponent"
COMPONENT_PROPERTIES = (
    "ModelName",
    "BaseInferenceComponentName",
    "ComputeResourceRequirements",
    "StartupParameters",
)
OPTIONAL_PROPERTIES = ("MetricsConfig",)
"""SageMaker fills these in by itself where the template leaves them out."""
MODEL_PROPERTIES = ("Containers", "EnableNetworkIsolation", "ExecutionRoleArn", "VpcConfig")
NAMESPACE = "sagemaker"


def sagemaker_drift(
    sagemaker: Client, stack: DeployedStack, differ: Differ
) -> Iterator[Difference]:
    """Yield what differs of a stack's endpoint, its config and its models."""
    for arn, properties in stack.resources(ENDPOINT):
        live = _describe(sagemaker.describe_endpoint, EndpointName=properties["EndpointName"])
        if live is None:
            yield from differ("endpoint", properties["EndpointName"], None)
            continue
        yield from _variants(live, properties, stack.template, differ)
        with calling(f"Tags of {properties['EndpointName']}"):
            tags = sagemaker.list_tags(ResourceArn=arn)["Tags"]
        there = {tag["Key"]: tag["Value"] for tag in tags}
        yield from tag_drift(stack, "endpoint", there, differ)
    yield from _components(sagemaker, stack, differ)
    for _, properties in stack.resources(CONFIG):
        name = properties["EndpointConfigName"]
        live = _describe(sagemaker.describe_endpoint_config, EndpointConfigName=name)
        yield from _config(name, properties, live, differ)
    for _, properties in stack.resources(MODEL):
        name = properties["ModelName"]
        yield from _model(
            name, properties, _describe(sagemaker.describe_model, ModelName=name), differ
        )


def _components(sagemaker: Client, stack: DeployedStack, differ: Differ) -> Iterator[Difference]:
    """Yield what differs of inference components; their copies, where nothing scales them."""
    scaled = {variant_of(item["Properties"]["ResourceId"]) for item in
              resources_of(stack.template, TARGET)}  # fmt: skip
    for _, properties in stack.resources(COMPONENT):
        name = properties["InferenceComponentName"]
        live = _describe(sagemaker.describe_inference_component, InferenceComponentName=name)
        if live is None:
            yield from differ(f"inference component {name}", name, None)
            continue
        wanted, runs = properties["Specification"], live.get("Specification", {})
        for key in COMPONENT_PROPERTIES:
            if key in wanted:
                found = common_part(runs.get(key), wanted[key])
                yield from differ(f"{key} of {name}", plain(wanted[key]), plain(found))
        count = properties.get("RuntimeConfig", {}).get("CopyCount")
        if count is not None and name not in scaled:
            desired = live.get("RuntimeConfig", {}).get("DesiredCopyCount")
            yield from differ(f"copies of {name}", int(count), desired)


def _config(
    name: str, properties: Mapping[str, Any], live: Mapping[str, Any] | None, differ: Differ
) -> Iterator[Difference]:
    if live is None:
        yield from differ(f"endpoint config {name}", name, None)
        return
    given = tuple(key for key in OPTIONAL_PROPERTIES if key in properties)
    for key in (*CONFIG_PROPERTIES, *given):
        deployed = properties.get(key)
        if not has_reference(deployed):
            runs = common_part(live.get(key), deployed)
            yield from differ(f"{key} of {name}", plain(deployed), plain(runs))


def _model(
    name: str, properties: Mapping[str, Any], live: Mapping[str, Any] | None, differ: Differ
) -> Iterator[Difference]:
    if live is None:
        yield from differ(f"model {name}", name, None)
        return
    container, runs = properties.get("PrimaryContainer", {}), live.get("PrimaryContainer", {})
    sides = [(key, properties.get(key), live.get(key)) for key in MODEL_PROPERTIES]
    sides += [(key, container[key], runs.get(key)) for key in container if key != "Environment"]
    sides += [("Environment", container.get("Environment", {}), runs.get("Environment", {}))]
    for key, deployed, value in sides:
        # What is not set is false or empty.
        yield from differ(f"{key} of model {name}", plain(deployed or None), plain(value or None))


def _describe(describe: Callable[..., Any], **name: str) -> Mapping[str, Any] | None:
    """Return what SageMaker says of one thing; None: it is not there."""
    with calling(" ".join(name.values())):
        try:
            found: Mapping[str, Any] = describe(**name)
        except ClientError as error:
            if "Could not find" not in str(error):
                raise
            return None
    return found


def _variants(
    live: Mapping[str, Any], endpoint: Mapping[str, Any], template: Template, differ: Differ
) -> Iterator[Difference]:
    yield from differ("endpoint config", endpoint["EndpointConfigName"], live["EndpointConfigName"])
    bounds = {
        variant_of(item["Properties"]["ResourceId"]): count_bounds(item["Properties"])
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
            if "InitialVariantWeight" in variant:
                weight = float(variant["InitialVariantWeight"])
                yield from differ(f"weight of {name}", weight, float(now["CurrentWeight"]))
            count, managed = int(now["DesiredInstanceCount"]), variant.get("ManagedInstanceScaling")
            own = bounds.get(name, [])
            if managed is not None:
                own = [(int(managed["MinInstanceCount"]), int(managed["MaxInstanceCount"]))]
            if own:
                least, most = min(low for low, _ in own), max(high for _, high in own)
                if not least <= count <= most:
                    yield from differ(f"instances of {name}", f"{least} to {most}", count)
            else:
                yield from differ(
                    f"instances of {name}", int(variant["InitialInstanceCount"]), count
                )


def scaling_drift(scaling: Client, template: Template, differ: Differ) -> Iterator[Difference]:
    """Yield what differs of the scaling of an endpoint's variants."""
    targets = [item["Properties"] for item in resources_of(template, TARGET)]
    for target in targets:
        yield from _scalable_target(scaling, target, differ)
    policies = [item["Properties"] for item in resources_of(template, POLICY)]
    for resource in sorted({target["ResourceId"] for target in targets}):
        own = [policy for policy in policies if policy["ResourceId"] == resource]
        yield from _policies(scaling, resource, own, differ)


def _scalable_target(
    scaling: Client, target: Mapping[str, Any], differ: Differ
) -> Iterator[Difference]:
    resource = target["ResourceId"]
    variant = variant_of(resource)
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
    if live not in count_bounds(target):
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
            None if side is None else {kind: plain(side[kind]) for kind in kinds if kind in side}
            for side in (deployed.get(name), live.get(name))
        ]
        yield from differ(f"scaling policy {name}", *sides)


def count_bounds(target: Mapping[str, Any]) -> list[tuple[int, int]]:
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
    return {key: plain(item[key]) for key in kept if item.get(key) is not None}


def variant_of(resource: str) -> str:
    return resource.rsplit("/", 1)[-1]


def tag_drift(
    stack: DeployedStack, what: str, live: Mapping[str, str], differ: Differ
) -> Iterator[Difference]:
    """Yield the tags of a stack that one of its resources lacks; others may tag it further."""
    for key, value in sorted(stack.tags.items()):
        yield from differ(f"tag {key} of {what}", value, live.get(key))
