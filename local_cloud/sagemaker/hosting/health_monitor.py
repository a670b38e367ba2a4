"""Replaces instances whose server has ended or fails its health check."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable

from local_cloud.sagemaker.hosting.fleet import Fleet

LOOK_SECONDS = 0.2
PING_EVERY_SECONDS = 5.0
logger = logging.getLogger("roundhouse.fleet")


def inspect(fleet: Fleet, *, pinging: bool) -> None:
    """Remove instances whose server ended, and with `pinging` those that fail /ping."""
    for variant in fleet.variants:
        for instance in tuple(variant.instances):
            if instance.has_ended() or (pinging and instance.is_sick()):
                variant.drop(instance)


class HealthMonitor:
    """Inspects and mends fleets from a thread of its own."""

    def __init__(self, fleets: Callable[[], Iterable[Fleet]]) -> None:
        self._fleets = fleets
        self._ended = threading.Event()

    def start(self) -> None:
        """Begin to monitor."""
        threading.Thread(target=self._run, name="health-monitor", daemon=True).start()

    def stop(self) -> None:
        """Stop monitoring; replacements under way go on."""
        self._ended.set()

    def _run(self) -> None:
        pinged = time.monotonic()
        while not self._ended.wait(LOOK_SECONDS):
            pinging = time.monotonic() - pinged >= PING_EVERY_SECONDS
            pinged = time.monotonic() if pinging else pinged
            for fleet in self._fleets():
                try:
                    inspect(fleet, pinging=pinging)
                    for variant in fleet.variants:
                        variant.mend()
                except Exception:
                    logger.exception("endpoint config %s", fleet.config_name)
