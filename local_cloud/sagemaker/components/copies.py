"""Copies of inference components: placed on an instance, started, given adapters, and ended."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from local_cloud.containers.archive import ArchiveError
from local_cloud.protocol.errors import AwsError
from local_cloud.sagemaker.components.component import Component, Spec
from local_cloud.sagemaker.hosting.fleet import Fleet, VariantFleet
from local_cloud.sagemaker.hosting.instance import (
    Instance,
    Launch,
    ServerError,
    end_together,
    fetch_model_data,
    start_instance,
    start_together,
)
from local_cloud.sagemaker.hosting.machine import Machine, Requirements, copy_requirements
from local_cloud.settings import Settings

GRACE_SECONDS = 30.0
"""Between SIGTERM and SIGKILL. Source: SageMaker developer guide,
your-algorithms-inference-code.
"""
ADAPTER_SECONDS = 120.0


class NotPlaced(ServerError):
    """No instance holds one more copy, and none may be added."""


def machines(variant: VariantFleet) -> tuple[Machine, ...]:
    """Return the instances of a variant that take copies."""
    return tuple(item for item in tuple(variant.instances) if isinstance(item, Machine))


def fitting_machine(variant: VariantFleet, needed: Requirements) -> Machine | None:
    """Return the least used instance with room."""

    def use(machine: Machine) -> float:
        return machine.taken_capacity.accelerators or len(machine.placed)

    return min(
        (machine for machine in machines(variant) if machine.holds(needed)), key=use, default=None
    )


def add_machine(variant: VariantFleet) -> None:
    """Start one more instance where managed instance scaling allows it."""
    scaling = variant.spec.get("ManagedInstanceScaling") or {}
    most = scaling.get("MaxInstanceCount", 0) if scaling.get("Status") == "ENABLED" else 0
    if len(variant.instances) >= most:
        return
    variant.desired = len(variant.instances) + 1
    try:
        variant.fill()
    except BaseException:
        variant.desired = len(variant.instances)
        raise


@dataclass(frozen=True, kw_only=True)
class Copies:
    """Starts and ends copies; `find_model` raises AwsError."""

    settings: Settings
    find_model: Callable[[str], Mapping[str, Any]]
    _placing: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def reserve(
        self, component: Component, specification: Spec, fleet: Fleet
    ) -> Iterator[tuple[Machine, object]]:
        """Yield an instance with room for one copy, and the key of its place until it has started.

        Raises NotPlaced, and what the start of a further instance raises.
        """
        variant, needed = fleet.production[component.variant], copy_requirements(specification)
        key = object()
        with self._placing:
            machine = fitting_machine(variant, needed)
            if machine is None:
                add_machine(variant)
                machine = fitting_machine(variant, needed)
            if machine is None:
                raise NotPlaced(
                    "There is not enough room for one more copy of inference component "
                    f"{component.name}: it needs {needed.accelerators:g} accelerators, "
                    f"{needed.cpu_cores:g} CPU cores and {needed.memory_mb:g} MB on one of the "
                    f"{len(variant.instances)} instances of variant {variant.name}, and "
                    "ManagedInstanceScaling allows no further instance."
                )
            machine.placed[key] = needed
        try:
            yield machine, key
        finally:
            with self._placing:
                machine.placed.pop(key, None)

    def release_unused(self, fleet: Fleet) -> None:
        """Stop the instances without a copy, down to the fewest that their variant keeps."""
        with self._placing:
            for variant in fleet.production.values():
                scaling = variant.spec.get("ManagedInstanceScaling") or {}
                used = [machine for machine in machines(variant) if not machine.is_unused]
                if scaling.get("Status") == "ENABLED":
                    variant.desired = max(len(used), scaling.get("MinInstanceCount", 1))
                    variant.desired = min(variant.desired, len(variant.instances))
                    variant.shrink()

    def start(
        self,
        component: Component,
        specification: Spec,
        fleet: Fleet,
        count: int,
        adapters: Sequence[Component] = (),
    ) -> list[Instance]:
        """Start copies, or none where one fails. Raises ServerError."""
        start = partial(self._start, component, specification, fleet, adapters)
        return start_together(start, count, partial(end_copies, grace_seconds=0.0))

    def _start(
        self,
        component: Component,
        specification: Spec,
        fleet: Fleet,
        adapters: Sequence[Component],
    ) -> Instance:
        with self.reserve(component, specification, fleet) as (machine, key):
            launch = Launch(
                variant={
                    "VariantName": component.variant,
                    **(specification.get("StartupParameters") or {}),
                },
                instance_type=machine.instance_type,
                model=self._model(specification),
                folder=machine.folder / f"{component.name}-{next(component.numbers)}",
                given_up=component.given_up,
            )
            copy = start_instance(launch, self.settings)
            try:
                for adapter in adapters:
                    load_adapter(copy, adapter)
            except BaseException:
                copy.terminate(0.0)
                raise
            with self._placing:
                machine.placed[copy] = machine.placed.pop(key)
            copy.release = partial(machine.placed.pop, copy, None)
            return copy

    def _model(self, specification: Spec) -> Mapping[str, Any]:
        """The model that a component names, or one of its own container."""
        name, container = specification.get("ModelName"), specification.get("Container")
        if container is None:
            try:
                return self.find_model(str(name))
            except AwsError as error:
                raise ServerError(error.message) from error
        definition = {"Image": container["Image"], "Environment": container.get("Environment")}
        url = container.get("ArtifactUrl")
        definition |= {} if url is None else {"ModelDataUrl": url}
        return {"ModelName": "", "PrimaryContainer": definition}


def end_copies(copies: Collection[Instance], grace_seconds: float = GRACE_SECONDS) -> None:
    """Send SIGTERM to copies, end what is left of them later, and free their room."""
    end_together([partial(copy.terminate, grace_seconds) for copy in copies])


def load_adapter(copy: Instance, adapter: Component) -> None:
    """Give a copy an adapter's files through its own route. Raises ServerError."""
    url = str(adapter.specification["Container"]["ArtifactUrl"])
    folder = copy.folder / "adapters" / adapter.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        fetch_model_data(url, folder)
    except (ArchiveError, OSError) as error:
        raise ServerError(str(error)) from error
    body = json.dumps({"name": adapter.name, "src": str(folder)}).encode()
    _adapter_request(copy, "POST", "/adapters", body)


def unload_adapter(copy: Instance, adapter: Component) -> None:
    """Make a copy forget an adapter. Raises ServerError."""
    _adapter_request(copy, "DELETE", f"/adapters/{adapter.name}", b"")


def _adapter_request(copy: Instance, method: str, path: str, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    try:
        response = copy.client.request(method, path, body, headers, ADAPTER_SECONDS)
    except (OSError, http.client.HTTPException) as error:
        raise ServerError(f"The container did not answer {method} {path} ({error}).") from error
    if response.status >= 300:
        reply = response.body.decode(errors="replace")[:300]
        raise ServerError(f"The container answered {method} {path} with {response.status}: {reply}")
