"""One benchmark of a recommendation job: its model, endpoint config and endpoint, loaded."""

from __future__ import annotations

import io
import tarfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import yaml

from local_cloud.containers.archive import s3_location
from local_cloud.iam.service_roles import allows
from local_cloud.ministack.account import read_object, region, sagemaker_arn
from local_cloud.protocol.errors import Actions, AwsError, Reply, present_fields
from local_cloud.sagemaker.checks import containers
from local_cloud.sagemaker.hosting.endpoints import Endpoints, InProgress
from local_cloud.sagemaker.metrics.host_metrics import Usage, usage_of_trees
from local_cloud.sagemaker.recommender.job_checks import parameter_ranges
from local_cloud.sagemaker.recommender.load import Load
from local_cloud.sagemaker.recommender.traffic import Window, plateau, ramps, stopping
from onboarding.aws_limits import RECOMMENDATION_RESOURCE_LENGTH

VARIANT = "AllTraffic"
SERVICE = "sagemaker.amazonaws.com"
KINDS = {"Model": "model", "EndpointConfig": "endpoint-config", "Endpoint": "endpoint"}
"""The kind of an ARN, by the noun of an action."""
PRICES_FILE = ("onboarding", "data", "prices.yaml")
MOST_PAYLOAD_BYTES = 64 * 1024 * 1024
DELETION_SECONDS = 30.0
POLL_SECONDS = 0.1
Invoke = Callable[[str, Mapping[str, str], bytes], Reply]


class BenchmarkFailed(Exception):
    """A benchmark ends without metrics; the message is its failure reason."""


@dataclass(frozen=True, kw_only=True)
class Combination:
    """An instance type, and values of environment variables by name."""

    instance_type: str
    environment: Mapping[str, str]


def combinations(config: Mapping[str, Any], instance_types: Sequence[str]) -> list[Combination]:
    """Return what a job benchmarks, one after the other."""
    configurations = config.get("EndpointConfigurations") or [
        {"InstanceType": name} for name in instance_types
    ]
    return [
        Combination(instance_type=configuration["InstanceType"], environment=environment)
        for configuration in configurations
        for environment in _environments(parameter_ranges(configuration))
    ]


def _environments(ranges: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, str]]:
    if not ranges:
        yield {}
        return
    for rest in _environments(ranges[1:]):
        for value in ranges[0]["Value"]:
            yield {ranges[0]["Name"]: value, **rest}


def require_permission(
    role: str, action: str, resource: str, keys: Mapping[str, str] | None = None
) -> None:
    """Raise BenchmarkFailed where a job's role may not do what the job is about to."""
    if not allows(role, action, resource, keys):
        raise BenchmarkFailed(
            f"ClientError: {role} is not authorized to perform: {action} on resource: {resource} "
            f"because no identity-based policy allows the {action} action"
        )


def sample_bodies(url: str, role: str) -> list[bytes]:
    """Return the files of a sample payload.

    Raises BenchmarkFailed where there is none, or the role may not read it.
    """
    bucket, key = s3_location(url)
    require_permission(role, "s3:GetObject", f"arn:aws:s3:::{bucket}/{key}")
    content = read_object(bucket, key)
    if content is None:
        raise BenchmarkFailed(
            f"Could not access the sample payload at {url}: ensure that the object exists and that "
            "the job's role may read it."
        )
    try:
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
            members = [member for member in archive if member.isfile()]
            if sum(member.size for member in members) > MOST_PAYLOAD_BYTES:
                raise BenchmarkFailed(f"The sample payload at {url} is too large.")
            files = [archive.extractfile(member) for member in members]
            bodies = [file.read() for file in files if file is not None]
    except (tarfile.TarError, EOFError, OSError) as error:
        raise BenchmarkFailed(f"{url} is no gzip compressed tar archive: {error}.") from error
    if not bodies:
        raise BenchmarkFailed(f"The sample payload at {url} holds no file.")
    return bodies


