"""Alarms on failed requests; the servers differ in whose fault a status names (docs/serving.md)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from onboarding.deployment import Deployment, Variant
from stacks.alarms.alarm import Alarm, Computed, percent, variant_metric
from stacks.rollout import step_percent

SERVER_ERRORS, CLIENT_ERRORS = "Invocation5XXErrors", "Invocation4XXErrors"
FEW = {SERVER_ERRORS: 0.01, CLIENT_ERRORS: 0.05}
"""Shares of the requests at which people want to know."""
LOST_SHARE = 0.01
LEAST_FAILED = 3
"""Failed requests in a minute, below which a share says nothing, unless every request failed."""


def error_alarms(deployment: Deployment, variant: Variant) -> Iterator[Alarm]:
    """Yield alarms on errors of the server, of clients, and on requests without an answer."""
    mixed = mixed_metric(deployment, variant)
    for metric, noun, status in (
        (SERVER_ERRORS, "server", "5xx"),
        (CLIENT_ERRORS, "client", "4xx"),
    ):
        few, part = FEW[metric], f"{noun.capitalize()}Errors"
        share = max(few, broken_share(deployment, variant)) if metric == mixed else few
        faults = metric in (SERVER_ERRORS, mixed)
        alarm = partial(_errors, deployment, variant, metric)
        yield alarm(part, f"{noun}-errors", share, rolls_back=faults and variant.role != "shadow")
        if share > few:
            yield alarm(f"Early{part}", f"early-{status}", few, rolls_back=False)
    yield _no_answers(deployment, variant)


def mixed_metric(deployment: Deployment, variant: Variant) -> str | None:
    """Return the metric in which a broken engine and a client's mistake look alike.

    None where the server keeps them apart. Triton says 500 to a malformed request of a single-model
    endpoint, and 400 to every failed inference of a multi-model one.
    """
    if variant.server != "triton":
        return None
    return CLIENT_ERRORS if deployment.multi_model else SERVER_ERRORS


def broken_share(deployment: Deployment, variant: Variant) -> float:
    """Return half the failures that a wholly broken version shows in its first step.

    Less may well be a client's mistake. The metric counts the old fleet's requests as well as the
    new one's. A shadow has no rollout, and takes nothing back.
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
    is_mixed = metric == mixed_metric(deployment, variant)
    mixed = " (Triton counts clients' malformed requests there too)" if is_mixed else ""
    return Alarm(
        part=part,
        kind=kind,
        variant=variant,
        watched=Computed(
            expression=f"IF(failed >= {LEAST_FAILED} OR share == 1, share, 0)",
            label=f"{metric}, share",
            metrics={
                # The metric is 0 or 1 for each invocation, so its average is a share.
                "share": variant_metric(deployment, variant, metric, "Average"),
                "failed": variant_metric(deployment, variant, metric, "Sum"),
            },
        ),
        threshold=share,
        explanation=(
            f"{metric} is over {percent(share)} of the requests, {LEAST_FAILED} or more in a"
            f" minute, or all of them{mixed}"
        ),
        rolls_back=rolls_back,
    )


def _no_answers(deployment: Deployment, variant: Variant) -> Alarm:
    """Alarm on requests that failed under no status.

    SageMaker counts them among the model's errors. A queue publishes no `InvocationModelErrors`
    (SageMaker developer guide, "Monitor asynchronous endpoints"), and counts failures itself.
    """
    metric = partial(variant_metric, deployment, variant)
    if deployment.endpoint.asynchronous is None:
        reason, stat = "time-outs, and connections that broke", "Average"
        expression = f"IF(failed >= {LEAST_FAILED} OR every == 1, every - clients - servers, 0)"
        failures = {
            "every": metric("InvocationModelErrors", "Average"),
            "failed": metric("InvocationModelErrors", "Sum"),
        }
    else:
        reason = "time-outs, and requests or answers that did not pass through S3"
        stat = "Sum"
        # Whether what failed counts as processed too, AWS does not say: with both below the line
        # the share is never too high.
        expression = (
            f"IF(failed >= {LEAST_FAILED} OR failed >= FILL(processed, 0), "
            "(failed - FILL(clients, 0) - FILL(servers, 0)) / (failed + FILL(processed, 0)), 0)"
        )
        failures = {
            "failed": metric("InvocationFailures", "Sum"),
            "processed": metric("InvocationsProcessed", "Sum"),
        }
    statuses = {"clients": metric(CLIENT_ERRORS, stat), "servers": metric(SERVER_ERRORS, stat)}
    return Alarm(
        part="NoAnswers",
        kind="no-answers",
        variant=variant,
        watched=Computed(
            expression=expression,
            label="requests without an answer, share",
            metrics={**failures, **statuses},
        ),
        threshold=LOST_SHARE,
        explanation=f"over {percent(LOST_SHARE)} of the requests got no answer: {reason}",
        rolls_back=variant.role != "shadow",
    )
