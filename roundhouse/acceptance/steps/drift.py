"""Looks for drift, changes one thing by hand, finds it, and puts it back."""

from __future__ import annotations

from roundhouse.acceptance.assumptions import Assumption
from roundhouse.acceptance.setup import FEWEST, Setup
from roundhouse.acceptance.steps.step import (
    AcceptanceContext,
    AcceptanceStep,
    no_endpoint,
)
from roundhouse.aws.clients import calling
from roundhouse.deploy.stacks import endpoint_stack_name, environment_templates
from roundhouse.gitops.drift.environment import environment_drift

CHANGED = "termination protection"


def assumptions(setup: Setup) -> tuple[Assumption, ...]:
    """Return what is drift and what is none."""
    return (
        Assumption(
            name="drift.none",
            says="what was deployed, updated, rolled back and scaled has no drift",
            expected="none",
        ),
        Assumption(
            name="drift.found",
            says="a stack's protection that was taken off by hand is found",
            expected=CHANGED,
        ),
    )


def run(context: AcceptanceContext) -> str:
    """Compare twice; the one change in between is undone whatever happens."""
    client = context.session.clients("cloudformation")
    before = differences(context, "before")
    context.findings.record("drift.none", ", ".join(before) or "none")
    stack = endpoint_stack_name(context.deployment(context.answering()[0]))
    try:
        with calling(f"Taking the termination protection off {stack}"):
            client.update_termination_protection(StackName=stack, EnableTerminationProtection=False)
        after = differences(context, "after")
    finally:
        with calling(f"Protecting {stack}"):
            client.update_termination_protection(StackName=stack, EnableTerminationProtection=True)
    new = [what for what in after if what not in before]
    context.findings.record("drift.found", ", ".join(new) or "nothing")
    return f"{len(before)} differences, then {len(after)}"


def differences(context: AcceptanceContext, moment: str) -> list[str]:
    """Return what differs of the endpoints that answer, and keep it as evidence."""
    session = context.of(*sorted(context.deployed))
    found = environment_drift(session, environment_templates(session))
    context.evidence.write_json(f"drift/{moment}.json", [item.as_dict() for item in found])
    # Of some endpoints alone no dashboard is deployed, and no stack of one that failed counts.
    return [item.what for item in found if item.what != "stack"]


DRIFT = AcceptanceStep(
    name="drift",
    title="Looking for drift",
    limit_minutes=5,
    assumptions=assumptions,
    run=run,
    instances={"python": 2 * FEWEST, "triton": 1},
    obstacle=no_endpoint,
)
