"""A scaled endpoint of a local cloud, and the load on it."""

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
NAME, VARIANT, BUCKET = "scaling-run", "AllTraffic", "scaling-run"
ACCOUNT = "000000000000"
IMAGE = f"{ACCOUNT}.dkr.ecr.us-east-1.amazonaws.com/python-server:local"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/scaling-run"
SCALABLE_TARGET = {
    "ServiceNamespace": "sagemaker",
    "ResourceId": f"endpoint/{NAME}/variant/{VARIANT}",
    "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
}
LONGEST_START_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request: when it ended, in seconds since the run began, its duration and its outcome."""

    at: float
    milliseconds: float
    failed: bool


@dataclass(kw_only=True)
class Load:
    """Sends requests in the background until its phases have ended."""

    send: Callable[[], None]
    phases: Sequence[Phase]
    requests: list[Request] = field(default_factory=list)
    _begin: float = field(default_factory=time.monotonic)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin."""
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._thread.start()

    @property
    def now(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._begin

    @property
    def has_ended(self) -> bool:
        """True once every request has ended."""
        return self._thread is not None and not self._thread.is_alive()

    def _run(self) -> None:
        due, last = 0.0, sum(phase.seconds for phase in self.phases)
        with ThreadPoolExecutor(CALLERS, thread_name_prefix="caller") as callers:
            while due < last:
                time.sleep(max(0.0, due - self.now))
                callers.submit(self._send, due)
                due += 1 / offered_rate(self.phases, due)

    def _send(self, due: float) -> None:
        failed = False
        try:
            self.send()
        except Exception:
            failed = True
        now = self.now
        self.requests.append(Request(at=now, milliseconds=(now - due) * 1000, failed=failed))


@dataclass(frozen=True, kw_only=True)
class ScaledEndpoint:
    """One variant that target tracking scales between `low` and `high` instances."""

    clients: Clients
    target: float
    low: int
    high: int

    def create(self, archive: Path) -> None:
        """Create the endpoint, wait until it is in service, and put it under target tracking.

        Raises ValueError.
        """
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w:gz", compresslevel=1) as tar:
            tar.add(archive, arcname=".")
        s3, sagemaker = self.clients("s3"), self.clients("sagemaker")
        s3.create_bucket(Bucket=BUCKET)
        s3.put_object(Bucket=BUCKET, Key="model.tar.gz", Body=content.getvalue())
        container = {"Image": IMAGE, "ModelDataUrl": f"s3://{BUCKET}/model.tar.gz"}
        sagemaker.create_model(ModelName=NAME, ExecutionRoleArn=ROLE, PrimaryContainer=container)
        variant = {
            "VariantName": VARIANT,
            "ModelName": NAME,
            "InstanceType": "ml.c7i.large",
            "InitialInstanceCount": self.low,
            "RoutingConfig": {"RoutingStrategy": "LEAST_OUTSTANDING_REQUESTS"},
        }
        sagemaker.create_endpoint_config(EndpointConfigName=NAME, ProductionVariants=[variant])
        sagemaker.create_endpoint(EndpointName=NAME, EndpointConfigName=NAME)
        self._wait()
        self._scale()

    def _wait(self) -> None:
        deadline = time.monotonic() + LONGEST_START_SECONDS
        endpoint = self._describe()
        while endpoint["EndpointStatus"] == "Creating" and time.monotonic() < deadline:
            time.sleep(0.2)
            endpoint = self._describe()
        if endpoint["EndpointStatus"] != "InService":
            reason = endpoint.get("FailureReason")
            raise ValueError(f"the endpoint is {endpoint['EndpointStatus']}: {reason}")

    def _scale(self) -> None:
        scaling = self.clients("application-autoscaling")
        scaling.register_scalable_target(
            **SCALABLE_TARGET, MinCapacity=self.low, MaxCapacity=self.high
        )
        metric = {"PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"}
        scaling.put_scaling_policy(
            **SCALABLE_TARGET,
            PolicyName="invocations",
            PolicyType="TargetTrackingScaling",
            TargetTrackingScalingPolicyConfiguration={
                "TargetValue": self.target,
                "ScaleOutCooldown": 60,
                "ScaleInCooldown": 300,
                "PredefinedMetricSpecification": metric,
            },
        )

    def invoke(self) -> None:
        """Send one request, and read the response."""
        body = json.dumps({"inputs": ["the signal box at the end of the yard"]})
        self.clients("sagemaker-runtime").invoke_endpoint(
            EndpointName=NAME, ContentType="application/json", Body=body
        )["Body"].read()

    def counts(self) -> tuple[int, int]:
        """Return how many instances answer, and how many are desired."""
        variant = self._describe()["ProductionVariants"][0]
        return int(variant["CurrentInstanceCount"]), int(variant["DesiredInstanceCount"])

    def per_instance(self, begin: datetime, seconds: int) -> Mapping[int, float]:
        """Return the invocations of each instance a minute, by second since `begin`.

        Seconds without any published are absent.
        """
        names = {"EndpointName": NAME, "VariantName": VARIANT}
        metric = {
            "Namespace": "AWS/SageMaker",
            "MetricName": "InvocationsPerInstance",
            "Dimensions": [{"Name": name, "Value": value} for name, value in names.items()],
        }
        queries = [{"Id": "m", "MetricStat": {"Metric": metric, "Period": 1, "Stat": "Sum"}}]
        result = self.clients("cloudwatch").get_metric_data(
            MetricDataQueries=queries,
            StartTime=begin,
            EndTime=begin + timedelta(seconds=seconds),
            ScanBy="TimestampAscending",
        )["MetricDataResults"][0]
        return {
            round((at.astimezone(UTC) - begin).total_seconds()): value * 60
            for at, value in zip(result["Timestamps"], result["Values"], strict=True)
        }

    def activities(self) -> tuple[Mapping[str, Any], ...]:
        """Return the scaling activities, oldest first, without identifiers and times."""
        response = self.clients("application-autoscaling").describe_scaling_activities(
            ServiceNamespace="sagemaker"
        )
        fields = ("Description", "Cause", "StatusCode", "StatusMessage")
        return tuple(
            {field: activity[field] for field in fields}
            for activity in reversed(response["ScalingActivities"])
        )

    def _describe(self) -> dict[str, Any]:
        response: dict[str, Any] = self.clients("sagemaker").describe_endpoint(EndpointName=NAME)
        return response
