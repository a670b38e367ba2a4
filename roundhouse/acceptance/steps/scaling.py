"""Sends the load that one instance more is for, stops it, and waits for the instances to go."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

from roundhouse.acceptance.assumptions import Assumption
from roundhouse.acceptance.setup import FEWEST, MOST, Setup
from roundhouse.acceptance.steps.contract import require_answer
from roundhouse.acceptance.steps.endpoints import describe
from roundhouse.acceptance.steps.step import (
    AcceptanceContext,
    AcceptanceStep,
    no_python_endpoint,
)

PAUSE_SECONDS = 0.25
"""Between two requests: four a second, where two instances are said to hold one."""
OUT_SECONDS, IN_SECONDS = 25 * 60.0, 35 * 60.0
"""AWS's alarms look back 3 minutes for more instances, and 15 for fewer."""


def assumptions(setup: Setup) -> tuple[Assumption, ...]:
    """Return that target tracking moves the count."""
    return (
        Assumption(
            name="scaling.out",
            says="target tracking adds an instance under load",
            expected=f"{MOST} instances",
        ),
        Assumption(
            name="scaling.in",
            says="and takes it away once the load has ended",
            expected=f"{FEWEST} instances",
        ),
    )


def run(context: AcceptanceContext) -> str:
    """Move the count up and down, and record how long each took."""
    model = next(model for model in context.setup.deployed if model.name == "python")
    endpoint = context.setup.endpoint(model)
    runtime = context.session.clients("sagemaker-runtime")

    def load() -> None:
        for _ in range(max(1, round(context.look_seconds / PAUSE_SECONDS))):
            require_answer(runtime, endpoint)
            context.sleep(PAUSE_SECONDS)

    out = _wait(context, endpoint, MOST, OUT_SECONDS, load)
    context.findings.record("scaling.out", f"{_count(context, endpoint)} instances")
    into = _wait(context, endpoint, FEWEST, IN_SECONDS, lambda: context.sleep(context.look_seconds))
    context.findings.record("scaling.in", f"{_count(context, endpoint)} instances")
    context.evidence.write_json("scaling.json", {"out_seconds": out, "in_seconds": into})
    return f"out after {out:.0f} s, in after {into:.0f} s"


def _wait(
    context: AcceptanceContext,
    endpoint: str,
    count: int,
    seconds: float,
    between: Callable[[], None],
) -> float:
    """Wait until an endpoint has so many instances, or the time is up; return the seconds."""
    begin = time.monotonic()
    while _count(context, endpoint) != count and time.monotonic() - begin < seconds:
        between()
    return time.monotonic() - begin


def _count(context: AcceptanceContext, endpoint: str) -> int:
    variants = cast(
        "list[dict[str, Any]]", describe(context.session, endpoint)["ProductionVariants"]
    )
    return int(variants[0]["CurrentInstanceCount"])


SCALING = AcceptanceStep(
    name="scaling",
    title="Scaling out and in",
    limit_minutes=60,
    assumptions=assumptions,
    run=run,
    instances={"python": 2 * FEWEST, "triton": 1},
    obstacle=no_python_endpoint,
)
