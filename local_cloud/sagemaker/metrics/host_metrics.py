"""Metrics of endpoints' instances, sampled from their server processes."""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ministack.core.responses import request_scope

from local_cloud.sagemaker.hosting.endpoint import Endpoint
from local_cloud.sagemaker.hosting.instance import Instance
from local_cloud.sagemaker.metrics.invocation_metrics import InvocationMetrics

UNTRACKED_SECONDS = 10.0
"""Variants that nothing scales, of endpoints without inference components, are sampled no more
often than this, however fast time runs.
"""
TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, kw_only=True)
class Running:
    """The instances of one variant; `key` is account, region, endpoint and variant."""

    key: tuple[str, str, str, str]
    instances: tuple[Instance, ...]
    queued: bool
    hosts_components: bool
    """Whether they take copies of inference components."""

    @property
    def metrics(self) -> InvocationMetrics:
        """The metrics of the variant."""
        return InvocationMetrics(endpoint=self.key[2], variant=self.key[3])


def running(endpoints: Mapping[str, Endpoint]) -> Iterator[Running]:
    """Yield every variant of every account with its instances, those of two fleets together."""
    for scoped_name, endpoint in list(endpoints._data.items()):  # type: ignore[attr-defined]
        instances: dict[str, list[Instance]] = defaultdict(list)
        for fleet in endpoint.fleets:
            for variant in fleet.variants:
                instances[variant.name].extend(variant.instances)
        for name, members in instances.items():
            key = (*scoped_name, name)
            yield Running(
                key=key,
                instances=tuple(members),
                queued=endpoint.is_asynchronous,
                hosts_components=any(fleet.hosts_components for fleet in endpoint.fleets),
            )


def running_count(endpoints: Mapping[str, Endpoint], endpoint_name: str, variant: str) -> int:
    """Return how many instances answer for a variant of the present account."""
    endpoint = endpoints.get(endpoint_name)
    fleets = () if endpoint is None else endpoint.fleets
    return sum(
        len(item.instances) for fleet in fleets for item in fleet.variants if item.name == variant
    )


class Hosts:
    """Samples all instances.

    `scaled_variants` returns the variants of an endpoint that something scales: they, and those
    that host inference components, whose copies something scales, are sampled every minute at any
    pace.
    """

    def __init__(
        self,
        endpoints: Mapping[str, Endpoint],
        scaled_variants: Callable[[str], Collection[str]],
    ) -> None:
        self._endpoints, self._scaled_variants = endpoints, scaled_variants
        self._before: dict[str, tuple[float, Usage]] = {}
        self._sampled: dict[tuple[str, str, str, str], float] = {}

    def _is_tracked(self, variant: Running) -> bool:
        return variant.key[3] in self._scaled_variants(variant.key[2])

    def sample_requests(self) -> None:
        """Record each instance's concurrent requests; of untracked variants only if any."""
        for variant in running(self._endpoints):
            if variant.queued:
                continue
            with request_scope(*variant.key[:2]):
                counts = [instance.requests for instance in variant.instances]
                if any(counts) or self._is_tracked(variant):
                    for count in counts:
                        variant.metrics.record_concurrency(count)

    def sample_minute(self, begun: float, ended: float) -> None:
        """Record what each instance used in a minute; zero for tracked ones without invocation."""
        due = [variant for variant in running(self._endpoints) if self._is_due(variant, ended)]
        usages = usage_of_trees(
            [
                process
                for variant in due
                for instance in variant.instances
                for process in instance.processes
            ]
        )
        for variant in due:
            with request_scope(*variant.key[:2]):
                for instance in variant.instances:
                    usage = sum(
                        (usages[pid] for pid in instance.processes if pid in usages), Usage()
                    )
                    self._record(variant.metrics, instance, usage, ended)
                    self._before[instance.id] = (ended, usage)
                if not variant.queued and self._is_tracked(variant):
                    variant.metrics.record_none(begun, ended)
        oldest = ended - 20 * UNTRACKED_SECONDS
        self._before = {key: before for key, before in self._before.items() if before[0] > oldest}

    def _is_due(self, variant: Running, now: float) -> bool:
        with request_scope(*variant.key[:2]):
            tracked = variant.hosts_components or self._is_tracked(variant)
        if not tracked and now - self._sampled.get(variant.key, 0.0) < UNTRACKED_SECONDS:
            return False
        self._sampled[variant.key] = now
        return True

    def _record(
        self, metrics: InvocationMetrics, instance: Instance, usage: Usage, now: float
    ) -> None:
        before = self._before.get(instance.id)
        if before is not None and now > before[0]:
            percent = 100 * (usage.cpu_seconds - before[1].cpu_seconds) / (now - before[0])
            metrics.record_host("CPUUtilization", max(percent, 0.0), now)
        memory = os.sysconf("SC_PHYS_PAGES") * PAGE_BYTES
        metrics.record_host("MemoryUtilization", 100 * usage.memory_bytes / memory, now)
        metrics.record_host("DiskUtilization", _disk_percent(instance.folder), now)
        if instance.target_models is not None:
            metrics.record_host("LoadedModelCount", instance.target_models.loaded_count, now)


@dataclass(frozen=True, kw_only=True)
class Usage:
    """CPU seconds since the start, and resident bytes; shared pages count for each process."""

    cpu_seconds: float = 0.0
    memory_bytes: int = 0

    def __add__(self, other: Usage) -> Usage:
        """Return both together."""
        return Usage(
            cpu_seconds=self.cpu_seconds + other.cpu_seconds,
            memory_bytes=self.memory_bytes + other.memory_bytes,
        )


def usage_of_trees(roots: Collection[int]) -> Mapping[int, Usage]:
    """Return what each root process and its descendants use; a root that is gone uses nothing."""
    usages: dict[int, Usage] = {}
    children: dict[int, list[int]] = defaultdict(list)
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            fields = Path(entry.path, "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue
        children[int(fields[1])].append(int(entry.name))
        usages[int(entry.name)] = Usage(
            cpu_seconds=sum(map(int, fields[11:15])) / TICKS_A_SECOND,
            memory_bytes=int(fields[21]) * PAGE_BYTES,
        )
    trees = {root: [root] for root in roots}
    for tree in trees.values():
        for pid in tree:
            tree.extend(children.get(pid, ()))
    return {
        root: sum((usages[pid] for pid in tree if pid in usages), Usage())
        for root, tree in trees.items()
    }


def _disk_percent(folder: Path) -> float:
    """The share of its disk that a folder's files take; links are not followed."""
    if not folder.exists():
        return 0.0
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += Path(parent, name).lstat().st_blocks * 512
    return 100 * total / shutil.disk_usage(folder).total
