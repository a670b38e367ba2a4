"""Destroys what the run made, and looks for anything left. It runs whatever came before."""

from __future__ import annotations

from roundhouse.acceptance.assumptions import Assumption
from roundhouse.acceptance.cleanup import clean, leftovers
from roundhouse.acceptance.setup import FEWEST, Setup
from roundhouse.acceptance.steps.step import AcceptanceContext, AcceptanceStep
from roundhouse.errors import DeployFailedError


def assumptions(setup: Setup) -> tuple[Assumption, ...]:
    """Return that nothing is left that bills."""
    return (
        Assumption(
            name="destroy.left",
            says="stacks, endpoints, bucket, repositories and keys of the run are gone",
            expected="nothing",
        ),
    )


def run(context: AcceptanceContext) -> str:
    """Delete everything; what cannot be deleted is the finding."""
    session = context.session
    try:
        deleted = clean(session, context.sleep)
    except DeployFailedError:
        left = ", ".join(leftovers(session.clients, session.environment))
        context.findings.record("destroy.left", left or "nothing is left, and deleting failed")
        raise
    context.evidence.write_json("deleted.json", deleted)
    context.findings.record("destroy.left", "nothing")
    return f"{len(deleted)} things deleted"


DESTROY = AcceptanceStep(
    name="destroy",
    title="Destroying everything of the run",
    limit_minutes=60,
    assumptions=assumptions,
    run=run,
    instances={"python": 2 * FEWEST, "triton": 1},
)
