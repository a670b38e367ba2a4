"""The local cloud's minutes: capacities are sampled, alarms act, and scaling follows them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator

from local_cloud.account import of_every_account
from local_cloud.application_autoscaling.api import Scaling
from local_cloud.cloudwatch import alarms, metric_store
from local_cloud.cloudwatch.alarms import Alarms
from local_cloud.sagemaker.components.component import Component
from local_cloud.sagemaker.components.components import Components
from local_cloud.sagemaker.metrics import Metrics, component_metrics, variant_metrics
from local_cloud.settings import Settings
from onboarding.metrics import HOST, INVOCATIONS

SHORTEST_STEP_SECONDS = 0.05
KEPT_MINUTES, KEPT_SECONDS = 180, 3600.0
"""CloudWatch keeps fine datapoints for three hours; where minutes are short, an hour is kept."""
logger = logging.getLogger("roundhouse.clock")


class Clock:
    """Steps through sixths of a minute, the finest resolution of any metric, in its own thread."""

    def __init__(self, settings: Settings, components: Components, scaling: Scaling) -> None:
        self._minute = settings.seconds_per_minute
        self._components, self._scaling = components, scaling
        self._alarms = Alarms(seconds_per_minute=self._minute, act=scaling.take_alarm_action)
        self._ended = threading.Event()
        self._last = (0, 0)

    def start(self) -> None:
        """Replace MiniStack's alarms, and begin."""
        alarms.install()
        threading.Thread(target=self._run, name="clock", daemon=True).start()

    def stop(self) -> None:
        """Step no more."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(max(self._minute / 60, SHORTEST_STEP_SECONDS)):
            self.step(time.time())

    def step(self, now: float) -> None:
        """Do what is due at a time, in seconds since the epoch."""
        minute, sixth = int(now // self._minute), int(now // metric_store.SLOT_SECONDS)
        _run_part(self._sample_requests)
        if sixth == self._last[1]:
            return
        if minute != self._last[0]:
            _run_part(self._sample_minute, (minute - 1e-6) * self._minute)
            forgotten = now - max(KEPT_MINUTES * self._minute, KEPT_SECONDS)
            _run_part(metric_store.forget, (INVOCATIONS, HOST), forgotten)
        self._last = (minute, sixth)
        _run_part(self._alarms.sweep, now)
        _run_part(self._scaling.step, now)

    def _sample_requests(self) -> None:
        """Record each copy's concurrent requests; of components without scaling only if any."""
        for component, metrics in self._all_components():
            counts = [copy.in_flight for copy in tuple(component.copies)]
            if any(counts) or self._scaling.registry.scales_component(component.name):
                for count in counts:
                    metrics.add("ConcurrentRequestsPerCopy", count)

    def _sample_minute(self, ended: float) -> None:
        """Record what a minute that has ended leaves of instances and of what is scaled."""
        for endpoint in of_every_account(self._components.endpoints.endpoints):
            scaled = self._scaling.registry.variants(endpoint.name)
            for variant in (item for fleet in endpoint.fleets for item in fleet.variants):
                metrics = variant_metrics(endpoint.name, variant.name)
                for instance in tuple(variant.instances):
                    metrics.record_memory(instance.processes, ended)
                if variant.name in scaled and not endpoint.is_asynchronous:
                    metrics.record_none(ended)
        for component, metrics in self._all_components():
            if self._scaling.registry.scales_component(component.name):
                metrics.record_none(ended)

    def _all_components(self) -> Iterator[tuple[Component, Metrics]]:
        for component in of_every_account(self._components.components):
            yield component, component_metrics(component.name)


def _run_part(work: Callable[..., None], *arguments: object) -> None:
    """Run one part; its failure is logged and does not end the minutes."""
    try:
        work(*arguments)
    except Exception:
        logger.exception("a minute's work failed")
