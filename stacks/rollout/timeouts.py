"""How long an endpoint's instances may take, from what the lock measured."""

from __future__ import annotations

import math
from collections.abc import Sequence

from onboarding.deployment import Variant
from onboarding.lock import LockEntry
from onboarding.manifest import Manifest

DOWNLOAD_MIB_PER_SECOND = 20
START_UP_SECONDS = 60
OWN_START_UP_SECONDS = 480
"""What SageMaker gives a container of itself ("the 8 minutes after startup", developer guide,
"Custom inference code with hosting
services"). Never less: a load is measured where everything has been read once, and a host that has
just pulled an image of
gigabytes reads CUDA and TensorRT from its disk for the first time."""
PROVISION_SECONDS = 1800
"""SageMaker's search for instances of a type; no more than that in each pool together."""
SHORTEST_TIMEOUT, LONGEST_TIMEOUT = 60, 3600


def start_up_timeout_seconds(manifests: Sequence[Manifest]) -> int:
    """A minute for the container, and four times the slowest measured load; SageMaker's own 480 at
    least, 3600 at most.
    """
    slowest = max((manifest.load_seconds for manifest in manifests), default=0.0)
    return max(OWN_START_UP_SECONDS, _timeout(START_UP_SECONDS + 4 * slowest))


def download_timeout_seconds(sizes: Sequence[int]) -> int:
    """The largest archive at 20 MiB/s, and a minute; within SageMaker's 60 to 3600."""
    return _timeout(START_UP_SECONDS + max(sizes, default=0) / 2**20 / DOWNLOAD_MIB_PER_SECOND)


def variant_timeouts(variant: Variant) -> tuple[int, int]:
    """Seconds for (download, start-up) of a variant: those of its largest and of its slowest
    engine, whatever pool serves it.
    """
    entries = locked_entries(variant)
    return (
        download_timeout_seconds([entry.archive.size_bytes for entry in entries]),
        start_up_timeout_seconds([entry.manifest for entry in entries]),
    )


def locked_entries(variant: Variant) -> tuple[LockEntry, ...]:
    """The lock entry of every engine of a variant that has one."""
    targets = [target for pool in variant.pools for target in pool.targets]
    return tuple(target.lock_entry for target in targets if target.lock_entry is not None)


def ready_seconds(variant: Variant) -> int:
    """The longest that one more instance may take until it answers."""
    return PROVISION_SECONDS + sum(variant_timeouts(variant))


def _timeout(seconds: float) -> int:
    return min(LONGEST_TIMEOUT, max(SHORTEST_TIMEOUT, math.ceil(seconds)))
