"""Alarms as deployed, property by property."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from roundhouse.aws.clients import Client, calling
from roundhouse.gitops.drift.difference import Differ, Difference, has_reference, plain
from roundhouse.gitops.endpoint_facts import resources_of
from roundhouse.gitops.template_changes import Template

ALARM = "AWS::CloudWatch::Alarm"
ALARMS_A_CALL = 100
ALARM_DEFAULTS: dict[str, Any] = {"ActionsEnabled": True, "OKActions": [], "AlarmActions": []}


def alarm_drift(cloudwatch: Client, template: Template, differ: Differ) -> Iterator[Difference]:
    """Yield what differs of the alarms of a stack."""
    wanted = [item["Properties"] for item in resources_of(template, ALARM)]
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
            if not has_reference(value):
                now = live[name].get(key, ALARM_DEFAULTS.get(key))
                yield from differ(f"{key} of alarm {name}", plain(value), plain(now))
