"""An inference component as DescribeInferenceComponent shows it, and its copies, which answer."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from local_cloud.protocol.errors import present_fields
from local_cloud.sagemaker.hosting.changes import Changing
from local_cloud.sagemaker.hosting.instance import Instance, in_use

Spec = Mapping[str, Any]


@dataclass(kw_only=True, eq=False)
class Component(Changing):
    """An inference component's state; `endpoint` and `variant` name where its copies are placed."""

    endpoint: str
    endpoint_arn: str
    variant: str
    specification: Spec
    desired: int
    copies: list[Instance] = field(default_factory=list)
    given_up: threading.Event = field(default_factory=threading.Event)
    changing: threading.RLock = field(default_factory=threading.RLock)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    retry_at: float = 0.0
    _turn: threading.Lock = field(default_factory=threading.Lock)

    @property
    def base(self) -> str | None:
        """The component whose copies serve it, where it is an adapter."""
        name = self.specification.get("BaseInferenceComponentName")
        return None if name is None else str(name)

    def add(self, copies: Collection[Instance]) -> None:
        """Let copies take requests."""
        with self._turn:
            self.copies.extend(copies)

    def remove(self, copies: Collection[Instance]) -> None:
        """Send copies no further request."""
        with self._turn:
            self.copies = [copy for copy in self.copies if copy not in copies]

    @contextmanager
    def serving(self, routing: Spec, avoided: Collection[Instance] = ()) -> Iterator[Instance]:
        """Pick a copy by the variant's routing strategy. Raises NoInstance."""
        with in_use(lambda: self.copies, avoided, routing, self._turn) as copy:
            yield copy


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
        "Specification": component.specification,
        "RuntimeConfig": {"DesiredCopyCount": desired, "CurrentCopyCount": running},
        **present_fields(
            FailureReason=component.failure_reason,
            LastDeploymentConfig=component.deployment_config,
        ),
    }
