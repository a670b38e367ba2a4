"""One SageMaker Inference Recommender job on a packaged engine: its requests, start and end."""

from __future__ import annotations

import datetime
import gzip
import hashlib
import io
import json
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onboarding import names
from onboarding.deployment import VARIANT, Deployment, Pool, Target
from onboarding.platform import instance_types
from onboarding.values import TEXT_TASKS
from roundhouse.aws.clients import Client, calling, object_exists, write_once
from roundhouse.deploy.images import current_image_uris
from roundhouse.errors import AwsError, NotReadyError, RoundhouseError, UsageError
from roundhouse.measure.inputs import Body, read_inputs
from roundhouse.report import Step
from roundhouse.session import Session
from roundhouse.text import choices

JOB_SECONDS = 2700
"""A Default job's 45 minutes. Source: SageMaker developer guide, "Inference Recommender"."""
UNDER_WAY, EVERY_SECONDS = ("PENDING", "IN_PROGRESS", "STOPPING"), 15.0
MOST_BODIES = 100
"""Of the sample requests: the mix of lengths is what counts, and a hundred requests show it."""
MOST_BODY_BYTES = 6_291_456
"""What InvokeEndpoint takes."""
TASKS = {"image-classification": "IMAGE_CLASSIFICATION", "text-classification": "CLASSIFICATION"}
METRICS = {
    "MaxInvocations": ("invocations/min", "{:,}"), "ModelLatency": ("model latency", "{:,} µs"),
    "CostPerHour": ("USD/hour", "{:.4g}"), "CostPerInference": ("USD/inference", "{:.3g}"),
    "CpuUtilization": ("CPU", "{:.0f} %"), "MemoryUtilization": ("memory", "{:.0f} %"),
}  # fmt: skip
"""AWS's, with their columns; ModelLatency is in microseconds there."""
COLUMNS = ("instance type", "instances", *(column for column, _ in METRICS.values()))


@dataclass(frozen=True, kw_only=True)
class JobRequest:
    """Sample requests, and the parameters of CreateModel and CreateInferenceRecommendationsJob."""

    archive: str  # object key of the engine
    payload: bytes
    model: Mapping[str, Any]
    job: Mapping[str, Any]


def job_request(
    session: Session, model: str, wanted: Sequence[str], input: Path | None, rows: int
) -> JobRequest:
    """Return the requests of a job, without a call to AWS. Raises RoundhouseError.

    `wanted`: instance types; none: every one that runs the engine.
    """
    from onboarding import arns
    from stacks.endpoint.props import container_props

    environment = session.environment
    deployment, pool, types = _find_engine(session, model, wanted)
    target, role = pool.targets[0], arns.recommender(environment)
    inputs = read_inputs(
        session.paths.tree / target.model.accuracy.dataset if input is None else input,
        rows_per_request=rows,
        as_json=True,
        paired=target.model.task == "text-ranking",
    )
    payload = sample_payload(inputs.bodies)
    path = names.sample_payload_path(hashlib.sha256(payload).hexdigest())
    now = datetime.datetime.now(datetime.UTC)
    name = names.recommendation_job(environment, model, f"{target.engine_key} {now}")
    images = current_image_uris(session.paths.code, environment)
    container = container_props(deployment, deployment.own.server, pool, images)
    task, network = target.model.task, environment.network
    domain = "NATURAL_LANGUAGE_PROCESSING" if task in TEXT_TASKS else "MACHINE_LEARNING"
    config: dict[str, Any] = {
        "ModelName": name,
        "JobDurationInSeconds": JOB_SECONDS,
        "ContainerConfig": {
            "Domain": "COMPUTER_VISION" if task == "image-classification" else domain,
            "Task": TASKS.get(task, "OTHER"),
            "Framework": "OTHER",
            "PayloadConfig": {
                "SamplePayloadUrl": f"s3://{names.artifact_bucket(environment)}/{path}",
                "SupportedContentTypes": [inputs.bodies[0].content_type],
            },
            "SupportedInstanceTypes": list(types),
            "SupportedEndpointType": "RealTime",
        },
        "VolumeKmsKeyId": arns.key_id(environment),
    }
    in_network: dict[str, Any] = {}
    if network is not None:
        groups = list(network.security_group_ids)
        in_network = {
            "VpcConfig": {"Subnets": list(network.subnet_ids), "SecurityGroupIds": groups}
        }
    config |= in_network
    return JobRequest(
        archive=names.engine_archive_path(target.engine_key),
        payload=payload,
        model={
            "ModelName": name,
            "ExecutionRoleArn": role,
            "PrimaryContainer": {
                "Image": container.image_uri,
                "Mode": "SingleModel",
                "ModelDataUrl": f"s3://{names.artifact_bucket(environment)}/{container.path}",
                "Environment": dict(container.variables),
            },
            "EnableNetworkIsolation": deployment.endpoint.network_isolation,
            **in_network,
        },
        job={"JobName": name, "JobType": "Default", "RoleArn": role, "InputConfig": config},
    )


