"""The steps of an acceptance run, in order: what is printed is what runs."""

from __future__ import annotations

from dataclasses import replace

from roundhouse.acceptance.steps.accuracy import ACCURACY
from roundhouse.acceptance.steps.contract import CONTRACT
from roundhouse.acceptance.steps.destroy import DESTROY
from roundhouse.acceptance.steps.drift import DRIFT
from roundhouse.acceptance.steps.endpoints import ENDPOINTS
from roundhouse.acceptance.steps.engines import ENGINES
from roundhouse.acceptance.steps.formats import FORMATS
from roundhouse.acceptance.steps.images import IMAGES
from roundhouse.acceptance.steps.rollback import ROLLBACK
from roundhouse.acceptance.steps.scaling import SCALING
from roundhouse.acceptance.steps.stacks import STACKS
from roundhouse.acceptance.steps.step import AcceptanceStep

STEPS = (
    STACKS, IMAGES, ENGINES, FORMATS, ENDPOINTS, CONTRACT, ACCURACY, ROLLBACK, SCALING, DRIFT,
    DESTROY,
)  # fmt: skip


def limited_steps(minutes: float | None) -> tuple[AcceptanceStep, ...]:
    """Return the steps with limits that fit into so many minutes, the last one's not among them.

    A step for which none are left has a limit of 0, and is not reached. None: the steps' own.
    """
    if minutes is None:
        return STEPS
    left, result = minutes, []
    for step in STEPS[:-1]:
        limit = min(left, step.limit_minutes)
        result.append(replace(step, limit_minutes=limit))
        left -= limit
    return (*result, STEPS[-1])
