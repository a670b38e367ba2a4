"""An inference component as DescribeInferenceComponent shows it, and its copies, which answer."""

from __future__ import annotations

import hashlib
import random
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from local_cloud.protocol.errors import present_fields
from local_cloud.sagemaker.hosting.fleet import NoInstance
from local_cloud.sagemaker.hosting.instance import Instance

IN_PROGRESS = ("Creating", "Updating", "Deleting")
REASON_CHARACTERS = 1024
CONCURRENCY_THRESHOLD = 4
"""Requests beyond the least busy copy's from which a prefix no longer decides; AWS's is unknown."""
Spec = Mapping[str, Any]


@dataclass(kw_only=True, eq=False)
class Component:
    """An inference component's state; `endpoint` and `variant` name where its copies are placed."""

    name: str
    arn: str
    endpoint: str
    endpoint_arn: str
    variant: str
    specification: Spec
    desired: int
    status: str = "Creating"
    created: float = field(default_factory=time.time)
    modified: float = field(default_factory=time.time)
    failure_reason: str | None = None
    deployment_config: Spec | None = None
    copies: list[Instance] = field(default_factory=list)
    given_up: threading.Event = field(default_factory=threading.Event)
    settled: threading.Event = field(default_factory=threading.Event)
    changing: threading.RLock = field(default_factory=threading.RLock)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    _turn: threading.Lock = field(default_factory=threading.Lock)

    @property
    def base(self) -> str | None:
        """The component whose copies serve it, where it is an adapter."""
        name = self.specification.get("BaseInferenceComponentName")
        return None if name is None else str(name)

    @property
    def is_in_progress(self) -> bool:
        """Whether a change is under way."""
        return self.status in IN_PROGRESS

    @property
    def model_name(self) -> str | None:
        """The model that it names, if any."""
        return self.specification.get("ModelName")

    def become(self, status: str, failure_reason: str | None = None) -> None:
        """Set the status; a final one wakes those who wait."""
        self.failure_reason = None if failure_reason is None else failure_reason[:REASON_CHARACTERS]
        if status in IN_PROGRESS:
            self.settled.clear()
        self.status, self.modified = status, time.time()
        if status not in IN_PROGRESS:
            self.settled.set()

    def add(self, copies: Collection[Instance]) -> None:
        """Let copies take requests."""
        with self._turn:
            self.copies.extend(copies)

    def remove(self, copies: Collection[Instance]) -> None:
        """Send copies no further request."""
        with self._turn:
            self.copies = [copy for copy in self.copies if copy not in copies]

    @contextmanager
    def serving(
        self, routing: Spec, body: bytes, avoided: Collection[Instance] = ()
    ) -> Iterator[Instance]:
        """Pick a copy by the variant's routing strategy. Raises NoInstance."""
        with self._turn:
            candidates = [copy for copy in self.copies if copy not in avoided]
            if not candidates:
                raise NoInstance(f"inference component {self.name} has no copy")
            chosen = _choose(candidates, routing, body)
            chosen.in_flight += 1
        try:
            yield chosen
        finally:
            with self._turn:
                chosen.in_flight -= 1


def _choose(candidates: list[Instance], routing: Spec, body: bytes) -> Instance:
    """RANDOM, the least busy, or the one that had the prefix before unless it is much busier."""
    strategy = routing.get("RoutingStrategy", "RANDOM")
    if strategy == "RANDOM":
        return random.choice(candidates)
    least = min(copy.in_flight for copy in candidates)
    if strategy == "PREFIX_AWARE":
        config = routing.get("PrefixAwareRoutingConfig") or {}
        prefix = hashlib.sha256(body[: config.get("PrefixLength", 1024)]).digest()
        by_prefix = max(
            candidates, key=lambda copy: hashlib.sha256(prefix + copy.id.encode()).digest()
        )
        threshold = config.get("ConcurrencyThreshold", CONCURRENCY_THRESHOLD)
        if by_prefix.in_flight - least < threshold:
            return by_prefix
    return random.choice([copy for copy in candidates if copy.in_flight == least])


def summary(component: Component) -> Spec:
    """Return a component as lists show it."""
    return {
        "InferenceComponentName": component.name,
        "InferenceComponentArn": component.arn,
        "EndpointName": component.endpoint,
        "EndpointArn": component.endpoint_arn,
        "VariantName": component.variant,
        "InferenceComponentStatus": component.status,
        "CreationTime": component.created,
        "LastModifiedTime": component.modified,
    }


def description(component: Component, running: int) -> Spec:
    """Return a component in full; `running` copies answer."""
    desired = running if component.base is not None else component.desired
    return {
        **summary(component),
        "Specification": _deployed(component.specification),
        "RuntimeConfig": {"DesiredCopyCount": desired, "CurrentCopyCount": running},
        **present_fields(
            FailureReason=component.failure_reason,
            LastDeploymentConfig=component.deployment_config,
        ),
    }


def _deployed(specification: Spec) -> Spec:
    """The specification with its image as Describe shows it."""
    container = specification.get("Container")
    if container is None or container.get("Image") is None:
        return specification
    image = container["Image"]
    resolved = {"ResolvedImage": image} if "@sha256:" in image else {}
    rest = {name: value for name, value in container.items() if name != "Image"}
    return {
        **specification,
        "Container": {"DeployedImage": {"SpecifiedImage": image, **resolved}, **rest},
    }
