"""Deploys what builds need: bucket, keys, repositories, topics, projects, state machine, signer."""

from __future__ import annotations

from onboarding import names
from roundhouse.acceptance.assumptions import Assumption
from roundhouse.acceptance.setup import Setup
from roundhouse.acceptance.steps.step import AcceptanceContext, AcceptanceStep
from roundhouse.deploy import cdk
from roundhouse.deploy.deployment import DeployOptions, deploy_early_stacks
from roundhouse.deploy.stacks import stack_summaries

PARTS = ("foundation", "images", "builds")
CREATED = "CREATE_COMPLETE"


def assumptions(setup: Setup) -> tuple[Assumption, ...]:
    """Return that CloudFormation takes each stack."""
    return tuple(
        Assumption(
            name=f"stacks.{part}",
            says=f"CloudFormation creates the {part} stack",
            expected=CREATED,
        )
        for part in PARTS
    )


def created(setup: Setup) -> tuple[str, ...]:
    """Return the stacks, and what stays of the foundation when its stack goes."""
    environment = setup.environment
    return (
        *(f"stack {names.stack_name(environment, part)}" for part in PARTS),
        f"bucket {names.artifact_bucket(environment)}",
        f"repositories roundhouse-{environment.name}/*",
        f"KMS keys alias/roundhouse-{environment.name}*",
    )


def run(context: AcceptanceContext) -> str:
    """Deploy the stacks and record the status of each."""
    if context.setup.in_local_cloud:
        cdk.bootstrap(context.session)
    try:
        deploy_early_stacks(context.session, DeployOptions(yes=True))
    finally:
        summaries = stack_summaries(context.session.clients("cloudformation"))
        own = {
            part: summaries.get(names.stack_name(context.session.environment, part))
            for part in PARTS
        }
        context.evidence.write_json("stacks.json", {part: repr(own[part]) for part in own})
        for part, stack in own.items():
            found = "no stack" if stack is None else f"{stack.status} {stack.reason}".strip()
            context.findings.record(f"stacks.{part}", found)
    return f"{len(PARTS)} stacks"


STACKS = AcceptanceStep(
    name="stacks",
    title="Deploying the foundation and the builds",
    limit_minutes=20,
    assumptions=assumptions,
    run=run,
    creates=created,
)
