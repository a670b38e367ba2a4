"""Copies of requests for shadow variants; their answers and faults go nowhere."""

from __future__ import annotations

import contextvars
import logging
import random
import threading
from concurrent.futures import ThreadPoolExecutor

from local_cloud.containers.container import NotListening
from local_cloud.protocol.errors import AwsError
from local_cloud.sagemaker.hosting.endpoint import Served
from local_cloud.sagemaker.hosting.fleet import VariantFleet
from local_cloud.sagemaker.hosting.instance import NoInstance
from local_cloud.sagemaker.runtime.invocation import Invocation

THREADS = 8
WAITING = 64
logger = logging.getLogger("roundhouse.shadow")


class Shadows:
    """Sends copies from threads of their own; when too many wait, further ones are not sent."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="shadow")
        self._waiting = threading.Semaphore(WAITING)

    def copy(self, served: Served, invocation: Invocation) -> None:
        """Sends copies to shadow variants, by their weight against the production variant's."""
        for shadow in served.fleet.shadow.values():
            share = shadow_share(shadow.weight, served.variant.weight)
            if random.random() < share and self._waiting.acquire(blocking=False):
                self._threads.submit(contextvars.copy_context().run, self._send, shadow, invocation)

    def _send(self, shadow: VariantFleet, invocation: Invocation) -> None:
        try:
            with shadow.serving() as instance:
                invocation.send(instance)
        except (NoInstance, NotListening, AwsError) as error:
            logger.debug("shadow variant %s did not answer: %s", shadow.name, error)
        finally:
            self._waiting.release()


def shadow_share(shadow_weight: float, production_weight: float) -> float:
    """Return the share of requests that a shadow variant gets a copy of, at most all."""
    if production_weight <= 0:
        return float(shadow_weight > 0)
    return min(1.0, shadow_weight / production_weight)
