"""The alarm on an asynchronous endpoint's queue."""

from __future__ import annotations

from collections.abc import Iterator

from onboarding import names
from onboarding.deployment import Deployment
from stacks.alarms.alarm import INVOCATIONS, Alarm, Condition, Metric
from stacks.rollout import ready_seconds

SCALING_SECONDS = 300
"""Until scaling has seen the backlog and asked for an instance."""


def queue_alarms(deployment: Deployment) -> Iterator[Alarm]:
    """The oldest request waits longer than one more instance takes to come; none for an endpoint
    that answers at once.
    """
    if deployment.endpoint.asynchronous is None:
        return
    limit = longest_wait_seconds(deployment)
    endpoint = names.endpoint_name(deployment.environment, deployment.name)
    of = [{"Name": "EndpointName", "Value": endpoint}]
    yield Alarm(
        part="OldestRequest",
        kind="oldest-request",
        variant=None,
        watched=Metric(
            namespace=INVOCATIONS,
            name="ApproximateAgeOfOldestRequest",
            dimensions=of,
            statistic="Maximum",
        ),
        condition=Condition(threshold=limit),
        told=f"the oldest request has waited over {limit} s: one more instance takes {ready_seconds(deployment, deployment.own)} s at most, "
        f"and scaling {SCALING_SECONDS} s to ask for it",
    )


def longest_wait_seconds(deployment: Deployment) -> int:
    """What scaling out may take, whole."""
    return SCALING_SECONDS + ready_seconds(deployment, deployment.own)
