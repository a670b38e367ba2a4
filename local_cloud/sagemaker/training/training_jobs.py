"""SageMaker's training jobs; CreateTrainingJob runs the image's program `train` on this machine."""

from __future__ import annotations

import copy
import json
import shutil
import threading
import time
from collections.abc import MutableMapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ministack.services import cloudwatch_logs

from local_cloud.account import (
    Scoped,
    account_id,
    in_background,
    read_object,
    region,
    sagemaker_arn,
)
from local_cloud.containers.archive import s3_location
from local_cloud.containers.container import ContainerSpec
from local_cloud.containers.images import ImageError, LocalImage, local_image
from local_cloud.containers.job import Job
from local_cloud.protocol.errors import Actions, AwsError, Request, validation_error
from local_cloud.protocol.listing import list_page
from local_cloud.settings import Settings

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
LONGEST_REASON = 1024
LOG_GROUP = "/aws/sagemaker/TrainingJobs"
GRACE_SECONDS = 120.0
"""Between SIGTERM and SIGKILL."""


class JobFailed(Exception):
    """The job ends Failed; the message is its failure reason."""


@dataclass(kw_only=True)
class TrainingRun(Job):
    """Runs the job of one record; `_turn` guards it, which its own thread and the API's write."""

    _turn: threading.RLock = field(default_factory=threading.RLock)

    def description(self) -> dict[str, Any]:
        """Return what DescribeTrainingJob replies."""
        with self._turn:
            return copy.deepcopy(self.record)

    def run(self) -> None:
        """Run the job; the record ends Completed, Failed or Stopped whatever happens."""
        status = "Failed"
        reason = "InternalServerError: We encountered an internal error. Please try again."
        try:
            status, reason = self._train(), ""
        except JobFailed as error:
            reason = str(error)
        finally:
            self._finish(status, reason)

    def stop(self) -> None:
        """Send SIGTERM, and SIGKILL two minutes later; a job that has ended keeps its status."""
        with self._turn:
            if self.ended.is_set():
                return
            self.stopped.set()
            self._enter("Stopping", "Stopping")
        container = self._container
        if container is not None:
            threading.Thread(target=container.stop, args=(GRACE_SECONDS,), daemon=True).start()

    def _train(self) -> str:
        """Return the secondary status in which the job ends. Raises JobFailed."""
        self._enter("InProgress", "Starting")
        self.folder.mkdir(parents=True)
        image = self._image()
        self._enter("InProgress", "Downloading")
        self._lay_out()
        with self._turn:
            if self.stopped.is_set():
                return "Stopped"
            self._enter("InProgress", "Training")
        code = self._wait(image)
        with self._turn:
            self._enter("Stopping" if self.stopped.is_set() else "InProgress", "Uploading")
        reason = self._failure()
        shutil.rmtree(self._ml, ignore_errors=True)
        if code is None:
            return "MaxRuntimeExceeded"
        if self.stopped.is_set():
            return "Stopped"
        if code != 0:
            reason = reason or "the container left no reason"
            raise JobFailed(f"AlgorithmError: {reason}, exit code: {code}")
        return "Completed"

    def _image(self) -> LocalImage:
        uri = self.record["AlgorithmSpecification"]["TrainingImage"]
        try:
            image = local_image(uri, self.settings)
        except ImageError as error:
            raise JobFailed(f"ClientError: Cannot pull the training image: {error}") from error
        if not image.command:
            raise JobFailed(f"ClientError: {uri} has no program `train`")
        return image

    @property
    def _ml(self) -> Path:
        """The folder that stands for /opt/ml."""
        return self.folder / "ml"

    def _lay_out(self) -> None:
        """Write configuration and channels, each of one object. Raises JobFailed."""
        for name in ("input/config", "input/data", "output/data", "model", "checkpoints"):
            (self._ml / name).mkdir(parents=True)
        values = json.dumps(dict(self.record.get("HyperParameters") or {}))
        (self._ml / "input/config/hyperparameters.json").write_text(values, encoding="utf-8")
        for channel in self.record.get("InputDataConfig") or ():
            uri = channel["DataSource"]["S3DataSource"]["S3Uri"]
            bucket, key = s3_location(uri)
            content = read_object(bucket, key)
            if content is None:
                raise JobFailed(
                    "ClientError: Data download failed: No S3 objects found under S3 URL "
                    f'"{uri}" given in input data source.'
                )
            folder = self._ml / "input/data" / channel["ChannelName"]
            folder.mkdir(parents=True)
            (folder / Path(key).name).write_bytes(content)

    def _failure(self) -> str:
        """The reason that the job left."""
        path = self._ml / "output/failure"
        if not path.is_file():
            return ""
        return path.read_text(encoding="utf-8", errors="replace")[:LONGEST_REASON].strip()

    def _wait(self, image: LocalImage) -> int | None:
        """The container's exit code; None when it took longer than it may."""
        name = self.record["TrainingJobName"]
        stream, log = f"{name}/algo-1-{int(time.time())}", self.folder / "job.log"
        options = ("--ml", str(self._ml), "--tree", str(self.folder / "source"))
        spec = ContainerSpec(
            command=(*image.command, *options),
            environment={
                **self.environment(image),
                "TRAINING_JOB_NAME": name,
                **(self.record.get("Environment") or {}),
            },
            folder=self.folder,
            log=log,
            own_network=False,
        )
        seconds = self.record["StoppingCondition"]["MaxRuntimeInSeconds"]
        try:
            return self.run_container(spec, seconds, GRACE_SECONDS)
        finally:
            _publish_log(log, stream)

    def _enter(self, status: str, secondary: str, message: str = "") -> None:
        now = time.time()
        with self._turn:
            self.record["SecondaryStatusTransitions"].append(
                {"Status": secondary, "StartTime": now, "StatusMessage": message}
            )
            self.record.update(
                TrainingJobStatus=status, SecondaryStatus=secondary, LastModifiedTime=now
            )
            if secondary == "Training":
                self.record["TrainingStartTime"] = now

    def _finish(self, status: str, reason: str) -> None:
        with self._turn:
            exceeded = status == "MaxRuntimeExceeded"
            ended = "Stopped" if self.stopped.is_set() or exceeded else status
            if ended == "Failed":
                self.record["FailureReason"] = reason
            self.record["TrainingEndTime"] = time.time()
            self._enter(ended, status if exceeded else ended, reason)
            self.ended.set()


def _publish_log(path: Path, stream: str) -> None:
    """Put a job's output into a CloudWatch log stream."""
    place = {"logGroupName": LOG_GROUP, "logStreamName": stream}
    now = int(time.time() * 1000)
    events = [
        {"timestamp": now, "message": line}
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines()
    ]
    cloudwatch_logs._create_log_group({"logGroupName": LOG_GROUP})
    cloudwatch_logs._create_log_stream(place)
    if events:
        cloudwatch_logs._put_log_events({**place, "logEvents": events})


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
        name, now = request["TrainingJobName"], time.time()
        arn = sagemaker_arn("TrainingJob", name)
        if name in self.runs:
            raise AwsError(
                "ResourceInUse",
                "Training job names must be unique within an AWS account and region, and a "
                f"training job with this name already exists ({arn})",
            )
        run = TrainingRun(
            record={
                **request,
                "TrainingJobArn": arn,
                "TrainingJobStatus": "InProgress",
                "SecondaryStatus": "Starting",
                "SecondaryStatusTransitions": [],
                "CreationTime": now,
                "LastModifiedTime": now,
            },
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
