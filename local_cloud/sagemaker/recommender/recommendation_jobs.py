"""SageMaker's Inference Recommender: jobs that serve a model on instance types and load it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import Any

from local_cloud.iam.service_roles import may_assume
from local_cloud.ministack.account import Scoped, in_background, sagemaker_arn
from local_cloud.protocol.errors import Actions, AwsError, present_fields, validation_error
from local_cloud.protocol.listing import list_page, page
from local_cloud.sagemaker.checks import is_multi_model
from local_cloud.sagemaker.control_plane import ControlPlane
from local_cloud.sagemaker.recommender.benchmark import (
    SERVICE,
    Benchmark,
    Combination,
    Invoke,
    combinations,
)
from local_cloud.sagemaker.recommender.job_checks import check_job, instance_types, unknown
from local_cloud.sagemaker.recommender.recommendation_run import UNDER_WAY, RecommendationRun
from local_cloud.sagemaker.recommender.scaling_recommendation import scaling_recommendation
from local_cloud.sagemaker.tags import check_tags

Request = Mapping[str, Any]
SUMMARY = (
    "JobName", "JobDescription", "JobType", "JobArn", "Status", "CreationTime", "CompletionTime",
    "RoleArn", "LastModifiedTime", "FailureReason",
)  # fmt: skip
KIND = "inference-recommendations-job"
STEP_PAGE = 100
STOP_SECONDS = 10.0


class RecommendationJobs:
    """All recommendation jobs that run or have run, by account and region."""

    def __init__(self, control_plane: ControlPlane, invoke: Invoke) -> None:
        self._control_plane, self._invoke = control_plane, invoke
        self.runs: MutableMapping[str, RecommendationRun] = Scoped()
        self.all_runs: list[RecommendationRun] = []
        control_plane.tags.resources[KIND] = self.runs

    @property
    def actions(self) -> Actions:
        """The actions of SageMaker that are answered here."""
        return {
            "CreateInferenceRecommendationsJob": self._create,
            "DescribeInferenceRecommendationsJob": lambda request: self._job(
                request["JobName"]
            ).description(),
            "StopInferenceRecommendationsJob": self._stop,
            "ListInferenceRecommendationsJobs": self._list,
            "ListInferenceRecommendationsJobSteps": self._list_steps,
            "GetScalingConfigurationRecommendation": self._scaling,
        }

    def stop_all(self) -> None:
        """End every load, when the cloud itself ends."""
        for run in self.all_runs:
            run.stop()
        for run in self.all_runs:
            run.ended.wait(STOP_SECONDS)

    def _create(self, request: Request) -> Request:
        name = request["JobName"]
        arn = sagemaker_arn(KIND, name)
        if name in self.runs:
            raise AwsError(
                "ResourceInUse", f"An Inference Recommender job with this name exists ({arn})."
            )
        check_job(request)
        check_tags(request.get("Tags"))
        config = request["InputConfig"]
        if is_multi_model(self._control_plane.endpoints.model(config["ModelName"])):
            raise unknown("a multi-model container of an Inference Recommender job")
        role = request["RoleArn"]
        if not may_assume(role, SERVICE, arn):
            raise validation_error(
                f"Provided role ARN {role} cannot be assumed: it must exist and trust {SERVICE}."
            )
        now = time.time()
        fields = {key: value for key, value in request.items() if key not in ("Tags",)}
        run = RecommendationRun(
            record={
                **fields,
                "JobArn": arn,
                "Status": "PENDING",
                "CreationTime": now,
                "LastModifiedTime": now,
            },
            combinations=combinations(config, instance_types(config)),
            begin=lambda combination, bodies, ended: self._benchmark(
                request, combination, bodies, ended
            ),
        )
        self.runs[name] = run
        self._control_plane.tags.begin(arn, request.get("Tags"))
        self.all_runs.append(run)
        in_background(run.run)
        return {"JobArn": arn}

    def _benchmark(
        self,
        request: Request,
        combination: Combination,
        bodies: Sequence[bytes],
        ended: threading.Event,
    ) -> Benchmark:
        return Benchmark(
            job=request["JobName"],
            request=request,
            combination=combination,
            bodies=bodies,
            endpoints=self._control_plane.endpoints,
            actions=self._control_plane.actions,
            invoke=self._invoke,
            ended=ended,
        )

    def _stop(self, request: Request) -> Request:
        run = self._job(request["JobName"])
        if run.record["Status"] not in UNDER_WAY:
            raise validation_error(
                "The request was rejected because the Inference Recommender job is in status "
                f"{run.record['Status']}."
            )
        run.stop()
        return {}

    def _list(self, request: Request) -> Request:
        wanted = request.get("ModelNameEquals")
        records = (
            run.description()
            for run in self.runs.values()
            if wanted in (None, run.record["InputConfig"]["ModelName"])
        )
        field = "InferenceRecommendationsJobs"
        found = list_page(request, field, "Job", _summaries(records))
        listed = [
            {name: value for name, value in row.items() if name != "JobStatus"}
            for row in found[field]
        ]
        return {**found, field: listed}

    def _list_steps(self, request: Request) -> Request:
        wanted = request.get("Status")
        steps = [
            step
            for step in self._job(request["JobName"]).step_list()
            if wanted in (None, step["Status"])
        ]
        return page(request, "Steps", steps, int(request.get("MaxResults") or STEP_PAGE))

    def _scaling(self, request: Request) -> Request:
        run = self._job(request["InferenceRecommendationsJobName"])
        record = run.description()
        if record["Status"] != "COMPLETED":
            raise validation_error(
                f"Inference Recommender job {run.name} is in status {record['Status']}: it must "
                "be COMPLETED."
            )
        by_id, by_name = request.get("RecommendationId"), request.get("EndpointName")
        if (by_id is None) == (by_name is None):
            raise validation_error("Specify either RecommendationId or EndpointName.")
        for item in record["InferenceRecommendations"]:
            endpoint = item["EndpointConfiguration"]["EndpointName"]
            if item["RecommendationId"] == by_id or endpoint == by_name:
                return scaling_recommendation(request, item)
        raise AwsError(
            "ResourceNotFound", f"Job {run.name} has no recommendation {by_id or by_name}."
        )

    def _job(self, name: str) -> RecommendationRun:
        run = self.runs.get(name)
        if run is None:
            raise AwsError("ResourceNotFound", f"Inference Recommender job {name} not found.")
        return run


def _summaries(records: Iterable[Request]) -> list[Request]:
    """Rows of ListInferenceRecommendationsJobs, with the status also by the name of lists."""
    return [
        {
            "JobDescription": "",
            "JobStatus": record["Status"],
            **{name: record[name] for name in SUMMARY if name in record},
            **present_fields(
                ModelName=record["InputConfig"]["ModelName"],
                SamplePayloadUrl=record["InputConfig"]["ContainerConfig"]["PayloadConfig"][
                    "SamplePayloadUrl"
                ],
            ),
        }
        for record in records
    ]
