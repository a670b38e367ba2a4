"""`roundhouse bench NAME --record` of a text generator: the knee of one copy, into the lock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from onboarding.names import endpoint_name
from onboarding.text_generation.checkpoint_lock import (
    CheckpointEntry,
    GenerationKnee,
    record_knee,
)
from onboarding.text_generation.generation_deployment import GenerationDeployment
from roundhouse.aws.clients import Clients, calling
from roundhouse.errors import RoundhouseError
from roundhouse.load_test.generation.bench import GenerationReport
from roundhouse.load_test.generation.options import GenerationOptions
from roundhouse.load_test.generation.result import GenerationResult
from roundhouse.load_test.generation.subject import generator_spec
from roundhouse.load_test.generation.verdict import p95
from roundhouse.paths import Paths
from roundhouse.report import Report
from roundhouse.session import Session, lock_folder

TOOL = "roundhouse bench"
IN_SERVICE = "InService"
Bench = Callable[[Paths, Report, GenerationOptions], GenerationReport]


@dataclass(frozen=True, kw_only=True)
class ServedCopies:
    """What answers, as SageMaker describes it: two that are equal serve alike."""

    model: str
    """SageMaker's, whose name follows from its content."""
    instance_type: str
    copies: int


@dataclass(frozen=True, kw_only=True)
class RecordedKnee:
    """A knee, the lock it was written to, and its load test."""

    knee: GenerationKnee
    lock: Path
    report: GenerationReport

    @property
    def summary(self) -> str:
        """What was recorded, in one line."""
        knee = self.knee
        return (
            f"One copy on {knee.instance_type} answers {knee.concurrency:g} requests at once "
            f"within the SLO: goodput {knee.goodput_requests_per_second:.3g}/s, "
            f"{knee.output_tokens_per_second:,.0f} output tokens/s."
        )


def record(session: Session, options: GenerationOptions, *, run: Bench) -> RecordedKnee:
    """Search for the knee and write it into the lock of the checkpoint behind the endpoint.

    Raises RoundhouseError, and leaves the lock as it was, for what is no knee of its checkpoint.
    The report of the load test stays in any case.
    """
    options.require_consistent()
    deployment, entry = _deployment(session, str(options.endpoint))
    folder = lock_folder(session, "--record")
    served = served_copies(session.clients, deployment, entry)
    done = run(session.paths, session.report, options)
    if served_copies(session.clients, deployment, entry) != served:
        raise _refusal("the endpoint changed during the load test", done)
    knee = measured_knee(deployment, served, done)
    lock = record_knee(folder, deployment.name, entry.checkpoint_key, knee)
    return RecordedKnee(knee=knee, lock=lock, report=done)


def measured_knee(
    deployment: GenerationDeployment, served: ServedCopies, done: GenerationReport
) -> GenerationKnee:
    """Return what one of the copies answers. Raises RoundhouseError where no knee was found."""
    if (fault := knee_fault(done.result)) is not None:
        raise _refusal(fault, done)
    knee = done.result.knee
    assert knee is not None
    ttft, gap = p95(knee.phase.ttfts_ms), p95(knee.phase.gaps_ms)
    assert ttft is not None and gap is not None
    return GenerationKnee(
        concurrency=knee.concurrency / served.copies,
        goodput_requests_per_second=(knee.phase.goodput or 0.0) / served.copies,
        ttft_p95_ms=ttft,
        itl_p95_ms=gap,
        output_tokens_per_second=knee.phase.output_tokens_per_second / served.copies,
        instance_type=served.instance_type,
        endpoint=endpoint_name(deployment.environment, deployment.name),
        plan_key=deployment.plan_key,
        date=done.result.circumstances.date[:10],
        tool=f"{TOOL}, {served.copies} copies",
    )


def knee_fault(result: GenerationResult) -> str | None:
    """Return why a search did not find the knee; None when it did."""
    knee = result.knee
    if result.broken_off:
        return "the load test was broken off"
    if knee is None:
        return "no number of requests at once was shown to hold the SLO"
    limit = result.tool_limits.get(knee.phase.phase.name)
    if limit is not None:
        return f"the load tool was part of what it measured ({limit})"
    if not knee.is_exact:
        return f"the knee was not found, only that {knee.concurrency} requests at once hold"
    if not knee.phase.gaps_ms:
        return "the answers have one token each, and no time between two"
    return None


def served_copies(
    clients: Clients, deployment: GenerationDeployment, entry: CheckpointEntry
) -> ServedCopies:
    """Return what answers behind the endpoint. Raises RoundhouseError for another checkpoint."""
    environment = deployment.environment
    name = endpoint_name(environment, deployment.name)
    sagemaker = clients("sagemaker")
    with calling("SageMaker"):
        endpoint = sagemaker.describe_endpoint(EndpointName=name)
        config = sagemaker.describe_endpoint_config(
            EndpointConfigName=endpoint["EndpointConfigName"]
        )
        (variant,), status = config["ProductionVariants"], endpoint["EndpointStatus"]
        if deployment.spec.endpoint.kind == "inference-component":
            component = sagemaker.describe_inference_component(InferenceComponentName=name)
            model, runtime = component["Specification"]["ModelName"], component["RuntimeConfig"]
            current, desired = runtime["CurrentCopyCount"], runtime["DesiredCopyCount"]
            if component["InferenceComponentStatus"] != IN_SERVICE:
                status = component["InferenceComponentStatus"]
        else:
            (counts,), model = endpoint["ProductionVariants"], variant["ModelName"]
            current, desired = counts["CurrentInstanceCount"], counts["DesiredInstanceCount"]
        container = sagemaker.describe_model(ModelName=model)["PrimaryContainer"]
    served = str(container["ModelDataSource"]["S3DataSource"]["S3Uri"]).split("/", 3)[-1]
    for is_fault, what in (
        (status != IN_SERVICE, f"it is {status}; wait until it is {IN_SERVICE}"),
        (
            current != desired or current < 1,
            f"it has {current} copies and {desired} are desired; wait until they are the same",
        ),
        (
            served != entry.prefix,
            f"it serves {served}, and the lock's checkpoint is {entry.prefix}; run: roundhouse "
            f"deploy --env {environment.name}",
        ),
    ):
        if is_fault:
            raise RoundhouseError(f"--record: {name}: {what}.")
    return ServedCopies(
        model=str(model), instance_type=str(variant["InstanceType"]), copies=int(current)
    )


def _deployment(session: Session, name: str) -> tuple[GenerationDeployment, CheckpointEntry]:
    from onboarding.generation_resolve import generation_deployments
    from roundhouse.session import valid_tree

    generator_spec(session.paths, name, session.environment.name)
    tree = valid_tree(session.paths)
    (deployment,) = generation_deployments(tree, session.environment.name, (name,))
    if deployment.entry is None:
        raise RoundhouseError(f"--record: {deployment.problem}")
    return deployment, deployment.entry


def _refusal(fault: str, done: GenerationReport) -> RoundhouseError:
    return RoundhouseError(
        f"--record: {fault}; nothing was recorded, and the report is {done.page}."
    )
