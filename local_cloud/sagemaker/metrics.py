"""The CloudWatch metrics of variants and inference components that alarms and scaling watch.

Source: SageMaker developer guide, monitoring-cloudwatch.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from local_cloud.cloudwatch import metric_store
from onboarding.metrics import HOST, INVOCATIONS

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """Metrics of the present account and region with the same dimensions.

    `per_capacity` is the metric of the invocations of each instance or copy.
    """

    dimensions: Mapping[str, str]
    per_capacity: str

    def add(self, name: str, value: float, unit: str = "None", at: float | None = None) -> None:
        """Add a value, now unless `at` says when."""
        metric_store.add(INVOCATIONS, name, value, self.dimensions, unit, at)

    def record(self, status: int, model_seconds: float, running: int | None) -> None:
        """Record an invocation; status 0 is no answer at all.

        `running` instances or copies answer; None: the invocation waited in a queue.
        """
        self.add("ModelLatency", model_seconds * 1e6, "Microseconds")
        self.add("Invocation4XXErrors", int(400 <= status < 500))
        self.add("Invocation5XXErrors", int(status >= 500))
        if running is not None:
            self.add("Invocations", 1)
            self.add(self.per_capacity, 1 / max(running, 1))
            self.add("InvocationModelErrors", int(not 200 <= status < 300))

    def record_none(self, at: float) -> None:
        """Add nothing to the invocations of a minute, so that a capacity without any scales in."""
        self.add("Invocations", 0, at=at)
        self.add(self.per_capacity, 0, at=at)

    def record_memory(self, pids: tuple[int, ...], at: float) -> None:
        """Record what an instance's processes have of this machine's memory, in percent."""
        memory = os.sysconf("SC_PHYS_PAGES") * PAGE_BYTES
        percent = 100 * sum(map(resident_bytes, pids)) / memory
        metric_store.add(HOST, "MemoryUtilization", percent, self.dimensions, "Percent", at)


def variant_metrics(endpoint: str, variant: str) -> Metrics:
    """Return the metrics of an endpoint's variant."""
    dimensions = {"EndpointName": endpoint, "VariantName": variant}
    return Metrics(dimensions=dimensions, per_capacity="InvocationsPerInstance")


def component_metrics(name: str) -> Metrics:
    """Return the metrics of an inference component."""
    return Metrics(dimensions={"InferenceComponentName": name}, per_capacity="InvocationsPerCopy")


def resident_bytes(pid: int) -> int:
    """Return what a process and its descendants hold; shared pages count for each."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
        files = tuple(Path(f"/proc/{pid}/task").glob("*/children"))
        children = [child for file in files for child in file.read_text(encoding="ascii").split()]
    except OSError:
        return 0
    return pages * PAGE_BYTES + sum(resident_bytes(int(child)) for child in children)
