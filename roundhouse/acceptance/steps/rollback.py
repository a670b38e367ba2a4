"""Rolls out a version that its server refuses, as a canary, and sees SageMaker roll it back.

The version is the same archive under a manifest that is not its own: the lock agrees with S3, so
it is deployed, and each new container refuses the archive with one sentence and ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from onboarding.lock import read_lock, write_lock_entry
from roundhouse.acceptance.assumptions import Assumption
from roundhouse.acceptance.setup import FEWEST, Setup, TinyModel
from roundhouse.acceptance.steps.contract import require_answer
from roundhouse.acceptance.steps.endpoints import describe
from roundhouse.acceptance.steps.step import (
    AcceptanceContext,
    AcceptanceStep,
    no_python_endpoint,
)
from roundhouse.aws.clients import calling
from roundhouse.deploy.deployment import DeployOptions, deploy
from roundhouse.deploy.stacks import endpoint_stack_name, stack_summaries
from roundhouse.errors import RoundhouseError

ROLLED_BACK = "UPDATE_ROLLBACK_COMPLETE"


def assumptions(setup: Setup) -> tuple[Assumption, ...]:
    """Return how a rollout of a bad version ends."""
    return (
        Assumption(
            name="rollback.stack",
            says="CloudFormation rolls a canary back whose containers do not become healthy",
            expected=ROLLED_BACK,
        ),
        Assumption(
            name="rollback.config",
            says="the endpoint serves the endpoint config of before, InService",
            expected="as before",
        ),
        Assumption(
            name="rollback.answers",
            says="it answers after the rollback",
            expected="200",
        ),
    )


def run(context: AcceptanceContext) -> str:
    """Deploy the bad version and record how that ended."""
    model = next(model for model in context.setup.deployed if model.name == "python")
    session, endpoint = context.of(model.name), context.setup.endpoint(model)
    before = describe(session, endpoint)
    message = "the bad version was deployed"
    with bad_version(context, model):
        try:
            deploy(session, DeployOptions(yes=True, allow_dirty=True))
        except RoundhouseError as error:
            message = str(error)
    context.evidence.write_text("rollback/message.txt", message + "\n")
    stack = endpoint_stack_name(context.deployment(model))
    summary = stack_summaries(session.clients("cloudformation")).get(stack)
    context.findings.record("rollback.stack", "gone" if summary is None else summary.status)
    with calling(f"Reading the events of {stack}"):
        events = session.clients("cloudformation").describe_stack_events(StackName=stack)
    context.evidence.write_json("rollback/events.json", events["StackEvents"])
    after = describe(session, endpoint)
    context.evidence.write_json("rollback/endpoint.json", after)
    fields = ("EndpointConfigName", "EndpointStatus")
    is_same = all(before[name] == after[name] for name in fields)
    found = "as before" if is_same else ", ".join(str(after[name]) for name in fields)
    context.findings.record("rollback.config", found)
    require_answer(session.clients("sagemaker-runtime"), endpoint)
    context.findings.record("rollback.answers", 200)
    return " ".join(message.split())[:200]


@contextmanager
def bad_version(context: AcceptanceContext, model: TinyModel) -> Iterator[None]:
    """Make the model's lock name a manifest that is not the archive's; restore it afterwards."""
    session = context.session
    locks = session.paths.tree / session.environment.locks
    (entry,) = read_lock(locks, model.name).engines.values()
    changes = {"load_seconds": entry.manifest.load_seconds + 1.0}
    manifest = entry.manifest.model_copy(update=changes)
    archive = entry.archive.model_copy(update={"manifest_sha256": manifest.sha256()})
    bad = entry.model_copy(update={"manifest": manifest, "archive": archive})
    write_lock_entry(locks, model.name, bad)
    try:
        yield
    finally:
        write_lock_entry(locks, model.name, entry)


ROLLBACK = AcceptanceStep(
    name="rollback",
    title="Rolling out a version that its server refuses",
    limit_minutes=60,
    assumptions=assumptions,
    run=run,
    instances={"python": 2 * FEWEST, "triton": 1},
    obstacle=no_python_endpoint,
)
