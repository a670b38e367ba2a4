"""Results of a recommendation job, and the file beside the lock that keeps them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from onboarding.replacement import replace_text
from roundhouse.errors import RoundhouseError

SUFFIX = ".recommendations.json"
MICROSECONDS_A_MILLISECOND = 1000
"""ModelLatency is in microseconds in the developer guide's example; its table says milliseconds."""
VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """One benchmark: an instance type with values of environment variables, and its metrics.

    None: the job did not measure it. `reason`: why there is no metric.
    """

    instance_type: str
    variables: dict[str, str] = field(default_factory=dict)
    recommendation_id: str | None = None
    invocations_per_minute: float | None = None
    latency_ms: float | None = None
    usd_per_hour: float | None = None
    usd_per_inference: float | None = None
    cpu_percent: float | None = None
    memory_percent: float | None = None
    setup_seconds: float | None = None
    reason: str | None = None
    scaling: ScalingAdvice | None = None

    @property
    def name(self) -> str:
        """The instance type and what differs from others on it."""
        return " ".join((self.instance_type, *(f"{k}={v}" for k, v in self.variables.items())))


@dataclass(frozen=True, kw_only=True)
class ScalingAdvice:
    """GetScalingConfigurationRecommendation's answer for one recommendation."""

    metric: str | None
    target: float | None
    min_capacity: int | None
    max_capacity: int | None
    scale_in_seconds: int | None
    scale_out_seconds: int | None


@dataclass(frozen=True, kw_only=True)
class JobRecord:
    """One completed job."""

    job: str
    environment: str
    job_type: str
    engine_key: str
    region: str
    completed: str
    """UTC, to the minute."""
    request: Mapping[str, Any]
    """Of CreateInferenceRecommendationsJob."""
    recommendations: tuple[Recommendation, ...]
    requests: int
    """Different sample requests."""


def parse_recommendations(
    description: Mapping[str, Any], steps: Sequence[Mapping[str, Any]]
) -> tuple[Recommendation, ...]:
    """Return a job's benchmarks: those recommended in AWS's order, then those that failed.

    `description`: the reply of DescribeInferenceRecommendationsJob; `steps`: of
    ListInferenceRecommendationsJobSteps. A metric that is not a number is None.
    """
    found = [_recommendation(item) for item in description.get("InferenceRecommendations") or ()]
    known = {(item.instance_type, *sorted(item.variables.items())) for item in found}
    for step in steps:
        benchmark = step.get("InferenceBenchmark")
        if benchmark is None or "EndpointConfiguration" not in benchmark:
            continue
        item = _recommendation(benchmark, benchmark.get("FailureReason") or step.get("Status"))
        if (item.instance_type, *sorted(item.variables.items())) not in known:
            found.append(item)
    return tuple(found)


def _recommendation(item: Mapping[str, Any], reason: str | None = None) -> Recommendation:
    metrics = item.get("Metrics") or {}
    model = item.get("ModelConfiguration") or {}
    latency = _number(metrics.get("ModelLatency"))
    return Recommendation(
        instance_type=item["EndpointConfiguration"]["InstanceType"],
        variables={row["Key"]: row["Value"] for row in model.get("EnvironmentParameters") or ()},
        recommendation_id=item.get("RecommendationId"),
        invocations_per_minute=_number(metrics.get("MaxInvocations")),
        latency_ms=None if latency is None else latency / MICROSECONDS_A_MILLISECOND,
        usd_per_hour=_number(metrics.get("CostPerHour")),
        usd_per_inference=_number(metrics.get("CostPerInference")),
        cpu_percent=_number(metrics.get("CpuUtilization")),
        memory_percent=_number(metrics.get("MemoryUtilization")),
        setup_seconds=_number(metrics.get("ModelSetupTime")),
        reason=reason,
    )


def _number(value: Any) -> float | None:
    """Return a metric; -1 and NaN are AWS's for a metric that was not there."""
    if not isinstance(value, int | float) or value != value or value < 0:
        return None
    return float(value)


def parse_scaling(reply: Mapping[str, Any]) -> ScalingAdvice:
    """Return the first target tracking policy of a scaling recommendation."""
    configuration = reply.get("DynamicScalingConfiguration") or {}
    policies: Sequence[Mapping[str, Any]] = configuration.get("ScalingPolicies") or ({},)
    tracking = policies[0].get("TargetTracking") or {}
    specification = tracking.get("MetricSpecification") or {}
    metric = (specification.get("Predefined") or {}).get("PredefinedMetricType") or (
        specification.get("Customized") or {}
    ).get("MetricName")
    return ScalingAdvice(
        metric=metric,
        target=_number(tracking.get("TargetValue")),
        min_capacity=configuration.get("MinCapacity"),
        max_capacity=configuration.get("MaxCapacity"),
        scale_in_seconds=configuration.get("ScaleInCooldown"),
        scale_out_seconds=configuration.get("ScaleOutCooldown"),
    )


def records_path(folder: Path, model: str) -> Path:
    """Where a model's recommendation jobs are kept: beside its lock."""
    return folder / f"{model}{SUFFIX}"


def read_records(folder: Path, model: str) -> dict[str, JobRecord]:
    """Return the completed jobs of a model by name. Raises RoundhouseError for another file."""
    path = records_path(folder, model)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["version"] != VERSION or document["model"] != model:
            raise ValueError(f"it is version {document['version']} of {document['model']}")
        return {name: _record(name, row) for name, row in document["jobs"].items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RoundhouseError(
            f"{path}: holds no recommendation jobs of {model} ({error}); restore it from git, or "
            "delete it: the jobs can be read again while SageMaker lists them."
        ) from error


def _record(name: str, row: Mapping[str, Any]) -> JobRecord:
    rows = [Recommendation(**{**item, **_advice(item)}) for item in row["recommendations"]]
    known = {item.name for item in fields(JobRecord)} - {"job", "recommendations"}
    if set(row) != known | {"recommendations"}:
        raise ValueError(f"job {name} has other fields")
    return JobRecord(job=name, recommendations=tuple(rows), **{key: row[key] for key in known})


def _advice(item: Mapping[str, Any]) -> dict[str, Any]:
    scaling = item["scaling"]
    return {"scaling": None if scaling is None else ScalingAdvice(**scaling)}


def write_record(folder: Path, model: str, record: JobRecord) -> Path:
    """Add or replace one job, keeping every other. Raises RoundhouseError."""
    records = {**read_records(folder, model), record.job: record}
    jobs = {}
    for name in sorted(records):
        jobs[name] = asdict(records[name])
        del jobs[name]["job"]
    document = {"version": VERSION, "model": model, "jobs": jobs}
    path = records_path(folder, model)
    try:
        replace_text(path, json.dumps(document, indent=1, sort_keys=True) + "\n")
    except OSError as error:
        raise RoundhouseError(
            f"{path}: cannot be written ({error.strerror}); make its folder writable, then run the "
            "same command again: the job is done."
        ) from error
    return path
