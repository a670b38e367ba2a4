"""Rules of endpoints, their configs and models.

How a deployment shifts traffic, what an update keeps, keys of what is written, isolation; and that
what they name literally exists.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from onboarding.aws_limits import ROLLBACK_ALARM_COUNT, STEP_PERCENT
from template_rules.hosting import (
    COMPONENT,
    ENDPOINT,
    ENDPOINT_CONFIG,
    INSTANCE_COUNT,
    MODEL,
    POLICY,
    TARGET,
    all_variants,
    config_of,
    rollback_alarms,
    scaled_component,
    scaled_endpoint,
    scaled_variant,
    variants,
)
from template_rules.rule import resource_rule, rule
from template_rules.templates import Assembly, Finding, Resource
from template_rules.values import at, boolean, fields, is_known, known_text, number, objects

BLUE_GREEN = "DeploymentConfig.BlueGreenUpdatePolicy"
ROUTING = f"{BLUE_GREEN}.TrafficRoutingConfiguration"
ROLLING = "DeploymentConfig.RollingUpdatePolicy"
BATCHES = (
    (f"{ROUTING}.CanarySize", "CANARY", "a canary", 1, STEP_PERCENT["canary"].most),
    (f"{ROUTING}.LinearStepSize", "LINEAR", "a linear step", *STEP_PERCENT["linear"]),
    (f"{ROLLING}.MaximumBatchSize", None, "a rolling batch", *STEP_PERCENT["rolling"]),
    (f"{ROLLING}.RollbackMaximumBatchSize", None, "a rollback batch", 5, 100),
)
"""Path, traffic routing type, noun, least and most percent. Source: SageMaker API reference."""


@rule("E9141", "Canary, linear step or rolling batch without a size, or out of bounds")
def batch_sizes(assembly: Assembly) -> Iterator[Finding]:
    """Canaries, linear steps and rolling batches have the sizes that SageMaker takes."""
    for endpoint in assembly.of_type(ENDPOINT, COMPONENT):
        kind = known_text(endpoint.at(f"{ROUTING}.Type"))
        rolling = endpoint.at(ROLLING)
        for path, needed_by, noun, least, most in BATCHES:
            size = endpoint.at(path)
            bounds = f"{least} to {most} %"
            if size is None:
                needed = kind == needed_by if needed_by else isinstance(rolling, dict)
                if needed and "Rollback" not in path:
                    yield endpoint.problem(path, f"{noun} has no size", f"write {bounds}")
            elif needed_by is not None and kind is not None and kind != needed_by:
                what = f"{kind} traffic routing has no {path.rsplit('.', 1)[-1]}"
                yield endpoint.problem(path, what, "remove it")
                continue
            percent = number(fields(size).get("Value"))
            if percent is None or at(size, "Type") != "CAPACITY_PERCENT":
                continue
            if not least <= percent <= most:
                what, value = f"{noun} is out of bounds", f"{percent:g} %"
                yield endpoint.problem(path, what, "bring it within", value=value, allowed=bounds)


@rule("E9152", "Rollout without a baking period, or ended before its waits are over")
def rollout_waits(assembly: Assembly) -> Iterator[Finding]:
    """A rollout waits long enough for its alarms, and has the time that its waits take."""
    for endpoint in assembly.of_type(ENDPOINT, COMPONENT):
        alarms = bool(rollback_alarms(endpoint))
        kind = known_text(endpoint.at(f"{ROUTING}.Type"))
        waits = []
        if kind in ("CANARY", "LINEAR"):
            waits.append(f"{ROUTING}.WaitIntervalInSeconds")
        if isinstance(endpoint.at(ROLLING), dict):
            waits.append(f"{ROLLING}.WaitIntervalInSeconds")
        if alarms and isinstance(endpoint.at(BLUE_GREEN), dict):
            waits.append(f"{BLUE_GREEN}.TerminationWaitInSeconds")
        for path in waits:
            value = endpoint.at(path)
            if value is None or number(value) == 0:
                what = "no alarm has time to stop a bad version"
                way_out = "wait at least as long as an alarm needs to ring, such as 300 s"
                yield endpoint.problem(path, what, way_out, value=value)
        yield from _too_short(endpoint)


def _too_short(endpoint: Resource) -> Iterator[Finding]:
    update, routing = fields(endpoint.at(BLUE_GREEN)), fields(endpoint.at(ROUTING))
    most = number(update.get("MaximumExecutionTimeoutInSeconds"))
    wait = number(routing.get("WaitIntervalInSeconds", 0))
    after = number(update.get("TerminationWaitInSeconds", 0))
    steps = _steps(routing)
    if most is None or wait is None or after is None or steps is None:
        return
    if most <= steps * wait + after:
        yield endpoint.problem(
            f"{BLUE_GREEN}.MaximumExecutionTimeoutInSeconds",
            "the rollout is ended before its own waits are over",
            "raise it, also by the time that new instances take to start",
            value=f"{most:g} s",
            allowed=f"more than {steps * wait + after:g} s",
        )


def _steps(routing: dict[str, Any]) -> int | None:
    """Return how often a rollout waits; None when that is not known."""
    kind, share = known_text(routing.get("Type")), number(at(routing, "LinearStepSize", "Value"))
    if kind in ("ALL_AT_ONCE", "CANARY"):
        return 1
    percent = at(routing, "LinearStepSize", "Type") == "CAPACITY_PERCENT"
    return math.ceil(100 / share) if kind == "LINEAR" and percent and share else None


@resource_rule("E9147", "No rollback alarm, too many, or one twice", ENDPOINT, COMPONENT)
def rollback_alarm_count(endpoint: Resource) -> Iterator[Finding]:
    """A deployment is rolled back by one to ten alarms, each named once."""
    deployment = endpoint.properties.get("DeploymentConfig")
    path = "DeploymentConfig.AutoRollbackConfiguration.Alarms"
    alarms = endpoint.at(path)
    if not isinstance(deployment, dict) or not (alarms is None or isinstance(alarms, list)):
        return
    names = [str(name) for _, name in rollback_alarms(endpoint)]
    if not 1 <= len(names) <= ROLLBACK_ALARM_COUNT or len(set(names)) < len(names):
        yield endpoint.problem(
            path,
            "no bad version is rolled back, or an alarm is named twice",
            "name alarms of this endpoint",
            value=f"{len(names)} alarms",
            allowed=f"1 to {ROLLBACK_ALARM_COUNT} different alarms",
        )


@rule("E9153", "Update that resets the instance count of a scaled variant")
def update_keeps_count(assembly: Assembly) -> Iterator[Finding]:
    """An update of a scaled endpoint keeps the instance count that scaling chose."""
    what = "an update starts with InitialInstanceCount, however many instances are in use"
    for target in assembly.of_type(TARGET):
        endpoint = scaled_endpoint(assembly, target)
        if endpoint is None or target.properties.get("ScalableDimension") != INSTANCE_COUNT:
            continue
        path = "ExcludeRetainedVariantProperties"
        excluded = [item.get("VariantPropertyType") for _, item in objects(endpoint.at(path))]
        if boolean(endpoint.properties.get("RetainAllVariantProperties", False)) is False:
            key = "RetainAllVariantProperties"
            yield endpoint.problem(key, what, "set it to true for updates", value="false")
        elif "DesiredInstanceCount" in excluded:
            yield endpoint.problem(path, what, "remove DesiredInstanceCount from the list")


@resource_rule("E9108", "Model without network isolation", MODEL)
def network_isolation(model: Resource) -> Iterator[Finding]:
    """A model's container has no way out to the network."""
    if boolean(model.properties.get("EnableNetworkIsolation", False)) is False:
        yield model.problem(
            "EnableNetworkIsolation",
            "the container reaches the network",
            "set it, or suppress E9108 in the resource's cfn-lint metadata with the reason",
            allowed="true",
        )