def _find_engine(
    session: Session, model: str, wanted: Sequence[str]
) -> tuple[Deployment, Pool, tuple[str, ...]]:
    """Return a model's engine as an endpoint of its own would serve it, and its instance types."""
    from stacks.endpoint.findings import endpoint_faults

    region = session.environment.region
    variants = [(item, variant) for item in session.deployments() for variant in item.variants]
    pools = [(*item, pool) for item in variants for pool in item[1].pools]
    targets = [(*item, target) for item in pools for target in item[2].targets]
    served = [item for item in targets if item[3].model.name == model]
    if not served:
        named = sorted({item[3].model.name for item in targets})
        raise UsageError(f"{model}: no such model on an endpoint; {choices(model, named)}")
    deployment, variant, pool, target = next(
        (item for item in served if wanted and wanted[0] in types_of(item[3], region)), served[0]
    )
    if deployment.endpoint.asynchronous is not None:
        raise UsageError(
            f"{model}: its endpoint is asynchronous, and Inference Recommender loads real-time "
            "endpoints alone; `roundhouse bench` loads it."
        )
    able = types_of(target, region)
    for name in (name for name in wanted if name not in able):
        raise UsageError(
            f"--instance-type {name}: is no type in {region} that runs engine {target.engine_key} "
            f"of {model}, built for {target.plan_gpu or target.instance_type.name}; "
            f"{choices(name, able)}"
        )
    pool = replace(pool, priority=1, targets=(target,))
    own = replace(variant, name=VARIANT, role="variant", weight=1.0, pools=(pool,))
    alone = replace(deployment, multi_model=False, variants=(own,))
    if target.lock_entry is None:
        raise RoundhouseError(
            f"{model}: its engine {target.engine_key} is not in the lock; `roundhouse build --env "
            f"{session.environment.name} --model {model}` builds it."
        )
    if faults := endpoint_faults(alone):
        raise RoundhouseError("\n".join(faults))
    return alone, pool, tuple(dict.fromkeys(wanted)) or able


def types_of(target: Target, region: str) -> tuple[str, ...]:
    """Return the instance types of a region for which a target's engine would be built."""
    gpu, capability = target.plan_gpu, target.instance_type.compute_capability
    kinds = (i for i in instance_types().values() if i.compute_capability == capability)
    able = (i for i in kinds if gpu in (None, i.gpu) and not i.is_missing_in(region))
    return tuple(instance.name for instance in able)


