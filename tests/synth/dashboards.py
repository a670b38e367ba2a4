"""Endpoints of every kind, and what the bodies of their dashboards hold."""

from __future__ import annotations

import dataclasses

from onboarding.hosting_spec import AsynchronousSpec
from stacks.alarms.properties import alarms
from tests.synth.deployments import one, with_endpoint, with_instance_type
from tests.synth.scaled import with_variant

OWN, SHARED = one("dev", "sentence-embedder"), one("dev", "text-shared")
FOUR_GPUS = with_instance_type(OWN, name="ml.g5.12xlarge", gpu_count=4)
QUEUED = with_endpoint(OWN, asynchronous=AsynchronousSpec())


def with_name(deployment, name):
    return dataclasses.replace(deployment, name=name)


def many(count):
    """Endpoints of every kind, each with its own SLO."""
    kinds = (OWN, SHARED, with_variant(OWN, "challenger"), FOUR_GPUS, QUEUED)
    return [
        with_name(with_endpoint(kinds[at % 5], latency_slo_ms=50.0 + at), f"model-{at:03}")
        for at in range(count)
    ]


def titled(body, title):
    return next(
        element["properties"]
        for element in body["widgets"]
        if element["properties"].get("title", "").startswith(title)
    )


def lines(body, title):
    found = titled(body, title).get("annotations", {}).get("horizontal", [])
    return {line["label"]: line["value"] for line in found}


def expressions(body):
    rows = [row for widget in body["widgets"] for row in widget["properties"].get("metrics", [])]
    return [
        row[-1]["expression"]
        for row in rows
        if isinstance(row[-1], dict) and "expression" in row[-1]
    ]


def arns(body):
    found = [item["properties"] for item in body["widgets"]]
    return [
        arn
        for entry in found
        for arn in (*entry.get("alarms", ()), *entry.get("annotations", {}).get("alarms", ()))
    ]


def there(deployments):
    """The ARN of every alarm."""
    return {
        f"arn:aws:cloudwatch:us-east-1:{deployment.environment.account}:alarm:{alarm['AlarmName']}"
        for deployment in deployments
        for alarm in alarms(deployment).values()
    }
