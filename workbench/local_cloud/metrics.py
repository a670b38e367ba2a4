"""The CloudWatch metrics that SageMaker publishes for each invocation."""

from __future__ import annotations

from dataclasses import dataclass

from workbench.local_cloud.account import record_metric
from workbench.local_cloud.multi_model import Loading

NAMESPACE = "AWS/SageMaker"


@dataclass(frozen=True, kw_only=True)
class InvocationMetrics:
    """Publishes for one endpoint's variant."""

    endpoint: str
    variant: str

    def record(self, *, status: int, model_seconds: float, overhead_seconds: float) -> None:
        """One invocation: its count, its latencies in microseconds, and whether it failed on whose side."""
        self._add("Invocations", 1, "Count")
        self._add("InvocationsPerInstance", 1, "Count")
        self._add("ModelLatency", model_seconds * 1e6, "Microseconds")
        self._add("OverheadLatency", overhead_seconds * 1e6, "Microseconds")
        self._add("Invocation4XXErrors", int(400 <= status < 500), "Count")
        self._add("Invocation5XXErrors", int(status >= 500), "Count")

    def record_loading(self, loading: Loading) -> None:
        """What a multi-model endpoint's invocation waited for."""
        self._add("ModelCacheHit", int(loading.cache_hit), "None")
        if not loading.cache_hit:
            self._add("ModelDownloadingTime", loading.downloading_seconds * 1e6, "Microseconds")
            self._add("ModelLoadingTime", loading.loading_seconds * 1e6, "Microseconds")
            self._add("ModelLoadingWaitTime", (loading.downloading_seconds + loading.loading_seconds) * 1e6, "Microseconds")

    def _add(self, name: str, value: float, unit: str) -> None:
        record_metric(NAMESPACE, name, value, unit, {"EndpointName": self.endpoint, "VariantName": self.variant})
