"""Alarms on requests that were not answered rightly.

Whose fault that is, each server says otherwise (docs/servers.md).
"""

from __future__ import annotations

from collections.abc import Iterator

from onboarding.deployment import Deployment, Variant
from stacks.alarms.alarm import INVOCATIONS, Alarm, Computed, Condition, Metric, percent
from stacks.rollout import step_percent
from stacks.scaling.resources import dimensions

SERVER_ERRORS, CLIENT_ERRORS, ALL_ERRORS = (
    "Invocation5XXErrors",
    "Invocation4XXErrors",
    "InvocationModelErrors",
)
FAILURES, PROCESSED = "InvocationFailures", "InvocationsProcessed"
"""What a queue counts.

It publishes no `InvocationModelErrors` (SageMaker developer guide, "Monitor asynchronous
endpoints").
"""
FEW = {SERVER_ERRORS: 0.01, CLIENT_ERRORS: 0.05}
"""Shares of the requests at which people want to know."""
LOST_SHARE = 0.01
LEAST_FAILED = 3
"""Failed requests in a minute, below which a share says nothing.

But for a minute in which every request failed.
"""


def error_alarms(deployment: Deployment, variant: Variant) -> Iterator[Alarm]:
    """Errors of the server, of clients, and requests that got no answer at all."""
    mixed = mixed_metric(deployment)
    for metric, part, kind in (
        (SERVER_ERRORS, "ServerErrors", "server-errors"),
        (CLIENT_ERRORS, "ClientErrors", "client-errors"),
    ):
        share = (
            FEW[metric] if metric != mixed else max(FEW[metric], broken_share(deployment, variant))
        )
        faults = metric in (SERVER_ERRORS, mixed)
        yield _errors(deployment, variant, metric, part, kind, share, rolls_back=faults)
        if share > FEW[metric]:
            early = (
                ("EarlyServerErrors", "early-5xx")
                if metric == SERVER_ERRORS
                else ("EarlyClientErrors", "early-4xx")
            )
            yield _errors(deployment, variant, metric, *early, FEW[metric], rolls_back=False)
    yield (_lost if deployment.endpoint.asynchronous is None else _lost_in_queue)(
        deployment, variant
    )


def mixed_metric(deployment: Deployment) -> str | None:
    """The metric in which a broken engine and a client's mistake look alike.

    None where the server keeps them apart.

    Triton says 500 to a malformed request of a single-model endpoint, and 400 to every failed
    inference of a multi-model one.
    """
    if deployment.server != "triton":
        return None
    return CLIENT_ERRORS if deployment.multi_model else SERVER_ERRORS


def broken_share(deployment: Deployment, variant: Variant) -> float:
    """Half the failures that a wholly broken version shows in its first step.

    Less may well be a client's mistake.

    The metric counts the old fleet's requests as well as the new one's. A shadow has no rollout,
    and takes nothing back.
    """
    return 0.0 if variant.role == "shadow" else step_percent(deployment) / 200


def _errors(
    deployment: Deployment,
    variant: Variant,
    metric: str,
    part: str,
    kind: str,
    share: float,
    *,
    rolls_back: bool,
) -> Alarm:
    mixed = (
        " (Triton counts clients' malformed requests there too)"
        if metric == mixed_metric(deployment)
        else ""
    )
    explanation = (
        f"{metric} is over {percent(share)} of the requests, {LEAST_FAILED} or more in a minute, or"
        f" all of them{mixed}"
    )
    return Alarm(
        part=part,
        kind=kind,
        variant=variant,
        watched=Computed(
            expression=f"IF(failed >= {LEAST_FAILED} OR share == 1, share, 0)",
            label=f"{metric}, share",
            metrics={
                # The metric is 0 or 1 for each invocation, so its average is a share.
                "share": _metric(deployment, variant, metric, "Average"),
                "failed": _metric(deployment, variant, metric, "Sum"),
            },
        ),
        condition=Condition(threshold=share),
        explanation=explanation,
        rolls_back=rolls_back and variant.role != "shadow",
    )


def _lost(deployment: Deployment, variant: Variant) -> Alarm:
    """Time-outs and broken connections.

    SageMaker counts them among the model's errors, and under no status.
    """
    watched = Computed(
        expression=f"IF(failed >= {LEAST_FAILED} OR every == 1, every - clients - servers, 0)",
        label="requests without an answer, share",
        metrics={
            "every": _metric(deployment, variant, ALL_ERRORS, "Average"),
            "failed": _metric(deployment, variant, ALL_ERRORS, "Sum"),
            "clients": _metric(deployment, variant, CLIENT_ERRORS, "Average"),
            "servers": _metric(deployment, variant, SERVER_ERRORS, "Average"),
        },
    )
    return _no_answers(variant, watched, "time-outs, and connections that broke")


def _lost_in_queue(deployment: Deployment, variant: Variant) -> Alarm:
    """Whatever failed with no status.

    Time-outs, and requests or answers that did not pass through S3.
    """
    watched = Computed(
        # Whether what failed counts as processed too, AWS does not say: with both below the line
        # the share is never too high.
        expression=(
            f"IF(failed >= {LEAST_FAILED} OR failed >= FILL(processed, 0), "
            "(failed - FILL(clients, 0) - FILL(servers, 0)) / (failed + FILL(processed, 0)), 0)"
        ),
        label="requests without an answer, share",
        metrics={
            "failed": _metric(deployment, variant, FAILURES, "Sum"),
            "processed": _metric(deployment, variant, PROCESSED, "Sum"),
            "clients": _metric(deployment, variant, CLIENT_ERRORS, "Sum"),
            "servers": _metric(deployment, variant, SERVER_ERRORS, "Sum"),
        },
    )
    return _no_answers(
        variant, watched, "time-outs, and requests or answers that did not pass through S3"
    )


def _no_answers(variant: Variant, watched: Computed, what: str) -> Alarm:
    return Alarm(
        part="NoAnswers",
        kind="no-answers",
        variant=variant,
        watched=watched,
        condition=Condition(threshold=LOST_SHARE),
        explanation=f"over {percent(LOST_SHARE)} of the requests got no answer: {what}",
        rolls_back=variant.role != "shadow",
    )


def _metric(deployment: Deployment, variant: Variant, name: str, statistic: str) -> Metric:
    return Metric(
        namespace=INVOCATIONS,
        name=name,
        dimensions=dimensions(deployment, variant),
        statistic=statistic,
    )
