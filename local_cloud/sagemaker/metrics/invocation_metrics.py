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


@dataclass(frozen=True, kw_only=True)
class MetricKind:
    """What metrics have in common; `share` of a minute is how long values are gathered."""

    namespace: str
    unit: str
    dimensions: Dimensions
    share: float = 1.0


class Publisher:
    """Gathers a minute of values in few points; `running` counts a variant's instances."""

    def __init__(self) -> None:
        self.buffer = Buffer()
        self.seconds_per_minute = 60.0
        self.running: Running = lambda endpoint, variant: 1
        self.copies: Callable[[str], int] = lambda component: 1
        self.invoked_at: dict[tuple[str, str, str, str], float] = {}
        self._flushing = threading.Lock()

    def add(self, name: str, value: float, of: MetricKind, *, at: float | None = None) -> None:
        """One value of a metric of the account and region in hand, now unless `at` says when."""
        metric = Metric(
            account=account_id(),
            region=region(),
            namespace=of.namespace,
            name=name,
            unit=of.unit,
            dimensions=of.dimensions,
            slot_seconds=self.seconds_per_minute * of.share,
        )
        self.buffer.add(metric, value, time.time() if at is None else at)

    def flush(self, now: float | None = None) -> None:
        """Put gathered values into CloudWatch: all, or those of the slots that ended by `now`."""
        # A caller waits for the values that another thread has drained.
        with self._flushing:
            metric_store.put(self.buffer.drain(now))


publisher = Publisher()


@dataclass(frozen=True, kw_only=True)
class InvocationMetrics:
    """Publishes for one endpoint's variant; `queued` is an asynchronous endpoint.

    `component`: also for the inference component that answers.
    """

    endpoint: str
    variant: str
    queued: bool = False
    component: str | None = None

    def record(self, *, status: int, model_seconds: float, overhead_seconds: float) -> None:
        """Record one invocation; status 0 is no answer at all."""
        publisher.invoked_at[(account_id(), region(), self.endpoint, self.variant)] = time.time()
        self._add("ModelLatency", model_seconds * 1e6, "Microseconds")
        self._add("Invocation4XXErrors", int(400 <= status < 500))
        self._add("Invocation5XXErrors", int(status >= 500))
        if not self.queued:
            self._add("Invocations", 1)
            instances = max(publisher.running(self.endpoint, self.variant), 1)
            self._add("InvocationsPerInstance", 1 / instances)
            self._add("OverheadLatency", overhead_seconds * 1e6, "Microseconds")
            self._add("InvocationModelErrors", int(not 200 <= status < 300))
        if self.component is not None:
            metrics = ComponentMetrics(component=self.component)
            metrics.record(status=status, model_seconds=model_seconds)

    def record_stream(self, *, first_part: float, overhead_seconds: float, broken: bool) -> None:
        """Record when a stream's first part came, in seconds, and whether it broke off."""
        self._add("FirstChunkModelLatency", first_part * 1e6, "Microseconds")
        self._add("FirstChunkOverheadLatency", overhead_seconds * 1e6, "Microseconds")
        self._add("FirstChunkLatency", (first_part + overhead_seconds) * 1e6, "Microseconds")
        self._add("MidStreamErrors", int(broken))

    def record_queued(self, status: str, *, waited_seconds: float, seconds: float) -> None:
        """Record a queued request that is Completed, Failed or Expired."""
        self._add("InvocationsProcessed", int(status != "Expired"))
        self._add("InvocationFailures", int(status == "Failed"))
        self._add("ExpiredRequests", int(status == "Expired"))
        self._add("TimeInBacklog", waited_seconds * 1e6, "Microseconds")
        self._add("TotalProcessingTime", seconds * 1e6, "Microseconds")

    def record_loading(self, loading: Loading) -> None:
        """What a multi-model endpoint's invocation waited for, and what had to make room."""
        self._add("ModelCacheHit", int(loading.cache_hit))
        for seconds in loading.unloading_seconds:
            self._add("ModelUnloadingTime", seconds * 1e6, "Microseconds")
        if not loading.cache_hit:
            download, load = loading.downloading_seconds, loading.loading_seconds
            self._add("ModelDownloadingTime", download * 1e6, "Microseconds")
            self._add("ModelLoadingTime", load * 1e6, "Microseconds")
            waited = download + load + sum(loading.unloading_seconds)
            self._add("ModelLoadingWaitTime", waited * 1e6, "Microseconds")

    def record_none(self, begun: float, ended: float) -> None:
        """Record zero for a minute without an invocation, so that the variant can scale in."""
        key = (account_id(), region(), self.endpoint, self.variant)
        if publisher.invoked_at.get(key, 0.0) < begun:
            self._add("Invocations", 0, at=ended)
            self._add("InvocationsPerInstance", 0, at=ended)

    def record_concurrency(self, requests: int) -> None:
        """Record the requests in flight of one instance."""
        self._add("ConcurrentRequestsPerModel", requests, share=HIGH_RESOLUTION_SHARE)

    def record_host(self, name: str, value: float, at: float) -> None:
        """Records one instance's utilization (percent) or loaded models in the last minute."""
        unit = "None" if name == "LoadedModelCount" else "Percent"
        kind = MetricKind(namespace=HOST, unit=unit, dimensions=self._dimensions)
        publisher.add(name, value, kind, at=at)

    def _add(
        self,
        name: str,
        value: float,
        unit: str = "None",
        share: float = 1.0,
        at: float | None = None,
    ) -> None:
        kind = MetricKind(
            namespace=INVOCATIONS, unit=unit, dimensions=self._dimensions, share=share
        )
        publisher.add(name, value, kind, at=at)

    @property
    def _dimensions(self) -> Dimensions:
        return (("EndpointName", self.endpoint), ("VariantName", self.variant))


