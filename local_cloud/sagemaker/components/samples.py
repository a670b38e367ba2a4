"""Metrics of inference components that are sampled: requests in flight, and minutes without any."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ministack.core.responses import request_scope

from local_cloud.sagemaker.components.component import Component
from local_cloud.sagemaker.metrics.invocation_metrics import ComponentMetrics


class ComponentSamples:
    """Samples all components; those that `is_scaled` names have a value in every minute."""

    def __init__(
        self, components: Mapping[str, Component], is_scaled: Callable[[str], bool]
    ) -> None:
        self._components, self._is_scaled = components, is_scaled

    def copies(self, name: str) -> int:
        """Return how many copies answer for a component of the present account."""
        component = self._components.get(name)
        base = None if component is None else self._components.get(component.base or name)
        return 0 if base is None else len(base.copies)

    def sample_requests(self) -> None:
        """Record each copy's concurrent requests; of components without scaling only if any."""
        for component, metrics in self._all():
            counts = [copy.in_flight for copy in tuple(component.copies)]
            if any(counts) or self._is_scaled(component.name):
                for count in counts:
                    metrics.record_concurrency(count)

    def sample_minute(self, begun: float, ended: float) -> None:
        """Record zero for scaled components without an invocation in a minute."""
        for component, metrics in self._all():
            if self._is_scaled(component.name):
                metrics.record_none(begun, ended)

    def _all(self) -> Iterator[tuple[Component, ComponentMetrics]]:
        """Yield the components of every account, each in its own scope."""
        for (account, region, name), component in list(
            self._components._data.items()  # type: ignore[attr-defined]
        ):
            with request_scope(account, region):
                yield component, ComponentMetrics(component=name)