@resource_rule("E9129", "Data capture or asynchronous output without a KMS key", ENDPOINT_CONFIG)
def output_encryption(config: Resource) -> Iterator[Finding]:
    """Captured data and asynchronous responses are encrypted with a customer managed key."""
    capture = config.properties.get("DataCaptureConfig")
    output = config.at("AsyncInferenceConfig.OutputConfig")
    enabled = boolean(fields(capture).get("EnableCapture", True)) is not False
    holders = {"AsyncInferenceConfig.OutputConfig": output}
    holders |= {"DataCaptureConfig": capture} if enabled else {}
    for path, holder in holders.items():
        key = fields(holder).get("KmsKeyId")
        if isinstance(holder, dict) and (key is None or "alias/aws/" in str(key)):
            what = "the data in S3 is not encrypted with a key of yours"
            yield config.problem(f"{path}.KmsKeyId", what, "name the bucket's key", value=key)


@rule("E9131", "Name of a resource that the template does not have")
def names_exist(assembly: Assembly) -> Iterator[Finding]:
    """A config, an endpoint, a component and a target name what the template has, by its name."""
    for resource, path, name, kinds in _names(assembly):
        names, found = assembly.names(*kinds), assembly.find(name, *kinds)
        if names and is_known(name) and name is not None and (found is None or found.name != name):
            what = f"no {kinds[0].rsplit('::', 1)[-1]} of this template has the name"
            yield resource.problem(path, what, value=name, allowed=names)
    for resource in assembly.of_type(TARGET, POLICY):
        match = scaled_variant(resource)
        endpoint = None if match is None else assembly.find(match["endpoint"], ENDPOINT)
        own = endpoint if endpoint and endpoint.template is resource.template else None
        named = [item.name for item in variants(config_of(assembly, own)) if not item.shadow]
        if match is not None and match["variant"] not in named and all(map(is_known, named)):
            what = "no endpoint of this template has such a production variant"
            yield resource.problem("ResourceId", what, value=match.group(), allowed=named)


Named = tuple[Resource, str, object, tuple[str, ...]]
"""A resource, the path of a name in it, the name, and the types of what it is a name of."""


def _names(assembly: Assembly) -> Iterator[Named]:
    """Yield what configs, endpoints, components and targets name."""
    for variant in all_variants(assembly):
        for path, name in variant.model_names:
            yield variant.config, path, name, (MODEL,)
    for endpoint in assembly.of_type(ENDPOINT):
        path = "EndpointConfigName"
        yield endpoint, path, endpoint.properties.get(path), (ENDPOINT_CONFIG,)
    for target in assembly.of_type(TARGET):
        match = scaled_variant(target)
        if match is not None:
            yield target, "ResourceId", match["endpoint"], (ENDPOINT,)
        component = scaled_component(assembly, target)
        if component is not None:
            yield target, "ResourceId", component.name, (COMPONENT,)
    for component in assembly.of_type(COMPONENT):
        for path, kind in (
            ("EndpointName", ENDPOINT),
            ("Specification.ModelName", MODEL),
            ("Specification.BaseInferenceComponentName", COMPONENT),
        ):
            yield component, path, component.at(path), (kind,)
