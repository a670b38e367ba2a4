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

NAMESPACE, HOST_NAMESPACE = "AWS/SageMaker", "/aws/sagemaker/Endpoints"
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
    """Gathers what is published, a minute of it in few points.

    `running` tells how many instances an endpoint's variant has.
    """

    def __init__(self) -> None:
        self.buffer = Buffer()
        self.seconds_per_minute = 60.0
        self.running: Running = lambda endpoint, variant: 1
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
        """Puts into CloudWatch what has been gathered.

        All of it, or what no further value can join after `now`.

        Whoever calls it finds there afterwards what another thread had drained before, too.
        """
        with self._flushing:
            metric_store.put(self.buffer.drain(now))


publisher = Publisher()


@dataclass(frozen=True, kw_only=True)
class InvocationMetrics:
    """Publishes for one endpoint's variant.

    An asynchronous endpoint, `queued`, publishes less of an invocation.
    """

    endpoint: str
    variant: str
    queued: bool = False

    def record(self, *, status: int, model_seconds: float, overhead_seconds: float) -> None:
        """One invocation: its count, its latencies in microseconds, whose fault a failure is.

        Status 0 is no answer at all.
        """
        publisher.invoked_at[(account_id(), region(), self.endpoint, self.variant)] = time.time()
        self._add("ModelLatency", model_seconds * 1e6, "Microseconds")
        self._add("Invocation4XXErrors", int(400 <= status < 500))
        self._add("Invocation5XXErrors", int(status >= 500))
        if not self.queued:
            self._add("Invocations", 1)
            self._add(
                "InvocationsPerInstance", 1 / max(publisher.running(self.endpoint, self.variant), 1)
            )
            self._add("OverheadLatency", overhead_seconds * 1e6, "Microseconds")
            self._add("InvocationModelErrors", int(not 200 <= status < 300))

    def record_queued(self, status: str, *, waited_seconds: float, seconds: float) -> None:
        """What became of a queued request: Completed, Failed or Expired.

        How long it waited, and took in all.
        """
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
            waited = (
                loading.downloading_seconds
                + sum(loading.unloading_seconds)
                + loading.loading_seconds
            )
            self._add("ModelDownloadingTime", loading.downloading_seconds * 1e6, "Microseconds")
            self._add("ModelLoadingTime", loading.loading_seconds * 1e6, "Microseconds")
            self._add("ModelLoadingWaitTime", waited * 1e6, "Microseconds")

    def record_none(self, begun: float, ended: float) -> None:
        """Records zero for a minute without an invocation, as SageMaker does.

        A variant without traffic can then scale in.
        """
        if (
            publisher.invoked_at.get((account_id(), region(), self.endpoint, self.variant), 0.0)
            < begun
        ):
            self._add("Invocations", 0, at=ended)
            self._add("InvocationsPerInstance", 0, at=ended)

    def record_concurrency(self, requests: int) -> None:
        """How many requests one instance has in hand."""
        self._add("ConcurrentRequestsPerModel", requests, share=HIGH_RESOLUTION_SHARE)

    def record_host(self, name: str, value: float, at: float) -> None:
        """Records one instance's utilization (percent) or loaded models in the last minute."""
        unit = "None" if name == "LoadedModelCount" else "Percent"
        publisher.add(
            name,
            value,
            MetricKind(namespace=HOST_NAMESPACE, unit=unit, dimensions=self._dimensions),
            at=at,
        )

    def _add(
        self,
        name: str,
        value: float,
        unit: str = "None",
        share: float = 1.0,
        at: float | None = None,
    ) -> None:
        kind = MetricKind(namespace=NAMESPACE, unit=unit, dimensions=self._dimensions, share=share)
        publisher.add(name, value, kind, at=at)

    @property
    def _dimensions(self) -> Dimensions:
        return (("EndpointName", self.endpoint), ("VariantName", self.variant))
