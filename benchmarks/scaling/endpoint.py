"""A scaled endpoint of a local cloud.

Made from an archive's folder, asked, watched, and taken away.
"""

from __future__ import annotations

import io
import json
import tarfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.scaling.record import Phase, offered_rate
from roundhouse.aws.clients import Clients

CALLERS = 10
"""As many as a client keeps connections open."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request.

    When it was answered, in seconds since the run began, how long that took, and whether it was
    refused.
    """

    at: float
    milliseconds: float
    failed: bool


@dataclass(kw_only=True)
class Load:
    """Asks in the background until its phases have ended."""

    ask: Callable[[], None]
    phases: Sequence[Phase]
    begun: float = field(default_factory=time.monotonic)
    request: list[Request] = field(default_factory=list)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begins."""
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._thread.start()

    @property
    def now(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self.begun

    @property
    def has_ended(self) -> bool:
        """Whether every request has been answered."""
        return self._thread is not None and not self._thread.is_alive()

    def _run(self) -> None:
        due, last = 0.0, sum(phase.seconds for phase in self.phases)
        with ThreadPoolExecutor(CALLERS, thread_name_prefix="caller") as callers:
            while due < last:
                time.sleep(max(0.0, due - self.now))
                callers.submit(self._ask, due)
                due += 1 / offered_rate(self.phases, due)

    def _ask(self, due: float) -> None:
        try:
            self.ask()
        except Exception:
            failed = True
        else:
            failed = False
        self.request.append(
            Request(at=self.now, milliseconds=(self.now - due) * 1000, failed=failed)
        )


NAME, VARIANT, BUCKET = "scaling-run", "AllTraffic", "scaling-run"
ACCOUNT = "000000000000"
IMAGE = f"{ACCOUNT}.dkr.ecr.us-east-1.amazonaws.com/python-server:local"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/scaling-run"
LONGEST_START_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True)
class ScaledEndpoint:
    """One variant that target tracking scales between `low` and `high` instances."""

    clients: Clients
    target: float
    low: int
    high: int

    @property
    def scalable_target(self) -> Mapping[str, str]:
        """What is scaled, as Application Auto Scaling names it."""
        dimension = "sagemaker:variant:DesiredInstanceCount"
        return {
            "ServiceNamespace": "sagemaker",
            "ResourceId": f"endpoint/{NAME}/variant/{VARIANT}",
            "ScalableDimension": dimension,
        }

    def create(self, archive: Path) -> None:
        """Makes the endpoint, waits until it answers, and puts it under target tracking.

        Raises ValueError.
        """
        self.clients("s3").create_bucket(Bucket=BUCKET)
        self.clients("s3").put_object(Bucket=BUCKET, Key="model.tar.gz", Body=_pack(archive))
        sagemaker = self.clients("sagemaker")
        container = {"Image": IMAGE, "ModelDataUrl": f"s3://{BUCKET}/model.tar.gz"}
        sagemaker.create_model(ModelName=NAME, ExecutionRoleArn=ROLE, PrimaryContainer=container)
        variant = {
            "VariantName": VARIANT, "ModelName": NAME, "InstanceType": "ml.c7i.large",
            "InitialInstanceCount": self.low,
            "RoutingConfig": {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"},
        }  # fmt: skip
        sagemaker.create_endpoint_config(EndpointConfigName=NAME, ProductionVariants=[variant])
        sagemaker.create_endpoint(EndpointName=NAME, EndpointConfigName=NAME)
        self._wait()
        self._scale()

    def _wait(self) -> None:
        deadline = time.monotonic() + LONGEST_START_SECONDS
        while (found := self._described())[
            "EndpointStatus"
        ] == "Creating" and time.monotonic() < deadline:
            time.sleep(0.2)
        if found["EndpointStatus"] != "InService":
            raise ValueError(
                f"the endpoint is {found['EndpointStatus']}: {found.get('FailureReason')}"
            )

    def _scale(self) -> None:
        scaling = self.clients("application-autoscaling")
        scaling.register_scalable_target(
            **self.scalable_target, MinCapacity=self.low, MaxCapacity=self.high
        )
        scaling.put_scaling_policy(
            **self.scalable_target,
            PolicyName="invocations",
            PolicyType="TargetTrackingScaling",
            TargetTrackingScalingPolicyConfiguration={
                "TargetValue": self.target, "ScaleOutCooldown": 60, "ScaleInCooldown": 300,
                "PredefinedMetricSpecification": {
                    "PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"
                },
            },
        )  # fmt: skip

    def ask(self) -> None:
        """One request."""
        body = json.dumps({"inputs": ["the signal box at the end of the yard"]})
        runtime = self.clients("sagemaker-runtime")
        runtime.invoke_endpoint(EndpointName=NAME, ContentType="application/json", Body=body)[
            "Body"
        ].read()

    def counts(self) -> tuple[int, int]:
        """How many instances answer, and how many should."""
        variant = self._described()["ProductionVariants"][0]
        return int(variant["CurrentInstanceCount"]), int(variant["DesiredInstanceCount"])

    def per_instance(self, begin: datetime, seconds: int) -> Mapping[int, float]:
        """Invocations of each instance a minute, by second since `begin`.

        Seconds without any published are absent.
        """
        dimensions = [
            {"Name": "EndpointName", "Value": NAME},
            {"Name": "VariantName", "Value": VARIANT},
        ]
        metric = {
            "Namespace": "AWS/SageMaker",
            "MetricName": "InvocationsPerInstance",
            "Dimensions": dimensions,
        }
        queries = [{"Id": "m", "MetricStat": {"Metric": metric, "Period": 1, "Stat": "Sum"}}]
        found = self.clients("cloudwatch").get_metric_data(
            MetricDataQueries=queries,
            StartTime=begin,
            EndTime=begin + timedelta(seconds=seconds),
            ScanBy="TimestampAscending",
        )["MetricDataResults"][0]
        pairs = zip(found["Timestamps"], found["Values"], strict=True)
        return {
            round((at.astimezone(UTC) - begin).total_seconds()): value * 60 for at, value in pairs
        }

    def activities(self) -> tuple[Mapping[str, Any], ...]:
        """What scaling did, oldest first, without what no reader needs."""
        found = self.clients("application-autoscaling").describe_scaling_activities(
            ServiceNamespace="sagemaker"
        )
        kept = ("Description", "Cause", "StatusCode", "StatusMessage")
        return tuple(
            {name: activity[name] for name in kept}
            for activity in reversed(found["ScalingActivities"])
        )

    def _described(self) -> dict[str, Any]:
        found: dict[str, Any] = self.clients("sagemaker").describe_endpoint(EndpointName=NAME)
        return found


def _pack(folder: Path) -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz", compresslevel=1) as tar:
        tar.add(folder, arcname=".")
    return content.getvalue()
