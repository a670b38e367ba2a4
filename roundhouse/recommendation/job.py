"""A recommendation job on AWS: its start, progress, stop and answer."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from onboarding import names
from roundhouse.aws.clients import Client, calling, object_exists, write_once
from roundhouse.errors import AwsError, NotReadyError, RoundhouseError
from roundhouse.recommendation.request import MAX_ATTEMPTS, JobRequest
from roundhouse.recommendation.result import (
    JobRecord,
    Recommendation,
    parse_recommendations,
    parse_scaling,
)
from roundhouse.report import Step
from roundhouse.session import Session

ABSENT = "ResourceNotFound"
LIMIT = "ResourceLimitExceeded"
UNDER_WAY = ("PENDING", "IN_PROGRESS", "STOPPING")
EVERY_SECONDS, LOCAL_EVERY_SECONDS = 15.0, 0.3
PATIENCE_SECONDS = 300.0
"""How long AWS may stay silent while a job runs."""
HINTS = {
    LIMIT: "a quota of the account is used up: wait, end a job (--stop), or ask for more in AWS "
    "Service Quotas",
    "cannot be assumed": "`roundhouse deploy` makes the role, in the stack of the builds",
}
"""The way out, by words of AWS's message."""


@dataclass(kw_only=True)
class Job:
    """One job of an environment; `attempt` counts those of the same content."""

    session: Session
    request: JobRequest
    attempt: int
    description: Mapping[str, Any]
    sleep: Callable[[float], None] = time.sleep

    @property
    def name(self) -> str:
        """The job's name."""
        return self.request.job_name(self.attempt)

    @property
    def status(self) -> str:
        """As SageMaker last said."""
        return str(self.description["Status"])

    @property
    def is_under_way(self) -> bool:
        """Return whether the job has not ended."""
        return self.status in UNDER_WAY

    @property
    def _sagemaker(self) -> Client:
        return self.session.clients("sagemaker")

    def follow(self) -> None:
        """Show the job's benchmarks until it has ended; then delete its model.

        Ctrl-C leaves the job to itself. Raises NotReadyError where AWS stays silent, AwsError.
        """
        report = self.session.report
        every = LOCAL_EVERY_SECONDS if self.session.is_local else EVERY_SECONDS
        silent = 0.0
        try:
            with report.step(f"Recommendation job {self.name}") as step:
                while self.is_under_way:
                    report.check()
                    self.sleep(every)
                    try:
                        self._look(step)
                        silent = 0.0
                    except AwsError as error:
                        silent += every
                        if not error.is_temporary or silent > PATIENCE_SECONDS:
                            raise
                step.finish(self.status)
        except KeyboardInterrupt:
            report.print(
                f"The job goes on: {self.name}. The same command follows it again; with --stop it "
                "ends the jobs of this model."
            )
            raise
        except AwsError as error:
            raise NotReadyError(
                f"{error} The job goes on, and nobody follows it: {self.name}; run the same "
                "command again."
            ) from error
        delete_model(self._sagemaker, self.name)

    def _look(self, step: Step) -> None:
        self.description = describe(self._sagemaker, self.name) or self.description
        steps = list_steps(self._sagemaker, self.name)
        ended = sum(item["Status"] not in UNDER_WAY for item in steps)
        running = [_benchmark_name(item) for item in steps if item["Status"] in UNDER_WAY[1:]]
        now = f": {', '.join(running)}" if running else ""
        count = f"{ended} of {len(steps)} benchmarks" if steps else "no benchmark yet"
        step.update(f"{self.status.lower()}, {count}{now}")

    def steps(self) -> list[Mapping[str, Any]]:
        """Return the job's benchmarks as SageMaker lists them."""
        return list_steps(self._sagemaker, self.name)

    def record(self, invocations_per_minute: int | None) -> JobRecord:
        """Return what a completed job found, with its advice on scaling.

        `invocations_per_minute`: the traffic that scaling is asked for; None: SageMaker's own.
        Raises AwsError with the reason of a job that failed or was stopped.
        """
        reason = str(self.description.get("FailureReason", "")).rstrip(".")
        if self.status != "COMPLETED":
            why = f": {reason}" if reason else ""
            hint = _hint(reason)
            raise AwsError(
                f"Recommendation job {self.name} is {self.status}{why}.{hint} Logs: "
                f"/aws/sagemaker/InferenceRecommendationsJobs. The same command begins another.",
                reason=self.status,
                is_answer=True,
            )
        found = [
            self._with_scaling(item, invocations_per_minute)
            for item in parse_recommendations(self.description, self.steps())
        ]
        completed = self.description.get("CompletionTime")
        when = completed if isinstance(completed, datetime.datetime) else _now()
        return JobRecord(
            job=self.name,
            environment=self.session.environment.name,
            job_type=str(self.request.job_properties["JobType"]),
            engine_key=self.request.engine_key,
            region=self.session.environment.region,
            completed=when.astimezone(datetime.UTC).strftime("%Y-%m-%d %H:%M"),
            request=self.request.job_parameters(self.attempt),
            recommendations=tuple(found),
            requests=self.request.payload.requests,
        )

    def _with_scaling(self, item: Recommendation, invocations: int | None) -> Recommendation:
        if item.recommendation_id is None:
            return item
        objective = (
            {}
            if invocations is None
            else {"ScalingPolicyObjective": {"MaxInvocationsPerMinute": invocations}}
        )
        try:
            with calling(f"Scaling configuration of {self.name}"):
                reply = self._sagemaker.get_scaling_configuration_recommendation(
                    InferenceRecommendationsJobName=self.name,
                    RecommendationId=item.recommendation_id,
                    **objective,
                )
        except AwsError as error:
            self.session.report.print(f"– {error}")
            return item
        return replace(item, scaling=parse_scaling(reply))


