"""The local cloud's minutes.

When one ends, what was gathered is published, alarms are evaluated, and scaling acts.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from local_cloud.application_autoscaling.autoscaler import Autoscaler
from local_cloud.cloudwatch import metric_store, patches
from local_cloud.cloudwatch.alarms import Alarms
from local_cloud.sagemaker.hosting.endpoints import Endpoints
from local_cloud.sagemaker.metrics.host_metrics import Hosts, running_count
from local_cloud.sagemaker.metrics.invocation_metrics import (
    HIGH_RESOLUTION_SHARE,
    HOST_NAMESPACE,
    NAMESPACE,
    publisher,
)
from local_cloud.settings import Settings

SHORTEST_STEP_SECONDS = 0.05
KEPT_MINUTES, KEPT_SECONDS = 180, 3600.0
"""CloudWatch keeps fine datapoints for three hours.

Where minutes are short an hour of real time is kept.
"""
logger = logging.getLogger("roundhouse.clock")


class Clock:
    """Steps through the minutes in a thread of its own.

    A sixth of a minute is the finest that anything is published in.
    """

    def __init__(self, settings: Settings, endpoints: Endpoints, autoscaler: Autoscaler) -> None:
        self._minute = settings.seconds_per_minute
        self._hosts = Hosts(endpoints.endpoints, autoscaler.is_tracked)
        self._alarms = Alarms(
            seconds_per_minute=settings.seconds_per_minute, act=autoscaler.take_alarm_action
        )
        self._autoscaler = autoscaler
        self._ended = threading.Event()
        self._seen = (0, 0)
        publisher.seconds_per_minute = settings.seconds_per_minute
        publisher.running = lambda endpoint, variant: running_count(
            endpoints.endpoints, endpoint, variant
        )

    def start(self) -> None:
        """Takes over MiniStack's alarms and queries, and begins."""
        patches.install(publisher.flush)
        threading.Thread(target=self._run, name="clock", daemon=True).start()

    def stop(self) -> None:
        """Steps no more."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(max(self._minute / 60, SHORTEST_STEP_SECONDS)):
            self.step(time.time())

    def step(self, now: float) -> None:
        """Does what is due at a time, in seconds since the epoch."""
        minute, sixth = int(now // self._minute), int(now // (self._minute * HIGH_RESOLUTION_SHARE))
        self._run_part(self._hosts.sample_requests)
        if sixth == self._seen[1]:
            return
        if minute != self._seen[0]:
            begun = (minute - 1) * self._minute
            self._run_part(
                lambda: self._hosts.sample_minute(
                    begun, minute * self._minute - self._minute * 1e-6
                )
            )
            self._run_part(
                lambda: metric_store.forget(
                    (NAMESPACE, HOST_NAMESPACE),
                    now - max(KEPT_MINUTES * self._minute, KEPT_SECONDS),
                )
            )
        self._seen = (minute, sixth)
        publisher.flush(now)
        self._run_part(lambda: self._alarms.sweep(now))
        self._run_part(lambda: self._autoscaler.step(now))

    def _run_part(self, work: Callable[[], None]) -> None:
        """Runs one part; a fault in it is told and does not end the minutes."""
        try:
            work()
        except Exception:
            logger.exception("a minute's work failed")
