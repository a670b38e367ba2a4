"""Refusals of Inference Recommender jobs beyond SageMaker's API model; pure.

Sources: API reference, RecommendationJobInputConfig and what it is composed of; developer guide,
"Run a custom load test" and "Troubleshoot Inference Recommender errors". What they do not say, the
local cloud refuses with that reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from local_cloud.protocol.errors import AwsError, validation_error
from onboarding.aws_limits import (
    PHASE_SECONDS,
    PHASE_SPAWN_RATE,
    PHASE_USERS,
    RECOMMENDATION_SECONDS,
    RECOMMENDER_DOMAINS,
    RECOMMENDER_FRAMEWORKS,
    RECOMMENDER_TASKS,
    USERS_BETWEEN_PHASES,
    Bounds,
)

Request = Mapping[str, Any]
VALUES = {
    "Domain": RECOMMENDER_DOMAINS,
    "Task": RECOMMENDER_TASKS,
    "Framework": RECOMMENDER_FRAMEWORKS,
}
ARCHIVE_SUFFIX = ".tar.gz"
PERCENTILES = ("P95", "P99")


def check_job(request: Request) -> None:
    """Refuse a job that SageMaker refuses, or of which it is not known what SageMaker does."""
    config = request["InputConfig"]
    _check_subject(config)
    _check_container(config.get("ContainerConfig") or {})
    seconds = config.get("JobDurationInSeconds")
    if seconds is not None:
        _check_bounds("JobDurationInSeconds", seconds, RECOMMENDATION_SECONDS)
    stopping = request.get("StoppingConditions")
    if request["JobType"] == "Advanced":
        _check_load_test(config, stopping)
    else:
        _check_default(config, stopping)
    for instance_type in instance_types(config):
        if instance_type.startswith("ml.t2."):
            raise validation_error(f"Burstable instance type {instance_type} is not allowed.")


def instance_types(config: Request) -> tuple[str, ...]:
    """Return the instance types that an input config names, for either kind of job."""
    named = [item["InstanceType"] for item in config.get("EndpointConfigurations") or ()]
    supported = (config.get("ContainerConfig") or {}).get("SupportedInstanceTypes") or ()
    return tuple(dict.fromkeys(named or supported))


def unknown(what: str) -> AwsError:
    """Return the refusal of what SageMaker's pages do not tell of."""
    return validation_error(f"The local cloud does not know what SageMaker does with {what}.")


def _check_subject(config: Request) -> None:
    package, model = config.get("ModelPackageVersionArn"), config.get("ModelName")
    if (package is None) == (model is None):
        raise validation_error(
            "You must provide either the ModelPackageVersionArn or the ModelName parameter."
        )
    if package is not None:
        raise validation_error(
            f"Model package {package} does not exist: the local cloud has no model registry."
        )
    if config.get("Endpoints"):
        raise unknown("Endpoints of a job with a ModelName")


def _check_container(container: Request) -> None:
    """ContainerConfig is mandatory with a model's name."""
    for field, allowed in VALUES.items():
        value = container.get(field)
        if value is None:
            raise validation_error(
                f"Specify {field} in the ContainerConfig. {field} is a mandatory parameter for "
                "the job."
            )
        if value not in allowed:
            raise validation_error(
                f"{field} {value} is not valid. Valid values: {', '.join(allowed)}."
            )
    payload = container.get("PayloadConfig") or {}
    url = payload.get("SamplePayloadUrl")
    if url is None:
        raise validation_error(
            "Specify SamplePayloadUrl in the PayloadConfig. SamplePayloadUrl is a mandatory "
            "parameter for the job."
        )
    if not url.endswith(ARCHIVE_SUFFIX):
        raise validation_error(
            f"SamplePayloadUrl {url} must point to a single gzip compressed tar archive "
            f"({ARCHIVE_SUFFIX} suffix)."
        )
    if len(payload.get("SupportedContentTypes") or ()) != 1:
        raise unknown("a sample payload without exactly one of SupportedContentTypes")
    if container.get("SupportedEndpointType") == "Serverless":
        raise validation_error("The local cloud does not run serverless endpoints.")


def _check_default(config: Request, stopping: Request | None) -> None:
    given = {
        "a TrafficPattern": config.get("TrafficPattern"),
        "EndpointConfigurations": config.get("EndpointConfigurations"),
        "a ResourceLimit": config.get("ResourceLimit"),
        "StoppingConditions": stopping,
    }
    for what, value in given.items():
        if value is not None:
            raise unknown(f"{what} of a Default job")
    if not instance_types(config):
        raise unknown("a Default job without SupportedInstanceTypes: it chooses them itself")


