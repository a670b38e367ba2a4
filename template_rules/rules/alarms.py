"""Checks of alarms and topics across stacks: who is told, and who rolls back."""

from __future__ import annotations

from collections.abc import Iterator

from template_rules.hosting import (
    ALARM,
    COMPONENT,
    ENDPOINT,
    ENDPOINT_CONFIG,
    rollback_alarms,
    watched_endpoints,
)
from template_rules.policies import allows_service, resource_statements
from template_rules.rule import rule
from template_rules.templates import Assembly, Finding, Resource
from template_rules.values import at, is_known, number, objects, texts

TOPIC, KEY, ALIAS = "AWS::SNS::Topic", "AWS::KMS::Key", "AWS::KMS::Alias"
ACTIONS = ("AlarmActions", "OKActions", "InsufficientDataActions")


@rule("E9600", "A rollback alarm exists, and watches the endpoint that it rolls back")
def rollback_alarm(assembly: Assembly) -> Iterator[Finding]:
    for updated in assembly.of_type(ENDPOINT, COMPONENT):
        own = updated.properties.get("EndpointName", updated.name)
        allowed = ({own}, set()) if updated.type == COMPONENT else ({own},)
        for path, name in rollback_alarms(updated):
            alarm = assembly.find(name, ALARM)
            way_out = "name an alarm of this endpoint"
            if alarm is None or str(name).startswith("arn:"):
                if is_known(name) or alarm is not None:
                    what = "no template has an alarm of this name, and UpdateEndpoint refuses it"
                    yield updated.problem(path, what, way_out, value=name)
            elif watched_endpoints(alarm) not in allowed:
                what = f"the alarm does not watch endpoint {own} alone"
                yield updated.problem(path, what, way_out, value=name)


@rule("E9601", "A rollback alarm rings within the waits of the rollout")
def rollback_period(assembly: Assembly) -> Iterator[Finding]:
    for endpoint in assembly.of_type(ENDPOINT):
        wait = _baking_seconds(endpoint)
        for path, name in rollback_alarms(endpoint):
            alarm = assembly.find(name, ALARM)
            if alarm is None or not wait:
                continue
            count = number(alarm.properties.get("EvaluationPeriods")) or 1
            points = number(alarm.properties.get("DatapointsToAlarm", count)) or count
            queries = objects(alarm.properties.get("Metrics"))
            periods = [at(query, "MetricStat", "Period") for _, query in queries]
            given = map(number, [alarm.properties.get("Period"), *periods])
            needed = points * max(period or 60 for period in given)
            if needed > wait:
                what = f"{alarm.name} needs {needed:g} s to ring, and the rollout waits {wait:g} s"
                way_out = "shorten the alarm's periods, or wait longer"
                yield endpoint.problem(path, what, way_out, value=name)


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


@rule("E9602", "An alarm, and every other publisher, names a topic that a template has")
def topic_exists(assembly: Assembly) -> Iterator[Finding]:
    for resource, path, topic in topics_named(assembly):
        if assembly.find(topic, TOPIC) is not None or not assembly.names(TOPIC):
            continue
        if ":sns:" in topic and is_known(topic):
            what, allowed = "no template has the topic", ", ".join(assembly.names(TOPIC))
            yield resource.problem(path, what, value=topic, allowed=allowed)


def topics_named(assembly: Assembly) -> Iterator[tuple[Resource, str, str]]:
    """Yield (resource, path, topic ARN) of alarms, asynchronous endpoints and subscriptions."""
    for alarm in assembly.of_type(ALARM):
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


@rule("E9603", "CloudWatch may publish to the topic of an alarm, and use its key")
def topic_reachable(assembly: Assembly) -> Iterator[Finding]:
    actions: dict[Resource, Resource] = {}
    for alarm, _, action in topics_named(assembly):
        topic = assembly.find(action, TOPIC)
        if topic is not None and alarm.type == ALARM:
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
