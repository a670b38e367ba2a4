"""Deploys the engines behind both servers."""

from __future__ import annotations

import datetime

from onboarding.lock import ServedCapacity, read_lock, record_capacity
from roundhouse.acceptance.assumptions import Assumption
from roundhouse.acceptance.setup import FEWEST, Setup, TinyModel
from roundhouse.acceptance.steps.step import AcceptanceContext, AcceptanceStep
from roundhouse.aws.clients import calling
from roundhouse.deploy.deployment import DeployOptions, deploy
from roundhouse.deploy.stacks import endpoint_stack_name
from roundhouse.errors import RoundhouseError
from roundhouse.session import Session

IN_SERVICE = "InService"
LOW_RATE = 1.0
"""Requests a second that the scaled endpoint is said to hold, so that little load moves it."""


def assumptions(setup: Setup) -> tuple[Assumption, ...]:
    """Return that each server's container starts and is healthy."""
    return tuple(
        Assumption(
            name=f"endpoints.{model.name}",
            says=f"server {model.server} loads the {model.precision} engine on "
            f"{model.instance_type.name} and is healthy",
            expected=IN_SERVICE,
        )
        for model in setup.deployed
    )


def created(setup: Setup) -> tuple[str, ...]:
    """Return the endpoints, which cost most while they stand."""
    return tuple(f"endpoint {setup.endpoint(model)}" for model in setup.deployed)


def run(context: AcceptanceContext) -> str:
    """Deploy one endpoint after the other; one that fails leaves the other."""
    for model in context.setup.deployed:
        if model.name not in context.built:
            context.findings.record(f"endpoints.{model.name}", "no engine was built")
            continue
        if model.name == "python":
            _say_low_capacity(context, model)
        session = context.of(model.name)
        try:
            deploy(session, DeployOptions(yes=True, allow_dirty=True))
        except RoundhouseError as error:
            context.evidence.write_text(f"endpoints/{model.name}-failed.txt", str(error))
            context.findings.record(f"endpoints.{model.name}", f"not deployed: {error}")
            _write_events(context, session, model)
            continue
        shown = describe(session, context.setup.endpoint(model))
        context.evidence.write_json(f"endpoints/{model.name}.json", shown)
        context.findings.record(f"endpoints.{model.name}", shown["EndpointStatus"])
        if shown["EndpointStatus"] == IN_SERVICE:
            context.deployed.add(model.name)
    return f"{len(context.deployed)} of {len(context.setup.deployed)} answer"


def describe(session: Session, endpoint: str) -> dict[str, object]:
    """Return SageMaker's description of an endpoint."""
    with calling(f"Endpoint {endpoint}"):
        shown: dict[str, object] = session.clients("sagemaker").describe_endpoint(
            EndpointName=endpoint
        )
    return shown


def _write_events(context: AcceptanceContext, session: Session, model: TinyModel) -> None:
    """Keep CloudFormation's events of a stack that failed, where there is one."""
    stack = endpoint_stack_name(context.deployment(model))
    try:
        with calling(f"Reading the events of {stack}"):
            events = session.clients("cloudformation").describe_stack_events(StackName=stack)
    except RoundhouseError as error:
        context.evidence.write_text(f"endpoints/{model.name}-events.txt", str(error))
        return
    context.evidence.write_json(f"endpoints/{model.name}-events.json", events["StackEvents"])


def _say_low_capacity(context: AcceptanceContext, model: TinyModel) -> None:
    """Write a capacity into the run's own lock that scaling can be seen at."""
    session = context.session
    locks = session.paths.tree / session.environment.locks
    (entry,) = read_lock(locks, model.name).engines.values()
    capacity = ServedCapacity(
        requests_per_second=LOW_RATE,
        slo_ms=20_000,
        instance_type=model.instance_type.name,
        server="python",
        endpoint=context.setup.endpoint(model),
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        tool="roundhouse acceptance: not measured, chosen low",
    )
    record_capacity(locks, model.name, entry.manifest.engine_key, capacity)


ENDPOINTS = AcceptanceStep(
    name="endpoints",
    title="Deploying both servers",
    limit_minutes=45,
    assumptions=assumptions,
    run=run,
    instances={"python": FEWEST, "triton": 1},
    obstacle=lambda context: None if context.built else "no engine was built",
    creates=created,
)
