"""Looks after running instances.

One whose server ended or is sick is asked no more, and replaced where its fleet is kept.
"""

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
    """Removes instances whose server ended, and with `pinging` those that fail /ping."""
    for variant in fleet.variants:
        for instance in tuple(variant.instances):
            if instance.has_ended() or (pinging and instance.is_sick()):
                variant.drop(instance)


class HealthMonitor:
    """Inspects and mends the fleets that `kept_fleets` names, from a thread of its own."""

    def __init__(self, kept_fleets: Callable[[], Iterable[Fleet]]) -> None:
        self._kept_fleets = kept_fleets
        self._ended = threading.Event()

    def start(self) -> None:
        """Begins to look after them."""
        threading.Thread(target=self._look, name="caretaker", daemon=True).start()

    def stop(self) -> None:
        """Looks no more; what is mended already goes on."""
        self._ended.set()

    def _look(self) -> None:
        pinged = time.monotonic()
        while not self._ended.wait(LOOK_SECONDS):
            pinging = time.monotonic() - pinged >= PING_EVERY_SECONDS
            pinged = time.monotonic() if pinging else pinged
            for fleet in self._kept_fleets():
                self._look_after(fleet, pinging=pinging)

    def _look_after(self, fleet: Fleet, *, pinging: bool) -> None:
        """Inspects and repairs one fleet; an error is logged and does not stop the others."""
        try:
            inspect(fleet, pinging=pinging)
            for variant in fleet.variants:
                variant.mend()
        except Exception:
            logger.exception("endpoint config %s", fleet.config_name)
