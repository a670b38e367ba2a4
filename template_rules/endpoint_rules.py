"""Rules of endpoints: the config they name, rollouts, and the alarms that take a rollout back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from onboarding.aws_limits import ROLLBACK_ALARM_COUNT
from template_rules.finding import Problem
from template_rules.hosting import ENDPOINT, ENDPOINT_CONFIG, config_of, variants
from template_rules.rule import rule, together_rule
from template_rules.template import Resource, Template
from template_rules.values import (
    at,
    boolean,
    fields,
    is_known,
    number,
    objects,
    shown,
    surely_has,
    text,
)

ALARMS = ("AWS::CloudWatch::Alarm", "AWS::CloudWatch::CompositeAlarm")
ROUTING = ("DeploymentConfig", "BlueGreenUpdatePolicy", "TrafficRoutingConfiguration")
RETAINED = ("DesiredInstanceCount", "DesiredWeight", "DataCaptureConfig")


@rule("RH140", "an endpoint's config is one that the template makes, when it makes any")
def endpoint_of_another_config(template: Template) -> Iterator[Problem]:
    names = template.names(ENDPOINT_CONFIG)
    if not names or not all(is_known(name) for name in names):
        return
    for endpoint in template.of_type(ENDPOINT):
        name = text(endpoint.properties.get("EndpointConfigName"))
        if name is not None and config_of(template, endpoint) is None:
            yield Problem(
                resource=endpoint.logical_id,
                path="EndpointConfigName",
                what="the endpoint names a config that this template does not make",
                value=name,
                allowed=", ".join(sorted(names)),
                way_out="name one of these",
            )


@rule("RH141", "a canary takes at most half of the capacity")
def canary_too_large(template: Template) -> Iterator[Problem]:
    for endpoint in template.of_type(ENDPOINT):
        routing = fields(at(endpoint.properties, *ROUTING))
        path = f"{'.'.join(ROUTING)}.CanarySize"
        if text(routing.get("Type")) == "CANARY":
            yield from _size(template, endpoint, routing.get("CanarySize"), path, "a canary", 1, 50)


@rule("RH142", "a linear step takes 10 to 50 % of the capacity")
def linear_step_out_of_bounds(template: Template) -> Iterator[Problem]:
    for endpoint in template.of_type(ENDPOINT):
        routing = fields(at(endpoint.properties, *ROUTING))
        path = f"{'.'.join(ROUTING)}.LinearStepSize"
        if text(routing.get("Type")) == "LINEAR":
            yield from _size(
                template, endpoint, routing.get("LinearStepSize"), path, "a linear step", 10, 50
            )


@rule("RH143", "a rolling batch takes 5 to 50 % of the capacity")
def rolling_batch_out_of_bounds(template: Template) -> Iterator[Problem]:
    for endpoint in template.of_type(ENDPOINT):
        rolling = at(endpoint.properties, "DeploymentConfig", "RollingUpdatePolicy")
        if isinstance(rolling, dict):
            path = "DeploymentConfig.RollingUpdatePolicy"
            yield from _size(
                template,
                endpoint,
                rolling.get("MaximumBatchSize"),
                f"{path}.MaximumBatchSize",
                "a rolling batch",
                5,
                50,
            )
            if "RollbackMaximumBatchSize" in rolling:
                back = rolling["RollbackMaximumBatchSize"]
                yield from _size(
                    template,
                    endpoint,
                    back,
                    f"{path}.RollbackMaximumBatchSize",
                    "a batch on the way back",
                    5,
                    100,
                )


@rule("RH144", "a rolling update has one production variant, with instances")
def rolling_with_several_variants(template: Template) -> Iterator[Problem]:
    for endpoint in template.of_type(ENDPOINT):
        config = config_of(template, endpoint)
        if (
            config is None
            or at(endpoint.properties, "DeploymentConfig", "RollingUpdatePolicy") is None
        ):
            continue
        where = partial(
            Problem, resource=endpoint.logical_id, path="DeploymentConfig.RollingUpdatePolicy"
        )
        found = variants(config)
        if len(found) > 1:
            given = ", ".join(shown(each.name) for each in found)
            what = "a rolling update takes no endpoint of several variants"
            yield where(what=what, value=given, way_out="use BlueGreenUpdatePolicy")
        elif any(each.is_serverless for each in found):
            yield where(
                what="a rolling update takes no serverless endpoint",
                way_out="use BlueGreenUpdatePolicy",
            )


@rule("RH145", "a deployment is blue/green or rolling, never both")
def two_update_policies(template: Template) -> Iterator[Problem]:
    for endpoint in template.of_type(ENDPOINT):
        deployment = fields(endpoint.properties.get("DeploymentConfig"))
        there = [
            name
            for name in ("BlueGreenUpdatePolicy", "RollingUpdatePolicy")
            if surely_has(deployment, name)
        ]
        if len(there) > 1:
            what = "the endpoint has both update policies"
            yield Problem(
                resource=endpoint.logical_id,
                path="DeploymentConfig",
                what=what,
                way_out="keep one of them",
            )


@rule("RH146", "traffic moves by the sizes that its type has")
def sizes_of_another_type(template: Template) -> Iterator[Problem]:
    sizes = {"CANARY": "CanarySize", "LINEAR": "LinearStepSize"}
    for endpoint in template.of_type(ENDPOINT):
        routing = fields(at(endpoint.properties, *ROUTING))
        kind, needed = text(routing.get("Type")), sizes.get(text(routing.get("Type")) or "")
        for size in sizes.values():
            if kind is not None and surely_has(routing, size) and size != needed:
                path = f"{'.'.join(ROUTING)}.{size}"
                what = f"{kind} traffic routing has no {size}"
                yield Problem(
                    resource=endpoint.logical_id, path=path, what=what, way_out="take it out"
                )


@rule("RH147", "a rollout is taken back by one to ten alarms")
def rollback_alarm_count(template: Template) -> Iterator[Problem]:
    for endpoint in template.of_type(ENDPOINT):
        rollback = at(endpoint.properties, "DeploymentConfig", "AutoRollbackConfiguration")
        alarms = fields(rollback).get("Alarms")
        if (
            isinstance(rollback, dict)
            and isinstance(alarms, list)
            and not 1 <= len(alarms) <= ROLLBACK_ALARM_COUNT
        ):
            path = "DeploymentConfig.AutoRollbackConfiguration.Alarms"
            given, allowed = f"{len(alarms)} alarms", f"1 to {ROLLBACK_ALARM_COUNT}"
            what = "the number of rollback alarms is out of bounds"
            way_out = (
                "gather several in a composite alarm"
                if alarms
                else "name one, or take AutoRollbackConfiguration out"
            )
            yield Problem(
                resource=endpoint.logical_id,
                path=path,
                what=what,
                value=given,
                allowed=allowed,
                way_out=way_out,
            )


@together_rule("RH148", "an alarm that takes a rollout back is there, under exactly that name")
def rollback_alarm_missing(templates: Sequence[Template]) -> Iterator[tuple[Template, Problem]]:
    everywhere = {
        name for template in templates for name in template.names(*ALARMS) if is_known(name)
    }
    for template in templates:
        for endpoint, path, name in _rollback_alarms(template):
            arn = str(name).startswith("arn:")
            if (
                text(name) is not None
                and name not in everywhere
                and (arn or template.named(name, *ALARMS) is None)
            ):
                here = sorted(shown(each) for each in template.names(*ALARMS))
                yield (
                    template,
                    Problem(
                        resource=endpoint.logical_id,
                        path=path,
                        what="no alarm of these templates has the name, and UpdateEndpoint refuses an alarm that is not there",
                        value=shown(name),
                        allowed=", ".join(here) or None,
                        way_out="name an alarm by Ref, or exactly",
                    ),
                )


@rule("RH149", "an alarm that takes a rollout back watches this endpoint")
def rollback_alarm_of_another_endpoint(template: Template) -> Iterator[Problem]:
    for endpoint, path, name in _rollback_alarms(template):
        alarm = template.named(name, *ALARMS)
        for _, dimension in objects(None if alarm is None else alarm.properties.get("Dimensions")):
            value = dimension.get("Value")
            if (
                dimension.get("Name") == "EndpointName"
                and is_known(value)
                and is_known(endpoint.name)
                and value != endpoint.name
            ):
                what = f"the alarm watches endpoint {value}, not {endpoint.name}"
                yield Problem(
                    resource=endpoint.logical_id,
                    path=path,
                    what=what,
                    value=shown(name),
                    way_out="name this endpoint's own alarm",
                )


@rule("RH150", "an endpoint's update is taken back by an alarm when it goes wrong", "warning")
def no_rollback(template: Template) -> Iterator[Problem]:
    for endpoint in template.of_type(ENDPOINT):
        deployment = endpoint.properties.get("DeploymentConfig")
        if isinstance(deployment, dict) and "AutoRollbackConfiguration" not in deployment:
            path = "DeploymentConfig.AutoRollbackConfiguration"
            what = "nothing takes a bad version back"
            yield Problem(
                resource=endpoint.logical_id,
                path=path,
                what=what,
                way_out="name alarms of this endpoint",
            )


@rule(
    "RH151",
    "what an update keeps of a variant is said once, and only with RetainAllVariantProperties",
)
def retained_properties(template: Template) -> Iterator[Problem]:
    for endpoint in template.of_type(ENDPOINT):
        kept = [
            text(each.get("VariantPropertyType"))
            for _, each in objects(endpoint.properties.get("ExcludeRetainedVariantProperties"))
        ]
        where = partial(
            Problem, resource=endpoint.logical_id, path="ExcludeRetainedVariantProperties"
        )
        if kept and boolean(endpoint.properties.get("RetainAllVariantProperties", False)) is False:
            yield where(
                what="there is nothing to leave out: RetainAllVariantProperties is off",
                way_out="switch it on",
            )
        known = [each for each in kept if each is not None]
        for wrong in sorted(
            {each for each in known if each not in RETAINED or known.count(each) > 1}
        ):
            what = (
                "the property is unknown"
                if wrong not in RETAINED
                else "the property is named twice"
            )
            yield where(
                what=what, value=wrong, allowed=", ".join(RETAINED), way_out="name each once"
            )


def _rollback_alarms(template: Template) -> Iterator[tuple[Resource, str, object]]:
    for endpoint in template.of_type(ENDPOINT):
        alarms = at(endpoint.properties, "DeploymentConfig", "AutoRollbackConfiguration", "Alarms")
        for index, alarm in objects(alarms):
            yield (
                endpoint,
                f"DeploymentConfig.AutoRollbackConfiguration.Alarms[{index}].AlarmName",
                alarm.get("AlarmName"),
            )


def _size(
    template: Template,
    endpoint: Resource,
    size: object,
    path: str,
    noun: str,
    least: int,
    most: int,
) -> Iterator[Problem]:
    """A capacity in percent within its bounds; one in instances within the share of the instances
    that there are.
    """
    if not isinstance(size, dict):
        if size is None:
            yield Problem(
                resource=endpoint.logical_id,
                path=path,
                what=f"{noun} has no size",
                way_out=f"write {least} to {most} %",
            )
        return
    value, kind = number(size.get("Value")), text(size.get("Type"))
    if value is None:
        return
    allowed = f"{least} to {most} %"
    if kind == "CAPACITY_PERCENT" and not least <= value <= most:
        what = f"{noun} is out of bounds"
        yield Problem(
            resource=endpoint.logical_id,
            path=path,
            what=what,
            value=f"{value:g} %",
            allowed=allowed,
            way_out="bring it within",
        )
    if kind == "INSTANCE_COUNT" and most <= 50:
        yield from _instances(template, endpoint, value, path, noun, most)


def _instances(
    template: Template, endpoint: Resource, value: float, path: str, noun: str, most: int
) -> Iterator[Problem]:
    config = config_of(template, endpoint)
    counts = [
        number(each.properties.get("InitialInstanceCount"))
        for each in (() if config is None else variants(config))
    ]
    total = sum(count for count in counts if count is not None)
    if total and None not in counts and value > max(1.0, total * most / 100):
        allowed = f"at most {most} % of {total:g} instances"
        what = f"{noun} takes more than its share"
        yield Problem(
            resource=endpoint.logical_id,
            path=path,
            what=what,
            value=f"{value:g} instances",
            allowed=allowed,
            way_out="take fewer",
        )
