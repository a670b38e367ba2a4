"""Names and paths that several packages must agree on, as pure functions."""

from __future__ import annotations

import hashlib
import re
from typing import Literal

from onboarding.aws_limits import NAME_LENGTH
from onboarding.environment_spec import EnvironmentSpec
from onboarding.platform import registry_host
from onboarding.source_spec import S3_SCHEME
from onboarding.text_generation.checkpoint_key import CHECKPOINTS

ENGINES_PREFIX = "engines"
"""Published engines; only the signer may write them, each once."""
CANDIDATES_PREFIX = "candidates"
"""Engines that builds made and nobody has signed yet."""
ADAPTERS_PREFIX = "adapters"
"""LoRA adapters of text generators, by the digest of their files."""
NETWORKS_PREFIX = "networks"
TIMING_CACHES_PREFIX = "timing-caches"
SOURCES_PREFIX = "sources"
ONNX_PREFIX = "onnx"
"""ONNX files that a model file names as its source; they never expire."""
CAPTURES_PREFIX = "captures"
"""Captured requests and answers of endpoints."""
ANSWERS_PREFIX = "answers"
"""Answers of asynchronous endpoints."""
REQUESTS_PREFIX = "requests"
"""Requests to asynchronous endpoints."""
JOBS_PREFIX = "jobs"
"""What training jobs that build leave beside the engine: results, and unfinished work, which no
other job takes over; sample requests of recommendation jobs.
"""
CONTENT_DIGITS = 12
"""Of the digest at the end of the name of a model or an endpoint config."""
RETAINED_COPIES = "RetainCopyCount"
"""Parameters of endpoint stacks by which updates keep the counts that they find.

Instance counts of variants are kept from the first deployment on; the copies of a component once
`roundhouse deploy` has set it with the first update, since a new component must have a count.
"""
UNREFERENCED_TAG = ("roundhouse", "unreferenced")
"""Key and value of the tag on objects that no lock names; the bucket's lifecycle deletes what
carries it.
"""
Purpose = Literal["plan", "build", "deploy", "promote", "drift", "gate"]
"""What a role of the access stack is for, and the end of its name.

`gate` is the role by which promotions to other accounts ask for alarms.
"""
PIPELINE_ROLES: tuple[Purpose, ...] = ("plan", "build", "deploy", "promote", "drift")
"""Those that the forge's workflows assume."""
RUN_WORKFLOW = ".github/workflows/roundhouse-run.yml"
"""The workflow that builds, deploys and promotes; its roles trust main's version of it alone."""
IMAGES_ROUTE = "images"
"""The route of the CodeBuild project that builds the images, not engines."""
ARCHIVE_NAME = "model.tar.gz"
RECORD_NAME = "lock-entry.json"
RECOMMENDATION_DIGITS = 14
"""Of the digest at the end of a recommendation job's name."""
REPACKAGED_NAME = "repackaged.json"
"""Of the file beside an engine file that tells where its plan came from, if from elsewhere."""


def artifact_bucket(environment: EnvironmentSpec) -> str:
    """The bucket of an environment's networks, engines and build sources."""
    return f"roundhouse-{environment.name}-{environment.account}-{environment.region}"


def readable_sources(environment: EnvironmentSpec) -> tuple[str, ...]:
    """Return the addresses that every source in S3 begins with: one prefix, and named buckets."""
    own = f"{S3_SCHEME}{artifact_bucket(environment)}/{ONNX_PREFIX}/"
    return (own, *(bucket.address for bucket in environment.source_buckets))


def pipeline_role(environment: EnvironmentSpec, purpose: Purpose) -> str:
    """Name of a role of the access stack."""
    return f"roundhouse-{environment.name}-{purpose}"


def engine_archive_path(engine_key: str) -> str:
    """Object key of an engine's archive; without `engines/` it is the target model's name."""
    return f"{ENGINES_PREFIX}/{engine_key}/{ARCHIVE_NAME}"


def engine_record_path(engine_key: str) -> str:
    """Object key of an engine's lock entry; written last: an engine exists once this does."""
    return f"{ENGINES_PREFIX}/{engine_key}/{RECORD_NAME}"


def checkpoint_record_path(checkpoint_key: str) -> str:
    """Object key of a checkpoint's signed record, beside its prefix; written last."""
    return f"{CHECKPOINTS}/{checkpoint_key}.json"


def candidate_path(engine_key: str, candidate: str, file_name: str) -> str:
    """Object key of one file of a built engine that waits for its signature.

    `candidate` names one try of one execution.
    """
    return f"{CANDIDATES_PREFIX}/{engine_key}/{candidate}/{file_name}"


def adapter_path(files_sha256: str) -> str:
    """Object key of a LoRA adapter's archive, by the digest of its files."""
    return f"{ADAPTERS_PREFIX}/{files_sha256[:20]}/adapter.tar.gz"


