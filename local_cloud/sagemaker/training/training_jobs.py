"""SageMaker's training jobs; CreateTrainingJob runs the image's program `train`."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

from local_cloud.ministack.account import Scoped, account_id, in_background, region, sagemaker_arn
from local_cloud.protocol.errors import Actions, AwsError, validation_error
from local_cloud.protocol.listing import list_page
from local_cloud.sagemaker.training.training_run import TrainingRun, new_record
from local_cloud.settings import Settings

Request = Mapping[str, Any]
SUMMARY = (
    "TrainingJobName",
    "TrainingJobArn",
    "CreationTime",
    "TrainingEndTime",
    "LastModifiedTime",
    "TrainingJobStatus",
    "SecondaryStatus",
)
GOING = ("InProgress", "Stopping")


class TrainingJobs:
    """All training jobs that run or have run, by account and region."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.runs: MutableMapping[str, TrainingRun] = Scoped()
        self.all_runs: list[TrainingRun] = []

    @property
    def actions(self) -> Actions:
        """The actions of SageMaker that are answered here."""
        return {
            "CreateTrainingJob": self._create,
            "DescribeTrainingJob": lambda request: self._job(request).description(),
            "StopTrainingJob": self._stop,
            "ListTrainingJobs": self._list,
        }

    def _create(self, request: Request) -> Request:
        name = request["TrainingJobName"]
        arn = sagemaker_arn("training-job", name)
        if name in self.runs:
            raise AwsError(
                "ResourceInUse",
                "Training job names must be unique within an AWS account and region, and a "
                f"training job with this name already exists ({arn})",
            )
        run = TrainingRun(
            record=new_record(request, arn),
            account=account_id(),
            region=region(),
            folder=self._settings.state / "builds" / name,
            settings=self._settings,
        )
        self.runs[name] = run
        self.all_runs.append(run)
        in_background(run.run)
        return {"TrainingJobArn": arn}

    def _stop(self, request: Request) -> Request:
        run = self._job(request)
        if run.record["TrainingJobStatus"] not in GOING:
            raise validation_error(
                "The request was rejected because the training job is in status "
                f"{run.record['TrainingJobStatus']}."
            )
        run.stop()
        return {}

    def _list(self, request: Request) -> Request:
        summaries = [
            {name: run.record[name] for name in SUMMARY if name in run.record}
            for run in self.runs.values()
        ]
        return list_page(
            request, "TrainingJobSummaries", "TrainingJob", summaries, descending=False
        )

    def _job(self, request: Request) -> TrainingRun:
        run = self.runs.get(request["TrainingJobName"])
        if run is None:
            raise validation_error("Requested resource not found.")
        return run
