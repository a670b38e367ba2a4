"""The local cloud's minutes: at the end of one metrics are published and alarms act."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial

from local_cloud.application_autoscaling.api import Scaling
from local_cloud.cloudwatch import alarms, metric_store
from local_cloud.cloudwatch.alarms import Alarms
from local_cloud.sagemaker.components.components import Components
from local_cloud.sagemaker.components.samples import ComponentSamples
from local_cloud.sagemaker.metrics.host_metrics import Hosts, running_count
from local_cloud.sagemaker.metrics.invocation_metrics import HIGH_RESOLUTION_SHARE, publisher
from local_cloud.settings import Settings
from onboarding.metrics import HOST, INVOCATIONS

SHORTEST_STEP_SECONDS = 0.05
KEPT_MINUTES, KEPT_SECONDS = 180, 3600.0
"""CloudWatch keeps fine datapoints for three hours; where minutes are short, an hour is kept."""
logger = logging.getLogger("roundhouse.clock")


class Clock:
    """Steps through sixths of a minute, the finest resolution of any metric, in its own thread."""

    def __init__(
        self,
        settings: Settings,
        components: Components,
        scaling: Scaling,
    ) -> None:
        self._minute = settings.seconds_per_minute
        endpoints, registry = components.endpoints, scaling.registry
        self._hosts = Hosts(endpoints.endpoints, registry.variants)
        self._components = ComponentSamples(components.components, registry.scales_component)
        self._alarms = Alarms(seconds_per_minute=self._minute, act=scaling.take_alarm_action)
        self._scaling = scaling
        self._ended = threading.Event()
        self._last = (0, 0)
        publisher.seconds_per_minute = self._minute
        publisher.running = partial(running_count, endpoints.endpoints)
        publisher.copies = self._components.copies

    def start(self) -> None:
        """Replace MiniStack's alarms and queries, and begin."""
        alarms.install()
        metric_store.install(publisher.flush)
        threading.Thread(target=self._run, name="clock", daemon=True).start()

    def stop(self) -> None:
        """Step no more."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(max(self._minute / 60, SHORTEST_STEP_SECONDS)):
            self.step(time.time())

    def step(self, now: float) -> None:
        """Do what is due at a time, in seconds since the epoch."""
        minute, sixth = int(now // self._minute), int(now // (self._minute * HIGH_RESOLUTION_SHARE))
        _run_part(self._hosts.sample_requests)
        _run_part(self._components.sample_requests)
        if sixth == self._last[1]:
            return
        if minute != self._last[0]:
            begun, ended = (minute - 1) * self._minute, (minute - 1e-6) * self._minute
            forgotten = now - max(KEPT_MINUTES * self._minute, KEPT_SECONDS)
            _run_part(self._hosts.sample_minute, begun, ended)
            _run_part(self._components.sample_minute, begun, ended)
            _run_part(metric_store.forget, (INVOCATIONS, HOST), forgotten)
        self._last = (minute, sixth)
        publisher.flush(now)
        _run_part(self._alarms.sweep, now)
        _run_part(self._scaling.step, now)


def _run_part(work: Callable[..., None], *arguments: object) -> None:
    """Run one part; its failure is logged and does not end the minutes."""
    try:
        work(*arguments)
    except Exception:
        logger.exception("a minute's work failed")