def timing_cache_path(tensorrt: str, gpu: str) -> str:
    """Object key of the timing cache of one exact TensorRT on one GPU model."""
    name = re.sub(r"[^a-z0-9]+", "-", gpu.lower()).strip("-")
    return f"{TIMING_CACHES_PREFIX}/{tensorrt}/{name}.cache"


def network_path(network_key: str, file_name: str) -> str:
    """Object key of one file of a network."""
    return f"{NETWORKS_PREFIX}/{network_key}/{file_name}"


def target_model(engine_key: str) -> str:
    """The `TargetModel` that a client of a multi-model endpoint names."""
    return f"{engine_key}/{ARCHIVE_NAME}"


def captures_prefix(environment: EnvironmentSpec, endpoint: str) -> str:
    """Prefix of an endpoint's captures; SageMaker adds the variant's name and the hour."""
    return f"{CAPTURES_PREFIX}/{endpoint_name(environment, endpoint)}"


def answers_prefix(environment: EnvironmentSpec, endpoint: str) -> str:
    """Where an asynchronous endpoint's answers lie."""
    return f"{ANSWERS_PREFIX}/{endpoint_name(environment, endpoint)}"


def requests_prefix(environment: EnvironmentSpec, endpoint: str) -> str:
    """Where an asynchronous endpoint may read its requests."""
    return f"{REQUESTS_PREFIX}/{endpoint_name(environment, endpoint)}"


def stack_name(environment: EnvironmentSpec, part: str) -> str:
    """CloudFormation stack name of a part: foundation, builds, observability, endpoint-<name>."""
    return f"roundhouse-{environment.name}-{part}"


def endpoint_name(environment: EnvironmentSpec, endpoint: str) -> str:
    """SageMaker endpoint name."""
    return f"{environment.name}-{endpoint}"


def adapter_endpoint(model: str, adapter: str) -> str:
    """Name of a text generator's adapter beside the endpoints of its environment."""
    return f"{model}-{adapter}"


def adapter_component(environment: EnvironmentSpec, model: str, adapter: str) -> str:
    """Name of the inference component of a text generator's adapter."""
    return endpoint_name(environment, adapter_endpoint(model, adapter))


def builder_project(environment: EnvironmentSpec, route: str) -> str:
    """CodeBuild project of a build route: cpu, gpu, fleet or images."""
    return f"roundhouse-{environment.name}-build-{route}"


def build_machine(environment: EnvironmentSpec) -> str:
    """Step Functions state machine that builds an environment's engines."""
    return f"roundhouse-{environment.name}-builds"


def signer(environment: EnvironmentSpec) -> str:
    """Lambda function that signs and publishes engines, and its role."""
    return f"roundhouse-{environment.name}-signer"


def checkpoint_signer(environment: EnvironmentSpec) -> str:
    """Lambda function that signs and publishes checkpoints; its role is the signer's."""
    return f"roundhouse-{environment.name}-checkpoint-signer"


def training_job_prefix(environment: EnvironmentSpec) -> str:
    """Prefix of the names of training jobs; no environment's name has two hyphens in a row."""
    return f"roundhouse-{environment.name}--"


def recommender(environment: EnvironmentSpec) -> str:
    """Name of the role of Inference Recommender's jobs."""
    return f"roundhouse-{environment.name}-recommender"


def recommendation_job(environment: EnvironmentSpec, model: str, content: str) -> str:
    """Name of a recommendation job, and of the model that it measures, by their content."""
    digest = hashlib.sha256(content.encode()).hexdigest()[:RECOMMENDATION_DIGITS]
    prefix = training_job_prefix(environment)
    length = NAME_LENGTH - len(prefix) - RECOMMENDATION_DIGITS - 1
    return f"{prefix}{model[:length].rstrip('-')}-{digest}"


def sample_payload_path(sha256: str) -> str:
    """Object key of the sample requests of recommendation jobs, by the digest of the archive."""
    return f"{JOBS_PREFIX}/payloads/{sha256}.tar.gz"


def unfinished_work_prefix(engine_key: str) -> str:
    """Object keys of training jobs' unfinished work on one engine begin with this."""
    return f"{JOBS_PREFIX}/checkpoints/{engine_key}"


def repository(environment: EnvironmentSpec, image: str) -> str:
    """ECR repository of an image, such as python-server, triton or builder-gpu."""
    return f"roundhouse-{environment.name}/{image}"


def image_uri(environment: EnvironmentSpec, image: str, tag: str, digest: str | None = None) -> str:
    """Image URI in the environment's own registry, by its digest where that is known."""
    registry = registry_host(environment.account, environment.region)
    reference = f":{tag}" if digest is None else f"@{digest}"
    return f"{registry}/{repository(environment, image)}{reference}"


def approval_environment(environment: EnvironmentSpec, *, builds: bool = False) -> str:
    """GitHub environment whose reviewers approve deployments and promotions, or builds."""
    return f"{environment.name}-build" if builds else environment.name
