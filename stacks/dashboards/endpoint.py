"""The dashboard of one endpoint, which says what its stack deploys and goes with it."""

from __future__ import annotations

from onboarding import names
from onboarding.deployment import DeployedEndpoint, Deployment
from onboarding.metrics import AlarmStates, Section, Text, VariantMetrics
from stacks.alarms.alarm import alarm_arn
from stacks.alarms.endpoint import endpoint_alarms
from stacks.dashboards import graphs, lines
from stacks.dashboards.overview import deployed, promises
from stacks.dashboards.sections import View

HEAD_HEIGHT = 6


def dashboard_name(deployment: DeployedEndpoint) -> str:
    """The account's name of the dashboard; no environment's name has two hyphens in a row."""
    return f"roundhouse-{deployment.environment.name}--{deployment.name}"


def endpoint_sections(deployment: Deployment) -> list[Section]:
    """Its alarms, what is deployed, and every graph with the endpoint's own lines.

    A section for each variant.
    """
    endpoint = names.endpoint_name(deployment.environment, deployment.name)
    paragraphs = (
        f"# {endpoint}",
        f"Rollout: {deployment.endpoint.rollout}. {lines.COLORS}",
        promises([deployment], counts=True),
        "**Deployed**",
        deployed(deployment),
    )
    arns = [alarm_arn(deployment, alarm) for alarm in endpoint_alarms(deployment)]
    head = (
        Text(markdown="\n\n".join(paragraphs), width=12, height=HEAD_HEIGHT),
        AlarmStates(title="Alarms", arns=arns, height=HEAD_HEIGHT),
    )
    several = len(deployment.variants) > 1
    found = [Section(widgets=head)]
    if several:
        slo = lines.slo_lines(deployment, deployment.own)
        beside = graphs.variant_graphs(endpoint, slo)
        found.append(Section(title="Variants side by side", widgets=beside))
    for variant in deployment.variants:
        role = " (shadow)" if variant.role == "shadow" else ""
        of = VariantMetrics(endpoint, variant.name)
        view = View(of=of, pairs=[(deployment, variant)])
        found += view.sections(f" of {variant.name}{role}" if several else "")
    return found
