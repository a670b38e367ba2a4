"""What endpoints' instances use, sampled from their server processes.

CPU, memory, disk, loaded models, requests in hand.
"""

from __future__ import annotations

import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ministack.core.responses import request_scope

from local_cloud.sagemaker.hosting.endpoint import Endpoint
from local_cloud.sagemaker.hosting.instance import Instance
from local_cloud.sagemaker.metrics.invocation_metrics import InvocationMetrics

UNTRACKED_SECONDS = 10.0
"""Variants that nothing scales are sampled no more often than this, however fast time runs."""
Tracked = Callable[[str, str], bool]


@dataclass(frozen=True, kw_only=True)
class Running:
    """The instances of one variant of one endpoint."""

    account: str
    region: str
    endpoint: str
    variant: str
    instances: tuple[Instance, ...]
    queued: bool


def running(endpoints: Mapping[str, Endpoint]) -> Iterator[Running]:
    """Every variant that has instances, of every account.

    Those of an update's two fleets count together.
    """
    for (account, region, name), endpoint in list(endpoints._data.items()):  # type: ignore[attr-defined]
        found: dict[str, tuple[Instance, ...]] = {}
        for fleet in endpoint.fleets:
            for variant in fleet.variants:
                found[variant.name] = (*found.get(variant.name, ()), *variant.instances)
        for variant_name, instances in found.items():
            yield Running(
                account=account,
                region=region,
                endpoint=name,
                variant=variant_name,
                instances=instances,
                queued=endpoint.is_asynchronous,
            )


def running_count(endpoints: Mapping[str, Endpoint], endpoint_name: str, variant: str) -> int:
    """How many instances answer for a variant of an endpoint of the account in hand."""
    endpoint = endpoints.get(endpoint_name)
    fleets = () if endpoint is None else endpoint.fleets
    return sum(
        len(item.instances) for fleet in fleets for item in fleet.variants if item.name == variant
    )


class Hosts:
    """Samples all instances.

    `tracked` tells which variants something scales: only they are sampled every minute at any pace.
    """

    def __init__(self, endpoints: Mapping[str, Endpoint], tracked: Tracked) -> None:
        self._endpoints, self._tracked = endpoints, tracked
        self._before: dict[int, tuple[float, Usage]] = {}
        self._sampled: dict[tuple[str, str, str, str], float] = {}

    def sample_requests(self) -> None:
        """Records each instance's concurrent requests; untracked variants only if any."""
        for item in running(self._endpoints):
            if item.queued:
                continue
            with request_scope(item.account, item.region):
                held = [instance.in_flight for instance in item.instances]
                if any(held) or self._tracked(item.endpoint, item.variant):
                    for requests in held:
                        InvocationMetrics(
                            endpoint=item.endpoint, variant=item.variant
                        ).record_concurrency(requests)

    def sample_minute(self, begun: float, ended: float) -> None:
        """Records what each instance used in the minute that ends.

        Tracked variants without an invocation get zeros.
        """
        due = [entry for entry in running(self._endpoints) if self._is_due(entry, ended)]
        usages = usage_of_trees(
            [_pid(instance) for element in due for instance in element.instances]
        )
        for item in due:
            with request_scope(item.account, item.region):
                metrics = InvocationMetrics(endpoint=item.endpoint, variant=item.variant)
                for instance in item.instances:
                    self._record(metrics, instance, usages[_pid(instance)], ended)
                if not item.queued and self._tracked(item.endpoint, item.variant):
                    metrics.record_none(begun, ended)
        self._before = {
            pid: before
            for pid, before in self._before.items()
            if before[0] > ended - 20 * UNTRACKED_SECONDS
        }

    def _is_due(self, each: Running, now: float) -> bool:
        key = (each.account, each.region, each.endpoint, each.variant)
        with request_scope(each.account, each.region):
            tracked = self._tracked(each.endpoint, each.variant)
        if not tracked and now - self._sampled.get(key, 0.0) < UNTRACKED_SECONDS:
            return False
        self._sampled[key] = now
        return True

    def _record(
        self, metrics: InvocationMetrics, instance: Instance, usage: Usage, now: float
    ) -> None:
        before = self._before.get(_pid(instance))
        self._before[_pid(instance)] = (now, usage)
        if before is not None and now > before[0]:
            percent = 100 * (usage.cpu_seconds - before[1].cpu_seconds) / (now - before[0])
            metrics.record_host("CPUUtilization", max(percent, 0.0), now)
        metrics.record_host("MemoryUtilization", 100 * usage.memory_bytes / memory_bytes(), now)
        metrics.record_host("DiskUtilization", disk_percent(instance.place), now)
        if instance.target_models is not None:
            metrics.record_host("LoadedModelCount", instance.target_models.loaded_count, now)


def _pid(instance: Instance) -> int:
    return instance.container.process.pid


TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, kw_only=True)
class Usage:
    """CPU seconds since the processes began, and resident memory in bytes.

    Pages that they share count for each.
    """

    cpu_seconds: float
    memory_bytes: int


@dataclass(frozen=True, kw_only=True)
class _Process:
    parent: int
    usage: Usage


def usage_of_trees(roots: Collection[int]) -> Mapping[int, Usage]:
    """What each root process and its descendants use, from one look at all processes.

    A root that is gone uses nothing.
    """
    processes = _processes()
    children: dict[int, list[int]] = defaultdict(list)
    for pid, process in processes.items():
        children[process.parent].append(pid)
    return {root: _total(root, processes, children) for root in roots}


def memory_bytes() -> int:
    """This machine's memory."""
    return os.sysconf("SC_PHYS_PAGES") * PAGE_BYTES


def disk_percent(folder: Path) -> float:
    """The share of its disk that a folder's files take, in percent; links are not followed."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(place) / name).lstat().st_blocks * 512
            except FileNotFoundError:
                continue
    return 100 * total / shutil.disk_usage(folder).total if folder.exists() else 0.0


def _processes() -> dict[int, _Process]:
    found = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            process = _process(entry.path)
            if process is not None:
                found[int(entry.name)] = process
    return found


def _process(place: str) -> _Process | None:
    """One process from its stat file; None when it has just ended."""
    try:
        fields = Path(place, "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    cpu = sum(int(field) for field in fields[11:15]) / TICKS_A_SECOND
    return _Process(
        parent=int(fields[1]),
        usage=Usage(cpu_seconds=cpu, memory_bytes=int(fields[21]) * PAGE_BYTES),
    )


def _total(
    root: int, processes: Mapping[int, _Process], children: Mapping[int, list[int]]
) -> Usage:
    waiting, cpu, memory = [root], 0.0, 0
    while waiting:
        pid = waiting.pop()
        waiting.extend(children.get(pid, ()))
        if pid in processes:
            cpu += processes[pid].usage.cpu_seconds
            memory += processes[pid].usage.memory_bytes
    return Usage(cpu_seconds=cpu, memory_bytes=memory)
