"""Graphs of what one variant does: of an endpoint's own, or of whichever endpoint is selected."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from onboarding.deployment import Deployment, Variant
from onboarding.metrics import AlarmGraph, Graph, Line, Section, VariantMetrics
from stacks.dashboards import graphs, lines

Lines = Callable[[Deployment, Variant], list[Line]]
MOST_DRAWN = 6
"""Endpoints whose lines are drawn: a graph is scaled to hold those not selected, too."""


@dataclass(frozen=True, kw_only=True)
class View:
    """The variant that graphs show, and the endpoints that it may be of, each with its variant."""

    of: VariantMetrics
    pairs: Sequence[tuple[Deployment, Variant]]

    @property
    def is_drawn(self) -> bool:
        """Return True where the endpoints are so few that their lines flatten no graph."""
        return len(self.pairs) <= MOST_DRAWN

    def lines(self, *kinds: Lines) -> list[Line]:
        """Return lines that are drawn whichever endpoint is selected."""
        found = [line for kind in kinds for pair in self.pairs for line in kind(*pair)]
        return lines.merge_lines(found) if self.is_drawn else []

    def own(self, *kinds: Lines) -> list[Line]:
        """Return lines that an endpoint has on its own dashboard alone."""
        return self.lines(*kinds)

    def title(self, title: str, kind: str) -> str:
        """Return a section's title, which names the kind of endpoints where others may be shown."""
        return title

    def alarm(self, kind: str, title: str) -> list[AlarmGraph]:
        """Return the graph of an alarm, where lines could be those of another endpoint."""
        return []

    def sections(self, suffix: str = "") -> Iterator[Section]:
        """Yield those that any of the endpoints has something to show in."""
        queued = [item.endpoint.asynchronous is not None for item, _ in self.pairs]
        yield Section(title=f"Latency and failures{suffix}", widgets=self._latency(all(queued)))
        if not all(queued):
            yield Section(title=f"Load{suffix}", widgets=self._load())
        if any(queued):
            yield Section(title=self.title("Queue", "asynchronous"), widgets=self._queue())
        yield Section(title=f"Hosts{suffix}", widgets=self._hosts(all(queued)))
        if any(deployment.multi_model for deployment, _ in self.pairs):
            yield Section(
                title=self.title("Models in memory", "multi-model"),
                widgets=graphs.cache_graphs(self.of),
            )

    def _latency(self, is_queue: bool) -> list[Graph | AlarmGraph]:
        whole = all(item.endpoint.metrics is not None for item, _ in self.pairs)
        levels = [*self.lines(lines.slo_lines), *self.own(lines.drift_lines)]
        return [
            graphs.latency(self.of, levels, overhead=not is_queue, whole=whole),
            *self.alarm("latency", "p99 of the model against the SLO, microseconds"),
            *self.alarm("drift", "p99 of the model against its benchmark, microseconds"),
            graphs.failed_share(self.of, graphs.ERRORS[is_queue:]),
            graphs.failed_count(self.of, graphs.ERRORS[is_queue:]),
        ]

    def _load(self) -> list[Graph | AlarmGraph]:
        each = self.lines(lines.capacity_lines, lines.target_lines)
        return [
            graphs.requests(self.of),
            graphs.requests_of_each(self.of, each),
            *self.alarm("saturation", "Requests of each instance against the measured capacity"),
            graphs.instances(self.of, self.own(lines.count_lines)),
            *self.alarm("ceiling", "Instances, while each has more requests than scaling aims at"),
            *self.cost(),
        ]

    def cost(self) -> list[Graph]:
        """Return the graph of what the variant costs, where the price is known."""
        ((deployment, variant),) = self.pairs
        prices = lines.instance_prices(deployment, variant)
        if prices is None:
            return []
        return [graphs.cost(self.of, prices, self.own(lines.cost_lines))]

    def _queue(self) -> list[Graph | AlarmGraph]:
        backlog, waits = self.own(lines.backlog_lines), self.own(lines.wait_lines)
        title = "Age of the oldest request against the alarm, s"
        return [
            *graphs.queue_graphs(self.of, backlog, waits),
            *self.alarm("oldest-request", title),
        ]

    def _hosts(self, is_queue: bool) -> list[Graph | AlarmGraph]:
        gpus = lines.gpu_counts([variant for _, variant in self.pairs])
        memory = self.own(lines.memory_lines)
        found: list[Graph | AlarmGraph] = []
        if gpus:
            found.append(graphs.gpu_use(self.of, gpus, self.own(lines.gpu_lines)))
            found.append(graphs.gpu_memory(self.of, gpus, memory))
        if len(gpus) > 1:
            title = "GPU memory against the alarm, % of each GPU"
            found += self.alarm("gpu-memory", title)
        vcpus = {
            variant.instance_type.vcpus if len(variant.pools) == 1 else None
            for _, variant in self.pairs
        }
        cores = vcpus.pop() if len(vcpus) == 1 else None
        found.append(graphs.cpu(self.of, cores, self.own(lines.cpu_lines)))
        disk = [*memory, *self.own(lines.disk_lines)]
        found.append(graphs.memory_and_disk(self.of, disk))
        if is_queue:
            found.append(graphs.reported_instances(self.of, self.own(lines.count_lines)))
        return found
