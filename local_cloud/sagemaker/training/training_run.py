"""One SageMaker training job: its folders of /opt/ml, its process on this machine, its record."""

from __future__ import annotations

import copy
import json
import shutil
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ministack.services import cloudwatch_logs

from local_cloud.containers.archive import s3_location
from local_cloud.containers.container import ContainerSpec
from local_cloud.containers.images import ImageError, LocalImage, local_image
from local_cloud.containers.job import Job
from local_cloud.ministack.account import read_object

LONGEST_REASON = 1024


class DownloadError(Exception):
    """A channel has no data; the message is SageMaker's failure reason."""


@dataclass(frozen=True, kw_only=True)
class OptMl:
    """The folder that stands for /opt/ml, and the request whose job it serves."""

    folder: Path
    request: Mapping[str, Any]

    def lay_out(self) -> None:
        """Write configuration and channels, each of one object. Raises DownloadError."""
        for name in ("input/config", "input/data", "output/data", "model", "checkpoints"):
            (self.folder / name).mkdir(parents=True)
        values = json.dumps(dict(self.request.get("HyperParameters") or {}))
        (self.folder / "input/config/hyperparameters.json").write_text(values, encoding="utf-8")
        for channel in self.request.get("InputDataConfig") or ():
            _download(channel, self.folder / "input/data" / channel["ChannelName"])

    def failure(self) -> str:
        """Return the reason that the job left."""
        path = self.folder / "output/failure"
        if not path.is_file():
            return ""
        return path.read_text(encoding="utf-8", errors="replace")[:LONGEST_REASON].strip()


def _download(channel: Mapping[str, Any], folder: Path) -> None:
    uri = channel["DataSource"]["S3DataSource"]["S3Uri"]
    bucket, key = s3_location(uri)
    content = read_object(bucket, key)
    if content is None:
        raise DownloadError(
            f'ClientError: Data download failed: No S3 objects found under S3 URL "{uri}" given '
            "in input data source."
        )
    folder.mkdir(parents=True)
    (folder / Path(key).name).write_bytes(content)


LOG_GROUP = "/aws/sagemaker/TrainingJobs"
GRACE_SECONDS = 120.0
"""Between SIGTERM and SIGKILL."""


class JobFailed(Exception):
    """The job ends Failed; the message is its failure reason."""


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
            status, reason = self._run(), ""
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

    def _run(self) -> str:
        self._enter("InProgress", "Starting")
        self.folder.mkdir(parents=True)
        return self._train(self._image())

    def _image(self) -> LocalImage:
        uri = self.record["AlgorithmSpecification"]["TrainingImage"]
        try:
            image = local_image(uri, self.settings)
        except ImageError as error:
            raise JobFailed(f"ClientError: Cannot pull the training image: {error}") from error
        if not image.command:
            raise JobFailed(f"ClientError: {uri} has no program `train`")
        return image

    def _train(self, image: LocalImage) -> str:
        ml = OptMl(folder=self.folder / "ml", request=self.record)
        self._enter("InProgress", "Downloading")
        try:
            ml.lay_out()
        except DownloadError as error:
            raise JobFailed(str(error)) from error
        with self._turn:
            if self.stopped.is_set():
                return "Stopped"
            self._enter("InProgress", "Training")
        code = self._wait(image)
        with self._turn:
            self._enter("Stopping" if self.stopped.is_set() else "InProgress", "Uploading")
        reason = ml.failure()
        shutil.rmtree(ml.folder, ignore_errors=True)
        if code is None:
            return "MaxRuntimeExceeded"
        if self.stopped.is_set():
            return "Stopped"
        if code != 0:
            reason = reason or "the container left no reason"
            raise JobFailed(f"AlgorithmError: {reason}, exit code: {code}")
        return "Completed"

    def _wait(self, image: LocalImage) -> int | None:
        """The container's exit code; None when it took longer than it may."""
        name = self.record["TrainingJobName"]
        stream, log = f"{name}/algo-1-{int(time.time())}", self.folder / "job.log"
        options = ("--ml", str(self.folder / "ml"), "--tree", str(self.folder / "source"))
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


def new_record(request: Mapping[str, Any], arn: str) -> dict[str, Any]:
    """Return the record of a new job."""
    now = time.time()
    return {
        **request,
        "TrainingJobArn": arn,
        "TrainingJobStatus": "InProgress",
        "SecondaryStatus": "Starting",
        "SecondaryStatusTransitions": [],
        "CreationTime": now,
        "LastModifiedTime": now,
    }
