"""Checks of alarms and topics across stacks: who is told, who rolls back, what dashboards show."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from template_rules.assembly.check import assembly_check
from template_rules.hosting import (
    ALARM,
    COMPONENT,
    COMPOSITE,
    ENDPOINT,
    ENDPOINT_CONFIG,
    composite_members,
    rollback_alarms,
    watched_endpoints,
)
from template_rules.metrics import MetricUse, alarm_metrics
from template_rules.policies import allows_service, resource_statements
from template_rules.templates import Assembly, Problem, Resource
from template_rules.values import fields, is_known, known_text, number, objects, texts

TOPIC, KEY, ALIAS = "AWS::SNS::Topic", "AWS::KMS::Key", "AWS::KMS::Alias"
ACTIONS = ("AlarmActions", "OKActions", "InsufficientDataActions")


@assembly_check("E9600", "A rollback alarm exists, and watches the endpoint that it rolls back")
def rollback_alarm(assembly: Assembly) -> Iterator[Problem]:
    for updated in assembly.of_type(ENDPOINT, COMPONENT):
        own = updated.properties.get("EndpointName", updated.name)
        allowed = ({own}, set()) if updated.type == COMPONENT else ({own},)
        for path, name in rollback_alarms(updated):
            alarm = assembly.find(name, ALARM, COMPOSITE)
            way_out = "name an alarm of this endpoint"
            if alarm is None or str(name).startswith("arn:"):
                if is_known(name) or alarm is not None:
                    what = "no template has an alarm of this name, and UpdateEndpoint refuses it"
                    yield updated.problem(path, what, way_out, value=name)
            elif watched_endpoints(assembly, alarm) not in allowed:
                what = f"the alarm does not watch endpoint {own} alone"
                yield updated.problem(path, what, way_out, value=name)


@assembly_check("E9601", "A rollback alarm rings within the waits of the rollout")
def rollback_period(assembly: Assembly) -> Iterator[Problem]:
    for endpoint in assembly.of_type(ENDPOINT):
        wait = _baking_seconds(endpoint)
        for path, name in rollback_alarms(endpoint):
            found = assembly.find(name, ALARM, COMPOSITE)
            members = [] if found is None else _members(assembly, found)
            for alarm in members if wait else ():
                count = number(alarm.properties.get("EvaluationPeriods")) or 1
                points = number(alarm.properties.get("DatapointsToAlarm", count)) or count
                periods = [number(use.period) or 60 for use in alarm_metrics(alarm)]
                needed = points * max(periods, default=60)
                if wait is not None and needed > wait:
                    what = (
                        f"{alarm.name} needs {needed:g} s to ring, and the rollout waits {wait:g} s"
                    )
                    way_out = "shorten the alarm's periods, or wait longer"
                    yield endpoint.problem(path, what, way_out, value=name)


def _members(assembly: Assembly, alarm: Resource) -> list[Resource]:
    if alarm.type == ALARM:
        return [alarm]
    found = (assembly.find(name, ALARM) for name in composite_members(alarm))
    return [member for member in found if member is not None]


def _baking_seconds(endpoint: Resource) -> float | None:
    policy = "DeploymentConfig.BlueGreenUpdatePolicy"
    routing = f"{policy}.TrafficRoutingConfiguration"
    paths = ["DeploymentConfig.RollingUpdatePolicy.WaitIntervalInSeconds"]
    if endpoint.at(f"{routing}.Type") == "ALL_AT_ONCE":
        paths = [f"{policy}.TerminationWaitInSeconds"]
    elif endpoint.at(routing) is not None:
        paths = [f"{routing}.WaitIntervalInSeconds", f"{policy}.TerminationWaitInSeconds"]
    waits = [wait for path in paths if (wait := number(endpoint.at(path))) is not None]
    return min(waits, default=None)


@assembly_check("E9602", "An alarm, and every other publisher, names a topic that a template has")
def topic_exists(assembly: Assembly) -> Iterator[Problem]:
    for resource, path, topic in topics_named(assembly):
        if assembly.find(topic, TOPIC) is not None or not assembly.names(TOPIC):
            continue
        if ":sns:" in topic and is_known(topic):
            what, allowed = "no template has the topic", ", ".join(assembly.names(TOPIC))
            yield resource.problem(path, what, value=topic, allowed=allowed)


def topics_named(assembly: Assembly) -> Iterator[tuple[Resource, str, str]]:
    """Yield (resource, path, topic ARN) of alarms, asynchronous endpoints and subscriptions."""
    for alarm in assembly.of_type(ALARM, COMPOSITE):
        for key in ACTIONS:
            for action in texts(alarm.properties.get(key)):
                yield alarm, key, action
    for config in assembly.of_type(ENDPOINT_CONFIG):
        for key in ("SuccessTopic", "ErrorTopic"):
            path = f"AsyncInferenceConfig.OutputConfig.NotificationConfig.{key}"
            for topic in texts(config.at(path)):
                yield config, path, topic
    for subscription in assembly.of_type("AWS::SNS::Subscription"):
        for topic in texts(subscription.properties.get("TopicArn")):
            yield subscription, "TopicArn", topic


@assembly_check("E9603", "CloudWatch may publish to the topic of an alarm, and use its key")
def topic_reachable(assembly: Assembly) -> Iterator[Problem]:
    actions: dict[Resource, Resource] = {}
    for alarm, _, action in topics_named(assembly):
        topic = assembly.find(action, TOPIC)
        if topic is not None and alarm.type in (ALARM, COMPOSITE):
            actions.setdefault(topic, alarm)
    for topic, alarm in actions.items():
        stack = alarm.template.stack
        context = {
            "aws:SourceAccount": stack.account,
            "aws:SourceArn": alarm.arn,
            "aws:SecureTransport": "true",
        }
        context = {key: value for key, value in context.items() if value and is_known(value)}
        granted = [
            statement
            for statement in resource_statements(assembly, "AWS::SNS::TopicPolicy")
            if topic.arn in texts(statement.resource.properties.get("Topics"))
            or topic.arn in statement.resources
        ]
        if not allows_service(granted, "cloudwatch", "sns:Publish", str(topic.arn), context):
            what = "no policy of the topic lets CloudWatch publish: alarms are lost"
            way_out = "allow sns:Publish to cloudwatch.amazonaws.com with aws:SourceAccount"
            yield topic.problem("TopicName", what, way_out)
        key = key_of(assembly, topic.properties.get("KmsMasterKeyId"))
        if key is not None:
            policy = [item for item in resource_statements(assembly, KEY) if item.resource is key]
            for action in ("kms:Decrypt", "kms:GenerateDataKey"):
                if not allows_service(policy, "cloudwatch", action, str(key.arn), context):
                    what = f"the key's policy does not let CloudWatch call {action}"
                    way_out = (
                        "allow kms:Decrypt and kms:GenerateDataKey* to cloudwatch.amazonaws.com"
                    )
                    yield topic.problem("KmsMasterKeyId", what, way_out)


def key_of(assembly: Assembly, value: object) -> Resource | None:
    """Return the KMS key that a key id, an ARN or an alias stands for, if a template has it."""
    key = assembly.find(value, KEY)
    if key is not None:
        return key
    alias = assembly.find(value, ALIAS)
    return None if alias is None else assembly.find(alias.properties.get("TargetKeyId"), KEY)


@assembly_check("E9606", "A dashboard shows alarms that templates have")
def dashboard_alarms(assembly: Assembly) -> Iterator[Problem]:
    arns = {alarm.arn for alarm in assembly.of_type(ALARM, COMPOSITE)}
    for dashboard in assembly.of_type("AWS::CloudWatch::Dashboard") if arns else ():
        text = known_text(dashboard.properties.get("DashboardBody")) or "{}"
        body = json.loads(text, strict=False)
        for arn in _alarms_shown(body):
            if not arns & set(_spellings(arn, body)):
                what = "no template has the alarm"
                yield dashboard.problem("DashboardBody", what, "name one that exists", value=arn)


def _alarms_shown(body: dict[str, Any]) -> Iterator[str]:
    for _, widget in objects(body.get("widgets")):
        shown = fields(widget.get("properties"))
        for holder in (shown, fields(shown.get("annotations"))):
            yield from texts(holder.get("alarms", []))


def _spellings(arn: str, body: dict[str, Any]) -> list[str]:
    """Return an ARN with every value of the pattern variables of a dashboard."""
    found = [arn]
    for _, variable in objects(body.get("variables")):
        if variable.get("type") == "pattern" and "pattern" in variable:
            values = [str(item.get("value")) for _, item in objects(variable.get("values"))]
            pattern = str(variable["pattern"])
            found = [text.replace(pattern, item) for text in found for item in values or [pattern]]
    return found


@assembly_check("E9608", "An alarm of the load lies above the target that scaling aims at")
def load_alarm(assembly: Assembly) -> Iterator[Problem]:
    targets: dict[object, float] = {}
    for policy in assembly.of_type("AWS::ApplicationAutoScaling::ScalingPolicy"):
        tracking = "TargetTrackingScalingPolicyConfiguration"
        kind = policy.at(f"{tracking}.PredefinedMetricSpecification.PredefinedMetricType")
        target = number(policy.at(f"{tracking}.TargetValue"))
        if kind == "SageMakerVariantInvocationsPerInstance" and target is not None:
            targets[policy.properties.get("ResourceId")] = target
    for alarm in assembly.of_type(ALARM):
        uses = alarm_metrics(alarm)
        threshold = number(alarm.properties.get("Threshold"))
        target = targets.get(_scaled_text(uses[0])) if len(uses) == 1 else None
        if target is None or threshold is None or threshold >= target:
            continue
        if uses[0].metric == "InvocationsPerInstance":
            what = f"the alarm rings below the {target:g} a minute that scaling aims at"
            way_out = "compare requests a minute, above the target"
            yield alarm.problem("Threshold", what, way_out, value=f"{threshold:g}")


def _scaled_text(use: MetricUse) -> str:
    given = use.dimensions or {}
    return f"endpoint/{given.get('EndpointName')}/variant/{given.get('VariantName')}"