def open_job(
    session: Session,
    request: JobRequest,
    *,
    again: bool,
    sleep: Callable[[float], None] = time.sleep,
) -> Job:
    """Return the newest job of this content, or begin one.

    One that failed or was stopped is begun anew; `again`: one that completed too. Raises
    RoundhouseError, AwsError.
    """
    sagemaker = session.clients("sagemaker")
    newest: Job | None = None
    for attempt in range(1, MAX_ATTEMPTS):
        description = describe(sagemaker, request.job_name(attempt))
        if description is None:
            break
        newest = Job(
            session=session,
            request=request,
            attempt=attempt,
            description=description,
            sleep=sleep,
        )
    if newest is not None and (newest.is_under_way or (newest.status == "COMPLETED" and not again)):
        state = "is followed" if newest.is_under_way else "is done already"
        session.report.print(f"– {newest.name} of the same content {state}")
        return newest
    attempt = 1 if newest is None else newest.attempt + 1
    _begin(session, request, attempt)
    description = {"Status": UNDER_WAY[0]}
    return Job(
        session=session, request=request, attempt=attempt, description=description, sleep=sleep
    )


def _begin(session: Session, request: JobRequest, attempt: int) -> None:
    sagemaker, name = session.clients("sagemaker"), request.job_name(attempt)
    with session.report.step(f"Beginning {name}") as step:
        _require_archive(session, request)
        bucket = names.artifact_bucket(session.environment)
        path = names.sample_payload_path(request.payload.sha256)
        what = f"Sample requests s3://{bucket}/{path}"
        write_once(session.clients("s3"), bucket, path, request.payload.data, what)
        _create_model(sagemaker, request.model_parameters(attempt))
        try:
            with calling(f"Recommendation job {name}"):
                sagemaker.create_inference_recommendations_job(**request.job_parameters(attempt))
        except AwsError as error:
            delete_model(sagemaker, name)
            raise _explained(error) from error
        step.finish(f"{request.payload.requests} sample requests")


