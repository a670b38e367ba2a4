"""The requests of a recommendation job: its SageMaker model, and the job itself. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onboarding import names
from onboarding.environment_spec import EnvironmentSpec
from onboarding.signature import SIGNERS_VARIABLE
from onboarding.values import TEXT_TASKS
from roundhouse.errors import UsageError
from roundhouse.recommendation.options import RecommendOptions, traffic_pattern
from roundhouse.recommendation.payload import Payload
from roundhouse.recommendation.subject import Subject

FRAMEWORK = "OTHER"
"""A framework of our own. Source: SageMaker developer guide, "Troubleshoot Inference Recommender
errors".
"""
TASKS = {
    "image-classification": "IMAGE_CLASSIFICATION",
    "text-classification": "CLASSIFICATION",
    "text-generation": "TEXT_GENERATION",
}
PINNED = ("ROUNDHOUSE_MANIFEST_SHA256", SIGNERS_VARIABLE)
"""Variables by which a server knows its engine."""
MAX_ATTEMPTS = 1000


@dataclass(frozen=True, kw_only=True)
class JobRequest:
    """Everything that decides what a job measures; equal content is the same job."""

    environment: EnvironmentSpec
    model: str
    engine_key: str
    model_properties: Mapping[str, Any]
    """CreateModel's, without the model's name."""
    job_properties: Mapping[str, Any]
    """CreateInferenceRecommendationsJob's, without the job's name and the model's."""
    payload: Payload

    def job_name(self, attempt: int) -> str:
        """Return the name of one attempt, and of the SageMaker model that it measures.

        SageMaker never forgets a job, so each attempt has a name of its own.
        """
        content = json.dumps([self.model_properties, self.job_properties, attempt], sort_keys=True)
        return names.recommendation_job(self.environment, self.model, content)

    def model_parameters(self, attempt: int) -> dict[str, Any]:
        """Return the parameters of CreateModel."""
        return {"ModelName": self.job_name(attempt), **self.model_properties}

    def job_parameters(self, attempt: int) -> dict[str, Any]:
        """Return the parameters of CreateInferenceRecommendationsJob."""
        name = self.job_name(attempt)
        config = {"ModelName": name, **self.job_properties["InputConfig"]}
        return {"JobName": name, **self.job_properties, "InputConfig": config}


def job_request(
    subject: Subject,
    options: RecommendOptions,
    payload: Payload,
    image_uris: Mapping[str, str],
) -> JobRequest:
    """Return the requests of a job whose options are within bounds. Raises UsageError."""
    from stacks.endpoint.properties import model_properties

    environment = subject.deployment.environment
    role = names.recommender_arn(environment)
    server = subject.deployment.own.server
    model = model_properties(subject.deployment, server, subject.pool, image_uris)
    _require_settings(subject, options, model["PrimaryContainer"]["Environment"])
    job: dict[str, Any] = {
        "JobType": options.job_type,
        "JobDescription": f"Roundhouse: engine {subject.target.engine_key}",
        "RoleArn": role,
        "InputConfig": _input_config(subject, options, payload),
    }
    if options.job_type == "Advanced":
        job["StoppingConditions"] = _stopping(subject, options)
    return JobRequest(
        environment=environment,
        model=subject.model,
        engine_key=subject.target.engine_key,
        model_properties={"ExecutionRoleArn": role, **model},
        job_properties=job,
        payload=payload,
    )


def _input_config(subject: Subject, options: RecommendOptions, payload: Payload) -> dict[str, Any]:
    from stacks.access import arns

    environment = subject.deployment.environment
    container = _container(subject, payload)
    config: dict[str, Any] = {
        "JobDurationInSeconds": options.duration_seconds(subject.instance_types),
        "ContainerConfig": container,
        "VolumeKmsKeyId": arns.key_id(environment),
    }
    if environment.network is not None:
        config["VpcConfig"] = {
            "Subnets": list(environment.network.subnet_ids),
            "SecurityGroupIds": list(environment.network.security_group_ids),
        }
    if options.job_type == "Default":
        container["SupportedInstanceTypes"] = list(subject.instance_types)
        return config
    config["TrafficPattern"] = traffic_pattern(options)
    config["EndpointConfigurations"] = [
        {"InstanceType": name, **_parameter_ranges(options)} for name in subject.instance_types
    ]
    tests = options.tests(subject.instance_types)
    config["ResourceLimit"] = {
        "MaxNumberOfTests": tests if options.max_tests is None else options.max_tests,
        "MaxParallelOfTests": options.parallel,
    }
    return config


def _container(subject: Subject, payload: Payload) -> dict[str, Any]:
    task = subject.target.model.task
    environment = subject.deployment.environment
    domain = "MACHINE_LEARNING"
    if task in TEXT_TASKS:
        domain = "NATURAL_LANGUAGE_PROCESSING"
    elif task == "image-classification":
        domain = "COMPUTER_VISION"
    path = names.sample_payload_path(payload.sha256)
    return {
        "Domain": domain,
        "Task": TASKS.get(task, "OTHER"),
        "Framework": FRAMEWORK,
        "PayloadConfig": {
            "SamplePayloadUrl": f"s3://{names.artifact_bucket(environment)}/{path}",
            "SupportedContentTypes": [payload.content_type],
        },
        "SupportedEndpointType": "RealTime",
    }


def _parameter_ranges(options: RecommendOptions) -> dict[str, Any]:
    if not options.parameters:
        return {}
    ranges = [{"Name": name, "Value": list(values)} for name, values in options.parameters.items()]
    return {"EnvironmentParameterRanges": {"CategoricalParameterRanges": ranges}}


def _stopping(subject: Subject, options: RecommendOptions) -> dict[str, Any]:
    stopping: dict[str, Any] = {
        "FlatInvocations": "Stop" if options.stops_when_flat else "Continue"
    }
    if options.max_invocations is not None:
        stopping["MaxInvocations"] = options.max_invocations
    limit = latency_limit(subject, options)
    if limit is not None:
        threshold = {"Percentile": "P95", "ValueInMilliseconds": limit}
        stopping["ModelLatencyThresholds"] = [threshold]
    return stopping


def latency_limit(subject: Subject, options: RecommendOptions) -> int | None:
    """Return the p95 in milliseconds that ends a load: the option's, else the endpoint's SLO."""
    slo = subject.deployment.endpoint.latency_slo_ms
    if options.latency_ms is not None or slo is None:
        return options.latency_ms
    return max(1, int(slo))


def _require_settings(
    subject: Subject, options: RecommendOptions, variables: Mapping[str, str]
) -> None:
    """Raise UsageError for variables that the server would refuse to start with."""
    from container.server.settings import SettingsFault, read_settings

    given = options.parameters or {}
    faults = [
        f"--variable {name}: names the engine that the server accepts, and is set already."
        for name in PINNED
        if name in given
    ]
    if subject.deployment.own.server == "python" and not faults:
        for values in options.combinations():
            try:
                read_settings({**variables, **values})
            except SettingsFault as error:
                faults += [f"--variable: {line}" for line in str(error).splitlines()]
    if faults:
        raise UsageError("\n".join(dict.fromkeys(faults)))


def most_usd(prices: Sequence[float | None], tests_each: int, seconds: int) -> float | None:
    """Return the most that a job's instances may cost: each benchmark for the whole of its share.

    `prices`: USD an hour of each instance type, None where it is not known; then the sum is too.
    `seconds`: of one benchmark.
    """
    if any(price is None for price in prices):
        return None
    return sum(price or 0.0 for price in prices) * tests_each * seconds / 3600