def _check_load_test(config: Request, stopping: Request | None) -> None:
    if not config.get("EndpointConfigurations"):
        raise validation_error("Specify EndpointConfigurations: an Advanced job requires them.")
    if config.get("TrafficPattern") is None:
        raise validation_error("Specify TrafficPattern: an Advanced job requires it.")
    if stopping is None:
        raise validation_error("Specify StoppingConditions: an Advanced job requires them.")
    for item in config["EndpointConfigurations"]:
        if item.get("ServerlessConfig") is not None:
            raise validation_error("The local cloud does not run serverless endpoints.")
        if item.get("InstanceType") is None:
            raise validation_error("Specify InstanceType in every one of EndpointConfigurations.")
        if item.get("InferenceSpecificationName") is not None:
            raise unknown("InferenceSpecificationName of a job with a ModelName")
    _check_traffic(config["TrafficPattern"], config.get("JobDurationInSeconds"))
    _check_stopping(stopping)
    most = (config.get("ResourceLimit") or {}).get("MaxNumberOfTests")
    tests = sum(
        math.prod(len(parameter["Value"]) for parameter in parameter_ranges(item))
        for item in config["EndpointConfigurations"]
    )
    if most is not None and tests > most:
        raise unknown(f"{tests} combinations and a MaxNumberOfTests of {most}")


def parameter_ranges(configuration: Request) -> Sequence[Request]:
    """Return the ranges of environment variables of one of EndpointConfigurations."""
    ranges = configuration.get("EnvironmentParameterRanges") or {}
    return ranges.get("CategoricalParameterRanges") or ()


def _check_traffic(pattern: Request, job_seconds: int | None) -> None:
    kind = pattern.get("TrafficType")
    needed = {"PHASES": "Phases", "STAIRS": "Stairs"}.get(str(kind))
    if needed is None or not pattern.get(needed):
        raise validation_error("Specify TrafficType PHASES with Phases, or STAIRS with Stairs.")
    if kind == "STAIRS":
        stairs = pattern["Stairs"]
        for field in ("DurationInSeconds", "NumberOfSteps", "UsersPerStep"):
            if stairs.get(field) is None:
                raise validation_error(f"Specify {field} in Stairs.")
        _check_bounds("DurationInSeconds", stairs["DurationInSeconds"], PHASE_SECONDS)
        total = stairs["DurationInSeconds"]
    else:
        phases = pattern["Phases"]
        for phase in phases:
            _check_phase(phase)
        for before, after in pairwise(phases):
            users, begin = last_users(before), after["InitialNumberOfUsers"]
            if abs(begin - users) > USERS_BETWEEN_PHASES:
                raise validation_error(
                    f"Users at the end of prev phase is {users} while initial users of current "
                    f"phase is {begin}."
                )
        total = sum(phase["DurationInSeconds"] for phase in phases)
    if job_seconds is not None and total > job_seconds:
        raise validation_error(
            "Total Traffic duration (across) should not be more than job duration."
        )


def last_users(phase: Request) -> int:
    """Return how many users a phase ends with."""
    spawned = phase["SpawnRate"] * phase["DurationInSeconds"] // 60
    return int(phase["InitialNumberOfUsers"] + spawned)


def _check_phase(phase: Request) -> None:
    bounds = {
        "InitialNumberOfUsers": PHASE_USERS,
        "SpawnRate": PHASE_SPAWN_RATE,
        "DurationInSeconds": PHASE_SECONDS,
    }
    for field, allowed in bounds.items():
        if phase.get(field) is None:
            raise validation_error(f"Specify {field} in every phase.")
        _check_bounds(field, phase[field], allowed)


def _check_bounds(field: str, value: int, allowed: Bounds) -> None:
    if value not in allowed:
        raise validation_error(f"{field} {value} is not valid. It should be {allowed}.")


def _check_stopping(stopping: Request) -> None:
    for field, value in _limits(stopping):
        if value is not None and value < 1:
            raise validation_error(f"{field} {value} is not valid. It must be at least 1.")
    for threshold in stopping.get("ModelLatencyThresholds") or ():
        percentile = threshold.get("Percentile")
        if percentile not in PERCENTILES or threshold.get("ValueInMilliseconds") is None:
            raise validation_error(
                "ModelLatencyThresholds requires Percentile, P95 or P99, and ValueInMilliseconds."
            )
        if percentile != "P95":
            raise validation_error(
                f"Percentile {percentile} is not valid. For custom load tests, specify P95."
            )


def _limits(stopping: Request) -> Iterator[tuple[str, int | None]]:
    yield "MaxInvocations", stopping.get("MaxInvocations")
    for threshold in stopping.get("ModelLatencyThresholds") or ():
        yield "ValueInMilliseconds", threshold.get("ValueInMilliseconds")