@dataclass(kw_only=True)
class Benchmark:
    """Serves a combination by an endpoint of its own, loads it and deletes it again."""

    job: str
    request: Mapping[str, Any]
    combination: Combination
    bodies: Sequence[bytes]
    endpoints: Endpoints
    actions: Actions
    invoke: Invoke
    ended: threading.Event
    """Set from outside, it ends the load."""
    name: str = field(init=False)
    begun: float | None = None
    finished: float | None = None
    metrics: Mapping[str, Any] | None = None
    stopped_by: str | None = None

    def __post_init__(self) -> None:
        prefix = self.job[:RECOMMENDATION_RESOURCE_LENGTH].rstrip("-")
        self.name = f"{prefix}-{uuid.uuid4().hex[:12]}"

    def run(self) -> None:
        """Measure the combination. Raises BenchmarkFailed."""
        try:
            with self._endpoint():
                self._load()
        except AwsError as error:
            raise BenchmarkFailed(f"{error.code}: {error.message}") from error

    @contextmanager
    def _endpoint(self) -> Iterator[None]:
        name, config = self.name, self.request["InputConfig"]
        model = self.endpoints.model(config["ModelName"])
        container = dict(containers(model)[0])
        container["Environment"] = {
            **(container.get("Environment") or {}),
            **self.combination.environment,
        }
        fields = ("EnableNetworkIsolation", "ExecutionRoleArn", "VpcConfig")
        made: list[tuple[str, str]] = []

        def create(kind: str, **request: Any) -> None:
            named = {f"{kind}Name": name, **present_fields(**request)}
            self._require(f"sagemaker:Create{kind}", kind)
            self._require(f"sagemaker:Delete{kind}", kind)
            self.actions[f"Create{kind}"](named)
            made.append((f"Delete{kind}", f"{kind}Name"))

        try:
            passed = {"iam:passedtoservice": SERVICE}
            require_permission(self._role, "iam:PassRole", model["ExecutionRoleArn"], passed)
            kept = {field: model.get(field) for field in fields}
            create("Model", PrimaryContainer=container, **kept)
            variant = {
                "VariantName": VARIANT,
                "ModelName": name,
                "InstanceType": self.combination.instance_type,
                "InitialInstanceCount": 1,
            }
            create(
                "EndpointConfig",
                ProductionVariants=[variant],
                KmsKeyId=config.get("VolumeKmsKeyId"),
            )
            create("Endpoint", EndpointConfigName=name)
            endpoint = self.endpoints.endpoint_named(name)
            while not endpoint.settled.wait(POLL_SECONDS) and not self.ended.is_set():
                pass
            if endpoint.status == "Failed":
                raise BenchmarkFailed(endpoint.failure_reason or "The endpoint failed.")
            yield
        finally:
            for action, field_name in reversed(made):
                self._delete(action, {field_name: name})

    @property
    def _role(self) -> str:
        return str(self.request["RoleArn"])

    def _require(self, action: str, kind: str) -> None:
        require_permission(self._role, action, sagemaker_arn(KINDS[kind], self.name))

    def _delete(self, action: str, request: Mapping[str, str]) -> None:
        """Delete one of the benchmark's resources.

        An endpoint's servers are waited for: they would disturb the next benchmark.
        """
        until = time.monotonic() + DELETION_SECONDS
        while time.monotonic() < until:
            try:
                self.actions[action](request)
                break
            except InProgress:
                time.sleep(POLL_SECONDS)
            except AwsError:
                return
        while self.name in self.endpoints.endpoints and time.monotonic() < until:
            time.sleep(POLL_SECONDS)

    def _load(self) -> None:
        if self.ended.is_set():
            return
        self._require("sagemaker:InvokeEndpoint", "Endpoint")
        payload = self.request["InputConfig"]["ContainerConfig"]["PayloadConfig"]
        headers = {"content-type": payload["SupportedContentTypes"][0]}
        load = Load(
            ask=partial(self.invoke, f"/endpoints/{self.name}/invocations", headers),
            bodies=self.bodies,
            traffic=ramps(self.request["InputConfig"]),
            stopping=stopping(self.request.get("StoppingConditions")),
            pace=self.endpoints.settings.scaled_wait,
            usage=self._usage,
            ended=self.ended,
        )
        self.begun = time.time()
        load.run()
        self.finished, self.stopped_by = time.time(), load.stopped_by
        window = plateau(load.windows)
        if self.ended.is_set():
            return
        if window is None:
            reason = load.failures.most_common(1)
            answer = f": {reason[0][0]}" if reason else ""
            raise BenchmarkFailed(f"The model answered no request of the sample payload{answer}")
        self.metrics = self._metrics(window)

    def _usage(self) -> Usage:
        traffic = self.endpoints.endpoint_named(self.name).traffic
        variants = () if traffic is None else traffic.fleet.variants
        pids = [item.container.process.pid for variant in variants for item in variant.instances]
        usages = usage_of_trees(pids).values()
        return Usage(
            cpu_seconds=sum(usage.cpu_seconds for usage in usages),
            memory_bytes=sum(usage.memory_bytes for usage in usages),
        )

    def _metrics(self, window: Window) -> Mapping[str, Any]:
        """Return RecommendationMetrics; without a known price no cost is among them.

        ModelLatency is in microseconds, as in the developer guide's example; its table says
        milliseconds.
        """
        invocations = int(window.a_minute)
        price = self._price()
        costs = {}
        if price is not None:
            costs = {
                "CostPerHour": price,
                "CostPerInference": price / 60 / invocations if invocations else None,
            }
        return present_fields(
            **costs,
            MaxInvocations=invocations,
            ModelLatency=round(window.mean_seconds * 1e6),
            CpuUtilization=window.cpu_percent,
            MemoryUtilization=window.memory_percent,
        )

    def _price(self) -> float | None:
        path = self.endpoints.settings.root.joinpath(*PRICES_FILE)
        regions = yaml.safe_load(path.read_text(encoding="utf-8"))["regions"]
        rows = (regions.get(region()) or {}).get("hosting") or {}
        price = rows.get(self.combination.instance_type)
        return None if price is None else float(price)

    def result(self) -> dict[str, Any]:
        """Return the fields that an inference recommendation and a benchmark share."""
        environment = [
            {"Key": key, "ValueType": "string", "Value": value}
            for key, value in self.combination.environment.items()
        ]
        return present_fields(
            Metrics=self.metrics,
            EndpointConfiguration={
                "EndpointName": self.name,
                "VariantName": VARIANT,
                "InstanceType": self.combination.instance_type,
                "InitialInstanceCount": 1,
            },
            ModelConfiguration={"EnvironmentParameters": environment} if environment else {},
            InvocationStartTime=self.begun,
            InvocationEndTime=self.finished,
        )
