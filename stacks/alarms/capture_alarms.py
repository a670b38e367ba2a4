"""Alarms on what the scheduled comparison of captures finds; without a value they say nothing."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from onboarding import names
from onboarding.deployment import Deployment, Variant
from stacks.alarms.alarm import UNDER, Alarm, variant_metric

PERIOD = 86_400
"""A day: most comparisons come once in it, and the worst of them counts."""


def capture_alarms(deployment: Deployment, variant: Variant) -> Iterator[Alarm]:
    """Yield none without a `check`, nor for a shadow, whose answers nobody gets."""
    capture = deployment.endpoint.data_capture
    if capture is None or capture.check is None or variant.role == "shadow":
        return
    metric = partial(
        variant_metric, deployment, variant, namespace=names.CAPTURE_NAMESPACE, period=PERIOD
    )
    alarm = partial(Alarm, variant=variant, points=1, periods=1, missing="missing")
    least = accuracy_budget(variant)
    yield alarm(
        part="CapturedAccuracy",
        kind="captured-accuracy",
        watched=metric(names.CAPTURE_ACCURACY_UPPER, "Minimum"),
        threshold=least,
        comparison=UNDER,
        explanation=(
            f"captured answers are below the accuracy budget, mean {least:g} against the source "
            "model, even at the upper bound of the 95 % interval"
        ),
    )
    yield alarm(
        part="CapturedInputs",
        kind="captured-inputs",
        watched=metric(names.CAPTURE_INPUT_DRIFT, "Maximum"),
        threshold=names.MAJOR_SHIFT,
        explanation=(
            "warning: what users send has drifted from the data; a population stability index is "
            f"over {names.MAJOR_SHIFT:g} and over chance"
        ),
    )


def accuracy_budget(variant: Variant) -> float:
    """Return the least mean that the model file allows, of whichever output."""
    (target,) = variant.targets[:1]
    accuracy = target.model.accuracy
    own = [output.budget.mean for output in accuracy.outputs.values() if output.budget is not None]
    return min([accuracy.budget.mean, *own])