@dataclass(frozen=True, kw_only=True)
class ComponentMetrics:
    """Publishes for one inference component.

    Source: SageMaker developer guide, monitoring-cloudwatch, "inference component metrics".
    """

    component: str

    def record(self, *, status: int, model_seconds: float) -> None:
        """Record one invocation; status 0 is no answer at all."""
        publisher.invoked_at[self._key] = time.time()
        self._add("Invocations", 1)
        self._add("InvocationsPerCopy", 1 / max(publisher.copies(self.component), 1))
        self._add("ModelLatency", model_seconds * 1e6, "Microseconds")
        self._add("Invocation4XXErrors", int(400 <= status < 500))
        self._add("Invocation5XXErrors", int(status >= 500))
        self._add("InvocationModelErrors", int(not 200 <= status < 300))

    def record_no_capacity(self) -> None:
        """Record a request that found no copy."""
        self._add("NoCapacityInvocationFailures", 1, share=HIGH_RESOLUTION_SHARE)

    def record_concurrency(self, requests: int) -> None:
        """Record the requests in flight of one copy."""
        self._add("ConcurrentRequestsPerCopy", requests, share=HIGH_RESOLUTION_SHARE)

    def record_none(self, begun: float, ended: float) -> None:
        """Record zero for a minute without an invocation, so that the component can scale in."""
        if publisher.invoked_at.get(self._key, 0.0) < begun:
            self._add("Invocations", 0, at=ended)
            self._add("InvocationsPerCopy", 0, at=ended)

    @property
    def _key(self) -> tuple[str, str, str, str]:
        return (account_id(), region(), "", self.component)

    def _add(
        self,
        name: str,
        value: float,
        unit: str = "None",
        share: float = 1.0,
        at: float | None = None,
    ) -> None:
        dimensions = (("InferenceComponentName", self.component),)
        kind = MetricKind(namespace=INVOCATIONS, unit=unit, dimensions=dimensions, share=share)
        publisher.add(name, value, kind, at=at)