def _require_archive(session: Session, request: JobRequest) -> None:
    bucket, path = (
        names.artifact_bucket(session.environment),
        names.engine_archive_path(request.engine_key),
    )
    if not object_exists(session.clients("s3"), bucket, path):
        environment = session.environment.name
        raise RoundhouseError(
            f"s3://{bucket}/{path}: is not there, though the lock names it; `roundhouse build "
            f"--env {environment} --model {request.model}` builds it, `roundhouse promote` copies "
            "it."
        )


def _create_model(sagemaker: Client, parameters: Mapping[str, Any]) -> None:
    """Make the model that a job's benchmarks are copies of, unless an earlier call did."""
    try:
        with calling(f"Model {parameters['ModelName']}"):
            sagemaker.create_model(**parameters)
    except AwsError as error:
        if "already exist" not in str(error).lower():
            raise _explained(error) from error


def delete_model(sagemaker: Client, name: str) -> None:
    """Delete a model that no job needs any more; one that is gone already is well."""
    try:
        with calling(f"Model {name}"):
            sagemaker.delete_model(ModelName=name)
    except AwsError as error:
        if not error.is_answer:
            raise


def _explained(error: AwsError) -> AwsError:
    hint = _hint(f"{error.reason}: {error}")
    return AwsError(
        f"{error}{hint}", reason=error.reason, is_answer=True, is_temporary=error.is_temporary
    )


def _hint(text: str) -> str:
    return next((f" Way out: {hint}." for words, hint in HINTS.items() if words in text), "")


def describe(sagemaker: Client, name: str) -> Mapping[str, Any] | None:
    """Return SageMaker's description of a job; None where there is none. Raises AwsError."""
    try:
        with calling(f"Recommendation job {name}"):
            reply: Mapping[str, Any] = sagemaker.describe_inference_recommendations_job(
                JobName=name
            )
            return reply
    except AwsError as error:
        if error.reason == ABSENT:
            return None
        raise


def list_steps(sagemaker: Client, name: str) -> list[Mapping[str, Any]]:
    """Return the benchmarks of a job. Raises AwsError."""
    with calling(f"Benchmarks of {name}"):
        pages = sagemaker.get_paginator("list_inference_recommendations_job_steps")
        return [step for page in pages.paginate(JobName=name) for step in page["Steps"]]


def stop_jobs(session: Session, model: str) -> tuple[str, ...]:
    """Stop every job of a model that is under way, and return their names. Raises AwsError."""
    sagemaker = session.clients("sagemaker")
    prefix = names.recommendation_prefix(session.environment, model)
    found = tuple(_jobs_under_way(sagemaker, prefix))
    for name in found:
        with calling(f"Recommendation job {name}"):
            sagemaker.stop_inference_recommendations_job(JobName=name)
        delete_model(sagemaker, name)
    return found


def _jobs_under_way(sagemaker: Client, prefix: str) -> Iterator[str]:
    with calling("Listing the recommendation jobs"):
        pages = sagemaker.get_paginator("list_inference_recommendations_jobs")
        rows: Sequence[Mapping[str, Any]] = [
            row
            for page in pages.paginate(NameContains=prefix)
            for row in page["InferenceRecommendationsJobs"]
        ]
    for row in rows:
        rest = row["JobName"].removeprefix(prefix)
        is_own = row["JobName"].startswith(prefix) and len(rest) == names.RECOMMENDATION_DIGITS
        if is_own and row["Status"] in UNDER_WAY[:2]:
            yield str(row["JobName"])


def _benchmark_name(step: Mapping[str, Any]) -> str:
    benchmark = step.get("InferenceBenchmark") or {}
    endpoint = benchmark.get("EndpointConfiguration") or {}
    parameters = (benchmark.get("ModelConfiguration") or {}).get("EnvironmentParameters") or ()
    values = [f"{row.get('Key')}={row.get('Value')}" for row in parameters]
    return " ".join((str(endpoint.get("InstanceType", "starting")), *values))


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)