def sample_payload(bodies: Sequence[Body]) -> bytes:
    """Return a .tar.gz of bodies spread evenly over a dataset. Raises RoundhouseError."""
    if (largest := max(len(body.data) for body in bodies)) > MOST_BODY_BYTES:
        raise RoundhouseError(
            f"--input: a request of {largest:,} bytes is above the {MOST_BODY_BYTES:,} that "
            "InvokeEndpoint takes; ask for fewer rows a request."
        )
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for number, body in enumerate(bodies[:: max(1, -(-len(bodies) // MOST_BODIES))]):
            member = tarfile.TarInfo(f"request-{number:04}")
            member.size, member.mode = len(body.data), 0o644
            archive.addfile(member, io.BytesIO(body.data))
    return gzip.compress(plain.getvalue(), mtime=0)


def run_job(
    session: Session, request: JobRequest, sleep: Callable[[float], None] = time.sleep
) -> list[dict[str, Any]]:
    """Start a job, wait for its end, and return AWS's InferenceRecommendations; None for NaN.

    Ctrl-C stops the job. Raises RoundhouseError where it does not start or complete.
    """
    sagemaker, name = session.clients("sagemaker"), str(request.job["JobName"])
    with session.report.step(f"Starting {name}"):
        _start(session, sagemaker, request, name)
    try:
        with session.report.step(f"Recommendation job {name}") as step:
            while (reply := _describe(sagemaker, name, step))["Status"] in UNDER_WAY:
                session.report.check()
                sleep(EVERY_SECONDS)
            step.finish(str(reply["Status"]))
    except KeyboardInterrupt:
        with calling(f"Recommendation job {name}"):
            sagemaker.stop_inference_recommendations_job(JobName=name)
            sagemaker.delete_model(ModelName=name)
        session.report.print(f"Stopping {name}: SageMaker deletes its endpoints.")
        raise
    except AwsError as error:
        raise NotReadyError(
            f"{error} The job goes on; `aws sagemaker stop-inference-recommendations-job "
            f"--job-name {name}` stops it."
        ) from error
    with calling(f"Model {name}"):
        sagemaker.delete_model(ModelName=name)
    if reply["Status"] != "COMPLETED":
        reason = str(reply.get("FailureReason", "SageMaker gives no reason")).rstrip(".")
        raise RoundhouseError(
            f"{name} is {reply['Status']}: {reason}. Log: "
            "/aws/sagemaker/InferenceRecommendationsJobs."
        )
    text = json.dumps(reply.get("InferenceRecommendations", ()), default=str)
    return list(json.loads(text, parse_constant=lambda _: None))


def _start(session: Session, sagemaker: Client, request: JobRequest, name: str) -> None:
    s3, bucket = session.clients("s3"), names.artifact_bucket(session.environment)
    if not object_exists(s3, bucket, request.archive):
        raise RoundhouseError(
            f"s3://{bucket}/{request.archive}: is not there, though the lock names it; `roundhouse "
            f"build --env {session.environment.name}` builds it, `roundhouse promote` copies it."
        )
    url = str(request.job["InputConfig"]["ContainerConfig"]["PayloadConfig"]["SamplePayloadUrl"])
    write_once(s3, bucket, url.split("/", 3)[-1], request.payload, f"Sample requests {url}")
    with calling(f"Model {name}"):
        sagemaker.create_model(**request.model)
    try:
        with calling(f"Recommendation job {name}"):
            sagemaker.create_inference_recommendations_job(**request.job)
    except AwsError:
        with calling(f"Model {name}"):
            sagemaker.delete_model(ModelName=name)
        raise


def _describe(sagemaker: Client, name: str, step: Step) -> Mapping[str, Any]:
    """Return a job's description and show how far it is. Raises AwsError."""
    with calling(f"Recommendation job {name}"):
        reply: Mapping[str, Any] = sagemaker.describe_inference_recommendations_job(JobName=name)
        steps = sagemaker.list_inference_recommendations_job_steps(JobName=name)["Steps"]
    ended = sum(item["Status"] not in UNDER_WAY for item in steps)
    step.update(f"{reply['Status'].lower()}, {ended} of {len(steps)} benchmarks")
    return reply


def rows_of(recommendations: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield AWS's table, by COLUMNS; a metric that AWS does not know is a dash."""
    for item in recommendations:
        metrics, endpoint = item.get("Metrics", {}), item["EndpointConfiguration"]
        values = [(metrics.get(name), form) for name, (_, form) in METRICS.items()]
        cells = ("–" if value is None else form.format(value) for value, form in values)
        yield endpoint["InstanceType"], str(endpoint.get("InitialInstanceCount", "–")), *cells
