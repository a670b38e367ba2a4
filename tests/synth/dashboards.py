"""Endpoints of every kind, and what the bodies of their dashboards hold."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from aws_cdk import App, Environment, Stack
from aws_cdk import aws_sns as sns
from aws_cdk.assertions import Template

from onboarding.arns import alarm_topic
from onboarding.hosting_spec import AsynchronousSpec
from roundhouse_cdk.endpoint_alarms import EndpointAlarms, EndpointAlarmsProps
from roundhouse_cdk.endpoint_dashboard import EndpointDashboard, EndpointDashboardProps
from stacks.alarms.endpoint import endpoint_alarms
from stacks.dashboards.endpoint import endpoint_sections
from stacks.dashboards.environment import environment_sections, selector
from stacks.endpoint_stack import keep_ids
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


def alarms(deployment):
    """Properties of every alarm by its id, as `EndpointAlarms` gives them to CloudFormation."""
    stack = Stack(App(analytics_reporting=False), "Alarms")
    topic = sns.Topic.from_topic_arn(stack, "Topic", alarm_topic(deployment.environment))
    props = EndpointAlarmsProps(alarms=endpoint_alarms(deployment), topic=topic)
    keep_ids(EndpointAlarms(stack, "Endpoint", props=props).alarms)
    resources = Template.from_stack(stack).to_json()["Resources"]
    return {name: resource["Properties"] for name, resource in resources.items()}


def render_dashboard(sections, chosen=None):
    """The body of a dashboard, as `EndpointDashboard` gives it to CloudFormation."""
    account = Environment(account="111122223333", region="us-east-1")
    stack = Stack(App(analytics_reporting=False), "Dashboards", env=account)
    props = EndpointDashboardProps(name="shown", sections=sections, selector=chosen)
    EndpointDashboard(stack, "Endpoint", props=props)
    (dashboard,) = Template.from_stack(stack).to_json()["Resources"].values()
    return json.loads(dashboard["Properties"]["DashboardBody"])


def endpoint_body(deployment):
    return render_dashboard(endpoint_sections(deployment))


def environment_body(deployments):
    return render_dashboard(environment_sections(deployments), selector(deployments))


def there(deployments):
    """The ARN of every alarm."""
    return {
        f"arn:aws:cloudwatch:us-east-1:{deployment.environment.account}:alarm:{alarm.name}"
        for deployment in deployments
        for alarm in endpoint_alarms(deployment)
    }


SEARCH = re.compile(r"SEARCH\(\s*'\{(?P<schema>[^}]*)\}(?P<terms>[^']*)'\s*,\s*'(?P<stat>[^']*)'")
SEARCHED = re.compile(r'MetricName=\(?"?(\w+)')


@dataclass(frozen=True, kw_only=True)
class DashboardMetric:
    """One metric of a widget."""

    namespace: str
    metric: str
    dimensions: Mapping[str, Any]
    statistic: str


def dashboard_metrics(body: Mapping[str, Any]) -> Iterator[DashboardMetric]:
    """Yield every metric of a body, those of searches too."""
    for widget in with_defaults(body)["widgets"]:
        properties = widget["properties"]
        before: list[Any] = []
        for row in properties.get("metrics", []):
            options = row[-1] if isinstance(row[-1], dict) else {}
            parts = [part for part in row if not isinstance(part, dict)]
            if "..." in parts:
                parts = [*before[: len(before) - len(parts) + 1], *parts[1:]]
            parts = [before[at] if part == "." else part for at, part in enumerate(parts)]
            for found in SEARCH.finditer(options.get("expression", "")):
                namespace, *names = (name.strip('" ') for name in found["schema"].split(","))
                for metric in SEARCHED.findall(found["terms"]):
                    yield DashboardMetric(
                        namespace=namespace,
                        metric=metric,
                        dimensions=dict.fromkeys(names),
                        statistic=found["stat"],
                    )
            if "expression" not in options:
                before = parts
                yield DashboardMetric(
                    namespace=parts[0],
                    metric=parts[1],
                    dimensions=dict(zip(parts[2::2], parts[3::2], strict=True)),
                    statistic=options.get("stat", properties.get("stat", "Average")),
                )


def with_defaults(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """A body as it is when it is opened: a pattern variable changes every text of its widgets."""
    text = json.dumps(body["widgets"])
    for variable in body.get("variables", ()):
        text = text.replace(variable["pattern"], variable["defaultValue"])
    return {**body, "widgets": json.loads(text)}
