"""The CloudWatch metrics that SageMaker publishes for each invocation of a variant."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from local_cloud.cloudwatch import metric_store
from local_cloud.cloudwatch.buffer import Buffer, Dimensions, Metric
from local_cloud.ministack.account import account_id, region
from local_cloud.sagemaker.hosting.multi_model import Loading
from onboarding.metrics import HOST, INVOCATIONS

HIGH_RESOLUTION_SHARE = 1 / 6
"""ConcurrentRequestsPerModel is published every ten seconds, six times a minute."""
Running = Callable[[str, str], int]


class Publisher:
    """Gathers a minute of values in few points; `running` counts a variant's instances."""

    def __init__(self) -> None:
        self.buffer = Buffer()
        self.seconds_per_minute = 60.0
        self.running: Running = lambda endpoint, variant: 1
        self.copies: Callable[[str], int] = lambda component: 1
        self.invoked_at: dict[tuple[str, str, Dimensions], float] = {}
        self._flushing = threading.Lock()

    def flush(self, now: float | None = None) -> None:
        """Put gathered values into CloudWatch: all, or those of the slots that ended by `now`."""
        # A caller waits for the values that another thread has drained.
        with self._flushing:
            metric_store.put(self.buffer.drain(now))


publisher = Publisher()


class Published:
    """Metrics of the account and region in hand with the same dimensions."""

    dimensions: Dimensions
    per_instance: str
    """The metric of the invocations of each instance or copy."""

    def add(
        self,
        name: str,
        value: float,
        unit: str = "None",
        share: float = 1.0,
        at: float | None = None,
        namespace: str = INVOCATIONS,
    ) -> None:
        """Add a value, now unless `at` says when, that is gathered for a `share` of a minute."""
        metric = Metric(
            account=account_id(),
            region=region(),
            namespace=namespace,
            name=name,
            unit=unit,
            dimensions=self.dimensions,
            slot_seconds=publisher.seconds_per_minute * share,
        )
        publisher.buffer.add(metric, value, time.time() if at is None else at)

    def record_status(self, status: int, model_seconds: float) -> None:
        """Record what all invocations have; status 0 is no answer at all."""
        publisher.invoked_at[self._key] = time.time()
        self.add("ModelLatency", model_seconds * 1e6, "Microseconds")
        self.add("Invocation4XXErrors", int(400 <= status < 500))
        self.add("Invocation5XXErrors", int(status >= 500))

    def record_synchronous(self, status: int, running: int) -> None:
        """Record an invocation that did not wait in a queue."""
        self.add("Invocations", 1)
        self.add(self.per_instance, 1 / max(running, 1))
        self.add("InvocationModelErrors", int(not 200 <= status < 300))

    def record_none(self, begun: float, ended: float) -> None:
        """Record zero for a minute without an invocation, so that its capacity can scale in."""
        if publisher.invoked_at.get(self._key, 0.0) < begun:
            self.add("Invocations", 0, at=ended)
            self.add(self.per_instance, 0, at=ended)

    @property
    def _key(self) -> tuple[str, str, Dimensions]:
        return (account_id(), region(), self.dimensions)


@dataclass(frozen=True, kw_only=True)
class InvocationMetrics(Published):
    """Publishes for one endpoint's variant; `queued` is an asynchronous endpoint.

    `component`: also for the inference component that answers.
    """

    endpoint: str
    variant: str
    queued: bool = False
    component: str | None = None
    per_instance = "InvocationsPerInstance"

    @property
    def dimensions(self) -> Dimensions:  # type: ignore[override]
        """The endpoint and the variant."""
        return (("EndpointName", self.endpoint), ("VariantName", self.variant))

    def record(self, *, status: int, model_seconds: float, overhead_seconds: float) -> None:
        """Record one invocation; status 0 is no answer at all."""
        self.record_status(status, model_seconds)
        if not self.queued:
            self.record_synchronous(status, publisher.running(self.endpoint, self.variant))
            self.add("OverheadLatency", overhead_seconds * 1e6, "Microseconds")
        if self.component is not None:
            metrics = ComponentMetrics(component=self.component)
            metrics.record(status=status, model_seconds=model_seconds)

    def record_stream(self, *, first_part: float, overhead_seconds: float, broken: bool) -> None:
        """Record when a stream's first part came, in seconds, and whether it broke off."""
        self.add("FirstChunkModelLatency", first_part * 1e6, "Microseconds")
        self.add("FirstChunkOverheadLatency", overhead_seconds * 1e6, "Microseconds")
        self.add("FirstChunkLatency", (first_part + overhead_seconds) * 1e6, "Microseconds")
        self.add("MidStreamErrors", int(broken))

    def record_queued(self, status: str, *, waited_seconds: float, seconds: float) -> None:
        """Record a queued request that is Completed, Failed or Expired."""
        self.add("InvocationsProcessed", int(status != "Expired"))
        self.add("InvocationFailures", int(status == "Failed"))
        self.add("ExpiredRequests", int(status == "Expired"))
        self.add("TimeInBacklog", waited_seconds * 1e6, "Microseconds")
        self.add("TotalProcessingTime", seconds * 1e6, "Microseconds")

    def record_loading(self, loading: Loading) -> None:
        """What a multi-model endpoint's invocation waited for, and what had to make room."""
        self.add("ModelCacheHit", int(loading.cache_hit))
        for seconds in loading.unloading_seconds:
            self.add("ModelUnloadingTime", seconds * 1e6, "Microseconds")
        if not loading.cache_hit:
            download, load = loading.downloading_seconds, loading.loading_seconds
            self.add("ModelDownloadingTime", download * 1e6, "Microseconds")
            self.add("ModelLoadingTime", load * 1e6, "Microseconds")
            waited = download + load + sum(loading.unloading_seconds)
            self.add("ModelLoadingWaitTime", waited * 1e6, "Microseconds")

    def record_concurrency(self, requests: int) -> None:
        """Record the requests in flight of one instance."""
        self.add("ConcurrentRequestsPerModel", requests, share=HIGH_RESOLUTION_SHARE)

    def record_host(self, name: str, value: float, at: float) -> None:
        """Records one instance's utilization (percent) or loaded models in the last minute."""
        unit = "None" if name == "LoadedModelCount" else "Percent"
        self.add(name, value, unit, at=at, namespace=HOST)


@dataclass(frozen=True, kw_only=True)
class ComponentMetrics(Published):
    """Publishes for one inference component.

    Source: SageMaker developer guide, monitoring-cloudwatch, "inference component metrics".
    """

    component: str
    per_instance = "InvocationsPerCopy"

    @property
    def dimensions(self) -> Dimensions:  # type: ignore[override]
        """The inference component."""
        return (("InferenceComponentName", self.component),)

    def record(self, *, status: int, model_seconds: float) -> None:
        """Record one invocation; status 0 is no answer at all."""
        self.record_status(status, model_seconds)
        self.record_synchronous(status, publisher.copies(self.component))

    def record_no_capacity(self) -> None:
        """Record a request that found no copy."""
        self.add("NoCapacityInvocationFailures", 1, share=HIGH_RESOLUTION_SHARE)

    def record_concurrency(self, requests: int) -> None:
        """Record the requests in flight of one copy."""
        self.add("ConcurrentRequestsPerCopy", requests, share=HIGH_RESOLUTION_SHARE)
